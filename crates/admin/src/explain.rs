//! What is asked and answered about the life of one request.

use serde::{Deserialize, Serialize};

use crate::answer::Refusal;

/// A request that is made in order to see what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// As clients ask for it: absolute, http or https.
    pub url: String,
    /// The method.
    #[serde(default = "get")]
    pub method: String,
    /// Header fields in order, names and values.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
}

/// What became of a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Explanation {
    /// The status that a client would have got.
    pub status: u16,
    /// The `Cache-Status` that a client would have got.
    pub cache_status: String,
    /// Whether the response came to its end.
    pub complete: bool,
    /// The decisions, in the order in which they were made.
    pub findings: Vec<Finding>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Finding {
    /// Which step of the exchange made it, such as `reuse`.
    pub step: String,
    /// The decision, in a sentence.
    pub says: String,
    /// The section behind it; absent for a choice of the operator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// What it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
}

/// A value that a decision was made from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Value {
    /// As the specification names it, such as `freshness_lifetime`.
    pub name: String,
    /// With its unit.
    pub value: String,
    /// The section that defines it; absent where none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub section: String,
}

impl Question {
    pub(crate) fn read(query: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        let bad = |message: String| Refusal::ParametersUnusable { message };
        if query.is_some_and(|query| !query.is_empty()) {
            return Err(bad("give the parameters in the body, not in the query".to_owned()));
        }
        if body.is_empty() {
            return Err(bad("`url` is missing: send {\"url\": \"http://..\"}".to_owned()));
        }
        serde_json::from_slice(body).map_err(|error| bad(format!("the body cannot be used: {error}")))
    }
}

fn get() -> String {
    "GET".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions() {
        let check = |query, body: &str, want: Result<&str, &str>| match (
            Question::read(query, body.as_bytes()),
            want,
        ) {
            (Ok(question), Ok(shown)) => assert_eq!(format!("{question:?}"), shown),
            (Err(Refusal::ParametersUnusable { message }), Err(part)) => {
                assert!(message.contains(part), "{message} lacks {part}");
            }
            (read, want) => panic!("{body}: {read:?}, not {want:?}"),
        };
        let plain = r#"Question { url: "http://h/", method: "GET", fields: [] }"#;
        check(None, r#"{"url":"http://h/"}"#, Ok(plain));
        let full = r#"Question { url: "http://h/", method: "HEAD", fields: [("a", "b"), ("a", "c")] }"#;
        check(Some(""), r#"{"url":"http://h/","method":"HEAD","fields":[["a","b"],["a","c"]]}"#, Ok(full));
        check(Some("url=http://h/"), "", Err("not in the query"));
        check(None, "", Err("`url` is missing"));
        check(None, "{}", Err("missing field `url`"));
        check(None, r#"{"url":"http://h/","field":[]}"#, Err("unknown field `field`"));
        check(None, r#"{"url":"http://h/","fields":[["a"]]}"#, Err("invalid length 1"));
    }
}
