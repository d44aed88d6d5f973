//! Status patterns: a code, or a class of codes.

use caching::StatusMatch;

/// Parses a pattern whose form the reader has checked.
pub(super) fn status_match(key: &str) -> Option<StatusMatch> {
    match key.strip_suffix("xx") {
        Some(class) => Some(StatusMatch::Class(class.parse().ok()?)),
        None if key == "default" => Some(StatusMatch::Any),
        None => Some(StatusMatch::Exact(key.parse().ok()?)),
    }
}

pub(super) fn status(text: &str) -> Result<StatusMatch, String> {
    let is_class = text.strip_suffix("xx").is_some_and(|digit| matches!(digit, "1" | "2" | "3" | "4" | "5"));
    let is_code = text.len() == 3 && text.parse().is_ok_and(|code: u16| (100..=599).contains(&code));
    match is_class || is_code {
        true => status_match(text).ok_or_else(|| "not a status".to_owned()),
        false => Err("expected a status code from 100 to 599, or a class such as `5xx`".to_owned()),
    }
}

/// Parses a pattern for errors: 4xx and 5xx.
pub(super) fn error_status(text: &str) -> Result<StatusMatch, String> {
    match text.starts_with(['4', '5']) {
        true => status(text),
        false => Err("expected an error: a status code from 400 to 599, `4xx` or `5xx`".to_owned()),
    }
}
