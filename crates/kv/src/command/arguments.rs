//! Parsing of numeric arguments and options.

use engine::Database;

use super::{Call, Command, Refusal, config};

impl<'a> Call<'a> {
    pub(super) fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.argument(index))
    }

    /// Parses an integer that has 32 bits in Redis.
    pub(super) fn short_integer(&self, index: usize) -> Result<i32, Refusal> {
        let refused =
            Refusal::Other("ERR value is out of range, value must between -2147483648 and 2147483647");
        i32::try_from(self.integer(index)?).map_err(|_| refused)
    }

    /// Parses an argument as a database number.
    pub(super) fn chosen_database(&self, index: usize) -> Result<Database, Refusal> {
        let number = usize::try_from(self.short_integer(index)?).ok();
        number.and_then(Database::new).ok_or(Refusal::Database)
    }

    /// The arguments, including the name, as other clients may see them: without passwords.
    pub(super) fn shown(&self, command: &Command) -> impl Iterator<Item = &'a [u8]> {
        let (begin, name) = self.innermost(command);
        let secret = match name {
            "auth" => begin + 1..usize::MAX,
            // ACL SETUSER is hidden for every user name, although only `default` exists.
            "acl" if self.is_word(begin + 1, "setuser") => begin + 2..usize::MAX,
            "hello" => {
                let place = (begin + 1..self.length()).find(|place| self.is_word(*place, "auth"));
                place.map_or(0..0, |place| place + 1..place + 3)
            }
            _ => 0..0,
        };
        let is_config = name == "config" && self.is_word(begin + 1, "set");
        let is_secret = move |place: usize, name: &[u8]| {
            secret.contains(&place)
                || (is_config && place > begin && place % 2 == 1 && config::is_secret(name))
        };
        let names = std::iter::once(&[][..]).chain(self.from(0));
        let shown = self.from(0).zip(names).enumerate();
        shown.map(move |(place, (word, name))| if is_secret(place, name) { &b"(redacted)"[..] } else { word })
    }

    /// Resolves commands such as COMMAND GETKEYS, whose arguments are another command: returns the position
    /// and name of the innermost command.
    fn innermost(&self, command: &Command) -> (usize, &'static str) {
        let (mut begin, mut name) = (0, command.container());
        while name == "command"
            && (self.is_word(begin + 1, "getkeys") || self.is_word(begin + 1, "getkeysandflags"))
        {
            begin += 2;
            let inner = self.arguments.at(begin).and_then(|name| self.shared.table.find(name));
            name = inner.map_or("", Command::container);
        }
        (begin, name)
    }

    /// Returns whether an argument equals a word, ignoring case.
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.argument(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The arguments from `index` on.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = self.arguments;
        (index..arguments.len()).map(move |index| arguments.at(index).unwrap_or_default())
    }
}

/// Parses an integer like Redis: no plus sign, no leading zeros, no spaces. Stops after the longest possible
/// integer, because stored values may be much longer.
pub(super) fn parse_integer(bytes: &[u8]) -> Result<i64, Refusal> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let has_sign = digits.len() < bytes.len();
    // Accumulates negatively, because the minimum integer has no positive counterpart.
    let negated = match digits {
        [b'0'] if !has_sign => Some(0),
        [b'1'..=b'9', ..] => digits.iter().try_fold(0_i64, |number, digit| {
            let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
            number.checked_mul(10)?.checked_sub(digit)
        }),
        _ => None,
    };
    let number = if has_sign { negated } else { negated.and_then(i64::checked_neg) };
    number.ok_or(Refusal::NotInteger)
}

/// Length of the longest integer.
pub(super) const INTEGER_BYTES_MAX: usize = "-9223372036854775808".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_plain_digits() {
        let cases: [(&str, Result<i64, Refusal>); 13] = [
            ("0", Ok(0)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(Refusal::NotInteger)),
            ("-9223372036854775809", Err(Refusal::NotInteger)),
            ("-92233720368547758080", Err(Refusal::NotInteger)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("1a", Err(Refusal::NotInteger)),
            ("-", Err(Refusal::NotInteger)),
            ("+1", Err(Refusal::NotInteger)),
            ("01", Err(Refusal::NotInteger)),
            ("-0", Err(Refusal::NotInteger)),
            (" 1", Err(Refusal::NotInteger)),
            ("", Err(Refusal::NotInteger)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }
}
