//! Plays the conversations of `conformance/caching` against a model cache that consists of this crate's functions only.
//! Time is simulated, and the origin sends the responses that the files specify.

mod model;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use caching::{Timestamp, target};
use model::{Cache, Message, Origin, Request, Response, rules};
use testkit::Fields;
use testkit::conversation::{
    Case, Context, Forwarded, Group, Level, OriginAnswer, Seen, latin1, read_groups,
};

#[test]
fn every_conversation_goes_as_written() {
    let groups = read_groups(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/caching"));
    let mut counts = String::new();
    let mut problems = Vec::new();
    for group in &groups {
        let cases = || group.cases.iter().enumerate().filter(|(_, case)| case.level == Level::Both);
        cases().for_each(|(index, case)| problems.extend(play(group, index, case)));
        let _ = writeln!(counts, "{}: {} conversations with the model", group.name, cases().count());
    }
    // Bypasses the capture of the test harness, so that the counts are shown even on success.
    let _ = std::io::stdout().write_all(counts.as_bytes());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Start of every conversation, in seconds since 1970.
const START_S: i64 = 1_790_000_000;

fn play(group: &Group, index: usize, case: &Case) -> Vec<String> {
    let place = format!("{} ({}), {}", group.name, group.path(index), case.name);
    let rules = match rules::of(case) {
        Ok(rules) => rules,
        Err(problem) => return vec![format!("{place}: {problem}")],
    };
    let mut cache = Cache::new(rules);
    let mut now_s = START_S;
    let mut problems = Vec::new();
    for (number, step) in (1..).zip(&case.steps) {
        now_s += i64::from(step.wait_s);
        let context = Context { path: group.path(index), start_s: START_S, now_s, number };
        let mut origin = Script { answers: context.answers(step).into(), forwarded: Vec::new() };
        let sent = context.request(step);
        let request = Request {
            method: sent.method,
            target: target::normal_form(&sent.target).unwrap_or(sent.target),
            message: Message { fields: received(&sent.fields), body: latin1(&sent.body) },
        };
        let response = cache.exchange(&request, &mut origin, Timestamp::from_seconds(now_s));
        let seen = Seen { forwarded: origin.forwarded, ..seen(response) };
        let differences = step.differences(&context, &seen);
        problems.extend(differences.into_iter().map(|it| format!("{place}, step {number}: {it}")));
    }
    problems
}

/// An origin that sends its responses in order.
struct Script {
    answers: VecDeque<OriginAnswer>,
    forwarded: Vec<Forwarded>,
}

impl Origin for Script {
    fn ask(&mut self, request: &Request) -> Option<Response> {
        self.forwarded.push(Forwarded {
            method: request.method.clone(),
            target: request.target.clone(),
            fields: shown(&request.message.fields),
            body: text(&request.message.body),
        });
        let answer = self.answers.pop_front()?;
        let message = Message { fields: received(&answer.fields), body: latin1(&answer.body) };
        answer.fails.is_none().then_some(Response { status: answer.status, reason: answer.reason, message })
    }
}

fn seen(response: Response) -> Seen {
    Seen {
        status: response.status,
        reason: response.reason,
        fields: shown(&response.message.fields),
        body: text(&response.message.body),
        ..Seen::default()
    }
}

/// Returns the fields as a parser does: names in lower case, no whitespace around values.
fn received(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    let lines = fields.0.iter();
    lines.map(|(name, value)| (name.to_ascii_lowercase(), latin1(value.trim_matches([' ', '\t'])))).collect()
}

fn shown(fields: &[(String, Vec<u8>)]) -> Fields {
    Fields(fields.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
