//! The server without sockets, for fuzzing and tests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use engine::Engine;
use mio::Poll;

use crate::clients::{Calls, Ends, Place};
use crate::command::Isolation;
use crate::conversation::{Context, Conversation, Pause};
use crate::output::Output;
use crate::separated::TextProtocol;
use crate::server::Security;
use crate::session::Session;
use crate::shared::Shared;
use crate::sync::Waker;
use crate::worker::WAKE;

/// A server with in-memory clients. The calling thread is its one worker.
#[derive(Debug)]
pub struct Offline {
    shared: Arc<Shared>,
    calls: Arc<Calls>,
    /// Wakes no thread, but has to live as long as `calls`.
    _poll: Poll,
}

/// A client of an [`Offline`] server.
#[derive(Debug)]
pub struct OfflineClient {
    conversation: Conversation,
    shared: Arc<Shared>,
}

const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// A small size, so that the code for long arguments runs for short ones, too.
const INPUT_BYTES_MAX: usize = 256;
const ITEMS_AT_ONCE: usize = 10_000;

impl Offline {
    /// Creates a server.
    ///
    /// # Errors
    /// If the system refuses an event queue.
    pub fn new(engine: Arc<Engine>, text: TextProtocol) -> io::Result<Self> {
        let poll = Poll::new()?;
        let calls = Arc::new(Calls::new(Waker::new(poll.registry(), WAKE)?));
        let mut shared = Shared::new(engine, None, "offline".to_owned(), 1);
        shared.text = text;
        Ok(Self { shared: Arc::new(shared), calls, _poll: poll })
    }

    /// Performs the periodic work of a worker: ends expired pauses, and removes expired keys.
    pub fn tick(&self, now_ms: u64) {
        let shared = &self.shared;
        shared.sample(now_ms);
        if shared.interests.pauses.end_if_over(now_ms) {
            shared.interests.refresh(&shared.engine);
        }
        if shared.is_expiry_active() {
            let mut from = Some(0);
            while let Some(shard) = from {
                from = shared.engine.expire(shard, ITEMS_AT_ONCE, now_ms);
            }
        }
        shared.end_batch();
    }

    /// Connects a client.
    #[must_use]
    pub fn connect(&self, now_ms: u64) -> OfflineClient {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let place = Place { worker: Arc::clone(&self.calls), number: 0 };
        let client = self.shared.clients.add(
            Ends { client: here, server: here, security: Security::Plain },
            place,
            now_ms,
        );
        let session = Session::new(client, self.shared.first_gates());
        OfflineClient { conversation: Conversation::new(session), shared: Arc::clone(&self.shared) }
    }
}

impl OfflineClient {
    /// Executes the complete requests received so far, and appends replies and messages to `replies`. Returns
    /// `None` if the server would close the connection after sending `replies`.
    pub fn hear(&mut self, bytes: &[u8], now_ms: u64, replies: &mut Vec<u8>) -> Option<()> {
        if self.conversation.session.client.is_killed() {
            return None;
        }
        let (shared, output_bytes_max) = (&self.shared, OUTPUT_BYTES_MAX);
        let (isolation, statistics) = (Isolation::Alone, &shared.statistics[0]);
        let (input_bytes_max, body, pass) = (INPUT_BYTES_MAX, None, None);
        let context =
            Context { shared, statistics, isolation, output_bytes_max, input_bytes_max, body, pass, now_ms };
        let mut bytes = bytes;
        // As on a connection, earlier messages precede the replies.
        self.take_mail(replies);
        loop {
            let mut output = Output::default();
            let pause = self.conversation.hear(bytes, &context, &mut output);
            output.append_to(replies);
            bytes = &[];
            self.take_mail(replies);
            match pause {
                Pause::Drained | Pause::Waiting => {
                    return (!self.conversation.session.client.is_killed()).then_some(());
                }
                Pause::Full | Pause::Alone => {}
                Pause::Over => return None,
            }
        }
    }

    fn take_mail(&self, out: &mut Vec<u8>) {
        let client = &self.conversation.session.client;
        if client.has_mail() {
            let mut mail = Output::default();
            client.take_mail(&mut mail);
            mail.append_to(out);
        }
    }
}

impl Drop for OfflineClient {
    fn drop(&mut self) {
        self.conversation.session.leave_for_good(&self.shared);
        self.shared.forget(&self.conversation.session.client);
    }
}

