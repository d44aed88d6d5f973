//! Replies of servers as typed values.

use std::fmt;

use bytes::Bytes;
use redis::{ServerError, Value};

use super::slots::{Redirect, RedirectKind};
use crate::backing::BackingError;

/// Reason why the server refused a command.
#[derive(Debug)]
pub(super) enum Refused {
    /// The value isn't a string.
    WrongType,
    /// The server is out of memory.
    NoRoom(ServerError),
    /// The user lacks the permission.
    Forbidden(ServerError),
    /// The server doesn't know the command.
    Unknown(ServerError),
    /// The server isn't, or is no longer, a master.
    NotMaster(ServerError),
    /// Another node of the cluster has the key.
    Redirected(Redirect, ServerError),
    /// Any other error.
    Otherwise(ServerError),
}

/// Result of a conditional SET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    /// The condition wasn't met.
    No,
    NoRoom,
}

/// Result of a transaction.
#[derive(Debug, PartialEq)]
pub(super) enum Executed {
    /// Executed. The replies are in order; some may be refusals.
    Done(Vec<Value>),
    /// Aborted: a watched value has changed.
    Overtaken,
    /// Not executed: the server is out of memory.
    NoRoom,
}

/// A reply of an unexpected type.
#[derive(Debug, thiserror::Error)]
#[error("unexpected reply: {0}")]
struct Unexpected(&'static str);

/// Separates refusals from other replies.
pub(super) fn of(value: Value) -> Result<Value, Refused> {
    match value {
        Value::ServerError(error) => Err(Refused::of(error)),
        value => Ok(value),
    }
}

/// Returns the replies if their number equals that of the commands.
pub(super) fn exactly<const N: usize>(values: Vec<Value>) -> Result<[Value; N], BackingError> {
    values.try_into().map_err(|values: Vec<Value>| unexpected(&Value::Array(values)))
}

/// Returns a part of a string that was requested with one byte more than `bytes_max`. A value that is longer, empty or not a string wasn't
/// written by Larder, and counts as missing.
pub(super) fn part(value: Value, bytes_max: usize) -> Result<Option<Bytes>, BackingError> {
    match of(value) {
        Ok(Value::BulkString(bytes)) if bytes.is_empty() || bytes.len() > bytes_max => Ok(None),
        Ok(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
        Ok(Value::Nil) | Err(Refused::WrongType) => Ok(None),
        Ok(other) => Err(unexpected(&other)),
        Err(refused) => Err(refused.into()),
    }
}

pub(super) fn written(value: Value) -> Result<Written, BackingError> {
    match of(value) {
        Ok(Value::Okay) => Ok(Written::Yes),
        // A value that isn't a string can't be the expected one.
        Ok(Value::Nil) | Err(Refused::WrongType) => Ok(Written::No),
        Ok(other) => Err(unexpected(&other)),
        Err(Refused::NoRoom(_)) => Ok(Written::NoRoom),
        Err(refused) => Err(refused.into()),
    }
}

pub(super) fn integer(value: Value) -> Result<i64, BackingError> {
    match of(value)? {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Checks that a command was executed.
pub(super) fn done(value: Value) -> Result<(), BackingError> {
    of(value)?;
    Ok(())
}

/// Parses the replies to MULTI, to the queued commands, and to EXEC.
pub(super) fn executed(mut values: Vec<Value>) -> Result<Executed, BackingError> {
    let last = values.pop().unwrap_or_default();
    for queued in values {
        match of(queued) {
            Ok(_) => {}
            Err(Refused::NoRoom(_)) => return Ok(Executed::NoRoom),
            Err(refused) => return Err(refused.into()),
        }
    }
    match of(last)? {
        Value::Array(answers) => Ok(Executed::Done(answers)),
        Value::Nil => Ok(Executed::Overtaken),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(value: &Value) -> BackingError {
    let what = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "an integer",
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        Value::SimpleString(_) | Value::Okay => "a status",
        Value::ServerError(_) => "an error",
        _ => "another type",
    };
    BackingError::Corrupt(Box::new(Unexpected(what)))
}

impl Refused {
    fn redirected(kind: RedirectKind, error: ServerError) -> Self {
        match error.details().and_then(|details| Redirect::parse(kind, details)) {
            Some(redirect) => Self::Redirected(redirect, error),
            None => Self::NotMaster(error),
        }
    }

    /// Returns the redirection that caused an error.
    pub(super) fn redirect(error: &BackingError) -> Option<&Redirect> {
        let BackingError::Unreachable(cause) = error else { return None };
        match cause.downcast_ref::<Self>()? {
            Self::Redirected(redirect, _) => Some(redirect),
            _ => None,
        }
    }

    pub(super) fn of(error: ServerError) -> Self {
        let is_unknown = error.details().is_some_and(|details| details.starts_with("unknown command"));
        match error.code() {
            "WRONGTYPE" => Self::WrongType,
            "OOM" => Self::NoRoom(error),
            "NOPERM" => Self::Forbidden(error),
            // The transaction contains a forbidden command: the server discards it and reports the reason.
            "EXECABORT" if error.details().is_some_and(|details| details.contains("NOPERM")) => {
                Self::Forbidden(error)
            }
            "READONLY" | "MASTERDOWN" => Self::NotMaster(error),
            "MOVED" => Self::redirected(RedirectKind::Moved, error),
            "ASK" => Self::redirected(RedirectKind::Ask, error),
            "ERR" if is_unknown => Self::Unknown(error),
            _ => Self::Otherwise(error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Self::WrongType => return f.write_str("the key holds a value that is not a string"),
            Self::NoRoom(error)
            | Self::Forbidden(error)
            | Self::Unknown(error)
            | Self::NotMaster(error)
            | Self::Redirected(_, error)
            | Self::Otherwise(error) => error,
        };
        let (code, details) = (sanitize(error.code()), sanitize(error.details().unwrap_or_default()));
        write!(f, "the server refused: {code} {details}")
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for BackingError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::WrongType => Self::Corrupt(Box::new(refused)),
            refused => Self::Unreachable(Box::new(refused)),
        }
    }
}

/// Returns the text as one line, without control characters and without a command's arguments, which may be secret.
pub(super) fn sanitize(text: &str) -> String {
    let text = text.split(ARGUMENTS).next().unwrap_or_default();
    text.chars().take(CHARACTERS_MAX).map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}

/// Like [`sanitize`], but also masks a password that the server may echo.
pub(super) fn sanitize_without(password: Option<&str>, text: &str) -> String {
    match password.filter(|password| !password.is_empty()) {
        Some(password) => sanitize(&text.replace(password, "***")),
        None => sanitize(text),
    }
}

/// Maximum length of a text; longer texts are cut.
const CHARACTERS_MAX: usize = 300;

/// Separator before the arguments of an unknown command in an error. The arguments of HELLO contain the password.
const ARGUMENTS: &str = ", with args beginning with";

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a reply in the wire format.
    fn answer(line: &str) -> Value {
        redis::parse_redis_value(line.as_bytes()).unwrap()
    }

    fn array(lines: &[&str]) -> Vec<Value> {
        lines.iter().map(|line| answer(line)).collect()
    }

    #[test]
    fn parts_are_strings_within_the_limit() {
        for (line, expected) in [
            ("$3\r\nabc\r\n", Some("abc")),
            ("$4\r\nabcd\r\n", None),
            ("$0\r\n\r\n", None),
            ("$-1\r\n", None),
            ("-WRONGTYPE Operation against a key\r\n", None),
        ] {
            let found = part(answer(line), 3).unwrap();
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{line:?}");
        }
        for line in [":1\r\n", "-ERR what\r\n", "-LOADING wait\r\n"] {
            assert!(part(answer(line), 3).is_err(), "{line:?}");
        }
    }

    #[test]
    fn writes_are_done_or_not() {
        for (line, expected) in [
            ("+OK\r\n", Written::Yes),
            ("$-1\r\n", Written::No),
            ("_\r\n", Written::No),
            ("-WRONGTYPE Operation\r\n", Written::No),
            ("-OOM command not allowed\r\n", Written::NoRoom),
        ] {
            assert_eq!(written(answer(line)).unwrap(), expected, "{line:?}");
        }
        let error = written(answer("-READONLY You can't write\r\n")).unwrap_err();
        assert!(error.is_of_tier() && matches!(error, BackingError::Unreachable(_)), "{error:?}");
    }

    #[test]
    fn transactions_are_all_or_nothing() {
        let queued = ["+OK\r\n", "+QUEUED\r\n"];
        let with = |last: &str| executed(array(&[&queued[..], &[last]].concat()));
        assert_eq!(with("*1\r\n+OK\r\n").unwrap(), Executed::Done(vec![Value::Okay]));
        assert_eq!(with("*-1\r\n").unwrap(), Executed::Overtaken);
        assert_eq!(with("_\r\n").unwrap(), Executed::Overtaken);
        assert!(with("+OK\r\n").is_err());
        let full =
            array(&["+OK\r\n", "-OOM command not allowed\r\n", "-EXECABORT Transaction discarded\r\n"]);
        assert_eq!(executed(full).unwrap(), Executed::NoRoom);
        let refused = array(&["+OK\r\n", "-NOPERM no\r\n", "-EXECABORT Transaction discarded\r\n"]);
        assert!(executed(refused).is_err());
        assert!(executed(Vec::new()).is_ok_and(|executed| executed == Executed::Overtaken));
    }

    #[test]
    fn neither_arguments_nor_control_characters_are_shown() {
        for (text, expected) in [
            ("ERR no", "ERR no"),
            ("ERR \x1b[31mred\r\nforged", "ERR \u{fffd}[31mred\u{fffd}\u{fffd}forged"),
            (
                "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'a' 's3cret'",
                "unknown command 'HELLO'",
            ),
            ("wrong password 's3cret'", "wrong password '***'"),
        ] {
            assert_eq!(sanitize_without(Some("s3cret"), text), expected);
        }
        assert_eq!(sanitize_without(Some(""), "ERR no"), "ERR no");
        assert_eq!(sanitize(&"x".repeat(1000)).len(), CHARACTERS_MAX);
    }
}
