//! Properties that hold for all preferences of two clients, checked with a straightforward interpretation of
//! preferences.

use caching::{FieldLine, Negotiation, NominatedFields, Selecting};
use proptest::collection::vec;
use proptest::prelude::*;

type Weighted = Vec<(&'static str, u16)>;

const CODINGS: &[&str] = &["gzip", "br", "x-gzip", "identity", "*", "GZIP"];
const LANGUAGES: &[&str] = &["de", "de-AT", "en", "*", "DE"];

/// Generates at most one weight per range.
fn preferences(ranges: &'static [&'static str]) -> impl Strategy<Value = Weighted> {
    let weight = prop::sample::select(&[0, 1, 300, 500, 1000][..]);
    vec((prop::sample::select(ranges), weight), 0..5).prop_map(|mut weighted| {
        let mut seen = Vec::new();
        weighted.retain(|(range, _)| {
            let is_new = !seen.contains(&name(range));
            seen.push(name(range));
            is_new
        });
        weighted
    })
}

fn name(range: &str) -> String {
    range.to_ascii_lowercase().trim_start_matches("x-").to_owned()
}

fn written(preferences: &Weighted) -> String {
    let member = |(range, weight): &(&str, u16)| format!("{range};q={}.{:03}", weight / 1000, weight % 1000);
    preferences.iter().map(member).collect::<Vec<_>>().join(", ")
}

/// RFC 9110 section 12.5.3, rules 2 and 3.
fn accepts_coding(preferences: &Weighted, coding: &str) -> bool {
    let weight_of = |wanted: &str| preferences.iter().find(|(range, _)| name(range) == wanted);
    match (weight_of(coding), weight_of("*")) {
        (Some((_, weight)), _) | (None, Some((_, weight))) => *weight > 0,
        (None, None) => coding == "identity",
    }
}

/// RFC 9110 section 12.5.4: a language is refused if no range with a weight matches it.
fn accepts_language(preferences: &Weighted, tag: &str) -> bool {
    preferences.iter().any(|(range, weight)| {
        let range = range.to_ascii_lowercase();
        *weight > 0 && (range == "*" || tag == range || tag.starts_with(&format!("{range}-")))
    })
}

struct Choice {
    is_same: bool,
    is_certain: bool,
}

/// Returns whether a response to a request with the preferences `then` answers one with the preferences
/// `now`.
fn choice(field: &'static str, content: (&'static str, &str), then: &Weighted, now: &Weighted) -> Choice {
    let response: &[FieldLine<'_>] = &[("Vary", field.as_bytes()), (content.0, content.1.as_bytes())];
    let nominated = NominatedFields::parse(response).unwrap();
    let (then, now) = (written(then), written(now));
    let (then, now) = ([(field, then.as_bytes())], [(field, now.as_bytes())]);
    let [then, now] = [&then, &now].map(|lines| Selecting::new(lines, Negotiation::Selecting));
    let captured = nominated.capture(then);
    Choice {
        is_same: nominated.matches(&captured, now),
        is_certain: nominated.is_certain(&captured, now, response),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    //= RFC 9110 section 12.5.3: Accept-Encoding
    #[test]
    fn no_coding_is_served_that_is_refused(
        coding in prop::sample::select(&["gzip", "br", "identity"][..]),
        then in preferences(CODINGS), now in preferences(CODINGS),
    ) {
        let Choice { is_same, is_certain } = choice("Accept-Encoding", ("Content-Encoding", coding), &then, &now);
        // If the preferences are equal, the origin has selected this response for them, even if they don't
        // accept it.
        prop_assert!(!is_certain || is_same || accepts_coding(&now, coding));
    }

    //= RFC 9111 section 4.1: normalization with identical semantics
    #[test]
    fn the_same_codings_are_acceptable_where_preferences_are_the_same(
        then in preferences(CODINGS), now in preferences(CODINGS),
    ) {
        if choice("Accept-Encoding", ("Content-Encoding", "gzip"), &then, &now).is_same {
            for coding in ["gzip", "br", "identity", "zstd"] {
                prop_assert_eq!(accepts_coding(&then, coding), accepts_coding(&now, coding), "{}", coding);
            }
        }
    }

    //= RFC 9110 section 12.5.4: Accept-Language
    #[test]
    fn no_language_is_served_that_is_refused(
        tag in prop::sample::select(&["de", "de-at", "en", "fr"][..]),
        then in preferences(LANGUAGES), now in preferences(LANGUAGES),
    ) {
        let Choice { is_same, is_certain } = choice("Accept-Language", ("Content-Language", tag), &then, &now);
        prop_assert!(!is_certain || is_same || accepts_language(&now, tag));
    }

    #[test]
    fn order_makes_no_difference(now in preferences(CODINGS), seed in any::<prop::sample::Index>()) {
        let mut turned = now.clone();
        turned.rotate_left(seed.index(now.len() + 1) % now.len().max(1));
        prop_assert!(choice("Accept-Encoding", ("Content-Encoding", "gzip"), &now, &turned).is_same);
    }
}
