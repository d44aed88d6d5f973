//! Conditional commands of Redis 8.4 and Valkey 9.

use engine::{Access, Entry, Expiry, Value};

use super::arguments::parse_integer;
use super::options::{Command, Condition, Options, Test, digest};
use super::strings::set_all;
use super::{Call, Change, Outcome, Refusal};
use crate::reply::Reply;

/// DELIFEQ key value
pub(super) fn delifeq(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    remove_if(call, reply, |call| Ok(Condition::If(Test::Equal, call.argument(2))))
}

/// DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]
pub(super) fn delex(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        2 => remove_if(call, reply, |_| Ok(Condition::Always)),
        4 => remove_if(call, reply, |call| {
            let test = Test::named(call, 2)
                .ok_or(Refusal::Other("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
            Ok(Condition::If(test, call.argument(3)))
        }),
        _ => Err(Refusal::Arity("delex".to_owned())),
    }
}

fn remove_if<'a>(
    call: &Call<'a>,
    reply: &mut Reply<'_>,
    condition: impl FnOnce(&Call<'a>) -> Result<Condition<'a>, Refusal>,
) -> Outcome {
    let key = call.key(1);
    // As in Redis, the reply for a missing key is 0, whatever the condition.
    if !call.engine().lock(&key).contains(call.now_ms) {
        reply.integer(0);
        return Ok(());
    }
    let (mut located, is_met) = call.lock_if(&key, condition(call)?);
    let is_removed = is_met? && located.remove(call.now_ms);
    if is_removed {
        call.changed(&located, Change::Del);
    }
    reply.integer(i64::from(is_removed));
    Ok(())
}

/// DIGEST key
pub(super) fn digest_of(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let mut shard = call.engine().lock(&key);
    let found = shard.get(Access::Use, call.now_ms);
    call.statistics.looked(found.is_some());
    let digest = match found.map(|found| found.value) {
        None => {
            reply.null();
            return Ok(());
        }
        Some(Value::Inline(value)) => digest(value),
        Some(Value::Large(stored)) => {
            let stored = stored.clone();
            // The value may have to be decompressed, so the lock is released first.
            drop(shard);
            call.look_through(&stored)?;
            digest(&stored.plain())
        }
    };
    reply.bulk(format!("{digest:016x}").as_bytes());
    Ok(())
}

/// MSETEX numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]
pub(super) fn msetex(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let count = parse_integer(call.argument(1)).ok().and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Other("ERR invalid numkeys value"))?;
    let end = 2 + 2 * count;
    if end > call.length() {
        return Err(Refusal::Other("ERR wrong number of key-value pairs"));
    }
    let options = Options::read(call, end, Command::MSetEx)?;
    let expiry = options.expiry(call, Command::MSetEx)?.unwrap_or(Expiry::Never);
    let entry = |at| -> Entry<'_> { (call.key(at), call.argument(at + 1), expiry) };
    let entries: Vec<_> = (2..end).step_by(2).map(entry).collect();
    let is_set = set_all(call, &entries, options.condition)?;
    reply.integer(i64::from(is_set));
    Ok(())
}
