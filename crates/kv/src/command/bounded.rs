//! INCREX of Redis 8.8: increments a number within bounds, and sets an expiry.

use engine::{Access, Expiry};

use super::arguments::parse_integer;
use super::long_double::Number;
use super::options::{Command, Options};
use super::{Call, Change, Outcome, Refusal};
use crate::reply::Reply;

/// Options of INCREX other than the expiry.
#[derive(Clone, Copy, Debug, Default)]
struct Increment<'a> {
    by: Option<By<'a>>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    /// Whether a result beyond a bound is clamped to it. Otherwise such a result changes nothing.
    is_saturated: bool,
    /// Whether the expiry is set only on a key without one.
    is_for_none: bool,
}

#[derive(Clone, Copy, Debug)]
enum By<'a> {
    Integer(&'a [u8]),
    Float(&'a [u8]),
}

/// The result of an increment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    number: String,
    added: String,
    is_stored: bool,
}

pub(super) fn increx(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (increment, options) = read(call)?;
    let expiry = options.expiry(call, Command::IncrEx)?.unwrap_or(Expiry::Keep);
    let is_float = matches!(increment.by, Some(By::Float(_)));
    let (key, change) = (call.key(1), if is_float { Change::IncrByFloat } else { Change::IncrBy });
    let step = call.with_room(&key, || {
        let mut located = call.engine().lock(&key);
        let found = located.get(Access::Use, call.now_ms);
        let expires = found.as_ref().is_some_and(|found| found.expires_at_ms.is_some());
        let value = found.as_ref().map_or(&b"0"[..], |found| found.value.plain().unwrap_or_default());
        let step = match increment.apply(value) {
            Ok(step) if step.is_stored => step,
            other => return Ok(other),
        };
        let expiry = if increment.is_for_none && expires { Expiry::Keep } else { expiry };
        located.set(step.number.as_bytes(), expiry, call.now_ms)?;
        call.changed(&located, change);
        match expiry {
            Expiry::At(_) => call.changed(&located, Change::Expire),
            Expiry::Never if expires => call.changed(&located, Change::Persist),
            Expiry::Never | Expiry::Keep => {}
        }
        Ok(Ok(step))
    })??;
    reply.array(2);
    for number in [&step.number, &step.added] {
        if is_float { reply.float(number) } else { reply.integer(number.parse().unwrap_or_default()) }
    }
    Ok(())
}

/// Parses the options. Unlike other commands, INCREX rejects repeated options.
fn read<'a>(call: &Call<'a>) -> Result<(Increment<'a>, Options<'a>), Refusal> {
    let (mut increment, mut options, mut at) = (Increment::default(), Options::default(), 2);
    while at < call.length() {
        let operand = || (at + 1 < call.length()).then(|| call.argument(at + 1)).ok_or(Refusal::Syntax);
        at += match () {
            () if increment.by.is_none() && call.is_word(at, "byint") => {
                increment.by = Some(By::Integer(operand()?));
                2
            }
            () if increment.by.is_none() && call.is_word(at, "byfloat") => {
                increment.by = Some(By::Float(operand()?));
                2
            }
            () if increment.lower.is_none() && call.is_word(at, "lbound") => {
                increment.lower = Some(operand()?);
                2
            }
            () if increment.upper.is_none() && call.is_word(at, "ubound") => {
                increment.upper = Some(operand()?);
                2
            }
            () if !increment.is_saturated && call.is_word(at, "saturate") => {
                increment.is_saturated = true;
                1
            }
            () if !increment.is_for_none && call.is_word(at, "enx") => {
                increment.is_for_none = true;
                1
            }
            () if options.has_lifetime() => return Err(Refusal::Syntax),
            () => match options.read_lifetime(call, at, Command::IncrEx) {
                0 => return Err(Refusal::Syntax),
                taken => taken,
            },
        };
    }
    if increment.is_for_none && !options.is_until() {
        return Err(Refusal::Syntax);
    }
    Ok((increment, options))
}

