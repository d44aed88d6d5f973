//! The parameters of a purge, from a JSON body or from the query.

use gateway::PurgeMode;
use serde::Deserialize;

use crate::answer::Refusal;

/// What to purge.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) mode: PurgeMode,
}

impl PurgeRequest {
    pub(crate) fn read(query: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        match query {
            None | Some("") => Self::from_json(body),
            Some(_) if !body.is_empty() => {
                Err(bad("give the parameters in the body or in the query, not in both"))
            }
            Some(query) => Self::from_query(query),
        }
    }

    fn from_json(body: &[u8]) -> Result<Self, Refusal> {
        if body.is_empty() {
            return Err(bad("`url` is missing: send {\"url\": \"http://..\"} or ?url=http://.."));
        }
        serde_json::from_slice(body).map_err(|error| bad(&format!("the body cannot be used: {error}")))
    }

    fn from_query(query: &str) -> Result<Self, Refusal> {
        let (mut url, mut mode) = (None, None);
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decoded(value)
                .ok_or_else(|| bad(&format!("the value of `{name}` is not percent-encoded UTF-8")))?;
            let previous = match name {
                "url" => url.replace(value),
                "mode" => mode.replace(value),
                _ => return Err(unknown(name)),
            };
            if previous.is_some() {
                return Err(bad(&format!("`{name}` is there twice")));
            }
        }
        let url = url.ok_or_else(|| bad("`url` is missing"))?;
        let mode = match mode {
            None => PurgeMode::default(),
            Some(word) => {
                PurgeMode::from_word(&word).ok_or_else(|| bad("`mode` is neither `hard` nor `soft`"))?
            }
        };
        Ok(Self { url, mode })
    }
}

fn bad(message: &str) -> Refusal {
    Refusal::ParametersUnusable { message: message.to_owned() }
}

fn unknown(name: &str) -> Refusal {
    bad(&format!("`{name}` is no parameter: there are `url` and `mode`; write & inside the URL as %26"))
}

/// Plus signs stay: this is the query of RFC 3986, and URLs to purge do contain them.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex_digit(rest.next()?)? * 16 + hex_digit(rest.next()?)?,
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: Option<&str>, body: &str, want: Result<(&str, PurgeMode), &str>) {
        let read = PurgeRequest::read(query, body.as_bytes());
        match (read, want) {
            (Ok(request), Ok((url, mode))) => assert_eq!((&*request.url, request.mode), (url, mode)),
            (Err(Refusal::ParametersUnusable { message }), Err(part)) => {
                assert!(message.contains(part), "{message} lacks {part}");
            }
            (read, want) => panic!("{query:?} {body:?}: {read:?}, not {want:?}"),
        }
    }

    #[test]
    fn parameters() {
        use PurgeMode::{Hard, Soft};
        check(None, r#"{"url":"http://h/"}"#, Ok(("http://h/", Hard)));
        check(Some(""), r#"{"url":"http://h/","mode":"soft"}"#, Ok(("http://h/", Soft)));
        check(Some("url=http://h/?a=1"), "", Ok(("http://h/?a=1", Hard)));
        check(Some("mode=soft&url=http%3A%2f%2Fh/a+b%26c"), "", Ok(("http://h/a+b&c", Soft)));
        check(None, "", Err("`url` is missing"));
        check(None, "{", Err("EOF"));
        check(None, "{}", Err("missing field `url`"));
        check(None, r#"{"url":"http://h/"} x"#, Err("trailing"));
        check(None, r#"{"url":"http://h/","url":"http://i/"}"#, Err("duplicate field `url`"));
        check(None, r#"{"url":"http://h/","tag":"x"}"#, Err("unknown field `tag`"));
        check(None, r#"{"url":"http://h/","mode":"Hard"}"#, Err("unknown variant"));
        check(None, r#"{"url":7}"#, Err("invalid type"));
        check(Some("url=http://h/?a=1&b=2"), "", Err("`b` is no parameter"));
        check(Some("mode=hard"), "", Err("`url` is missing"));
        check(Some("url=a&url=b"), "", Err("twice"));
        check(Some("url=a&mode=no"), "", Err("neither"));
        check(Some("url=%f"), "", Err("percent-encoded"));
        check(Some("url=%ff"), "", Err("percent-encoded"));
        check(Some("url=a"), "{}", Err("not in both"));
    }
}
