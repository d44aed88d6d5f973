//! Descriptions of decisions, each with the values and the section of a specification that it is based on.
//!
//! This module makes no decisions. Each function describes a decision of another module, with its facts.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    LifetimeSource, NominatedFields, NominatedValues, NotStored, Reuse, Rules, Selecting, Storable,
    StoredFacts, Timestamp, date,
};

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Finding {
    /// The step of the exchange that made the decision, such as `reuse`.
    pub step: Cow<'static, str>,
    /// The decision, in a sentence.
    pub says: String,
    /// The section that the decision is based on, such as `RFC 9111 section 4`; empty for a choice of the operator.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub section: Cow<'static, str>,
    /// The values that it is based on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
}

/// A value that a decision is based on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Value {
    /// Name in the specification, such as `freshness_lifetime`.
    pub name: String,
    /// The value with its unit.
    pub value: String,
    /// The section that defines the value; may be empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub section: Cow<'static, str>,
}

impl Finding {
    /// Returns a decision without values.
    pub fn new(step: &'static str, says: impl Into<String>, section: &'static str) -> Self {
        Self { step: step.into(), says: says.into(), section: section.into(), values: Vec::new() }
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>, section: &'static str) -> Self {
        self.values.push(Value { name: name.to_owned(), value: value.into(), section: section.into() });
        self
    }
}

/// Describes the decision about a reuse, with or without a stored response.
pub fn reuse(outcome: Reuse, stored: Option<&StoredFacts>, now: Timestamp) -> Finding {
    let (says, section) = match outcome {
        Reuse::Fresh => ("the stored response is fresh and is used".to_owned(), "RFC 9111 section 4.2"),
        Reuse::RefreshAhead => {
            let says = "the stored response is fresh and is used; a validation runs in the background, because its lifetime ends soon";
            (says.to_owned(), "RFC 9111 section 4.2")
        }
        Reuse::Stale => {
            ("the stored response is stale; the request accepts it".to_owned(), "RFC 9111 section 5.2.1.2")
        }
        Reuse::StaleWhileRevalidate => {
            let says = "the stored response is stale and is used while a validation runs";
            (says.to_owned(), "RFC 5861 section 3")
        }
        Reuse::Validate(reason) => {
            (format!("validate first: {}", sentence(reason.meaning())), reason.section())
        }
        Reuse::Forward(reason) => (format!("forward: {}", sentence(reason.meaning())), reason.section()),
        Reuse::Unavailable(reason) => {
            let says = format!("504, because of only-if-cached: {}", sentence(reason.meaning()));
            (says, "RFC 9111 section 5.2.1.7")
        }
    };
    let finding = Finding::new("reuse", says, section);
    match stored {
        Some(facts) => with_freshness(finding, facts, now),
        None => finding,
    }
}

/// Describes whether a response may be stored.
pub fn storing(outcome: Result<&Storable, NotStored>, now: Timestamp) -> Finding {
    match outcome {
        Ok(storable) => {
            let finding = Finding::new("store", "the response may be stored", "RFC 9111 section 3");
            with_freshness(finding, &storable.facts, now)
        }
        Err(reason) => {
            Finding::new("store", format!("not stored: {}", sentence(reason.meaning())), reason.section())
                .with("reason", reason.as_str(), "")
        }
    }
}

/// Adds the freshness of a stored response at `now`.
pub fn with_freshness(finding: Finding, facts: &StoredFacts, now: Timestamp) -> Finding {
    let source = match facts.lifetime_source {
        LifetimeSource::Nothing => "no lifetime in the response".to_owned(),
        LifetimeSource::Default => "from `ttl_default`".to_owned(),
        LifetimeSource::Override => "from `ttl_override`".to_owned(),
        source => format!("from {}", source.as_str()),
    };
    let ended = if facts.is_ended() { ENDED } else { "" };
    let lifetime = format!("{}, {source}{ended}", seconds(facts.freshness_lifetime_ms()));
    let ttl_ms = facts.ttl_ms(now);
    let left = match ttl_ms {
        1.. => format!("{} left", seconds(ttl_ms.unsigned_abs())),
        _ => format!("stale for {}", seconds(ttl_ms.unsigned_abs())),
    };
    let finding = finding
        .with("status", facts.status.to_string(), "")
        .with("freshness_lifetime", lifetime, facts.lifetime_source.section())
        .with("corrected_initial_age", seconds(facts.corrected_initial_age_ms()), "RFC 9111 section 4.2.3")
        .with("current_age", seconds(facts.current_age_ms(now)), "RFC 9111 section 4.2.3")
        .with("ttl", left, "RFC 9111 section 4.2")
        .with("date", String::from_utf8_lossy(&date::format(facts.date)), "RFC 9110 section 6.6.1");
    restrictions(facts)
        .into_iter()
        .fold(finding, |finding, (name, value, section)| finding.with(name, value, section))
}

/// Text after the source of a lifetime that ended early, by a purge or by a response of the origin that shows a change.
const ENDED: &str = "; ended early by a soft purge, or because it may have changed";

