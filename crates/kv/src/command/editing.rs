//! APPEND, SETRANGE and SETBIT: commands that change a part of a value.
//!
//! A large value is changed in place and grows to 125 % of the needed size, so that repeated appends take
//! linear time. A value that is compressed, or being sent to a client, is copied. If it has to be compressed
//! or decompressed, that happens without the lock, and is repeated if another client has changed the value
//! meanwhile.

use std::cell::Cell;
use std::sync::Arc;

use engine::{Access, Edited, Expiry, Key, OutOfMemory, Stored, Value};

use super::bits::{self, BitPlace};
use super::{Call, Change, Outcome, Refusal};
use crate::effort;
use crate::reply::Reply;

/// Maximum size of a value that a command may produce.
pub(crate) const VALUE_BYTES_MAX: usize = 512 << 20;

/// After this many attempts the copy is made under the lock, because other clients keep changing the value.
const ATTEMPTS_UNLOCKED: usize = 4;

/// A change of a part of a value.
#[derive(Clone, Copy, Debug)]
struct Edit<'a> {
    /// The notification for the change.
    change: Change,
    /// The offset; `None` appends.
    at: Option<usize>,
    part: Part<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Bytes(&'a [u8]),
    Bit { mask: u8, is_set: bool, was_set: &'a Cell<bool> },
}

impl Part<'_> {
    fn length(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Bit { .. } => 1,
        }
    }

    /// Writes the part over bytes of equal length.
    fn write(self, bytes: &mut [u8]) {
        match self {
            Self::Bytes(part) => bytes.copy_from_slice(part),
            Self::Bit { mask, is_set, was_set } => {
                was_set.set(bytes[0] & mask != 0);
                bytes[0] = if is_set { bytes[0] | mask } else { bytes[0] & !mask };
            }
        }
    }
}

/// A value before the change.
enum Before {
    None,
    Small(Vec<u8>),
    Large(Stored),
}

impl Before {
    fn unpacked_bytes(&self) -> usize {
        if let Self::Large(stored) = self { effort::bytes_of(stored) } else { 0 }
    }
}

/// The result of an attempt.
enum Attempt {
    /// The value was changed and has this length now.
    Done(usize),
    /// The value has to be copied without the lock, and will have this length.
    Outside(Before, usize),
}

pub(super) fn append(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let length = edit(call, Edit { change: Change::Append, at: None, part: Part::Bytes(call.argument(2)) })?;
    reply.count(length);
    Ok(())
}

pub(super) fn setrange(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let offset = usize::try_from(call.integer(2)?).map_err(|_| Refusal::Offset)?;
    let part = call.argument(3);
    if part.is_empty() {
        return super::strings::strlen(call, reply);
    }
    let length = edit(call, Edit { change: Change::SetRange, at: Some(offset), part: Part::Bytes(part) })?;
    reply.count(length);
    Ok(())
}

/// SETBIT key offset value
pub(super) fn setbit(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let BitPlace { byte, mask } = bits::place(call, 2)?;
    let is_set = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Refusal::Other("ERR bit is not an integer or out of range")),
    };
    let was_set = &Cell::new(false);
    edit(call, Edit { change: Change::SetBit, at: Some(byte), part: Part::Bit { mask, is_set, was_set } })?;
    reply.integer(i64::from(was_set.get()));
    Ok(())
}

/// Changes the value of the first argument, or creates it, and keeps its expiry. Returns the new length.
fn edit(call: &Call<'_>, edit: Edit<'_>) -> Result<usize, Refusal> {
    let key = call.key(1);
    call.with_room(&key, || {
        for _ in 0..ATTEMPTS_UNLOCKED {
            let (before, length) = match attempt(call, &key, edit, Place::Anywhere)? {
                Ok(Attempt::Done(length)) => return Ok(Ok(length)),
                Ok(Attempt::Outside(before, length)) => (before, length),
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Err(refusal) = call.go_through(before.unpacked_bytes().saturating_add(length)) {
                return Ok(Err(refusal));
            }
            let value = edit.applied_outside(call, &before, length);
            if store_if_unchanged(call, &key, edit.change, (&before, value))? {
                return Ok(Ok(length));
            }
        }
        Ok(attempt(call, &key, edit, Place::Locked)?.map(|attempt| match attempt {
            Attempt::Done(length) | Attempt::Outside(_, length) => length,
        }))
    })?
}

/// Where a value may be compressed or decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Anywhere,
    Locked,
}