impl Increment<'_> {
    fn apply(&self, value: &[u8]) -> Result<Step, Refusal> {
        match self.by.unwrap_or(By::Integer(b"1")) {
            By::Integer(by) => self.apply_integer(value, parse_integer(by)?),
            By::Float(by) => self.apply_float(value, by),
        }
    }

    fn apply_integer(&self, value: &[u8], by: i64) -> Result<Step, Refusal> {
        let lower = self.lower.map_or(Ok(i64::MIN), parse_integer)?;
        let upper = self.upper.map_or(Ok(i64::MAX), parse_integer)?;
        if lower > upper {
            return Err(CONTRADICTION);
        }
        let value = parse_integer(value)?;
        let sum = i128::from(value) + i128::from(by);
        let within = sum.clamp(i128::from(lower), i128::from(upper));
        let is_stored = within == sum || self.is_saturated;
        let number = if is_stored { within } else { i128::from(value) };
        let added = number - i128::from(value);
        let added = i64::try_from(added).unwrap_or(if added < 0 { i64::MIN } else { i64::MAX });
        Ok(Step { number: number.to_string(), added: added.to_string(), is_stored })
    }

    fn apply_float(&self, value: &[u8], by: &[u8]) -> Result<Step, Refusal> {
        let (value, by) = (float(value)?, float(by)?);
        let bounds = [self.lower, self.upper].map(|bound| bound.map(float).transpose());
        let [lower, upper] = bounds;
        let (lower, upper) = (lower?, upper?);
        if let (Some(lower), Some(upper)) = (&lower, &upper)
            && is_less(upper, lower)?
        {
            return Err(CONTRADICTION);
        }
        let sum = plus(&value, &by)?;
        let mut within = sum.clone();
        if let Some(lower) = lower.filter(|lower| is_less(&within, lower) == Ok(true)) {
            within = lower;
        }
        if let Some(upper) = upper.filter(|upper| is_less(upper, &within) == Ok(true)) {
            within = upper;
        }
        if within == sum {
            return Ok(Step { number: sum, added: by, is_stored: true });
        }
        if !self.is_saturated {
            return Ok(Step { number: value, added: "0".to_owned(), is_stored: false });
        }
        let added = plus(&within, &negative(&value))?;
        Ok(Step { number: within, added, is_stored: true })
    }
}

const CONTRADICTION: Refusal = Refusal::Other("ERR LBOUND can't be greater than UBOUND");

/// Normalises a number to the format in which results are written.
fn float(text: &[u8]) -> Result<String, Refusal> {
    let number = Number::parse(text).ok_or(Refusal::NotFloat)?;
    number.sum(Number::ZERO).ok_or(Refusal::NotFloat)
}

fn plus(one: &str, other: &str) -> Result<String, Refusal> {
    let number = |text: &str| Number::parse(text.as_bytes()).ok_or(Refusal::NotFloat);
    number(one)?.sum(number(other)?).ok_or(Refusal::NotFinite)
}

fn negative(number: &str) -> String {
    number.strip_prefix('-').map_or_else(|| format!("-{number}"), str::to_owned)
}

fn is_less(one: &str, other: &str) -> Result<bool, Refusal> {
    Ok(plus(one, &negative(other))?.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(by: By<'_>, bounds: [&str; 2], value: &str, expected: [Option<[&str; 2]>; 2]) {
        let bound = |text: &'static str| Some(text.as_bytes()).filter(|text| !text.is_empty());
        let bounds = bounds.map(|text| String::from(text).leak());
        for (is_saturated, expected) in [false, true].into_iter().zip(expected) {
            let [lower, upper] = [bound(bounds[0]), bound(bounds[1])];
            let increment = Increment { by: Some(by), lower, upper, is_saturated, is_for_none: false };
            let step = increment.apply(value.as_bytes()).expect("numbers");
            let told = [step.number.as_str(), step.added.as_str()];
            match expected {
                Some(expected) => assert_eq!((told, step.is_stored), (expected, true)),
                None => assert_eq!((told, step.is_stored), ([value, "0"], false)),
            }
        }
    }

    #[test]
    fn a_number_stays_within_its_bounds() {
        let int = |by: &'static str| By::Integer(by.as_bytes());
        let stays = |step: [&'static str; 2]| [Some(step); 2];
        check(int("5"), ["", ""], "10", stays(["15", "5"]));
        check(int("5"), ["", "15"], "10", stays(["15", "5"]));
        check(int("6"), ["", "15"], "10", [None, Some(["15", "5"])]);
        check(int("-100"), ["0", ""], "10", [None, Some(["0", "-10"])]);
        check(int("1"), ["", "10"], "50", [None, Some(["10", "-40"])]);
        check(int("1"), ["", ""], "9223372036854775807", [None, Some(["9223372036854775807", "0"])]);
        let float = |by: &'static str| By::Float(by.as_bytes());
        check(float("0.25"), ["", ""], "1.5", stays(["1.75", "0.25"]));
        check(float("1"), ["", "2"], "1.5", [None, Some(["2", "0.5"])]);
        check(float("-1e1"), ["-2.5", ""], "1.5", [None, Some(["-2.5", "-4"])]);
    }

    #[test]
    fn bounds_that_contradict_each_other_are_refused() {
        for by in [By::Integer(b"1"), By::Float(b"1")] {
            let increment =
                Increment { by: Some(by), lower: Some(b"2"), upper: Some(b"1"), ..Increment::default() };
            assert_eq!(increment.apply(b"0"), Err(CONTRADICTION));
        }
    }
}
