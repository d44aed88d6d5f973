//! Arguments as numbers and options.

use super::{Call, Refusal};

impl<'a> Call<'a> {
    pub(super) fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.argument(index))
    }

    /// Whether an argument is this word, in any case.
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.argument(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The arguments from `index` on.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.arguments.iter().skip(index)
    }
}

/// An integer as Redis reads it: no plus sign, no zeros before it, no space.
pub(super) fn parse_integer(bytes: &[u8]) -> Result<i64, Refusal> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_plain = match digits {
        [b'0'] => digits.len() == bytes.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_plain);
    text.and_then(|text| text.parse().ok()).ok_or(Refusal::NotInteger)
}
