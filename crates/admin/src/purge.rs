//! The parameters of a purge, from a JSON body or from the query.

use gateway::{PurgeMode, PurgeOrder, PurgeWait, TagsMatch};
use serde::Deserialize;

use crate::answer::{Refusal, json_object};

/// The parameters in a body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    url: Option<String>,
    tags: Option<Vec<String>>,
    #[serde(rename = "match", default)]
    tags_match: Match,
    site: Option<String>,
    host: Option<String>,
    prefix: Option<String>,
    #[serde(default)]
    everything: bool,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    wait: Wait,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Match {
    #[default]
    Any,
    All,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Hard,
    Soft,
    Refresh,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wait {
    #[default]
    All,
    Near,
    None,
}

/// Parses the purge order.
pub(crate) fn read(query: Option<&str>, body: &[u8]) -> Result<PurgeOrder, Refusal> {
    match query {
        None | Some("") => from_json(body),
        Some(_) if !body.is_empty() => {
            Err(bad("give the parameters in the body or in the query, not in both"))
        }
        Some(query) => from_query(query),
    }
}

fn from_json(body: &[u8]) -> Result<PurgeOrder, Refusal> {
    if body.is_empty() {
        let says = "nothing to purge: send {\"url\": \"http://..\"} or ?url=http://.., or other parameters";
        return Err(bad(says));
    }
    let body: Body = json_object(body).map_err(|message| bad(&message))?;
    match &body.tags {
        // A program whose list of tags is empty must not purge the whole site.
        Some(tags) if tags.is_empty() => {
            Err(bad("`tags` is empty: leave it out to purge regardless of tags"))
        }
        _ => Ok(body.order()),
    }
}

impl Body {
    fn order(self) -> PurgeOrder {
        PurgeOrder {
            url: self.url,
            tags: self.tags.unwrap_or_default(),
            tags_match: match self.tags_match {
                Match::Any => TagsMatch::Any,
                Match::All => TagsMatch::All,
            },
            site: self.site,
            host: self.host,
            prefix: self.prefix,
            everything: self.everything,
            mode: match self.mode {
                Mode::Hard => PurgeMode::Hard,
                Mode::Soft => PurgeMode::Soft,
                Mode::Refresh => PurgeMode::Refresh,
            },
            dry_run: self.dry_run,
            wait: match self.wait {
                Wait::All => PurgeWait::All,
                Wait::Near => PurgeWait::Near,
                Wait::None => PurgeWait::None,
            },
        }
    }
}

fn from_query(query: &str) -> Result<PurgeOrder, Refusal> {
    let mut order = PurgeOrder::default();
    let mut seen: Vec<&str> = Vec::new();
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = percent_decoded(value)
            .ok_or_else(|| bad(&format!("the value of `{name}` is not percent-encoded UTF-8")))?;
        if name != "tag" && seen.contains(&name) {
            return Err(bad(&format!("`{name}` is given twice")));
        }
        seen.push(name);
        set(&mut order, name, value)?;
    }
    Ok(order)
}

fn set(order: &mut PurgeOrder, name: &str, value: String) -> Result<(), Refusal> {
    match name {
        "url" => order.url = Some(value),
        "tag" => order.tags.push(value),
        "site" => order.site = Some(value),
        "host" => order.host = Some(value),
        "prefix" => order.prefix = Some(value),
        "match" => {
            order.tags_match = match value.as_str() {
                "any" => TagsMatch::Any,
                "all" => TagsMatch::All,
                _ => return Err(bad("`match` is neither `any` nor `all`")),
            }
        }
        "everything" => order.everything = flag(name, &value)?,
        "dry_run" => order.dry_run = flag(name, &value)?,
        "mode" => {
            let mode = PurgeMode::from_word(&value);
            order.mode = mode.ok_or_else(|| bad("expected `mode` to be `hard`, `soft` or `refresh`"))?;
        }
        "wait" => {
            let wait = PurgeWait::from_word(&value);
            order.wait = wait.ok_or_else(|| bad("expected `wait` to be `all`, `near` or `none`"))?;
        }
        "" => return Err(bad("an empty parameter: write & inside the URL as %26")),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn flag(name: &str, value: &str) -> Result<bool, Refusal> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(&format!("`{name}` is neither `true` nor `false`"))),
    }
}

fn bad(message: &str) -> Refusal {
    Refusal::ParametersUnusable { message: message.to_owned() }
}

