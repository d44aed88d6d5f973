//! Converts the text of case files to the bytes that are sent: placeholders and defaults.

use super::date::{self, Form};
use super::{Answer, Case, Expect, Fails, Level, Rule, Step, Wanted};
use crate::message::Fields;

/// Values of placeholders in one step.
#[derive(Clone, Debug)]
pub struct Context {
    /// The path of the case.
    pub path: String,
    /// Start of the case, in seconds since 1970.
    pub start_s: i64,
    /// Start of the step, in seconds since 1970.
    pub now_s: i64,
    /// Number of the step, from 1.
    pub number: usize,
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Field lines, `Host` first.
    pub fields: Fields,
    /// Content.
    pub body: String,
    /// `1.1` or `1.0`.
    pub version: String,
}

/// Reaction of the origin to a request, with placeholders replaced.
#[derive(Clone, Debug)]
pub struct OriginAnswer {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Field lines, without framing fields unless the file has them.
    pub fields: Fields,
    /// Content.
    pub body: String,
    /// Trailer fields.
    pub trailers: Fields,
    /// Interim responses.
    pub interim: Vec<(u16, Fields)>,
    /// Failure instead of an answer.
    pub fails: Option<Fails>,
    /// Bytes in place of an answer.
    pub wire: Option<String>,
    /// Whether the connection stays open after the bytes of `wire`.
    pub open: bool,
    /// Delay before the answer, in seconds.
    pub delay_s: u32,
}

/// The host of every request.
pub(super) const HOST: &str = "cache.example";

impl Context {
    /// Returns the request of a step.
    pub fn request(&self, step: &Step) -> SentRequest {
        let request = &step.request;
        let mut fields = self.fields(&request.fields);
        fields.0.insert(0, ("Host".to_owned(), HOST.to_owned()));
        let is_framed = fields.has("content-length") || fields.has("transfer-encoding");
        if !request.body.is_empty() && !is_framed {
            fields.0.push(("Content-Length".to_owned(), request.body.chars().count().to_string()));
        }
        SentRequest {
            method: request.method.clone(),
            target: format!("{}{}", self.path, request.path),
            fields,
            body: request.body.clone(),
            version: request.version.clone(),
        }
    }

    /// Returns the answers of the origin in a step.
    pub fn answers(&self, step: &Step) -> Vec<OriginAnswer> {
        step.origin.list().iter().map(|answer| self.answer(answer)).collect()
    }

    fn answer(&self, answer: &Answer) -> OriginAnswer {
        let status = answer.status.unwrap_or(200);
        OriginAnswer {
            status,
            reason: answer.reason.clone().unwrap_or_default(),
            fields: self.fields(&answer.fields),
            body: self.body_of(answer),
            trailers: self.fields(&answer.trailers),
            interim: answer.interim.iter().map(|(status, fields)| (*status, self.fields(fields))).collect(),
            fails: answer.fails,
            wire: answer.wire.as_deref().map(|wire| self.fill(wire)),
            open: answer.open,
            delay_s: answer.delay_s,
        }
    }

    /// Returns the content of an answer; if the file has none, a content that is unique to the step.
    pub(super) fn body_of(&self, answer: &Answer) -> String {
        let is_empty = matches!(answer.status, Some(100..=199 | 204 | 205 | 304));
        let own = || if is_empty { String::new() } else { format!("b{}", self.number) };
        answer.body.clone().unwrap_or_else(own)
    }

    fn fields(&self, lines: &[(String, String)]) -> Fields {
        Fields(lines.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect())
    }

    /// Returns a text with its placeholders replaced.
    ///
    /// # Panics
    /// Panics if a placeholder has no meaning, which [`super::read_groups`] rules out.
    pub(super) fn fill(&self, text: &str) -> String {
        self.try_fill(text).expect("placeholders are checked when a file is read")
    }

