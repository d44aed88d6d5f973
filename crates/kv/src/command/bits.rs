//! Bitmap commands. SETBIT is in `editing`.

use engine::{Access, Value};

use super::{Call, Outcome, Refusal, VALUE_BYTES_MAX};
use crate::reply::Reply;

/// GETBIT key offset
pub(super) fn getbit(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let place = place(call, 2)?;
    let is_set = with_value(call, |value| place.is_set_in(value))?.unwrap_or_default();
    reply.integer(i64::from(is_set));
    Ok(())
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub(super) fn bitcount(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let counted = with_value(call, |value| range(call).map(|range| count(value, range)))?;
    // As in Redis, the range isn't checked if the key doesn't exist.
    reply.count(counted.transpose()?.unwrap_or_default());
    Ok(())
}

/// The position of a bit: its byte, and its mask. Bits are numbered from the most significant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitPlace {
    pub(super) byte: usize,
    pub(super) mask: u8,
}

impl BitPlace {
    fn of(bit: usize) -> Self {
        Self { byte: bit / 8, mask: 0x80 >> (bit % 8) }
    }

    pub(super) fn is_set_in(self, value: &[u8]) -> bool {
        value.get(self.byte).is_some_and(|byte| byte & self.mask != 0)
    }
}

pub(super) fn place(call: &Call<'_>, index: usize) -> Result<BitPlace, Refusal> {
    let bit = call.integer(index).ok().and_then(|bit| usize::try_from(bit).ok());
    let bit = bit.filter(|bit| bit / 8 < VALUE_BYTES_MAX);
    bit.map(BitPlace::of).ok_or(Refusal::Other("ERR bit offset is not an integer or out of range"))
}

/// Applies `look` to the value, if there is one. A large value is examined without a lock.
fn with_value<T>(call: &Call<'_>, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Refusal> {
    let key = call.key(1);
    let mut located = call.engine().lock(&key);
    let found = located.get(Access::Use, call.now_ms);
    call.statistics.looked(found.is_some());
    match found.map(|found| found.value) {
        None => Ok(None),
        Some(Value::Inline(value)) => Ok(Some(look(value))),
        Some(Value::Large(stored)) => {
            let stored = stored.clone();
            drop(located);
            call.look_through(&stored)?;
            Ok(Some(look(&stored.plain())))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

/// The first and last position, inclusive; negative ones count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    end: i64,
    unit: Unit,
}

fn range(call: &Call<'_>) -> Result<Range, Refusal> {
    let (start, end, unit) = match call.length() {
        2 => (0, -1, Unit::Byte),
        length @ (4 | 5) => {
            let (start, end) = (call.integer(2)?, call.integer(3)?);
            match () {
                () if length == 4 || call.is_word(4, "byte") => (start, end, Unit::Byte),
                () if call.is_word(4, "bit") => (start, end, Unit::Bit),
                () => return Err(Refusal::Syntax),
            }
        }
        _ => return Err(Refusal::Syntax),
    };
    Ok(Range { start, end, unit })
}

fn count(value: &[u8], Range { start, end, unit }: Range) -> usize {
    let bits = if unit == Unit::Bit { 1 } else { 8 };
    let length = (value.len() * 8 / bits) as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    if start < 0 && end < 0 && start > end {
        return 0;
    }
    let (start, end) = (place(start), place(end).min(length - 1));
    if start > end {
        return 0;
    }
    let (begin, end) = (start as usize * bits, (end as usize + 1) * bits);
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    // Subtract the bits of the first and last byte that lie outside the range.
    let before = value[begin / 8] & !(0xff >> (begin % 8));
    let behind = if end % 8 == 0 { 0 } else { value[end / 8] & (0xff >> (end % 8)) };
    ones(&value[begin / 8..end.div_ceil(8)]) - ones(&[before, behind])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_counted_from_any_bit_to_any_other() {
        let value = b"foobar";
        let bits = value.len() * 8;
        for start in 0..bits {
            for end in start..bits {
                let expected = (start..=end).filter(|bit| BitPlace::of(*bit).is_set_in(value)).count();
                for (start, end) in [(start as i64, end as i64), (start as i64 - 48, end as i64 - 48)] {
                    let counted = count(value, Range { start, end, unit: Unit::Bit });
                    assert_eq!(counted, expected, "{start} {end}");
                }
            }
        }
        let bytes = |start, end| count(value, Range { start, end, unit: Unit::Byte });
        assert_eq!([bytes(0, -1), bytes(0, 0), bytes(1, 1), bytes(5, 100), bytes(6, 9)], [26, 4, 6, 4, 0]);
        assert_eq!(count(b"", Range { start: 0, end: -1, unit: Unit::Bit }), 0);
    }
}
