//! Options that SET, GETEX, MSETEX and DELEX share: when a key expires, and on which condition it is changed.

use std::ops::DerefMut;

use engine::{Access, Expiry, Located, Shard, Value};
use twox_hash::XxHash3_64;

use super::arguments::parse_integer;
use super::expiry::{Origin, Unit, absolute};
use super::{Call, Refusal};

/// The command whose options are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Set,
    GetEx,
    MSetEx,
}

/// What they say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    pub(super) condition: Condition<'a>,
    pub(super) is_old_wanted: bool,
    lifetime: Option<Lifetime<'a>>,
}

/// Which keys are changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Condition<'a> {
    #[default]
    Always,
    IfMissing,
    IfThere,
    If(Test, &'a [u8]),
}

/// How a value is compared with an operand, or its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    NotEqual,
    DigestEqual,
    DigestNotEqual,
}

#[derive(Clone, Copy, Debug)]
enum Lifetime<'a> {
    Keep,
    Never,
    Until(Unit, Origin, &'a [u8]),
}

const TESTS: [(&str, Test); 4] = [
    ("ifeq", Test::Equal),
    ("ifne", Test::NotEqual),
    ("ifdeq", Test::DigestEqual),
    ("ifdne", Test::DigestNotEqual),
];

const TIMES: [(&str, Unit, Origin); 4] = [
    ("ex", Unit::Seconds, Origin::Now),
    ("px", Unit::Milliseconds, Origin::Now),
    ("exat", Unit::Seconds, Origin::Epoch),
    ("pxat", Unit::Milliseconds, Origin::Epoch),
];

impl Command {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::GetEx => "getex",
            Self::MSetEx => "msetex",
        }
    }
}

impl<'a> Options<'a> {
    /// Reads the options from an argument on. As in Redis the last of two equal words counts, and different ones of a kind exclude each other.
    pub(super) fn read(call: &Call<'a>, begin: usize, command: Command) -> Result<Self, Refusal> {
        let (mut options, mut at) = (Self::default(), begin);
        while at < call.length() {
            let taken = match options.read_condition(call, at, command) {
                0 => options.read_lifetime(call, at, command),
                taken => taken,
            };
            match taken {
                0 if command == Command::Set && call.is_word(at, "get") => {
                    options.is_old_wanted = true;
                    at += 1;
                }
                0 => return Err(Refusal::Syntax),
                taken => at += taken,
            }
        }
        Ok(options)
    }

    /// How many arguments it took.
    fn read_condition(&mut self, call: &Call<'a>, at: usize, command: Command) -> usize {
        let operand = (at + 1 < call.length()).then(|| call.argument(at + 1));
        let test = TESTS.into_iter().find(|(word, _)| call.is_word(at, word)).map(|(_, test)| test);
        match (test, self.condition, operand) {
            _ if command == Command::GetEx => 0,
            (None, Condition::Always | Condition::IfMissing, _) if call.is_word(at, "nx") => {
                self.condition = Condition::IfMissing;
                1
            }
            (None, Condition::Always | Condition::IfThere, _) if call.is_word(at, "xx") => {
                self.condition = Condition::IfThere;
                1
            }
            (Some(test), Condition::Always, Some(operand)) if command == Command::Set => {
                self.condition = Condition::If(test, operand);
                2
            }
            (Some(test), Condition::If(before, _), Some(operand)) if test == before => {
                self.condition = Condition::If(test, operand);
                2
            }
            _ => 0,
        }
    }

    /// How many arguments it took.
    fn read_lifetime(&mut self, call: &Call<'a>, at: usize, command: Command) -> usize {
        let has_next = at + 1 < call.length();
        let time = TIMES.into_iter().find(|(word, ..)| has_next && call.is_word(at, word));
        let (lifetime, taken) = match time {
            Some((_, unit, origin)) => (Lifetime::Until(unit, origin, call.argument(at + 1)), 2),
            None if command == Command::GetEx && call.is_word(at, "persist") => (Lifetime::Never, 1),
            None if command != Command::GetEx && call.is_word(at, "keepttl") => (Lifetime::Keep, 1),
            None => return 0,
        };
        if self.lifetime.is_some_and(|before| !before.is_like(lifetime)) {
            return 0;
        }
        self.lifetime = Some(lifetime);
        taken
    }

