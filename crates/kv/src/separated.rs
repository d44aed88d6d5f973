//! The 0x1F text protocol: messages are executed as Redis commands, and their replies converted to text.
//!
//! Each message is executed and answered immediately, independently of Redis-protocol state: MULTI doesn't
//! queue it and CLIENT REPLY doesn't silence it. Only missing authentication blocks it.

use resp::separator::{self, ERROR_PREFIX, NIL, NO_KEY, OK, Request, RequestError, SEPARATOR};
use resp::{Arguments, Limits, Short};

use crate::command::{self, Done, Form};
use crate::conversation::Context;
use crate::output::Output;
use crate::reply::{Reply, Version};
use crate::session::Session;

/// The text protocol accepted in addition to the Redis protocol. A message that begins with `*` always uses
/// the Redis protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextProtocol {
    /// Inline commands, as in Redis.
    #[default]
    Inline,
    /// Messages that end with 0x1F, as in poor-man-s-cache.
    UnitSeparator,
}

/// Finds messages in a growing buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageScanner {
    /// Bytes of the message already searched for a separator.
    seen: usize,
}

/// The verb that returns statistics. It takes no key.
const PERF: &[u8] = b"PERF";
const NOT_POSSIBLE: &[u8] = b"Internal error";

impl MessageScanner {
    /// Returns whether the scanner is between messages.
    pub(crate) fn is_at_begin(self) -> bool {
        self.seen == 0
    }

    /// Returns the message at the beginning of `bytes` without its separator, or `None` if it is incomplete.
    pub(crate) fn scan<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = separator::message_length(bytes, self.seen);
        self.seen = if length.is_some() { 0 } else { bytes.len() };
        length.map(|length| &bytes[..length])
    }
}

/// The wire format of short messages.
pub(crate) struct Text;

impl Form for Text {
    /// The message must be complete, and not use the Redis protocol.
    #[inline]
    fn short<'a>(&self, bytes: &'a [u8]) -> Option<Short<'a>> {
        if bytes.first() == Some(&b'*') {
            return None;
        }
        let length = separator::message_length(&bytes[..bytes.len().min(SHORT_BYTES_MAX)], 0)?;
        let (name, key, value) = match Request::parse(&bytes[..length]).ok()? {
            Request::Get { key } => (*b"GET", key, None),
            Request::Set { key, value } => (*b"SET", key, Some(value)),
            Request::Del { key } => (*b"DEL", key, None),
        };
        Some(Short { bytes: length + 1, name, key, value })
    }

    #[inline]
    fn version(_session: &Session) -> Version {
        Version::Resp2
    }

    #[inline]
    fn finish(out: &mut Output, begin: usize) {
        to_text(out, begin);
    }
}

/// Maximum length of a message on the fast path. Longer messages are searched once, while they arrive.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// Executes a message and writes the reply. Empty messages are ignored.
pub(crate) fn execute(
    message: &[u8],
    session: &mut Session,
    context: &Context<'_>,
    out: &mut Output,
) -> Done {
    let begin = out.len();
    let done = match Request::parse(message) {
        _ if message.is_empty() => return Done::Yes,
        _ if message == PERF => run(PERF_COMMAND, &[0..4, 5..17, 18..30], session, context, out),
        Ok(Request::Set { value, .. }) if value.len() > Limits::default().bulk_bytes_max => {
            reply_error(out, NOT_POSSIBLE);
            return Done::Yes;
        }
        Ok(request) => run_request(&request, message, session, context, out),
        Err(error) => {
            refuse(error, out);
            return Done::Yes;
        }
    };
    if done == Done::Yes {
        to_text(out, begin);
    }
    done
}

const PERF_COMMAND: &[u8] = b"INFO commandstats latencystats";

fn run_request(
    request: &Request<'_>,
    message: &[u8],
    session: &mut Session,
    context: &Context<'_>,
    out: &mut Output,
) -> Done {
    // The message begins with the verb and the key, each followed by a space.
    let verb = 0..VERB_BYTES;
    let key = |key: &[u8]| VERB_BYTES + 1..VERB_BYTES + 1 + key.len();
    match request {
        Request::Get { key: name } | Request::Del { key: name } => {
            run(message, &[verb, key(name)], session, context, out)
        }
        Request::Set { key: name, .. } => {
            let value = key(name).end + 1..message.len();
            run(message, &[verb, key(name), value], session, context, out)
        }
    }
}