fn unknown(name: &str) -> Refusal {
    bad(&format!(
        "`{name}` is no parameter: there are `url`, `tag`, `match`, `site`, `host`, `prefix`, `everything`, `mode`, \
         `dry_run` and `wait`; write & inside the URL as %26"
    ))
}

/// A plus sign is not decoded to a space: RFC 3986 has no such rule, and URLs to purge contain plus signs.
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

    fn check(query: Option<&str>, body: &str, want: Result<PurgeOrder, &str>) {
        match (read(query, body.as_bytes()), want) {
            (Ok(order), Ok(want)) => assert_eq!(order, want),
            (Err(Refusal::ParametersUnusable { message }), Err(part)) => {
                assert!(message.contains(part), "{message} lacks {part}");
            }
            (read, want) => panic!("{query:?} {body:?}: {read:?}, not {want:?}"),
        }
    }

    fn of_url(url: &str, mode: PurgeMode) -> PurgeOrder {
        PurgeOrder { url: Some(url.to_owned()), mode, ..PurgeOrder::default() }
    }

    #[test]
    fn parameters() {
        use PurgeMode::{Hard, Refresh, Soft};
        check(None, r#"{"url":"http://h/"}"#, Ok(of_url("http://h/", Hard)));
        check(Some(""), r#"{"url":"http://h/","mode":"soft"}"#, Ok(of_url("http://h/", Soft)));
        check(Some("url=http://h/?a=1"), "", Ok(of_url("http://h/?a=1", Hard)));
        check(Some("mode=refresh&url=http%3A%2f%2Fh/a+b%26c"), "", Ok(of_url("http://h/a+b&c", Refresh)));
        check(None, "", Err("nothing to purge"));
        check(None, "{", Err("EOF"));
        check(None, r#"["http://h/"]"#, Err("expected a JSON object"));
        check(None, r#"{"url":"http://h/"} x"#, Err("trailing"));
        check(None, r#"{"url":"http://h/","url":"http://i/"}"#, Err("duplicate field `url`"));
        check(None, r#"{"url":"http://h/","tag":"x"}"#, Err("unknown field `tag`"));
        check(None, r#"{"url":"http://h/","mode":"Hard"}"#, Err("unknown variant"));
        check(None, r#"{"url":7}"#, Err("invalid type"));
        check(None, r#"{"tags":[],"site":"shop"}"#, Err("`tags` is empty"));
        check(Some("tags=a"), "", Err("`tags` is no parameter"));
        check(Some("tag=a&"), "", Err("an empty parameter"));
        check(Some("url=http://h/?a=1&b=2"), "", Err("`b` is no parameter"));
        check(Some("url=a&url=b"), "", Err("twice"));
        check(Some("url=a&mode=no"), "", Err("expected `mode`"));
        check(Some("url=a&wait=no"), "", Err("expected `wait`"));
        check(Some("url=%f"), "", Err("percent-encoded"));
        check(Some("url=%ff"), "", Err("percent-encoded"));
        check(Some("url=a"), "{}", Err("not in both"));
        check(Some("tag=a&match=most"), "", Err("neither `any`"));
        check(Some("everything"), "", Err("neither `true`"));
    }

    #[test]
    fn whatever_can_be_selected() {
        let order = PurgeOrder {
            tags: vec!["a".to_owned(), "b c".to_owned()],
            tags_match: TagsMatch::All,
            site: Some("s".to_owned()),
            host: Some("h".to_owned()),
            prefix: Some("/p".to_owned()),
            dry_run: true,
            wait: PurgeWait::Near,
            ..PurgeOrder::default()
        };
        let body = r#"{"tags":["a","b c"],"match":"all","site":"s","host":"h","prefix":"/p","dry_run":true,"wait":"near"}"#;
        check(None, body, Ok(order.clone()));
        check(
            Some("tag=a&tag=b%20c&match=all&site=s&host=h&prefix=/p&dry_run=true&wait=near"),
            "",
            Ok(order),
        );
        let all = PurgeOrder { everything: true, ..PurgeOrder::default() };
        check(None, r#"{"everything":true}"#, Ok(all.clone()));
        check(Some("everything=true"), "", Ok(all));
        check(None, "{}", Ok(PurgeOrder::default()));
        check(None, r#"{"tags":null}"#, Ok(PurgeOrder::default()));
    }
}
