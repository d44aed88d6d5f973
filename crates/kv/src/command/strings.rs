//! String commands.

use std::ops::{DerefMut, Range};

use engine::{Access, Entry, Expiry, Located, OutOfMemory, Shard, Value};

use super::expiry::{Unit, relative};
use super::options::{Command, Condition, Options};
use super::room::Room;
use super::{Call, Change, Outcome, Refusal};
use crate::reply::Reply;

pub(super) fn get(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    reply_value(call, &mut call.engine().lock(&key), reply);
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut room = Room::new(call);
    if call.length() > FEW_KEYS {
        let bytes = copied_bytes(call);
        room.make(bytes)?;
        reply.out.set_counted(bytes);
        // Reserve the memory in one step, because a growing list would temporarily take two or three times as
        // much.
        reply.out.bytes_mut().reserve_exact(bytes);
    }
    reply.array(call.length() - 1);
    let mut locked = call.lock_from(1);
    for bytes in call.from(1) {
        let key = call.key_of(bytes);
        reply_value(call, &mut locked.at(&key), reply);
    }
    drop(locked);
    Ok(())
}

/// Up to this many keys, no check is needed: values that are copied are at most 16 KiB each.
const FEW_KEYS: usize = 16;

/// Total size of the values that are copied into the reply.
fn copied_bytes(call: &Call<'_>) -> usize {
    let mut locked = call.lock_from(1);
    let bytes_of = |bytes| {
        let key = call.key_of(bytes);
        match locked.at(&key).get(Access::Peek, call.now_ms).map(|found| found.value) {
            Some(Value::Inline(value)) => value.len(),
            _ => 0,
        }
    };
    call.from(1).map(bytes_of).sum::<usize>() + call.length() * BULK_BYTES
}

/// Overhead of a bulk string beyond its contents.
const BULK_BYTES: usize = 16;

pub(super) fn set(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = Options::read(call, 3, Command::Set)?;
    let expiry = options.expiry(call, Command::Set)?.unwrap_or(Expiry::Never);
    let (key, value) = (call.key(1), call.value(2));
    let begin = reply.out.len();
    call.with_room(&key, || {
        reply.out.truncate(begin);
        let (mut located, is_met) = call.lock_if(&key, options.condition);
        let is_set = is_met == Ok(true);
        if options.is_old_wanted {
            reply_value(call, &mut located, reply);
        } else if is_set {
            reply.ok();
        } else {
            reply.null();
        }
        if reply.out.is_refused() {
            return Ok(Ok(()));
        }
        if is_set {
            value.store(&mut located, expiry, call.now_ms)?;
            changed_by_set(call, &located, expiry);
        }
        Ok(is_met.map(|_| ()))
    })?
}

fn changed_by_set<S: DerefMut<Target = Shard>>(call: &Call<'_>, located: &Located<'_, S>, expiry: Expiry) {
    call.changed(located, Change::Set);
    if matches!(expiry, Expiry::At(_)) {
        call.changed(located, Change::Expire);
    }
}

fn reply_value<S: DerefMut<Target = Shard>>(
    call: &Call<'_>,
    located: &mut Located<'_, S>,
    reply: &mut Reply<'_>,
) {
    let found = located.get(Access::Use, call.now_ms);
    call.statistics.looked(found.is_some());
    reply.value_or_null(found.map(|found| found.value).as_ref());
}

pub(super) fn setnx(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (key, value) = (call.key(1), call.value(2));
    let is_set = call.with_room(&key, || {
        let mut located = call.engine().lock(&key);
        let is_set = !located.contains(call.now_ms);
        if is_set {
            value.store(&mut located, Expiry::Never, call.now_ms)?;
            call.changed(&located, Change::Set);
        }
        Ok(is_set)
    })?;
    reply.integer(i64::from(is_set));
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiring(call, reply, Unit::Seconds, "setex")
}

pub(super) fn psetex(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    set_expiring(call, reply, Unit::Milliseconds, "psetex")
}

fn set_expiring(call: &Call<'_>, reply: &mut Reply<'_>, unit: Unit, command: &'static str) -> Outcome {
    let expiry = relative(call.integer(2)?, unit, call.now_ms, command)?;
    let (key, value) = (call.key(1), call.value(3));
    call.with_room(&key, || {
        let mut located = call.engine().lock(&key);
        value.store(&mut located, expiry, call.now_ms)?;
        changed_by_set(call, &located, expiry);
        Ok(())
    })?;
    reply.ok();
    Ok(())
}

pub(super) fn getset(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (key, value) = (call.key(1), call.value(2));
    let begin = reply.out.len();
    call.with_room(&key, || {
        reply.out.truncate(begin);
        let mut located = call.engine().lock(&key);
        reply_value(call, &mut located, reply);
        if !reply.out.is_refused() {
            value.store(&mut located, Expiry::Never, call.now_ms)?;
            call.changed(&located, Change::Set);
        }
        Ok(())
    })
}

