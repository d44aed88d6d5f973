//! DUMP and RESTORE: values in Redis' RDB format, to transfer them between servers.

use engine::{Access, Expiry, Value};

use super::room::Room;
use super::{Call, Change, Outcome, Refusal};
use crate::rdb::{self, BadPayload};
use crate::reply::Reply;

/// DUMP key
pub(super) fn dump(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let mut located = call.engine().lock(&key);
    let found = located.get(Access::Peek, call.now_ms);
    call.statistics.looked(found.is_some());
    let dumped = match found.map(|found| found.value) {
        None => None,
        Some(Value::Inline(value)) => Some(rdb::dump(value)),
        Some(Value::Large(stored)) => {
            let stored = stored.clone();
            // The checksum is computed, and the value possibly decompressed, without the lock.
            drop(located);
            let bytes = rdb::dumped_bytes(stored.value_bytes());
            let mut room = Room::new(call);
            // Room for the reply, and for the buffers from which it is copied.
            room.make(3 * bytes)?;
            call.go_through(bytes)?;
            let dumped = rdb::dump(&stored.plain());
            reply.bulk(&dumped);
            return Ok(());
        }
    };
    reply.bulk_or_null(dumped.as_deref());
    Ok(())
}

/// Options of RESTORE.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    is_replaced: bool,
    is_absolute: bool,
}

/// RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
pub(super) fn restore(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (options, key) = (options(call)?, call.key(1));
    // Checks are in Redis' order.
    if !options.is_replaced && call.engine().lock(&key).contains(call.now_ms) {
        return Err(BUSY);
    }
    let ttl =
        u64::try_from(call.integer(2)?).map_err(|_| Refusal::Other("ERR Invalid TTL value, must be >= 0"))?;
    let base_ms = if options.is_absolute { 0 } else { call.now_ms };
    let expires_at_ms = (ttl > 0).then(|| ttl.saturating_add(base_ms));
    let payload = call.argument(3);
    let bytes_max = usize::try_from(call.engine().bytes_max()).unwrap_or(usize::MAX);
    let bytes = rdb::restored_bytes(payload);
    if bytes > bytes_max {
        return Err(Refusal::OutOfMemory);
    }
    call.go_through(payload.len().saturating_add(bytes))?;
    // The payload is decoded before the value is stored.
    let mut room = Room::new(call);
    room.make(bytes).map_err(|_| Refusal::OutOfMemory)?;
    let value = call.new_value(rdb::restore(payload, bytes_max).map_err(refusal)?)?;
    drop(room);
    let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::At);
    call.with_room(&key, || {
        let mut located = call.engine().lock(&key);
        if !options.is_replaced && located.contains(call.now_ms) {
            return Ok(Err(BUSY));
        }
        if expires_at_ms.is_some_and(|at_ms| at_ms <= call.now_ms) {
            // The effect is the same as if the key had existed and expired.
            if located.remove(call.now_ms) {
                call.changed(&located, Change::Del);
            }
            return Ok(Ok(()));
        }
        value.store(&mut located, expiry, call.now_ms)?;
        call.changed(&located, Change::Restore);
        Ok(Ok(()))
    })??;
    reply.ok();
    Ok(())
}

const BUSY: Refusal = Refusal::Other("BUSYKEY Target key name already exists.");

fn refusal(bad: BadPayload) -> Refusal {
    match bad {
        BadPayload::Checksum => Refusal::Other("ERR DUMP payload version or checksum are wrong"),
        BadPayload::Format => Refusal::Other("ERR Bad data format: this server stores only strings"),
        BadPayload::TooLong => Refusal::OutOfMemory,
    }
}

fn options(call: &Call<'_>) -> Result<Options, Refusal> {
    let (mut options, mut at, mut is_used) = (Options::default(), 4, false);
    while at < call.length() {
        let has_value = at + 1 < call.length();
        match () {
            () if call.is_word(at, "replace") => options.is_replaced = true,
            () if call.is_word(at, "absttl") => options.is_absolute = true,
            // Idle time and frequency are checked and ignored: they describe the usage on another server.
            () if call.is_word(at, "idletime") && has_value && !is_used => {
                (is_used, at) = (true, at + 1);
                if call.integer(at)? < 0 {
                    return Err(Refusal::Other("ERR Invalid IDLETIME value, must be >= 0"));
                }
            }
            () if call.is_word(at, "freq") && has_value && !is_used => {
                (is_used, at) = (true, at + 1);
                if !(0..=255).contains(&call.integer(at)?) {
                    return Err(Refusal::Other("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
            }
            () => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    Ok(options)
}