fn restrictions(facts: &StoredFacts) -> Vec<(&'static str, String, &'static str)> {
    let mut values = Vec::new();
    if facts.no_cache {
        values.push(("no-cache", "validated before every use".to_owned(), "RFC 9111 section 5.2.2.4"));
    }
    if facts.must_revalidate {
        let because = match facts.is_personal() {
            true => "because it answers requests with credentials and has no lifetime",
            false => "by `must-revalidate`, `proxy-revalidate` or `s-maxage`",
        };
        values.push(("stale use", format!("never, {because}"), "RFC 9111 section 5.2.2.2"));
    }
    if let Some(window_ms) = facts.stale_while_revalidate_ms() {
        values.push(("stale-while-revalidate", seconds(window_ms), "RFC 5861 section 3"));
    }
    if let Some(window_ms) = facts.stale_if_error_ms() {
        values.push(("stale-if-error", seconds(window_ms), "RFC 5861 section 4"));
    }
    values
}

/// Describes why a stored response was not selected: its nominated fields, with their values in its original request
/// and in the presented request. Credentials are not shown, because they belong to one client.
pub fn mismatch(
    finding: Finding,
    nominated: &NominatedFields,
    captured: &NominatedValues,
    request: Selecting<'_>,
    rules: &Rules,
) -> Finding {
    let asked = nominated.capture(request);
    let pairs = nominated.describe(captured).into_iter().zip(nominated.describe(&asked));
    pairs.fold(finding, |finding, ((name, stored), (_, asked))| {
        let verdict = if stored == asked { "equal" } else { "differs" };
        let shown = match rules.is_credential(&name) {
            true => verdict.to_owned(),
            false => format!("{verdict}: stored {stored}, request {asked}"),
        };
        finding.with(&name, shown, "RFC 9111 section 4.1")
    })
}

/// Formats a duration, such as `1.5 s`.
pub fn seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => format!("{} s", ms / 1000),
        rest => format!("{}.{} s", ms / 1000, format!("{rest:03}").trim_end_matches('0')),
    }
}

/// Adapts a sentence for use inside another sentence: removes the full stop and the capital at the start.
pub fn sentence(text: &str) -> String {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().collect::<String>() + chars.as_str()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExchangeTimes, FieldLine, Negotiation, RequestFacts, ResponseFacts, Rules, may_store};

    fn check(finding: &Finding, says: &str, values: &[(&str, &str)]) {
        assert!(finding.says.contains(says), "{finding:?} lacks {says}");
        for (name, value) in values {
            let found = finding.values.iter().find(|found| found.name == *name);
            assert_eq!(found.map(|found| found.value.as_str()), Some(*value), "{name} of {finding:?}");
        }
    }

    #[test]
    fn decisions_are_told_with_their_values() {
        let (rules, then) = (Rules::default(), Timestamp::from_seconds(784_111_777));
        let request = RequestFacts::parse("GET", &[]);
        let times = ExchangeTimes { request: then, response: then, clock_ahead_ms: 0 };
        let lines: &[FieldLine<'_>] = &[("cache-control", b"max-age=60"), ("age", b"10")];
        let response = ResponseFacts::parse(200, lines, times, &rules);
        let stored = may_store(&request, &response, &rules, then);
        check(
            &storing(stored.as_ref().map_err(|reason| *reason), then),
            "may be stored",
            &[("current_age", "10 s"), ("ttl", "50 s left")],
        );
        let facts = stored.expect("it has a lifetime").facts;
        let now = then.plus_ms(12_500);
        let fresh = reuse(crate::reuse(&request, &facts, &rules, now), Some(&facts), now);
        let lifetime = ("freshness_lifetime", "60 s, from max-age");
        check(&fresh, "is fresh", &[lifetime, ("current_age", "22.5 s"), ("ttl", "37.5 s left")]);
        let later = then.plus_ms(60_000);
        let stale = reuse(crate::reuse(&request, &facts, &rules, later), Some(&facts), later);
        check(&stale, "forward: the stored response is stale", &[("ttl", "stale for 10 s")]);
        check(&storing(Err(NotStored::Private), then), "not stored: the response says `private`", &[]);
        let ended = facts.expired(now);
        let outcome = crate::reuse(&request, &ended, &rules, later);
        let lifetime = format!("22.5 s, from max-age{ENDED}");
        check(&reuse(outcome, Some(&ended), later), "stale", &[("freshness_lifetime", &lifetime)]);
        assert_eq!(ended.expired(later), ended, "the lifetime of a stale response doesn't change");
    }

    #[test]
    fn a_mismatch_shows_both_sides() {
        let vary: &[FieldLine<'_>] = &[("vary", b"accept-language, cookie, x-a")];
        let nominated = NominatedFields::parse(vary).expect("names");
        let stored: &[FieldLine<'_>] = &[("Accept-Language", b"EN;q=0.50, de"), ("Cookie", b"secret=1")];
        let captured = nominated.capture(Selecting::new(stored, Negotiation::Normalised));
        let request = Selecting::new(&[("X-A", b"1")], Negotiation::Normalised);
        let finding =
            mismatch(Finding::new("select", "", ""), &nominated, &captured, request, &Rules::default());
        let values = [
            ("accept-language", "differs: stored \"de, en;q=0.5\", request absent"),
            ("cookie", "differs"),
            ("x-a", "differs: stored absent, request \"1\""),
        ];
        check(&finding, "", &values);
    }
}