/// The length of GET, SET and DEL.
const VERB_BYTES: usize = 3;

/// Executes a Redis command whose arguments are at the given ranges of `source`.
fn run(
    source: &[u8],
    arguments: &[std::ops::Range<usize>],
    session: &mut Session,
    context: &Context<'_>,
    out: &mut Output,
) -> Done {
    let arguments = Arguments::at_places(source, arguments);
    let gates = session.gates;
    session.gates = gates.for_text();
    let done = command::execute(&arguments, session, context, &mut Reply { out, version: Version::Resp2 });
    session.gates = gates;
    done
}

/// Converts the RESP2 reply that begins at `begin` to text.
fn to_text(out: &mut Output, begin: usize) {
    let reply = &out.bytes()[begin..];
    let line_bytes = memchr::memchr(b'\r', reply).unwrap_or(reply.len());
    let (kind, line) = reply[..line_bytes].split_first().unwrap_or((&b'-', &[]));
    match (kind, line) {
        (b'$', b"-1") => replace(out, begin, NIL),
        (b'$', _) => to_text_of_bulk(out, begin, begin + line_bytes + LINE_END_BYTES),
        (b':', b"0") => replace(out, begin, NO_KEY),
        (b':' | b'+', _) => replace(out, begin, OK),
        _ => {
            let told = if line.starts_with(b"NOAUTH") { line.to_vec() } else { NOT_POSSIBLE.to_vec() };
            out.truncate(begin);
            reply_error(out, &told);
        }
    }
}

const LINE_END_BYTES: usize = 2;

/// Moves the value to the position of its header. A value that contains a separator becomes an error, because
/// it would look like two replies.
fn to_text_of_bulk(out: &mut Output, begin: usize, value_begin: usize) {
    let value_end = out.len() - LINE_END_BYTES;
    let shared = out.value_at_has(value_begin, SEPARATOR);
    let has_separator = || memchr::memchr(SEPARATOR, &out.bytes()[value_begin..value_end]).is_some();
    if shared.unwrap_or_else(has_separator) {
        out.truncate(begin);
        reply_error(out, NOT_POSSIBLE);
        return;
    }
    if shared.is_some() {
        out.pull_value(value_begin, begin);
    } else {
        out.bytes_mut().copy_within(value_begin..value_end, begin);
        out.truncate(begin + value_end - value_begin);
    }
    out.push(SEPARATOR);
}

fn replace(out: &mut Output, begin: usize, text: &[u8]) {
    out.truncate(begin);
    out.extend_from_slice(text);
    out.push(SEPARATOR);
}

fn refuse(error: RequestError, out: &mut Output) {
    reply_error(out, error.to_string().as_bytes());
}

pub(crate) fn reply_error(out: &mut Output, text: &[u8]) {
    out.extend_from_slice(ERROR_PREFIX);
    out.extend_from_slice(text);
    out.push(SEPARATOR);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_become_text() {
        #[track_caller]
        fn check(reply: &[u8], text: &[u8]) {
            let mut out = Output::default();
            out.extend_from_slice(b"before");
            out.extend_from_slice(reply);
            to_text(&mut out, 6);
            let expected = [b"before", text, b"\x1f"].concat();
            assert_eq!(String::from_utf8_lossy(out.bytes()), String::from_utf8_lossy(&expected));
        }
        check(b"+OK\r\n", b"OK");
        check(b":1\r\n", b"OK");
        check(b":0\r\n", b"ERROR: Key does not exist");
        check(b"$-1\r\n", b"(nil)");
        check(b"$0\r\n\r\n", b"");
        check(b"$7\r\nhe\r\nllo\r\n", b"he\r\nllo");
        check(b"$3\r\na\x1fb\r\n", b"ERROR: Internal error");
        check(b"-OOM command not allowed\r\n", b"ERROR: Internal error");
        check(b"-NOAUTH Authentication required.\r\n", b"ERROR: NOAUTH Authentication required.");
    }

    #[test]
    fn bytes_are_looked_at_once() {
        let mut scanner = MessageScanner::default();
        assert_eq!(scanner.scan(b"GET a"), None);
        assert_eq!(scanner.seen, 5);
        assert_eq!(scanner.scan(b"GET abc\x1fGET"), Some(&b"GET abc"[..]));
        assert_eq!(scanner.scan(b"GET"), None);
    }
}
