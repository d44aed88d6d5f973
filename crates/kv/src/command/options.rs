//! Options shared by SET, GETEX, MSETEX and DELEX: expiry and conditions.

use std::ops::DerefMut;

use engine::{Access, Expiry, Guard, Key, Located, Shard, Stored, Value};
use twox_hash::XxHash3_64;

use super::arguments::parse_integer;
use super::expiry::{Origin, Unit, absolute};
use super::{Call, Refusal};

/// The command whose options are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Set,
    GetEx,
    IncrEx,
    MSetEx,
}

/// Parsed options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    pub(super) condition: Condition<'a>,
    pub(super) is_old_wanted: bool,
    lifetime: Option<Lifetime<'a>>,
}

/// The condition for a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Condition<'a> {
    #[default]
    Always,
    IfMissing,
    IfThere,
    If(Test, &'a [u8]),
}

/// The comparison of a value, or its digest, with an operand.
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
    fn may_persist(self) -> bool {
        matches!(self, Self::GetEx | Self::IncrEx)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::GetEx => "getex",
            Self::IncrEx => "increx",
            Self::MSetEx => "msetex",
        }
    }
}

impl<'a> Options<'a> {
    /// Returns whether an expiry option was given.
    pub(super) fn has_lifetime(&self) -> bool {
        self.lifetime.is_some()
    }

    /// Returns whether an expiration time was given.
    pub(super) fn is_until(&self) -> bool {
        matches!(self.lifetime, Some(Lifetime::Until(..)))
    }

    /// Parses the options from an argument on. As in Redis, a repeated option overrides the earlier one, and
    /// different options of a kind exclude each other.
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

    /// Parses a condition, and returns the number of arguments.
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

    /// Parses an expiry option, and returns the number of arguments.
    pub(super) fn read_lifetime(&mut self, call: &Call<'a>, at: usize, command: Command) -> usize {
        let has_next = at + 1 < call.length();
        let time = TIMES.into_iter().find(|(word, ..)| has_next && call.is_word(at, word));
        let (lifetime, taken) = match time {
            Some((_, unit, origin)) => (Lifetime::Until(unit, origin, call.argument(at + 1)), 2),
            None if command.may_persist() && call.is_word(at, "persist") => (Lifetime::Never, 1),
            None if !command.may_persist() && call.is_word(at, "keepttl") => (Lifetime::Keep, 1),
            None => return 0,
        };
        if self.lifetime.is_some_and(|before| !before.is_like(lifetime)) {
            return 0;
        }
        self.lifetime = Some(lifetime);
        taken
    }

    /// The expiry to set; `None` if no option was given.
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
    /// Returns whether the condition is met. A long value is examined under the lock: see [`Call::lock_if`].
    pub(super) fn is_met<S: DerefMut<Target = Shard>>(
        self,
        located: &mut Located<'_, S>,
        now_ms: u64,
    ) -> Result<bool, Refusal> {
        match self.look(located, None, now_ms)? {
            Look::Done(is_met) => Ok(is_met),
            Look::Long(stored) => self.is_met_by(&stored),
        }
    }

    /// Evaluates the condition as far as possible without examining a long value.
    fn look<S: DerefMut<Target = Shard>>(
        self,
        located: &mut Located<'_, S>,
        judged: Option<&Judged>,
        now_ms: u64,
    ) -> Result<Look, Refusal> {
        let (test, operand) = match self {
            Self::Always => return Ok(Look::Done(true)),
            Self::IfMissing => return Ok(Look::Done(!located.contains(now_ms))),
            Self::IfThere => return Ok(Look::Done(located.contains(now_ms))),
            Self::If(test, operand) => (test, operand),
        };
        let Some(found) = located.get(Access::Peek, now_ms) else {
            // A missing value is equal to nothing.
            return Ok(Look::Done(matches!(test, Test::NotEqual | Test::DigestNotEqual)));
        };
        match found.value {
            value if !test.needs_all(value, operand) => test.is_met(None, operand).map(Look::Done),
            Value::Inline(bytes) => test.is_met(Some(bytes), operand).map(Look::Done),
            Value::Large(stored) => match judged.filter(|judged| judged.stored.is(stored)) {
                Some(judged) => Ok(Look::Done(judged.is_met)),
                None => Ok(Look::Long(stored.clone())),
            },
        }
    }

    /// Returns whether the condition is met by an existing value.
    fn is_met_by(self, stored: &Stored) -> Result<bool, Refusal> {
        match self {
            Self::Always | Self::IfThere => Ok(true),
            Self::IfMissing => Ok(false),
            Self::If(test, operand) => test.is_met(Some(&stored.plain()), operand),
        }
    }
}

impl Test {
    pub(super) fn named(call: &Call<'_>, index: usize) -> Option<Self> {
        TESTS.into_iter().find(|(word, _)| call.is_word(index, word)).map(|(_, test)| test)
    }

    /// Returns whether the comparison needs the whole value.
    fn needs_all(self, value: Value<'_>, operand: &[u8]) -> bool {
        match self {
            Self::Equal | Self::NotEqual => value.length() == operand.len(),
            Self::DigestEqual | Self::DigestNotEqual => true,
        }
    }

    /// Compares a value that has these bytes with the operand. `bytes` is `None` if they aren't needed.
    fn is_met(self, bytes: Option<&[u8]>, operand: &[u8]) -> Result<bool, Refusal> {
        Ok(match self {
            Self::Equal => bytes == Some(operand),
            Self::NotEqual => bytes != Some(operand),
            Self::DigestEqual => parse_digest(operand)? == digest(bytes.unwrap_or_default()),
            Self::DigestNotEqual => parse_digest(operand)? != digest(bytes.unwrap_or_default()),
        })
    }
}

/// The result for a large value that was examined without the lock.
struct Judged {
    stored: Stored,
    is_met: bool,
}

/// Result of a check under the shard's lock.
enum Look {
    Done(bool),
    /// The whole value has to be examined without the lock.
    Long(Stored),
}

/// A key with its shard locked, and whether the condition is met.
pub(super) type Asked<'a, 'k> = (Located<'k, Guard<'a>>, Result<bool, Refusal>);

impl<'a> Call<'a> {
    /// Locks the shard of a key and evaluates the condition on its value. A long value is examined, and
    /// decompressed, without the lock; if it has changed by then, the new one is examined.
    pub(super) fn lock_if<'k>(&self, key: &'k Key<'k>, condition: Condition<'_>) -> Asked<'a, 'k> {
        let mut judged = None;
        for _ in 0..ATTEMPTS_UNLOCKED {
            let mut located = self.engine().lock(key);
            let stored = match condition.look(&mut located, judged.as_ref(), self.now_ms) {
                Ok(Look::Long(stored)) => stored,
                Ok(Look::Done(is_met)) => return (located, Ok(is_met)),
                Err(refusal) => return (located, Err(refusal)),
            };
            drop(located);
            match self.look_through(&stored).and_then(|()| condition.is_met_by(&stored)) {
                Ok(is_met) => judged = Some(Judged { stored, is_met }),
                Err(refusal) => return (self.engine().lock(key), Err(refusal)),
            }
        }
        let mut located = self.engine().lock(key);
        let is_met = condition.is_met(&mut located, self.now_ms);
        (located, is_met)
    }
}

/// After this many attempts the value is examined under the lock, because other clients keep changing it.
const ATTEMPTS_UNLOCKED: usize = 4;

/// The 64-bit XXH3 digest of a value.
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
