//! Commands of values that are numbers.

use super::arguments::parse_integer;
use super::strings::change;
use super::{Call, Change, Outcome, Refusal};
use crate::reply::Reply;

pub(super) fn incr(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, 1)
}

pub(super) fn decr(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, -1)
}

pub(super) fn incrby(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    add(call, reply, call.integer(2)?)
}

pub(super) fn decrby(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let less = call.integer(2)?;
    add(call, reply, less.checked_neg().ok_or(Refusal::Other("ERR decrement would overflow"))?)
}

fn add(call: &Call<'_>, reply: &mut Reply<'_>, more: i64) -> Outcome {
    let sum = std::cell::Cell::new(0);
    change(call, Change::IncrBy, |value| {
        let number = if value.is_empty() { 0 } else { parse_integer(value)? };
        sum.set(number.checked_add(more).ok_or(Refusal::Overflow)?);
        value.clear();
        value.extend_from_slice(itoa::Buffer::new().format(sum.get()).as_bytes());
        Ok(())
    })?;
    reply.integer(sum.get());
    Ok(())
}

pub(super) fn incrbyfloat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let more = parse_float(call.argument(2))?;
    let text = std::cell::RefCell::new(String::new());
    change(call, Change::IncrByFloat, |value| {
        let number = if value.is_empty() { 0.0 } else { parse_float(value)? };
        let sum = number + more;
        if !sum.is_finite() {
            return Err(Refusal::NotFinite);
        }
        *text.borrow_mut() = format_float(sum);
        value.clear();
        value.extend_from_slice(text.borrow().as_bytes());
        Ok(())
    })?;
    reply.bulk(text.borrow().as_bytes());
    Ok(())
}

fn parse_float(bytes: &[u8]) -> Result<f64, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::NotFloat)?;
    let number: f64 = text.parse().map_err(|_| Refusal::NotFloat)?;
    if number.is_nan() { Err(Refusal::NotFloat) } else { Ok(number) }
}

/// At most 17 digits behind the point, none that is zero at the end, no exponent.
fn format_float(number: f64) -> String {
    let text = format!("{number}");
    match text.split_once('.') {
        Some((whole, fraction)) if fraction.len() > 17 => {
            let fraction = fraction[..17].trim_end_matches('0');
            if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_no_exponent() {
        let cases = [(10.6, "10.6"), (5000.0, "5000"), (-0.5, "-0.5"), (1e20, "100000000000000000000")];
        for (number, text) in cases {
            assert_eq!(format_float(number), text);
        }
        assert_eq!(format_float(1e-18), "0");
    }

    #[test]
    fn integers_are_plain_digits() {
        let cases: [(&str, Result<i64, Refusal>); 8] = [
            ("0", Ok(0)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(Refusal::NotInteger)),
            ("+1", Err(Refusal::NotInteger)),
            ("01", Err(Refusal::NotInteger)),
            ("-0", Err(Refusal::NotInteger)),
            (" 1", Err(Refusal::NotInteger)),
            ("", Err(Refusal::NotInteger)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }
}
