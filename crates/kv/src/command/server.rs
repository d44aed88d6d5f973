//! Server commands.

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

pub(super) fn time(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(2);
    reply.bulk((call.now_ms / 1000).to_string().as_bytes());
    reply.bulk((call.now_ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}
