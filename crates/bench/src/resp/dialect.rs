//! The bytes of each command and of its expected reply.

use resp::separator;

use super::keys::{KeyKind, ValuePool, write_key};
use super::load::{Choice, Login, Preload, Protocol, RespLoad, Until, Workload};

/// A command that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) verb: Verb,
    pub(crate) key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Get,
    GetMissing,
    Del,
    /// HELLO or AUTH. Not counted.
    Greeting,
}

impl Verb {
    /// Returns whether results include this command.
    pub(super) fn is_counted(self) -> bool {
        self != Self::Greeting
    }
}

/// Whether the load knows which keys the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    Known,
    /// A key may be missing. An existing key has the expected value.
    Open,
}

/// Result of comparing the first bytes of a buffer with the expected reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The expected reply, which is this many bytes long.
    Expected(usize),
    /// An incomplete reply that matches so far.
    Begin,
    Other,
}

/// A protocol, with the key and value sizes of a load.
#[derive(Debug)]
pub(crate) struct Dialect {
    pub(super) protocol: Protocol,
    pub(super) certainty: Certainty,
    key_bytes: usize,
    pub(super) pool: ValuePool,
    set: Form,
    get: Form,
    del: Form,
    /// Bytes before and after the value in the reply to GET.
    value_head: Vec<u8>,
    value_tail: &'static [u8],
    ok: &'static [u8],
    nil: &'static [u8],
    deleted: &'static [u8],
    /// First bytes on each connection. Empty if there is no greeting.
    pub(super) greeting: Vec<u8>,
}

/// The constant parts of a command: before the key, between key and value, and after the value.
#[derive(Debug)]
struct Form {
    head: Vec<u8>,
    middle: Vec<u8>,
    tail: Vec<u8>,
}

impl Dialect {
    pub(crate) fn of(load: &RespLoad) -> Self {
        let &RespLoad { protocol, value_bytes, .. } = load;
        let (value_head, value_tail): (Vec<u8>, &[u8]) = match protocol {
            Protocol::UnitSeparator => (Vec::new(), b"\x1f"),
            Protocol::Memcached => (format!("VA {value_bytes}\r\n").into_bytes(), b"\r\n"),
            Protocol::Resp2 | Protocol::Resp3 => (format!("${value_bytes}\r\n").into_bytes(), b"\r\n"),
        };
        let (ok, nil, deleted): (&[u8], &[u8], &[u8]) = match protocol {
            Protocol::Resp2 => (b"+OK\r\n", b"$-1\r\n", b":1\r\n"),
            Protocol::Resp3 => (b"+OK\r\n", b"_\r\n", b":1\r\n"),
            Protocol::UnitSeparator => (b"OK\x1f", b"(nil)\x1f", b"OK\x1f"),
            Protocol::Memcached => (b"HD\r\n", b"EN\r\n", b"HD\r\n"),
        };
        Self {
            protocol,
            certainty: certainty(load),
            key_bytes: load.key_bytes,
            pool: ValuePool::new(value_bytes, load.values),
            set: form(load, "SET"),
            get: form(load, "GET"),
            del: form(load, "DEL"),
            value_head,
            value_tail,
            ok,
            nil,
            deleted,
            greeting: greeting(protocol, load.login.as_ref()),
        }
    }

    /// Appends a command.
    pub(super) fn write(&self, out: &mut Vec<u8>, due: Due) {
        let (form, kind) = match due.verb {
            Verb::Set => (&self.set, KeyKind::Stored),
            Verb::Get => (&self.get, KeyKind::Stored),
            Verb::GetMissing => (&self.get, KeyKind::Missing),
            Verb::Del => (&self.del, KeyKind::Stored),
            Verb::Greeting => return out.extend_from_slice(&self.greeting),
        };
        out.extend_from_slice(&form.head);
        write_key(out, kind, due.key, self.key_bytes);
        out.extend_from_slice(&form.middle);
        if due.verb == Verb::Set {
            out.extend_from_slice(self.pool.value(due.key));
            out.extend_from_slice(&form.tail);
        }
    }

    /// Compares the bytes with the expected reply, without parsing or copying.
    #[inline]
    pub(super) fn compare(&self, due: Due, bytes: &[u8]) -> Seen {
        match due.verb {
            Verb::Set => literal(self.ok, bytes),
            Verb::Get => self.compare_value(self.pool.value(due.key), bytes),
            Verb::GetMissing => literal(self.nil, bytes),
            Verb::Del => literal(self.deleted, bytes),
            // Servers reply differently to a greeting.
            Verb::Greeting => Seen::Other,
        }
    }

