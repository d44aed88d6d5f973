//! Compares the observations of a runner with the expectations of a file.

use std::collections::BTreeMap;
use std::time::Duration;

use super::script::Context;
use super::{Expect, Rule, Step, Wanted};
use crate::message::Fields;

/// Result of a step. A byte above 127 is represented by the character with the same number.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Field lines.
    pub fields: Fields,
    /// Content.
    pub body: String,
    /// Trailer fields.
    pub trailers: Fields,
    /// Status codes of interim responses.
    pub interim: Vec<u16>,
    /// Whether the content was cut short.
    pub truncated: bool,
    /// Requests that reached the origin, in order.
    pub forwarded: Vec<Forwarded>,
    /// Delay of the step relative to the time in the file, due to a busy machine or an origin with a delay.
    pub late: Duration,
}

/// A request that reached the origin.
#[derive(Clone, Debug, Default)]
pub struct Forwarded {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Field lines.
    pub fields: Fields,
    /// Content.
    pub body: String,
}

impl Step {
    /// Returns whether the client gets its response without waiting for the origin.
    pub fn is_background(&self) -> bool {
        self.origin.list().iter().any(|answer| answer.background)
    }

    /// Returns the differences between `seen` and the expectations of the step.
    pub fn differences(&self, context: &Context, seen: &Seen) -> Vec<String> {
        let silent = Expect::default();
        let expect = self.expect.as_ref().unwrap_or(&silent);
        let mut differences = Vec::new();
        let judge = Judge { context, late: seen.late };
        self.judge_forwards(judge, expect, seen, &mut differences);
        self.judge_message(context, expect, seen, &mut differences);
        judge.fields("", &expect.fields, &seen.fields, &mut differences);
        judge.fields("trailer ", &expect.trailers, &seen.trailers, &mut differences);
        let cache_status = seen.fields.joined("cache-status");
        if let Some(part) = expect.cache_status.as_ref().filter(|part| !cache_status.contains(part.as_str()))
        {
            differences.push(format!("Cache-Status is {cache_status:?}, without {part:?}"));
        }
        if expect.interim.as_ref().is_some_and(|interim| *interim != seen.interim) {
            differences.push(format!("interim {:?}, expected {:?}", seen.interim, expect.interim));
        }
        differences
    }

    fn judge_forwards(&self, judge: Judge<'_>, expect: &Expect, seen: &Seen, differences: &mut Vec<String>) {
        let answers = self.origin.list();
        let (count, expected) = (seen.forwarded.len(), answers.len());
        // A gateway that gets no answer may repeat the request.
        let may_repeat = answers.iter().any(|answer| answer.fails.is_some());
        if count < expected || (count > expected && !may_repeat) {
            differences.push(format!("{count} requests reached the origin, expected {expected}"));
        }
        let Some(first) = seen.forwarded.first() else {
            if !expect.forwarded.is_empty() {
                differences.push("nothing was forwarded".to_owned());
            }
            return;
        };
        let mut fields = first.fields.clone();
        for (name, value) in [(":method", &first.method), (":path", &first.target), (":body", &first.body)] {
            fields.0.push((name.to_owned(), value.clone()));
        }
        judge.fields("forwarded ", &expect.forwarded, &fields, differences);
    }

    fn judge_message(&self, context: &Context, expect: &Expect, seen: &Seen, differences: &mut Vec<String>) {
        let passed = self.origin.list().last().filter(|answer| answer.passes_through());
        let status = expect.status.or_else(|| passed.and_then(|answer| answer.status)).unwrap_or(200);
        if seen.status != status {
            differences.push(format!("status {}, expected {status}", seen.status));
        }
        let passed_body = || match self.request.method.as_str() {
            "HEAD" => Some(String::new()),
            _ if status != passed?.status.unwrap_or(200) => None,
            _ => passed.map(|answer| context.body_of(answer)),
        };
        let body = expect.body.clone().or_else(passed_body);
        if body.as_ref().is_some_and(|body| *body != seen.body) {
            differences.push(format!("content {:?}, expected {:?}", seen.body, body.unwrap_or_default()));
        }
        let passed_reason = || passed.and_then(|answer| answer.reason.as_ref());
        if let Some(reason) = expect.reason.as_ref().or_else(passed_reason).filter(|own| **own != seen.reason)
        {
            differences.push(format!("reason phrase {:?}, expected {reason:?}", seen.reason));
        }
        if seen.truncated != expect.truncated {
            let what = if seen.truncated { "the content was cut short" } else { "the content is complete" };
            differences.push(what.to_owned());
        }
    }
}

/// Maximum delay, in seconds, that a runner in real time doesn't have to report.
const SECONDS_MORE_MAX: u64 = 4;

