//! Glob patterns with Redis' syntax: `*`, `?`, `[a-z]`, `[^a]`, and a backslash that escapes the next
//! character.

use thiserror::Error;

/// Matches texts against patterns within a budget. The worst case is the product of both lengths, which can
/// be large.
#[derive(Debug)]
pub(crate) struct Matcher {
    /// Steps left beyond the free steps of each text.
    steps_left: usize,
}

/// The budget is exhausted, so the caller should use a simpler pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ERR the pattern takes too long to compare")]
pub(crate) struct TooLong;

/// Free steps for each text.
const FREE_STEPS: usize = 64;
/// Maximum number of further steps, which take a few hundredths of a second.
const STEPS_MAX: usize = 1 << 23;

impl Default for Matcher {
    fn default() -> Self {
        Self { steps_left: STEPS_MAX }
    }
}

impl Matcher {
    /// Returns whether a pattern matches the whole text. The result is always false once the budget is
    /// exhausted.
    pub(crate) fn matches(&mut self, pattern: &[u8], text: &[u8]) -> bool {
        let free = FREE_STEPS + 4 * text.len();
        let mut left = free.saturating_add(self.steps_left);
        let is_match = !self.is_exhausted() && matches(pattern, text, &mut left);
        self.steps_left = self.steps_left.min(left);
        is_match && !self.is_exhausted()
    }

    /// Returns an error if the budget was exhausted during a match.
    pub(crate) fn check(&self) -> Result<(), TooLong> {
        if self.is_exhausted() { Err(TooLong) } else { Ok(()) }
    }

    fn is_exhausted(&self) -> bool {
        self.steps_left == 0
    }
}

/// Compares a pattern with a text; only the last star needs backtracking. Steps are taken from `left`; at
/// zero, nothing matches.
fn matches(pattern: &[u8], text: &[u8], left: &mut usize) -> bool {
    if text.is_empty() {
        // As in Redis, only an empty pattern matches an empty text: a pattern of stars doesn't.
        return pattern.is_empty();
    }
    let (mut rest, mut at) = (pattern, 0);
    // The pattern after the last star, and the position in the text where its match began.
    let mut star: Option<(&[u8], usize)> = None;
    while at < text.len() {
        let before = rest.len();
        if let Some(behind) = rest.strip_prefix(b"*") {
            (rest, star) = (behind, Some((behind, at)));
        } else if let Some(behind) = step(rest, text[at]) {
            (rest, at) = (behind, at + 1);
        } else if let Some((behind, from)) = star {
            // Count the steps of the failed comparison: a class was read to its end, any other element only
            // to its first byte.
            *left = left.saturating_sub(class_bytes(rest));
            (rest, at, star) = (behind, from + 1, Some((behind, from + 1)));
        } else {
            return false;
        }
        *left = left.saturating_sub(before.saturating_sub(rest.len()).max(1));
        if *left == 0 {
            return false;
        }
    }
    rest.iter().all(|byte| *byte == b'*')
}

/// Bytes of the class at the beginning of a pattern, or 0.
fn class_bytes(pattern: &[u8]) -> usize {
    pattern.strip_prefix(b"[").map_or(0, |rest| rest.len() - class(rest, 0).1.len())
}

/// Matches the first element of a pattern against a byte, and returns the rest of the pattern.
fn step(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (is_in, behind) = class(rest, byte);
            is_in.then_some(behind)
        }
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// Returns whether a class contains the byte, and the rest of the pattern. A class without an end extends to
/// the end of the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (mut rest, is_negated) = pattern.strip_prefix(b"^").map_or((pattern, false), |rest| (rest, true));
    let mut has = false;
    loop {
        rest = match rest {
            [] => break,
            [b'\\', literal, rest @ ..] => {
                has |= *literal == byte;
                rest
            }
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [one, b'-', other, rest @ ..] => {
                has |= (*one.min(other)..=*one.max(other)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                has |= *literal == byte;
                rest
            }
        };
    }
    (has != is_negated, rest)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Matcher, STEPS_MAX};

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        let mut matcher = Matcher::default();
        let is_match = matcher.matches(pattern, text);
        assert_eq!(matcher.steps_left, STEPS_MAX, "what is short is not counted");
        is_match
    }

    #[test]
    fn patterns_match_what_redis_matches() {
        let check = |pattern: &str, text: &str, expected| {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        };
        for (pattern, text) in [
            ("*", "anything"),
            ("h?llo", "hallo"),
            ("h*llo", "heeeello"),
            ("h*llo", "hllo"),
            ("*a*", "a"),
            ("a**", "a"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("[\\]]", "]"),
            ("[a-", "a"),
            ("[^", "a"),
            ("\\*", "*"),
            ("a\\", "a\\"),
            ("*.*.c", "a.b.b.c"),
        ] {
            check(pattern, text, true);
        }
        for (pattern, text) in [
            ("", "a"),
            ("*", ""),
            ("a", "b"),
            ("a*b", "abc"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("\\*", "a"),
            ("?", ""),
            ("??", "a"),
            ("[]", "a"),
            ("[", "["),
        ] {
            check(pattern, text, false);
        }
        check("", "", true);
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(30) + "b";
        let begin = Instant::now();
        assert!(!Matcher::default().matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes()));
        assert!(begin.elapsed().as_secs() < 5);
    }

    #[test]
    fn what_takes_too_long_is_not_compared_to_its_end() {
        let long = [
            ("*".to_owned() + &"a".repeat(1 << 19) + "b", "a".repeat(1 << 20)),
            (format!("*[{}]c", "b".repeat(30_000)), "a".repeat(10_000)),
        ];
        for (pattern, text) in long {
            let mut matcher = Matcher::default();
            assert!(!matcher.matches(pattern.as_bytes(), text.as_bytes()));
            assert!(matcher.is_exhausted() && !matcher.matches(b"*", b"a"));
        }
    }
}
