//! Expiration commands.

use engine::{Access, Expiry};

use super::{Call, Change, Outcome, Refusal};
use crate::repeated;
use crate::reply::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// The reference point of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Now,
    Epoch,
}

/// Conditions of EXPIRE.
#[derive(Clone, Copy, Debug, Default)]
struct ExpireOptions {
    is_for_none: bool,
    is_for_some: bool,
    is_for_greater: bool,
    is_for_less: bool,
}

impl Unit {
    fn to_ms(self, time: i64) -> Option<i64> {
        match self {
            Self::Seconds => time.checked_mul(1000),
            Self::Milliseconds => Some(time),
        }
    }

    fn of_ms(self, ms: u64) -> i64 {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        match self {
            // Rounded, as in Redis.
            Self::Seconds => ms.saturating_add(500) / 1000,
            Self::Milliseconds => ms,
        }
    }
}

/// A relative expiry, which has to be positive.
pub(super) fn relative(time: i64, unit: Unit, now_ms: u64, command: &'static str) -> Result<Expiry, Refusal> {
    absolute(time, unit, now_ms, command)
}

pub(super) fn absolute(
    time: i64,
    unit: Unit,
    base_ms: u64,
    command: &'static str,
) -> Result<Expiry, Refusal> {
    let ms = unit.to_ms(time).filter(|ms| *ms > 0).and_then(|ms| ms.checked_add_unsigned(base_ms));
    let at_ms = ms.and_then(|ms| u64::try_from(ms).ok()).ok_or(Refusal::ExpireTime(command))?;
    Ok(Expiry::At(at_ms))
}

pub(super) fn expire(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiry(call, reply, Unit::Seconds, Origin::Now, "expire")
}

pub(super) fn pexpire(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiry(call, reply, Unit::Milliseconds, Origin::Now, "pexpire")
}

pub(super) fn expireat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiry(call, reply, Unit::Seconds, Origin::Epoch, "expireat")
}

pub(super) fn pexpireat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiry(call, reply, Unit::Milliseconds, Origin::Epoch, "pexpireat")
}

fn set_expiry(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    unit: Unit,
    origin: Origin,
    command: &'static str,
) -> Outcome {
    let options = expire_options(call)?;
    let base_ms = if origin == Origin::Now { call.now_ms } else { 0 };
    let at_ms = unit.to_ms(call.integer(2)?).and_then(|ms| ms.checked_add_unsigned(base_ms));
    let at_ms = at_ms.ok_or(Refusal::ExpireTime(command))?;
    let key = call.key(1);
    let expires_at_ms = u64::try_from(at_ms).ok().filter(|at_ms| *at_ms > call.now_ms);
    let is_set = call.with_room(&key, || {
        let mut shard = call.engine().lock(&key);
        let Some(found) = shard.get(Access::Peek, call.now_ms) else { return Ok(false) };
        if !options.allow(found.expires_at_ms, at_ms) {
            return Ok(false);
        }
        // An expiry in the past removes the key immediately.
        let (is_set, change) = match expires_at_ms {
            Some(at_ms) => (shard.set_expiry(Expiry::At(at_ms), call.now_ms)?, Change::Expire),
            None => (shard.remove(call.now_ms), Change::Del),
        };
        if is_set {
            call.changed(&shard, change);
        }
        Ok(is_set)
    })?;
    reply.integer(i64::from(is_set));
    Ok(())
}

fn expire_options(call: &Call<'_>) -> Result<ExpireOptions, Refusal> {
    let mut options = ExpireOptions::default();
    for at in 3..call.length() {
        match () {
            () if call.is_word(at, "nx") => options.is_for_none = true,
            () if call.is_word(at, "xx") => options.is_for_some = true,
            () if call.is_word(at, "gt") => options.is_for_greater = true,
            () if call.is_word(at, "lt") => options.is_for_less = true,
            () => {
                let word = repeated::text(call.argument(at));
                return Err(Refusal::UnknownOption(word));
            }
        }
    }
    let with_none = options.is_for_some || options.is_for_greater || options.is_for_less;
    match () {
        () if options.is_for_none && with_none => Err(Refusal::ExpireOptions),
        () if options.is_for_greater && options.is_for_less => Err(Refusal::ExpireOrder),
        () => Ok(options),
    }
}

impl ExpireOptions {
    /// Returns whether the conditions permit the change. A key without an expiry counts as one that expires
    /// at infinity.
    fn allow(self, current_ms: Option<u64>, at_ms: i64) -> bool {
        let later = current_ms.is_some_and(|current| at_ms > i64::try_from(current).unwrap_or(i64::MAX));
        let sooner = current_ms.is_none_or(|current| at_ms < i64::try_from(current).unwrap_or(i64::MAX));
        (!self.is_for_none || current_ms.is_none())
            && (!self.is_for_some || current_ms.is_some())
            && (!self.is_for_greater || later)
            && (!self.is_for_less || sooner)
    }
}

pub(super) fn persist(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let is_changed = call.with_room(&key, || {
        let mut shard = call.engine().lock(&key);
        let found = shard.get(Access::Peek, call.now_ms);
        let is_changed = match found.and_then(|found| found.expires_at_ms) {
            Some(_) => shard.set_expiry(Expiry::Never, call.now_ms)?,
            None => false,
        };
        if is_changed {
            call.changed(&shard, Change::Persist);
        }
        Ok(is_changed)
    })?;
    reply.integer(i64::from(is_changed));
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let now_ms = call.now_ms;
    time_of(call, reply, |at_ms| Unit::Seconds.of_ms(at_ms.saturating_sub(now_ms)))
}

pub(super) fn pttl(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let now_ms = call.now_ms;
    time_of(call, reply, |at_ms| Unit::Milliseconds.of_ms(at_ms.saturating_sub(now_ms)))
}

pub(super) fn expiretime(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    time_of(call, reply, |at_ms| Unit::Seconds.of_ms(at_ms))
}

pub(super) fn pexpiretime(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    time_of(call, reply, |at_ms| Unit::Milliseconds.of_ms(at_ms))
}

/// Replies -2 if the key doesn't exist, and -1 if it has no expiry.
fn time_of(call: &Call<'_>, reply: &mut Reply<'_>, time: impl Fn(u64) -> i64) -> Outcome {
    let key = call.key(1);
    let mut shard = call.engine().lock(&key);
    let found = shard.get(Access::Peek, call.now_ms);
    call.statistics.looked(found.is_some());
    reply.integer(found.map_or(-2, |found| found.expires_at_ms.map_or(-1, time)));
    Ok(())
}