/// Context in which fields are judged.
#[derive(Clone, Copy)]
struct Judge<'a> {
    context: &'a Context,
    late: Duration,
}

impl Judge<'_> {
    fn fields(
        self,
        what: &str,
        wanted: &BTreeMap<String, Option<Wanted>>,
        fields: &Fields,
        differences: &mut Vec<String>,
    ) {
        for (name, wanted) in wanted {
            let lines: Vec<&str> = fields.all(name).collect();
            if let Err(expected) = self.lines(wanted.as_ref(), &lines) {
                differences.push(format!("{what}{name} is {lines:?}, expected {expected}"));
            }
        }
    }

    fn lines(self, wanted: Option<&Wanted>, lines: &[&str]) -> Result<(), String> {
        let context = self.context;
        let joined = lines.join(", ");
        let is_there = !lines.is_empty();
        let (holds, expected) = match wanted {
            None => (!is_there, "none".to_owned()),
            Some(Wanted::Value(value)) => (is_there && joined == context.fill(value), context.fill(value)),
            Some(Wanted::Rule(Rule::Lines(values))) => {
                let values: Vec<String> = values.iter().map(|value| context.fill(value)).collect();
                (lines == values, format!("{values:?}"))
            }
            Some(Wanted::Rule(Rule::Contains(part))) => {
                (joined.contains(&context.fill(part)), format!("{part:?} in it"))
            }
            Some(Wanted::Rule(Rule::Lacks(part))) => {
                (!joined.contains(&context.fill(part)), format!("no {part:?} in it"))
            }
            Some(Wanted::Rule(Rule::About(least))) => {
                let most = least + SECONDS_MORE_MAX.max(self.late.as_secs() + 1);
                let is_near = joined.parse::<u64>().is_ok_and(|own| (*least..=most).contains(&own));
                (is_near, format!("{least} to {most}"))
            }
            Some(Wanted::Rule(Rule::Any(any))) => (is_there == *any, "another presence".to_owned()),
        };
        if holds { Ok(()) } else { Err(expected) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: &str, seen: &Seen, expected: &[&str]) {
        let context = Context { path: "/a/001".to_owned(), start_s: 0, now_s: 0, number: 1 };
        let step: Step = serde_json::from_str(step).unwrap();
        assert_eq!(step.differences(&context, seen), expected);
    }

    fn seen() -> Seen {
        let fields =
            Fields(vec![("Age".into(), "3".into()), ("A".into(), "1".into()), ("a".into(), "2".into())]);
        let forwarded = vec![Forwarded { method: "GET".into(), ..Forwarded::default() }];
        Seen { status: 200, body: "b1".into(), fields, forwarded, ..Seen::default() }
    }

    #[test]
    fn an_answer_is_an_expectation() {
        check(r#"{"origin":{}}"#, &seen(), &[]);
        check(r#"{"origin":{"status":404}}"#, &seen(), &["status 200, expected 404"]);
        check(r#"{"origin":{"body":"x"}}"#, &seen(), &["content \"b1\", expected \"x\""]);
        check(r#"{"expect":{}}"#, &seen(), &["1 requests reached the origin, expected 0"]);
        let twice = Seen { forwarded: vec![Forwarded::default(); 2], ..seen() };
        check(r#"{"origin":{"fails":"close"},"expect":{"body":"b1"}}"#, &twice, &[]);
    }

    #[test]
    fn fields_are_judged_in_many_ways() {
        let fields = |wanted: &str| format!(r#"{{"origin":{{}},"expect":{{"fields":{{{wanted}}}}}}}"#);
        check(&fields(r#""a":"1, 2","age":{"about":2},"b":null,"A":{"lines":["1","2"]}"#), &seen(), &[]);
        check(&fields(r#""a":{"contains":"2"},"age":{"lacks":"4"},"Age":{"any":true}"#), &seen(), &[]);
        check(&fields(r#""age":{"about":4}"#), &seen(), &["age is [\"3\"], expected 4 to 8"]);
        let aged = |late_s| Seen {
            fields: Fields(vec![("age".into(), "8".into())]),
            late: Duration::from_secs(late_s),
            ..seen()
        };
        check(&fields(r#""age":{"about":2}"#), &aged(4), &["age is [\"8\"], expected 2 to 7"]);
        check(&fields(r#""age":{"about":2}"#), &aged(5), &[]);
        check(&fields(r#""b":"""#), &seen(), &["b is [], expected "]);
        check(&fields(r#""age":null"#), &seen(), &["age is [\"3\"], expected none"]);
        check(r#"{"origin":{},"expect":{"forwarded":{":method":"GET","x":null}}}"#, &seen(), &[]);
    }
}