/// Changes the value, unless it has to be compressed or decompressed, which should happen without the lock.
/// Checks for room before copying.
fn attempt(
    call: &Call<'_>,
    key: &Key<'_>,
    edit: Edit<'_>,
    place: Place,
) -> Result<Result<Attempt, Refusal>, OutOfMemory> {
    let mut located = call.engine().lock(key);
    let found = located.get(Access::Use, call.now_ms);
    let value = found.map(|found| found.value);
    let before_bytes = value.map_or(0, |value| value.length());
    let length =
        match edit.length_after(before_bytes).and_then(|length| call.check_size(length).map(|()| length)) {
            Ok(length) => length,
            Err(refusal) => return Ok(Err(refusal)),
        };
    if value.is_some_and(|value| value.plain().is_some_and(|value| edit.changes_nothing_in(value))) {
        return Ok(Ok(Attempt::Done(length)));
    }
    let is_packed = value.is_some_and(|value| value.plain().is_none());
    let before = match value {
        None => Before::None,
        Some(Value::Inline(bytes)) => Before::Small(bytes.to_vec()),
        Some(Value::Large(stored)) if is_packed || call.engine().is_to_be_packed(length) => {
            Before::Large(stored.clone())
        }
        Some(Value::Large(_)) => {
            if located.edit(length, |value| edit.apply(value, length), call.now_ms)? == Edited::Yes {
                call.changed(&located, edit.change);
                return Ok(Ok(Attempt::Done(length)));
            }
            // The value is being sent to a client, which must see it unchanged.
            match located.get(Access::Peek, call.now_ms).map(|found| found.value) {
                Some(Value::Large(stored)) => Before::Large(stored.clone()),
                // The value was evicted to make room for its own new version.
                _ => return Err(OutOfMemory),
            }
        }
    };
    located.make_room(length, call.now_ms)?;
    if place == Place::Anywhere && (is_packed || call.engine().is_to_be_packed(length)) {
        return Ok(Ok(Attempt::Outside(before, length)));
    }
    let value = Stored::Plain(Arc::new(edit.applied(&before, length)));
    located.set_stored(value, Expiry::Keep, call.now_ms)?;
    call.changed(&located, edit.change);
    Ok(Ok(Attempt::Done(length)))
}

/// Stores the new value if the old one is unchanged. Returns whether it was unchanged.
fn store_if_unchanged(
    call: &Call<'_>,
    key: &Key<'_>,
    change: Change,
    (before, value): (&Before, Stored),
) -> Result<bool, OutOfMemory> {
    let mut located = call.engine().lock(key);
    let found = located.get(Access::Peek, call.now_ms);
    let is_unchanged = match (before, found.map(|found| found.value)) {
        (Before::None, None) => true,
        (Before::Small(before), Some(Value::Inline(now))) => before == now,
        (Before::Large(before), Some(Value::Large(now))) => before.is(now),
        _ => false,
    };
    if is_unchanged {
        located.set_stored(value, Expiry::Keep, call.now_ms)?;
        call.changed(&located, change);
    }
    Ok(is_unchanged)
}

impl Edit<'_> {
    /// Returns whether a bit already has its new value. As in Redis, such a SETBIT sends no notification.
    fn changes_nothing_in(self, value: &[u8]) -> bool {
        let (Some(at), Part::Bit { mask, is_set, was_set }) = (self.at, self.part) else { return false };
        let was = value.get(at).map(|byte| byte & mask != 0);
        was_set.set(was == Some(true));
        was == Some(is_set)
    }

    fn length_after(self, before_bytes: usize) -> Result<usize, Refusal> {
        let end = self.at.unwrap_or(before_bytes).saturating_add(self.part.length());
        if end > VALUE_BYTES_MAX { Err(Refusal::TooLong) } else { Ok(end.max(before_bytes)) }
    }

    fn apply(self, value: &mut Vec<u8>, length: usize) {
        let at = self.at.unwrap_or(value.len());
        value.resize(length, 0);
        self.part.write(&mut value[at..at + self.part.length()]);
    }

    fn applied(self, before: &Before, length: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(length);
        match before {
            Before::None => {}
            Before::Small(bytes) => value.extend_from_slice(bytes),
            Before::Large(stored) => value.extend_from_slice(&stored.plain()),
        }
        self.apply(&mut value, length);
        value
    }

    /// Applies the change without the lock. The temporary memory is charged.
    fn applied_outside(self, call: &Call<'_>, before: &Before, length: usize) -> Stored {
        call.engine().lend(0, length);
        let value = call.engine().pack(Arc::new(self.applied(before, length)));
        call.engine().lend(length, 0);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_where_it_belongs() {
        let check = |before: &str, at, part: &str, expected: &str| {
            let edit = Edit { change: Change::SetRange, at, part: Part::Bytes(part.as_bytes()) };
            let length = edit.length_after(before.len()).expect("it is short");
            let before = Before::Small(before.as_bytes().to_vec());
            assert_eq!(edit.applied(&before, length), expected.as_bytes());
            assert_eq!(length, expected.len());
        };
        check("", None, "end", "end");
        check("begin", None, "-end", "begin-end");
        check("begin", None, "", "begin");
        check("", Some(2), "x", "\0\0x");
        check("begin", Some(0), "B", "Begin");
        check("begin", Some(3), "abc", "begabc");
        check("begin", Some(5), "abc", "beginabc");
        check("begin", Some(7), "abc", "begin\0\0abc");
        let edit = |at| Edit { change: Change::SetRange, at, part: Part::Bytes(b"x") };
        let too_long = |before_bytes, at| edit(at).length_after(before_bytes);
        assert_eq!(too_long(VALUE_BYTES_MAX, None), Err(Refusal::TooLong));
        assert_eq!(too_long(0, Some(usize::MAX)), Err(Refusal::TooLong));
        assert_eq!(too_long(0, Some(VALUE_BYTES_MAX - 1)), Ok(VALUE_BYTES_MAX));
    }
}
