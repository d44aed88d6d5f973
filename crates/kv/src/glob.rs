//! Patterns as Redis reads them: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before what is meant as it is.

/// Whether a pattern matches the whole text.
///
/// Takes at most the product of both lengths: a star that is followed by another never has to be tried again.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // Redis looks at nothing then, not even at stars.
        return pattern.is_empty();
    }
    let (mut rest, mut at) = (pattern, 0);
    // Behind the last star, and where the text goes on that it leaves.
    let mut star: Option<(&[u8], usize)> = None;
    while at < text.len() {
        if let Some(behind) = rest.strip_prefix(b"*") {
            (rest, star) = (behind, Some((behind, at)));
        } else if let Some(behind) = step(rest, text[at]) {
            (rest, at) = (behind, at + 1);
        } else if let Some((behind, from)) = star {
            (rest, at, star) = (behind, from + 1, Some((behind, from + 1)));
        } else {
            return false;
        }
    }
    rest.iter().all(|byte| *byte == b'*')
}

/// What is left of a pattern whose first element matches the byte.
fn step(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// What is left behind a class that has the byte. A class without an end reaches to the end of the pattern.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
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
    (has != is_negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::matches;

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
        assert!(!matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes()));
        assert!(begin.elapsed().as_secs() < 5);
    }
}
