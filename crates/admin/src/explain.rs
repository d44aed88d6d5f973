//! The parameters of an explanation, from a JSON body.

use caching::hop_by_hop;
use gateway::Question;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use serde::Deserialize;

use crate::answer::{Refusal, json_object};

/// The JSON form of a [`Question`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    /// Absolute URL as clients request it, with http or https.
    url: String,
    #[serde(default = "get")]
    method: String,
    /// Header fields in order, names and values.
    #[serde(default)]
    fields: Vec<(String, String)>,
}

pub(crate) fn read(query: Option<&str>, body: &[u8]) -> Result<Question, Refusal> {
    let bad = |message: String| Refusal::ParametersUnusable { message };
    if query.is_some_and(|query| !query.is_empty()) {
        return Err(bad("give the parameters in the body, not in the query".to_owned()));
    }
    if body.is_empty() {
        return Err(bad("`url` is missing: send {\"url\": \"http://..\"}".to_owned()));
    }
    let sent: Sent = json_object(body).map_err(bad)?;
    sent.parse().map_err(|reason| Refusal::RequestInvalid { reason })
}

/// Fields that describe the content of a message. A question has no content.
const OF_CONTENT: [&str; 3] = ["content-length", "expect", "trailer"];

impl Sent {
    /// Returns the question, or an error for a part that a request can't have.
    fn parse(&self) -> Result<Question, String> {
        let url: Uri = self.url.parse().map_err(|_| format!("{:?} isn't a URL", self.url))?;
        let method =
            Method::from_bytes(self.method.as_bytes()).map_err(|_| "this isn't a method".to_owned())?;
        let mut fields = HeaderMap::new();
        for (name, value) in &self.fields {
            let name: HeaderName = name.parse().map_err(|_| format!("{name:?} isn't a field name"))?;
            if hop_by_hop::is_connection_specific(name.as_str()) || OF_CONTENT.contains(&name.as_str()) {
                return Err(format!(
                    "{name} can't be explained: an explained request has no connection and no content"
                ));
            }
            if name == "host" {
                return Err("host can't be set: it is taken from `url`".to_owned());
            }
            let value = HeaderValue::from_str(value).map_err(|_| format!("this isn't a value of {name}"))?;
            fields.append(name, value);
        }
        Ok(Question { method, url, fields })
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
        let check = |query, body: &str, want: Result<&str, &str>| match (read(query, body.as_bytes()), want) {
            (Ok(question), Ok(shown)) => assert_eq!(format!("{question:?}"), shown),
            (
                Err(Refusal::ParametersUnusable { message } | Refusal::RequestInvalid { reason: message }),
                Err(part),
            ) => {
                assert!(message.contains(part), "{message} lacks {part}");
            }
            (read, want) => panic!("{body}: {read:?}, not {want:?}"),
        };
        let plain = "Question { method: GET, url: http://h/, fields: {} }";
        check(None, r#"{"url":"http://h/"}"#, Ok(plain));
        let full = r#"Question { method: HEAD, url: http://h/, fields: {"a": "b", "a": "c"} }"#;
        check(Some(""), r#"{"url":"http://h/","method":"HEAD","fields":[["a","b"],["a","c"]]}"#, Ok(full));
        check(Some("url=http://h/"), "", Err("not in the query"));
        check(None, "", Err("`url` is missing"));
        check(None, "{}", Err("missing field `url`"));
        check(None, r#"{"url":"http://h/","field":[]}"#, Err("unknown field `field`"));
        check(None, r#"{"url":"http://h/","fields":[["a"]]}"#, Err("invalid length 1"));
        check(None, r#"{"url":"http://h h/"}"#, Err("\"http://h h/\" isn't a URL"));
        check(None, r#"{"url":"http://h/","method":"G T"}"#, Err("isn't a method"));
        check(None, r#"{"url":"http://h/","fields":[["a b","c"]]}"#, Err("\"a b\" isn't a field name"));
        check(None, r#"{"url":"http://h/","fields":[["a","\n"]]}"#, Err("isn't a value of a"));
        check(None, r#"{"url":"http://h/","fields":[["Upgrade","a"]]}"#, Err("upgrade can't be explained"));
        check(None, r#"{"url":"http://h/","fields":[["Expect","a"]]}"#, Err("expect can't be explained"));
        check(None, r#"{"url":"http://h/","fields":[["Host","a"]]}"#, Err("host can't be set"));
        check(None, r#"["http://h/"]"#, Err("expected a JSON object"));
    }
}
