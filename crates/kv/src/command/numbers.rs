//! Commands for values that are numbers.

use arrayvec::ArrayVec;
use engine::{Access, Expiry};

use super::arguments::{INTEGER_BYTES_MAX, parse_integer};
use super::long_double::Number;
use super::{Call, Change, Outcome, Refusal};
use crate::reply::Reply;

pub(super) fn incr(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, 1)
}

pub(super) fn decr(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, -1)
}

pub(super) fn incrby(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, call.integer(2)?)
}

pub(super) fn decrby(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let less = call.integer(2)?;
    add(call, reply, less.checked_neg().ok_or(Refusal::Other("ERR decrement would overflow"))?)
}

fn add(call: &Call<'_>, reply: &mut Reply<'_>, more: i64) -> Outcome {
    let sum = replace(call, Change::IncrBy, |value| {
        let number = value.map_or(Ok(0), parse_integer)?;
        number.checked_add(more).map(digits).ok_or(Refusal::Overflow)
    })?;
    reply.integer_of(&sum);
    Ok(())
}

/// Formats a number as it is stored and sent.
fn digits(number: i64) -> ArrayVec<u8, INTEGER_BYTES_MAX> {
    itoa::Buffer::new().format(number).bytes().collect()
}

pub(super) fn incrbyfloat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let number = |text: &[u8]| Number::parse(text).ok_or(Refusal::NotFloat);
    let more = number(call.argument(2))?;
    let sum = replace(call, Change::IncrByFloat, |value| {
        let value = value.map_or(Ok(Number::ZERO), number)?;
        value.sum(more).ok_or(Refusal::NotFinite)
    })?;
    reply.bulk(sum.as_bytes());
    Ok(())
}

/// Replaces a number by the result of `change`, which gets `None` for a missing key. Keeps the expiry, and
/// returns the result.
fn replace<T: AsRef<[u8]>>(
    call: &Call<'_>,
    what: Change,
    change: impl Fn(Option<&[u8]>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let key = call.key(1);
    call.with_room(&key, || {
        let mut located = call.engine().lock(&key);
        let found = located.get(Access::Use, call.now_ms);
        // A compressed value is longer than any number, so it fails to parse like an empty value.
        let changed = change(found.as_ref().map(|found| found.value.plain().unwrap_or_default()));
        if let Ok(number) = &changed {
            located.set(number.as_ref(), Expiry::Keep, call.now_ms)?;
            call.changed(&located, what);
        }
        Ok(changed)
    })?
}
