//! Arguments as numbers and options.

use engine::Database;

use super::{Call, Command, Refusal, config};

impl<'a> Call<'a> {
    pub(super) fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.argument(index))
    }

    /// An integer that has 32 bits in Redis.
    pub(super) fn short_integer(&self, index: usize) -> Result<i32, Refusal> {
        let refused =
            Refusal::Other("ERR value is out of range, value must between -2147483648 and 2147483647");
        i32::try_from(self.integer(index)?).map_err(|_| refused)
    }

    /// The database that an argument names.
    pub(super) fn chosen_database(&self, index: usize) -> Result<Database, Refusal> {
        let number = usize::try_from(self.short_integer(index)?).ok();
        number.and_then(Database::new).ok_or(Refusal::Database)
    }

    /// All, with the name, as others may see them: passwords are nobody's business.
    pub(super) fn shown(&self, command: &Command) -> impl Iterator<Item = &'a [u8]> {
        let (begin, name) = self.innermost(command);
        let secret = match name {
            "auth" => begin + 1..usize::MAX,
            // Of a user that there can't be here, maybe.
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

    /// Where a command begins that another one is asked about, and its name; at the begin if there is none.
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

    /// Whether an argument is this word, in any case.
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.argument(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The arguments from `index` on.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = self.arguments;
        (index..arguments.len()).map(move |index| arguments.at(index).unwrap_or_default())
    }
}

/// An integer as Redis reads it: no plus sign, no zeros before it, no space. What is stored may be much longer, and is looked at no further
/// than there are integers.
pub(super) fn parse_integer(bytes: &[u8]) -> Result<i64, Refusal> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let has_sign = digits.len() < bytes.len();
    // Downwards: the least integer has no counterpart above zero.
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

/// Length of the least integer.
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
