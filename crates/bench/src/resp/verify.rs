//! The slow path: classifies a reply that isn't byte for byte the expected one.

use resp::{Limits, Scanner, Value, separator};

use super::dialect::{Certainty, Dialect, Due, Verb};
use super::load::{Protocol, VALUE_BYTES_MAX};

/// Result of parsing a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// An incomplete reply.
    Begin,
    /// A correct reply that differs from the expected bytes.
    Right {
        bytes: usize,
        outcome: Outcome,
    },
    /// A push message, which isn't a reply.
    Push {
        bytes: usize,
    },
    Wrong {
        bytes: usize,
        outcome: Outcome,
    },
    /// Not a message of the protocol.
    Malformed,
}

/// A kind of reply, for the counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Value,
    Nil,
    Deleted,
    NotDeleted,
    /// An error, identified by its first word.
    Error(String),
    Other,
}

impl Outcome {
    /// The outcome of the expected reply.
    pub(super) fn expected(verb: Verb) -> Self {
        match verb {
            Verb::Get => Self::Value,
            Verb::GetMissing => Self::Nil,
            Verb::Del => Self::Deleted,
            Verb::Set | Verb::Greeting => Self::Ok,
        }
    }
}

/// Parses a reply that isn't the expected one.
pub(super) fn read(dialect: &Dialect, due: Due, bytes: &[u8]) -> Reply {
    match dialect.protocol {
        Protocol::UnitSeparator => read_text(dialect, due, bytes),
        Protocol::Memcached => read_meta(dialect, due, bytes),
        Protocol::Resp2 | Protocol::Resp3 => read_value(dialect, due, bytes),
    }
}

const LIMITS: Limits = Limits {
    depth_max: 16,
    elements_max: 1 << 16,
    bulk_bytes_max: 2 * VALUE_BYTES_MAX,
    line_bytes_max: 64 << 10,
};

fn read_value(dialect: &Dialect, due: Due, bytes: &[u8]) -> Reply {
    let length = match Scanner::new(LIMITS).scan(bytes) {
        Ok(None) => return Reply::Begin,
        Ok(Some(length)) => length,
        Err(_) => return Reply::Malformed,
    };
    let Ok(mut value) = Value::parse(&bytes[..length], &LIMITS) else { return Reply::Malformed };
    if let Value::Attributed { value: inner, .. } = value {
        value = *inner;
    }
    if matches!(value, Value::Push(_)) {
        return Reply::Push { bytes: length };
    }
    if let Some(text) = value.error() {
        let text = String::from_utf8_lossy(text);
        let word = text.split(' ').next().unwrap_or_default();
        return Reply::Wrong { bytes: length, outcome: Outcome::Error(format!("-{word}")) };
    }
    let outcome = match value {
        Value::Simple(b"OK") => Outcome::Ok,
        Value::Bulk(_) => Outcome::Value,
        Value::Integer(1) => Outcome::Deleted,
        Value::Integer(0) => Outcome::NotDeleted,
        _ if value.is_null() => Outcome::Nil,
        _ => Outcome::Other,
    };
    let is_value = value == Value::Bulk(dialect.pool.value(due.key));
    judged(dialect, due, length, outcome, is_value)
}

/// Judges a whole reply that isn't an error.
fn judged(dialect: &Dialect, due: Due, bytes: usize, outcome: Outcome, is_value: bool) -> Reply {
    let is_right = match (due.verb, &outcome) {
        (Verb::Greeting, _) => true,
        (Verb::Get, Outcome::Value) => is_value,
        (Verb::Get, Outcome::Nil) | (Verb::Del, Outcome::NotDeleted) => dialect.certainty == Certainty::Open,
        (verb, outcome) => *outcome == Outcome::expected(verb),
    };
    if is_right { Reply::Right { bytes, outcome } } else { Reply::Wrong { bytes, outcome } }
}

fn read_text(dialect: &Dialect, due: Due, bytes: &[u8]) -> Reply {
    let Some(length) = separator::message_length(bytes, 0) else {
        let is_too_long = bytes.len() > LIMITS.bulk_bytes_max;
        return if is_too_long { Reply::Malformed } else { Reply::Begin };
    };
    let text = &bytes[..length];
    let outcome = match (due.verb, text) {
        (Verb::Del, separator::NO_KEY) => Outcome::NotDeleted,
        (Verb::Del, separator::OK) => Outcome::Deleted,
        (Verb::Get | Verb::GetMissing, separator::NIL) => Outcome::Nil,
        (Verb::Set, separator::OK) => Outcome::Ok,
        _ if text.starts_with(separator::ERROR_PREFIX) => {
            Outcome::Error(String::from_utf8_lossy(text).into_owned())
        }
        (Verb::Get | Verb::GetMissing, _) => Outcome::Value,
        _ => Outcome::Other,
    };
    judged(dialect, due, length + 1, outcome, text == dialect.pool.value(due.key))
}

/// Parses a line, and a value after it if the line announces one.
fn read_meta(dialect: &Dialect, due: Due, bytes: &[u8]) -> Reply {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > LIMITS.line_bytes_max { Reply::Malformed } else { Reply::Begin };
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let words: Vec<&str> = line.split(' ').collect();
    let outcome = match (words[0], due.verb) {
        ("VA", _) => {
            let Some(value_bytes) = words.get(1).and_then(|length| length.parse::<usize>().ok()) else {
                return Reply::Malformed;
            };
            let value = end + 2..(end + 2).saturating_add(value_bytes);
            let Some(found) = bytes.get(value.clone()).filter(|_| bytes.len() >= value.end + 2) else {
                return if value_bytes > LIMITS.bulk_bytes_max { Reply::Malformed } else { Reply::Begin };
            };
            let is_value = found == dialect.pool.value(due.key);
            return judged(dialect, due, value.end + 2, Outcome::Value, is_value);
        }
        ("EN", _) => Outcome::Nil,
        ("HD", Verb::Del) => Outcome::Deleted,
        ("HD", _) => Outcome::Ok,
        ("NF", _) => Outcome::NotDeleted,
        (word, _) => return Reply::Wrong { bytes: end + 2, outcome: Outcome::Error(word.to_owned()) },
    };
    judged(dialect, due, end + 2, outcome, false)
}
