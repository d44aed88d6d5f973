//! Server commands.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Call, Outcome, Refusal};
use crate::background;
use crate::reply::Reply;

pub(super) fn dbsize(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let keys = call.engine().counts().keys[call.session.database.number()];
    reply.integer(keys as i64);
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_flush(call)?;
    call.alone()?;
    let mut cleared = call.shared.clear(call.now_ms);
    call.changed_many();
    // If no thread can be started, the memory is freed here, when `cleared` is dropped.
    let _ = background::spawn("kv-free", move || while cleared.free_some() {});
    reply.ok();
    Ok(())
}

pub(super) fn flushdb(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_flush(call)?;
    call.alone()?;
    let database = call.session.database;
    let watched = call.shared.watched(Some(call.session.chosen), call.now_ms);
    call.engine().shards().for_each(|mut shard| shard.clear_database(database));
    call.shared.flushed(&watched);
    call.changed_many();
    reply.ok();
    Ok(())
}

fn check_flush(call: &Call<'_>) -> Outcome {
    match call.length() {
        1 => Ok(()),
        2 if call.is_word(1, "async") || call.is_word(1, "sync") => Ok(()),
        _ => Err(Refusal::Syntax),
    }
}

/// Reads the clock anew: clients order events by the microseconds, and commands of one turn have the same `now_ms`.
pub(super) fn time(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply.array(2);
    reply.bulk(since.as_secs().to_string().as_bytes());
    reply.bulk(since.subsec_micros().to_string().as_bytes());
    Ok(())
}
