//! Captures of regular expressions in texts, such as `$1`.

use regex::Regex;

use crate::urls::path_of;

/// The expression of a rule, for a text that refers to its captures.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The expression.
    pub expression: Regex,
    /// Whether it is compared with path and query, because it contains a question mark; otherwise, it is compared with the path alone.
    pub with_query: bool,
}

impl Captured {
    /// Returns the captures of a request's target; `None` if the expression doesn't match it.
    pub(super) fn of<'t>(&self, path_and_query: &'t str) -> Option<regex::Captures<'t>> {
        let compared = if self.with_query { path_and_query } else { path_of(path_and_query) };
        self.expression.captures(compared)
    }
}

/// Checks that an expression has the captures to which a text refers.
pub(super) fn check(text: &str, expression: &Regex) -> Result<(), String> {
    let is_known = |name: &str| match name.parse::<usize>() {
        Ok(number) => number < expression.captures_len(),
        Err(_) => expression.capture_names().flatten().any(|known| known == name),
    };
    match named(text).find(|name| !is_known(name)) {
        Some(unknown) => {
            Err(format!("`regex` has no capture `{unknown}`; write `${{1}}` if a letter follows"))
        }
        None => Ok(()),
    }
}

/// Returns the names of captures in a text, by the syntax of the regex crate.
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
