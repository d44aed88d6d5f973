//! Captures of regular expressions in texts, such as `$1`.

use regex::Regex;

/// Checks that an expression has the captures that a text names.
pub(super) fn check(text: &str, expression: &Regex) -> Result<(), String> {
    let is_known = |name: &str| match name.parse::<usize>() {
        Ok(number) => number < expression.captures_len(),
        Err(_) => expression.capture_names().flatten().any(|known| known == name),
    };
    match named(text).find(|name| !is_known(name)) {
        Some(unknown) => {
            Err(format!("`regex` has no capture `{unknown}`; write `${{1}}` where a letter follows"))
        }
        None => Ok(()),
    }
}

/// The captures that a text names, as the regex crate reads them.
pub(super) fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.match_indices('$').filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map(|(name, _)| name),
            None => Some(rest.split(|character| !is_of_name(character)).next().unwrap_or_default()),
        }
        .filter(|name| !name.is_empty())
    })
}
