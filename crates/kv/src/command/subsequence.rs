//! LCS.

use std::sync::Arc;

use engine::{Access, Stored, Value};

use super::room::Room;
use super::{Call, Outcome, Refusal};
use crate::lcs;
use crate::reply::Reply;

/// Options of LCS.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    is_length: bool,
    is_index: bool,
    are_lengths: bool,
    length_min: usize,
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
pub(super) fn lcs(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = options(call)?;
    let mut values = values(call);
    if values.iter().any(|value| value.value_bytes() == 0) {
        // An empty value has no common subsequence, so nothing has to be decompressed.
        values = [1, 2].map(|_| Stored::Plain(Arc::default()));
    }
    let [first, second] = values.each_ref().map(|value| value.value_bytes());
    let own_bytes = call.cells.take(first, second)?;
    let unpacked_bytes: usize = values
        .iter()
        .filter(|value| matches!(value, Stored::Packed(_)))
        .map(|value| value.value_bytes())
        .sum();
    let mut room = Room::new(call);
    room.make(own_bytes + unpacked_bytes)?;
    call.go_through(unpacked_bytes)?;
    let [first, second] = values.map(|value| value.plain());
    if options.is_length {
        reply.count(lcs::length(&first, &second));
        return Ok(());
    }
    let found = lcs::common(&first, &second);
    if !options.is_index {
        reply.bulk(&found.bytes);
        return Ok(());
    }
    let told: Vec<_> = found.matches.iter().filter(|part| part.length() >= options.length_min).collect();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(told.len());
    for part in told {
        reply.array(if options.are_lengths { 3 } else { 2 });
        for (begin, end) in [part.first, part.second] {
            reply.array(2);
            reply.count(begin);
            reply.count(end);
        }
        if options.are_lengths {
            reply.count(part.length());
        }
    }
    reply.bulk(b"len");
    reply.count(found.bytes.len());
    Ok(())
}

fn options(call: &Call<'_>) -> Result<Options, Refusal> {
    let mut options = Options::default();
    let mut at = 3;
    while at < call.length() {
        match () {
            () if call.is_word(at, "len") => options.is_length = true,
            () if call.is_word(at, "idx") => options.is_index = true,
            () if call.is_word(at, "withmatchlen") => options.are_lengths = true,
            () if call.is_word(at, "minmatchlen") && at + 1 < call.length() => {
                at += 1;
                options.length_min = usize::try_from(call.integer(at)?).unwrap_or_default();
            }
            () => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    if options.is_length && options.is_index {
        return Err(Refusal::Other("ERR If you want both the length and indexes, please just use IDX."));
    }
    Ok(options)
}

/// Both values as stored: a compressed one is decompressed later, when there is room.
fn values(call: &Call<'_>) -> [Stored; 2] {
    let keys = [1, 2].map(|index| call.key(index));
    let mut locked = call.engine().lock_all(keys);
    keys.each_ref().map(|key| match locked.at(key).get(Access::Use, call.now_ms).map(|found| found.value) {
        None => Stored::Plain(Arc::default()),
        Some(Value::Inline(value)) => Stored::Plain(Arc::new(value.to_vec())),
        Some(Value::Large(stored)) => stored.clone(),
    })
}