    fn try_fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            filled.push_str(&rest[..open]);
            let close = rest[open..].find('}').ok_or_else(|| format!("an open brace in {text:?}"))?;
            filled.push_str(&self.placeholder(&rest[open + 1..open + close])?);
            rest = &rest[open + close + 1..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn placeholder(&self, inside: &str) -> Result<String, String> {
        match inside {
            "path" => return Ok(self.path.clone()),
            "open" => return Ok("{".to_owned()),
            _ => {}
        }
        let unknown = || format!("{{{inside}}} means nothing");
        let (time, form) = inside.split_once(':').unwrap_or((inside, "imf"));
        let form = match form {
            "imf" => Form::Imf,
            "rfc850" => Form::Rfc850,
            "asctime" => Form::Asctime,
            _ => return Err(unknown()),
        };
        let (base_s, offset) = if let Some(offset) = time.strip_prefix("now") {
            (self.now_s, offset)
        } else if let Some(offset) = time.strip_prefix("start") {
            (self.start_s, offset)
        } else {
            return Err(unknown());
        };
        let offset_s: i64 = if offset.is_empty() { 0 } else { offset.parse().map_err(|_| unknown())? };
        Ok(date::format(base_s + offset_s, form))
    }
}

/// Converts a text to bytes, one for each character. In case files, the characters U+0080 to U+00FF stand for bytes above 127.
///
/// # Panics
/// Panics if a character is not below U+0100, which [`super::read_groups`] rules out.
pub fn latin1(text: &str) -> Vec<u8> {
    let byte = |character| u8::try_from(u32::from(character)).expect("a character below U+0100");
    text.chars().map(byte).collect()
}

/// Maximum wait of a case. A runner in real time plays all cases concurrently, so the longest one determines its
/// duration.
const WAIT_S_MAX: u32 = 4;

/// Checks that a case is complete and has only known placeholders and citations.
pub(super) fn validate(case: &Case) -> Result<(), String> {
    if case.cites.is_empty() {
        return Err("it cites nothing".to_owned());
    }
    if let Some(cite) = case.cites.iter().find(|cite| !is_citation(cite)) {
        return Err(format!("{cite:?} is not of the form `RFC nnnn section x: title`"));
    }
    if case.steps.is_empty() {
        return Err("it has no step".to_owned());
    }
    let wait_s = case.seconds();
    if wait_s > WAIT_S_MAX {
        return Err(format!("it waits {wait_s} s, more than {WAIT_S_MAX}"));
    }
    if case.level == Level::Both && case.steps.iter().any(needs_the_binary) {
        return Err(
            "interim, trailers, wire, delay_s, truncated and version are for level gateway".to_owned()
        );
    }
    case.steps.iter().enumerate().try_for_each(|(index, step)| {
        validate_step(step).map_err(|problem| format!("step {}: {problem}", index + 1))
    })
}

impl Case {
    /// Returns the seconds that the case waits.
    pub fn seconds(&self) -> u32 {
        let delays = |step: &Step| step.origin.list().iter().map(|answer| answer.delay_s).sum::<u32>();
        self.steps.iter().map(|step| step.wait_s + delays(step)).sum()
    }
}

fn needs_the_binary(step: &Step) -> bool {
    let is_wire = |answer: &Answer| {
        answer.wire.is_some()
            || !answer.interim.is_empty()
            || !answer.trailers.is_empty()
            || answer.delay_s > 0
    };
    let expects =
        |expect: &Expect| expect.interim.is_some() || !expect.trailers.is_empty() || expect.truncated;
    step.request.version != "1.1"
        || step.origin.list().iter().any(is_wire)
        || step.expect.as_ref().is_some_and(expects)
}

fn is_citation(cite: &str) -> bool {
    let Some((number, rest)) = cite.strip_prefix("RFC ").and_then(|rest| rest.split_once(" section ")) else {
        return false;
    };
    let Some((section, title)) = rest.split_once(": ") else { return false };
    let is_numeric = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_numeric(number) && section.split('.').all(is_numeric) && !title.is_empty()
}

fn validate_step(step: &Step) -> Result<(), String> {
    if step.expect.is_none() && !step.origin.list().iter().any(Answer::passes_through) {
        return Err("it expects nothing".to_owned());
    }
    if !matches!(step.request.version.as_str(), "1.0" | "1.1") {
        return Err("the version is neither 1.0 nor 1.1".to_owned());
    }
    if step.origin.list().iter().any(|answer| answer.open && answer.wire.is_none()) {
        return Err("`open` goes with `wire`".to_owned());
    }
    let context = Context { path: String::new(), start_s: 0, now_s: 0, number: 1 };
    texts(step).try_for_each(|text| {
        let filled = context.try_fill(text)?;
        let is_byte = filled.chars().all(|character| u32::from(character) < 256);
        if is_byte { Ok(()) } else { Err(format!("a character above U+00FF in {text:?}")) }
    })
}

fn texts(step: &Step) -> impl Iterator<Item = &str> {
    let mut texts = values(&step.request.fields);
    texts.push(&step.request.body);
    for answer in step.origin.list() {
        texts.extend(values(&answer.fields));
        texts.extend(values(&answer.trailers));
        texts.extend(answer.interim.iter().flat_map(|(_, fields)| values(fields)));
        texts.extend(answer.wire.as_deref());
    }
    texts.extend(step.expect.iter().flat_map(wanted_texts));
    texts.into_iter()
}

fn values(lines: &[(String, String)]) -> Vec<&str> {
    lines.iter().map(|(_, value)| value.as_str()).collect()
}

fn wanted_texts(expect: &Expect) -> impl Iterator<Item = &str> {
    let maps = [&expect.fields, &expect.trailers, &expect.forwarded];
    maps.into_iter().flat_map(|map| map.values().flatten()).flat_map(|wanted| match wanted {
        Wanted::Value(text) | Wanted::Rule(Rule::Contains(text) | Rule::Lacks(text)) => vec![text.as_str()],
        Wanted::Rule(Rule::Lines(lines)) => lines.iter().map(String::as_str).collect(),
        Wanted::Rule(Rule::About(_) | Rule::Any(_)) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context { path: "/a/001".to_owned(), start_s: 784_111_777, now_s: 784_111_780, number: 2 }
    }

    #[test]
    fn placeholders() {
        let check = |text: &str, expected: &str| assert_eq!(context().fill(text), expected);
        check("{now}", "Sun, 06 Nov 1994 08:49:40 GMT");
        check("{start-37}", "Sun, 06 Nov 1994 08:49:00 GMT");
        check("<{path}>; {open}", "</a/001>; {");
        check("{now+60:rfc850}", "Sunday, 06-Nov-94 08:50:40 GMT");
        for wrong in ["{", "{noon}", "{now60x}", "{now:iso}", "{}"] {
            assert!(context().try_fill(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_that_say_nothing_are_refused() {
        let check = |case: &str, expected: &str| {
            let case: Result<Case, _> = serde_json::from_str(case);
            let problem = match case {
                Ok(case) => validate(&case).expect_err("something is wrong with it"),
                Err(error) => error.to_string(),
            };
            assert!(problem.contains(expected), "{problem}");
        };
        check(r#"{"name":"a","steps":[{"origin":{}}]}"#, "cites nothing");
        check(r#"{"name":"a","cites":["9111"],"steps":[{"origin":{}}]}"#, "not of the form");
        let cited = r#"{"name":"a","cites":["RFC 9111 section 4.2: freshness"],"#;
        check(&format!(r#"{cited}"steps":[]}}"#), "no step");
        check(&format!(r#"{cited}"steps":[{{}}]}}"#), "expects nothing");
        check(&format!(r#"{cited}"steps":[{{"wait_s":5,"origin":{{}}}}]}}"#), "waits 5 s");
        check(&format!(r#"{cited}"steps":[{{"origin":{{"open":true}}}}]}}"#), "`open` goes with `wire`");
        check(&format!(r#"{cited}"steps":[{{"origin":{{"fails":"close"}}}}]}}"#), "expects nothing");
        check(&format!(r#"{cited}"step":[]}}"#), "unknown field");
        check(&format!(r#"{cited}"steps":[{{"expect":{{"boby":"x"}}}}]}}"#), "unknown field");
        check(&format!(r#"{cited}"steps":[{{"expect":{{"fields":{{"a":"{{x}}"}}}}}}]}}"#), "means nothing");
    }
}