#[cfg(test)]
mod tests {
    use engine::{Policy, Settings};

    use super::*;

    fn engine() -> Arc<Engine> {
        let policy = Policy::default();
        Arc::new(Engine::new(&Settings { bytes_max: 4 << 20, policy, seed: 1, threads: 1 }))
    }

    fn server(engine: &Arc<Engine>, text: TextProtocol) -> Offline {
        Offline::new(Arc::clone(engine), text).expect("an event queue")
    }

    #[test]
    fn clients_in_memory_are_answered() {
        let server = server(&engine(), TextProtocol::Inline);
        let (mut one, mut other) = (server.connect(1), server.connect(1));
        let mut replies = Vec::new();
        assert_eq!(one.hear(b"SET a 1 PX 10\r\nGE", 1, &mut replies), Some(()));
        assert_eq!(other.hear(b"GET a\r\n", 10, &mut replies), Some(()));
        assert_eq!(one.hear(b"T a\r\nQUIT\r\n", 11, &mut replies), None);
        assert_eq!(replies, b"+OK\r\n$1\r\n1\r\n$-1\r\n+OK\r\n");
    }

    #[test]
    fn messages_come_before_replies_to_what_was_asked_after_them() {
        let server = server(&engine(), TextProtocol::Inline);
        let (mut one, mut other) = (server.connect(1), server.connect(1));
        let (mut told, mut replies) = (Vec::new(), Vec::new());
        assert_eq!(one.hear(b"SUBSCRIBE a\r\n", 1, &mut Vec::new()), Some(()));
        assert_eq!(other.hear(b"PUBLISH a x\r\n", 1, &mut replies), Some(()));
        assert_eq!(one.hear(b"PING\r\n", 1, &mut told), Some(()));
        assert_eq!(replies, b":1\r\n");
        let expected = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&told), expected);
    }

    #[test]
    fn what_has_expired_is_gone_after_a_tick() {
        let engine = engine();
        let server = server(&engine, TextProtocol::UnitSeparator);
        let mut client = server.connect(1);
        let mut replies = Vec::new();
        assert_eq!(client.hear(b"SET a 1\x1fSET b 2\x1f", 1, &mut replies), Some(()));
        assert_eq!(client.hear(b"*3\r\n$7\r\nPEXPIRE\r\n$1\r\na\r\n$2\r\n10\r\n", 1, &mut replies), Some(()));
        server.tick(10);
        assert_eq!(engine.counts().keys.iter().sum::<u64>(), 2);
        server.tick(11);
        assert_eq!(engine.counts().keys.iter().sum::<u64>(), 1);
    }

    #[test]
    fn a_large_value_comes_whole() {
        let server = server(&engine(), TextProtocol::Inline);
        let mut client = server.connect(1);
        let (mut replies, value) = (Vec::new(), "v".repeat(100_000));
        let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{value}\r\n");
        assert_eq!(client.hear(set.as_bytes(), 1, &mut replies), Some(()));
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(2);
        assert_eq!(client.hear(&get, 1, &mut replies), Some(()));
        let reply = format!("$100000\r\n{value}\r\n");
        assert_eq!(String::from_utf8_lossy(&replies), format!("+OK\r\n{reply}{reply}"));
    }

    #[test]
    fn a_long_value_waits_for_the_end_of_a_pause() {
        let server = server(&engine(), TextProtocol::Inline);
        let (mut one, mut other) = (server.connect(1), server.connect(1));
        let (mut replies, value) = (Vec::new(), "v".repeat(100_000));
        let requests = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{value}\r\nGET a\r\n");
        assert_eq!(other.hear(b"CLIENT PAUSE 1000 WRITE\r\n", 1, &mut Vec::new()), Some(()));
        for piece in requests.as_bytes().chunks(1000) {
            assert_eq!(one.hear(piece, 1, &mut replies), Some(()));
        }
        assert!(replies.is_empty());
        assert_eq!(one.hear(b"PING\r\n", 2, &mut replies), Some(()));
        assert!(replies.is_empty());
        assert_eq!(other.hear(b"CLIENT UNPAUSE\r\n", 3, &mut Vec::new()), Some(()));
        assert_eq!(one.hear(b"", 3, &mut replies), Some(()));
        assert_eq!(String::from_utf8_lossy(&replies), format!("+OK\r\n$100000\r\n{value}\r\n+PONG\r\n"));
    }
}
