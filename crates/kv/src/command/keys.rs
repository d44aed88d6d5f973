//! Commands for keys, whatever their values.

use engine::Access;

use super::{Call, Change, Outcome};
use crate::reply::Reply;

pub(super) fn del(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (mut locked, mut removed) = (call.lock_from(1), 0);
    for bytes in call.from(1) {
        let key = call.key_of(bytes);
        let mut located = locked.at(&key);
        if located.remove(call.now_ms) {
            call.changed(&located, Change::Del);
            removed += 1;
        }
    }
    reply.count(removed);
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (mut locked, mut found) = (call.lock_from(1), 0);
    for bytes in call.from(1) {
        let key = call.key_of(bytes);
        let is_there = locked.at(&key).contains(call.now_ms);
        call.statistics.looked(is_there);
        found += usize::from(is_there);
    }
    reply.count(found);
    Ok(())
}

pub(super) fn touch(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (mut locked, mut found) = (call.lock_from(1), 0);
    for bytes in call.from(1) {
        let key = call.key_of(bytes);
        let is_there = locked.at(&key).get(Access::Use, call.now_ms).is_some();
        call.statistics.looked(is_there);
        found += usize::from(is_there);
    }
    reply.count(found);
    Ok(())
}

pub(super) fn kind(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(1);
    let is_there = call.engine().lock(&key).contains(call.now_ms);
    call.statistics.looked(is_there);
    reply.simple(if is_there { "string" } else { "none" });
    Ok(())
}