    /// When a key is to expire; nothing if nothing was said.
    pub(super) fn expiry(&self, call: &Call<'_>, command: Command) -> Result<Option<Expiry>, Refusal> {
        match self.lifetime {
            None => Ok(None),
            Some(Lifetime::Keep) => Ok(Some(Expiry::Keep)),
            Some(Lifetime::Never) => Ok(Some(Expiry::Never)),
            Some(Lifetime::Until(unit, origin, time)) => {
                let base_ms = if origin == Origin::Now { call.now_ms } else { 0 };
                absolute(parse_integer(time)?, unit, base_ms, command.name()).map(Some)
            }
        }
    }
}

impl Lifetime<'_> {
    fn is_like(self, other: Lifetime<'_>) -> bool {
        match (self, other) {
            (Self::Keep, Lifetime::Keep) | (Self::Never, Lifetime::Never) => true,
            (Self::Until(unit, origin, _), Lifetime::Until(other_unit, other_origin, _)) => {
                (unit, origin) == (other_unit, other_origin)
            }
            _ => false,
        }
    }
}

impl Condition<'_> {
    /// Whether the key may be changed.
    pub(super) fn is_met<S: DerefMut<Target = Shard>>(
        self,
        located: &mut Located<'_, S>,
        now_ms: u64,
    ) -> Result<bool, Refusal> {
        match self {
            Self::Always => Ok(true),
            Self::IfMissing => Ok(!located.contains(now_ms)),
            Self::IfThere => Ok(located.contains(now_ms)),
            Self::If(test, operand) => match located.get(Access::Peek, now_ms) {
                Some(found) => test.is_met(found.value, operand),
                // What is not there is not equal to anything.
                None => Ok(matches!(test, Test::NotEqual | Test::DigestNotEqual)),
            },
        }
    }
}

impl Test {
    pub(super) fn named(call: &Call<'_>, index: usize) -> Option<Self> {
        TESTS.into_iter().find(|(word, _)| call.is_word(index, word)).map(|(_, test)| test)
    }

    /// Of a value that is kept compressed, as little is unpacked as can be.
    pub(super) fn is_met(self, value: Value<'_>, operand: &[u8]) -> Result<bool, Refusal> {
        let is_equal = || value.length() == operand.len() && with_bytes(value, |bytes| bytes == operand);
        let digest = || with_bytes(value, digest);
        Ok(match self {
            Self::Equal => is_equal(),
            Self::NotEqual => !is_equal(),
            Self::DigestEqual => digest() == parse_digest(operand)?,
            Self::DigestNotEqual => digest() != parse_digest(operand)?,
        })
    }
}

fn with_bytes<T>(value: Value<'_>, look: impl FnOnce(&[u8]) -> T) -> T {
    match value.plain() {
        Some(bytes) => look(bytes),
        None => look(&value.to_vec()),
    }
}

/// XXH3 with 64 bits.
pub(super) fn digest(value: &[u8]) -> u64 {
    XxHash3_64::oneshot(value)
}

fn parse_digest(text: &[u8]) -> Result<u64, Refusal> {
    const BAD: Refusal = Refusal::Other("ERR must be exactly 16 hexadecimal characters");
    let is_plain = text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_plain).ok_or(BAD)?;
    u64::from_str_radix(text, 16).map_err(|_| BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_redis() {
        let value =
            b"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd";
        assert_eq!(format!("{:016x}", digest(value)), "00006c38adf31777");
        assert_eq!(parse_digest(b"00006C38adf31777"), Ok(0x6c38_adf3_1777));
        for bad in [&b"6c38adf31777"[..], b"", b"000006c38adf31777", b"+0006c38adf31777", b"00006c38adf3177g"]
        {
            assert!(parse_digest(bad).is_err());
        }
    }
}