pub(super) fn getdel(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let mut located = call.engine().lock(&key);
    reply_value(call, &mut located, reply);
    if !reply.out.is_refused() && located.remove(call.now_ms) {
        call.changed(&located, Change::Del);
    }
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = Options::read(call, 2, Command::GetEx)?;
    let key = call.key(1);
    // As in Redis, the expiration time isn't checked if the key doesn't exist.
    if !call.engine().lock(&key).contains(call.now_ms) {
        reply.null();
        return Ok(());
    }
    let change = options.expiry(call, Command::GetEx)?;
    let begin = reply.out.len();
    call.with_room(&key, || {
        reply.out.truncate(begin);
        let mut located = call.engine().lock(&key);
        reply_value(call, &mut located, reply);
        let change = change.filter(|_| !reply.out.is_refused());
        let changed = change.map_or(Ok(None), |expiry| expire(&mut located, expiry, call.now_ms))?;
        if let Some(change) = changed {
            call.changed(&located, change);
        }
        Ok(())
    })
}

/// Changes the expiry, or removes the key if the expiry is in the past. Returns the change, if any.
fn expire<S: DerefMut<Target = Shard>>(
    located: &mut Located<'_, S>,
    expiry: Expiry,
    now_ms: u64,
) -> Result<Option<Change>, OutOfMemory> {
    let Some(found) = located.get(Access::Peek, now_ms) else { return Ok(None) };
    match expiry {
        Expiry::Never if found.expires_at_ms.is_none() => Ok(None),
        Expiry::At(at_ms) if at_ms <= now_ms => Ok(located.remove(now_ms).then_some(Change::Del)),
        _ => {
            located.set_expiry(expiry, now_ms)?;
            Ok(Some(if expiry == Expiry::Never { Change::Persist } else { Change::Expire }))
        }
    }
}

pub(super) fn mset(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let pairs = pairs(call, "mset")?;
    set_all(call, &pairs, Condition::Always)?;
    reply.ok();
    Ok(())
}

pub(super) fn msetnx(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let pairs = pairs(call, "msetnx")?;
    let is_set = set_all(call, &pairs, Condition::IfMissing)?;
    reply.integer(i64::from(is_set));
    Ok(())
}

fn pairs<'a>(call: &Call<'a>, command: &str) -> Result<Vec<Entry<'a>>, Refusal> {
    if call.length().is_multiple_of(2) {
        return Err(Refusal::Arity(command.to_owned()));
    }
    let pair = |at| (call.key(at), call.argument(at + 1), Expiry::Never);
    Ok((1..call.length()).step_by(2).map(pair).collect())
}

/// Memory of an entry during the command: itself, its position in the order of shards, and its shard.
const ENTRY_BYTES: usize = size_of::<Entry<'_>>() + 2 * size_of::<usize>();

/// Sets all keys or none, and returns whether they were set.
pub(super) fn set_all(
    call: &Call<'_>,
    entries: &[Entry<'_>],
    condition: Condition<'_>,
) -> Result<bool, Refusal> {
    let Some((first, ..)) = entries.first() else { return Ok(false) };
    let mut room = Room::new(call);
    room.take(entries.len() * ENTRY_BYTES);
    if !call.engine().could_hold_all(entries) {
        return Err(Refusal::OutOfMemory);
    }
    call.with_room(first, || {
        let mut locked = call.engine().lock_all(entries.iter().map(|(key, ..)| *key));
        let is_met = |(key, ..): &Entry<'_>| condition.is_met(&mut locked.at(key), call.now_ms) == Ok(true);
        let is_set = entries.iter().all(is_met);
        if is_set {
            locked.set_all(entries, call.now_ms)?;
            entries.iter().for_each(|(key, _, expiry)| changed_by_set(call, &locked.at(key), *expiry));
        }
        Ok(is_set)
    })
}

pub(super) fn strlen(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let mut shard = call.engine().lock(&key);
    let found = shard.get(Access::Use, call.now_ms);
    call.statistics.looked(found.is_some());
    reply.count(found.map_or(0, |found| found.value.length()));
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key(1);
    let mut located = call.engine().lock(&key);
    let found = located.get(Access::Use, call.now_ms);
    call.statistics.looked(found.is_some());
    match found.map(|found| found.value) {
        Some(Value::Large(stored)) => {
            let stored = stored.clone();
            // The value may have to be decompressed, so the lock is released first.
            drop(located);
            reply.part(&stored, range(stored.value_bytes(), start, end));
        }
        Some(Value::Inline(value)) => reply.bulk(&value[range(value.len(), start, end)]),
        None => reply.bulk(b""),
    }
    Ok(())
}

/// The range within a value of this length. Both ends are inclusive; negative ones count from the end.
fn range(length: usize, start: i64, end: i64) -> Range<usize> {
    let length = length as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_begin = |at: i64| if at < 0 { (length + at).max(0) } else { at };
    let (start, end) = (from_begin(start), from_begin(end).min(length - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_those_of_redis() {
        let check = |start, end, expected: &str| {
            let text = "This is a string";
            assert_eq!(&text[range(text.len(), start, end)], expected, "{start} {end}");
        };
        check(0, 3, "This");
        check(-3, -1, "ing");
        check(0, -1, "This is a string");
        check(10, 100, "string");
        check(5, 3, "");
        check(-1, -5, "");
        check(-100, 3, "This");
        check(16, 20, "");
        check(-100, -50, "T");
        assert_eq!(range(0, 0, -1), 0..0);
    }
}