    #[inline]
    fn compare_value(&self, value: &[u8], bytes: &[u8]) -> Seen {
        let (head, tail) = (self.value_head.len(), self.value_tail.len());
        let length = head + value.len() + tail;
        let Some(reply) = bytes.get(..length) else {
            // A reply with a different length differs in its header or at its end.
            let is_begin = !head_differs(&self.value_head, bytes)
                && (self.protocol != Protocol::UnitSeparator || !bytes.contains(&separator::SEPARATOR));
            return if is_begin { Seen::Begin } else { Seen::Other };
        };
        let is_expected = reply.starts_with(&self.value_head)
            && &reply[head..head + value.len()] == value
            && &reply[head + value.len()..] == self.value_tail;
        if is_expected { Seen::Expected(length) } else { Seen::Other }
    }

    /// Appends the expected reply, for messages and for the null server.
    pub(crate) fn write_reply(&self, out: &mut Vec<u8>, due: Due) {
        match due.verb {
            Verb::Set | Verb::Greeting => out.extend_from_slice(self.ok),
            Verb::Get => {
                out.extend_from_slice(&self.value_head);
                out.extend_from_slice(self.pool.value(due.key));
                out.extend_from_slice(self.value_tail);
            }
            Verb::GetMissing => out.extend_from_slice(self.nil),
            Verb::Del => out.extend_from_slice(self.deleted),
        }
    }
}

fn head_differs(head: &[u8], bytes: &[u8]) -> bool {
    let common = head.len().min(bytes.len());
    head[..common] != bytes[..common]
}

#[inline]
fn literal(expected: &[u8], bytes: &[u8]) -> Seen {
    match bytes.get(..expected.len()) {
        Some(reply) if reply == expected => Seen::Expected(expected.len()),
        Some(_) => Seen::Other,
        None if expected.starts_with(bytes) => Seen::Begin,
        None => Seen::Other,
    }
}

fn form(load: &RespLoad, verb: &str) -> Form {
    match load.protocol {
        Protocol::UnitSeparator => text(verb),
        Protocol::Memcached => meta(load, verb),
        Protocol::Resp2 | Protocol::Resp3 => array(load, verb),
    }
}

fn array(load: &RespLoad, verb: &str) -> Form {
    let ttl = load.ttl_s.filter(|_| verb == "SET").map(|seconds| ["EX".to_owned(), seconds.to_string()]);
    let options = ttl.as_slice().as_flattened();
    let count = options.len() + if verb == "SET" { 3 } else { 2 };
    let bulk = |text: &String| format!("${}\r\n{text}\r\n", text.len());
    let middle = if verb == "SET" { format!("\r\n${}\r\n", load.value_bytes) } else { "\r\n".to_owned() };
    Form {
        head: format!("*{count}\r\n${}\r\n{verb}\r\n${}\r\n", verb.len(), load.key_bytes).into_bytes(),
        middle: middle.into_bytes(),
        tail: format!("\r\n{}", options.iter().map(bulk).collect::<String>()).into_bytes(),
    }
}

fn meta(load: &RespLoad, verb: &str) -> Form {
    // memcached interprets values above 30 days as an absolute time.
    let expiry = load.ttl_s.map_or_else(String::new, |seconds| format!(" T{seconds}"));
    let (head, middle) = match verb {
        "SET" => ("ms ", format!(" {}{expiry}\r\n", load.value_bytes)),
        "GET" => ("mg ", " v\r\n".to_owned()),
        _ => ("md ", "\r\n".to_owned()),
    };
    Form { head: head.into(), middle: middle.into_bytes(), tail: b"\r\n".to_vec() }
}

fn text(verb: &str) -> Form {
    Form {
        head: format!("{verb} ").into_bytes(),
        middle: if verb == "SET" { b" ".to_vec() } else { vec![separator::SEPARATOR] },
        tail: vec![separator::SEPARATOR],
    }
}

fn greeting(protocol: Protocol, login: Option<&Login>) -> Vec<u8> {
    let mut words: Vec<&[u8]> = if protocol == Protocol::Resp3 { vec![b"HELLO", b"3"] } else { Vec::new() };
    if let Some(login) = login {
        words.push(b"AUTH");
        // HELLO with a password requires a user.
        let default = (protocol == Protocol::Resp3).then_some("default");
        words.extend(login.user.as_deref().or(default).map(str::as_bytes));
        words.push(login.password.as_bytes());
    }
    let mut out = Vec::new();
    if !words.is_empty() {
        resp::encode_command(&mut out, &words);
    }
    out
}

fn certainty(load: &RespLoad) -> Certainty {
    let is_once = |requests| load.choice == Choice::InTurn && requests <= load.keys;
    let is_known = match (load.workload, load.preload, load.until) {
        (Workload::Set | Workload::Workflow, ..) => true,
        (_, Preload::Nothing, _) => false,
        (Workload::Get, ..) => true,
        // A second DEL of the same key would get a different reply.
        (Workload::Del, _, Until::Requests(requests)) => is_once(requests) && load.warm_up.is_none(),
        (Workload::Del, _, Until::Elapsed(_)) => false,
    };
    if is_known { Certainty::Known } else { Certainty::Open }
}
