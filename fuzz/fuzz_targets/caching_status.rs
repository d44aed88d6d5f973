//! Writes any `Cache-Status`: a strict parser of structured fields returns the same values.

#![no_main]

use caching::{CacheName, CacheStatus, FwdReason, Outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, text)) = bytes.split_first_chunk::<11>() else { return };
    let [choice, flags, status, ttl @ ..] = *head;
    let mut pieces = text.split(|byte| *byte == b'\n');
    let mut next = || pieces.next().unwrap_or_default();
    let (name, key, detail) = (next(), next(), String::from_utf8_lossy(next()));
    let name = String::from_utf8_lossy(name);
    let is_name = !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let written_name = CacheName::new(&name);
    assert_eq!(written_name.is_ok(), is_name, "{name:?}");
    let Ok(written_name) = written_name else { return };
    let status = CacheStatus {
        outcome: outcome(choice, flags, status),
        ttl_s: (flags & 1 == 0).then_some(i64::from_le_bytes(ttl)),
        key: (flags & 2 == 0).then_some(key),
        detail: (flags & 4 == 0).then_some(&detail),
    };
    let mut written = Vec::new();
    status.write(&written_name, &mut written);
    assert!(written.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", written.escape_ascii());
    let member = Member::read(&written).unwrap_or_else(|| panic!("{}", written.escape_ascii()));
    assert_eq!(member, expected(&name, &status));
});

fn outcome(choice: u8, flags: u8, status: u8) -> Outcome {
    const REASONS: [FwdReason; 8] = [
        FwdReason::Bypass,
        FwdReason::Method,
        FwdReason::UriMiss,
        FwdReason::VaryMiss,
        FwdReason::Miss,
        FwdReason::Request,
        FwdReason::Stale,
        FwdReason::Partial,
    ];
    match choice {
        0 => Outcome::Hit,
        1 => Outcome::Generated,
        choice => Outcome::Forwarded {
            reason: REASONS[usize::from(choice % 8)],
            status: (flags & 8 == 0).then_some(u16::from(status) * 257),
            stored: flags & 16 != 0,
            collapsed: flags & 32 != 0,
        },
    }
}

/// A parsed item of a structured field: tokens and strings are represented by their text.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    name: Vec<u8>,
    parameters: Vec<(String, Value)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    True,
    Integer(i64),
    Text(Vec<u8>),
}

//= RFC 9211 section 2: a member per cache, with parameters
fn expected(name: &str, status: &CacheStatus<'_>) -> Member {
    let mut parameters = Vec::new();
    match status.outcome {
        Outcome::Hit => parameters.push(("hit", Value::True)),
        Outcome::Generated => {}
        Outcome::Forwarded { reason, status, stored, collapsed } => {
            parameters.push(("fwd", Value::Text(reason.as_str().into())));
            parameters.extend(status.map(|status| ("fwd-status", Value::Integer(status.into()))));
            parameters.extend(stored.then_some(("stored", Value::True)));
            parameters.extend(collapsed.then_some(("collapsed", Value::True)));
        }
    }
    let integer = |number: i64| Value::Integer(number.clamp(-999_999_999_999_999, 999_999_999_999_999));
    parameters.extend(status.ttl_s.map(|ttl_s| ("ttl", integer(ttl_s))));
    parameters.extend(status.key.map(|key| ("key", Value::Text(printable(key)))));
    parameters.extend(status.detail.map(|detail| ("detail", Value::Text(printable(detail.as_bytes())))));
    let parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Member { name: name.into(), parameters }
}

/// Percent-encodes bytes that aren't printable.
fn printable(text: &[u8]) -> Vec<u8> {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.iter().map(shown).collect::<String>().into_bytes()
}

impl Member {
    /// Returns `None` if the text is not an item with parameters (RFC 9651 section 3.3).
    fn read(text: &[u8]) -> Option<Self> {
        let mut rest = text;
        let name = read_text(&mut rest)?;
        let mut parameters = Vec::new();
        while !rest.is_empty() {
            rest = rest.strip_prefix(b";")?.trim_ascii_start();
            let is_key_byte = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'-';
            let key = take_while(&mut rest, is_key_byte);
            let value = match rest.strip_prefix(b"=") {
                None => Value::True,
                Some(value) => {
                    rest = value;
                    read_value(&mut rest)?
                }
            };
            let key = String::from_utf8(key.to_vec()).ok().filter(|key| !key.is_empty())?;
            parameters.push((key, value));
        }
        Some(Self { name, parameters })
    }
}

fn read_value(rest: &mut &[u8]) -> Option<Value> {
    if !matches!(rest.first()?, b'-' | b'0'..=b'9') {
        return read_text(rest).map(Value::Text);
    }
    let number = take_while(rest, |byte| *byte == b'-' || byte.is_ascii_digit());
    let number = std::str::from_utf8(number).ok()?;
    let digits = number.strip_prefix('-').unwrap_or(number);
    (1..=15).contains(&digits.len()).then(|| number.parse().ok().map(Value::Integer))?
}

/// Parses a string or a token.
fn read_text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    if rest.first()? != &b'"' {
        let is_token_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte);
        let token = take_while(rest, is_token_byte);
        let begins_well = token.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'*');
        return begins_well.then(|| token.to_vec());
    }
    let mut text = Vec::new();
    let mut bytes = rest[1..].iter();
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => text.push(*bytes.next().filter(|byte| matches!(byte, b'"' | b'\\'))?),
            byte => text.push(*byte),
        }
    }
    *rest = bytes.as_slice();
    Some(text)
}

fn take_while<'a>(rest: &mut &'a [u8], belongs: impl Fn(&u8) -> bool) -> &'a [u8] {
    let end = rest.iter().position(|byte| !belongs(byte)).unwrap_or(rest.len());
    let (taken, left) = rest.split_at(end);
    *rest = left;
    taken
}
