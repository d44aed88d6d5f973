//! A proxy in front of a server of the Redis protocol that decides about each reply and each push.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use resp::{Limits, RequestScanner, Scanner, Value};

use crate::proxy::at_once;

/// A proxy with a rule that decides the fate of each message to the client; the rule may change at any time. Every connection has two
/// threads.
pub struct RespProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// A message to the client.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// The command that the message answers, with its arguments; empty for a push.
    pub command: &'a [Vec<u8>],
    /// Parsed message.
    pub value: &'a Value<'a>,
}

/// Fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Pass the message on.
    Pass,
    /// Drop the message. After a dropped reply, each reply answers the command before its own.
    Drop,
    /// Hold the message until [`RespProxy::release`]; later ones are not held.
    Hold,
    /// Send the message twice.
    Twice,
    /// Send the message after the next one.
    AfterNext,
    /// Send these bytes instead.
    Replace(Vec<u8>),
}

type Rule = dyn Fn(&Seen<'_>) -> Fate + Send + Sync;

struct Shared {
    target: SocketAddr,
    rule: Mutex<Arc<Rule>>,
    connections: Mutex<Vec<Arc<Connection>>>,
    is_stopping: AtomicBool,
}

struct Connection {
    number: usize,
    client: TcpStream,
    server: TcpStream,
    /// Commands that have no reply yet, oldest first.
    asked: Mutex<VecDeque<Vec<Vec<u8>>>>,
    /// Output to the client, locked during each write.
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    held: Vec<Vec<u8>>,
    overtaken: Vec<u8>,
}

impl Seen<'_> {
    /// Returns the name of the command, in capitals.
    pub fn name(&self) -> String {
        let name = self.command.first().map(|name| name.to_ascii_uppercase());
        String::from_utf8_lossy(&name.unwrap_or_default()).into_owned()
    }

    /// Returns the first argument of the command.
    pub fn key(&self) -> &[u8] {
        self.command.get(1).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the message is an invalidation with a key that begins with `prefix`.
    pub fn invalidates(&self, prefix: &[u8]) -> bool {
        let Value::Push(parts) = self.value else { return false };
        match &parts[..] {
            [Value::Bulk(b"invalidate"), Value::Array(keys)] => {
                keys.iter().any(|key| matches!(key, Value::Bulk(name) if name.starts_with(prefix)))
            }
            _ => false,
        }
    }
}

impl RespProxy {
    /// Listens on a free port in front of a server. The first rule passes on every message.
    ///
    /// # Panics
    /// Panics if the system refuses a socket.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            target,
            rule: Mutex::new(Arc::new(|_: &Seen<'_>| Fate::Pass)),
            connections: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the rule; open connections use it from their next message.
    pub fn decide(&self, rule: impl Fn(&Seen<'_>) -> Fate + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Returns the number of held messages.
    pub fn held(&self) -> usize {
        lock(&self.shared.connections).iter().map(|connection| lock(&connection.output).held.len()).sum()
    }

    /// Sends the held messages in their order.
    pub fn release(&self) {
        for connection in lock(&self.shared.connections).iter() {
            let mut output = lock(&connection.output);
            let held = std::mem::take(&mut output.held).concat();
            // The client may have disconnected.
            let _ = (&connection.client).write_all(&held);
        }
    }

    /// Closes all connections.
    pub fn close_connections(&self) {
        lock(&self.shared.connections).drain(..).for_each(|connection| connection.close());
    }
}

impl Drop for RespProxy {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("the acceptor does not panic");
        }
        self.close_connections();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut number = 0;
        while let Ok((client, _)) = listener.accept() {
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            // If the server is down, the client is disconnected.
            let Ok(server) = TcpStream::connect(self.target) else { continue };
            at_once([&client, &server]);
            let (asked, output) = (Mutex::default(), Mutex::default());
            let connection = Arc::new(Connection { number, client, server, asked, output });
            number += 1;
            lock(&self.connections).push(Arc::clone(&connection));
            let (shared, other) = (Arc::clone(self), Arc::clone(&connection));
            thread::spawn(move || connection.pass_commands());
            thread::spawn(move || shared.pass_replies(&other));
        }
    }

    fn pass_replies(&self, connection: &Connection) {
        let mut scanner = Scanner::new(Limits::default());
        let mut buffer = Vec::new();
        while read_more(&connection.server, &mut buffer) {
            while let Ok(Some(length)) = scanner.scan(&buffer) {
                let message: Vec<u8> = buffer.drain(..length).collect();
                scanner = Scanner::new(Limits::default());
                if self.pass_reply(connection, &message).is_err() {
                    return connection.close();
                }
            }
        }
        connection.close();
    }

    fn pass_reply(&self, connection: &Connection, message: &[u8]) -> std::io::Result<()> {
        let value = Value::parse(message, &Limits::default()).expect("the message is complete");
        let command = match value {
            Value::Push(_) => Vec::new(),
            _ => lock(&connection.asked).pop_front().unwrap_or_default(),
        };
        let rule = Arc::clone(&lock(&self.rule));
        let fate = rule(&Seen { connection: connection.number, command: &command, value: &value });
        let mut output = lock(&connection.output);
        let mut client = &connection.client;
        match fate {
            Fate::Pass => client.write_all(message)?,
            Fate::Drop => return Ok(()),
            Fate::Hold => {
                output.held.push(message.to_vec());
                return Ok(());
            }
            Fate::Twice => client.write_all(&[message, message].concat())?,
            Fate::AfterNext => {
                output.overtaken.extend_from_slice(message);
                return Ok(());
            }
            Fate::Replace(bytes) => client.write_all(&bytes)?,
        }
        client.write_all(&std::mem::take(&mut output.overtaken))
    }
}

impl Connection {
    fn pass_commands(&self) {
        let mut scanner = RequestScanner::new(Limits::default());
        let mut buffer = Vec::new();
        while read_more(&self.client, &mut buffer) {
            while let Ok(Some(arguments)) = scanner.scan(&buffer) {
                let words: Vec<Vec<u8>> = arguments.iter().map(<[u8]>::to_vec).collect();
                let bytes: Vec<u8> = buffer.drain(..arguments.bytes).collect();
                scanner = RequestScanner::new(Limits::default());
                // Record the command before its reply can arrive.
                lock(&self.asked).push_back(words);
                if (&self.server).write_all(&bytes).is_err() {
                    return self.close();
                }
            }
        }
        self.close();
    }

    fn close(&self) {
        // An error means that the connection has already ended.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn read_more(mut from: &TcpStream, buffer: &mut Vec<u8>) -> bool {
    let mut piece = [0; 16 << 10];
    let count = from.read(&mut piece).unwrap_or(0);
    buffer.extend_from_slice(&piece[..count]);
    count > 0
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Redis, wait};

    struct Talk {
        stream: TcpStream,
        buffer: Vec<u8>,
    }

    impl Talk {
        fn with(proxy: &RespProxy) -> Self {
            let stream = TcpStream::connect(proxy.address()).unwrap();
            stream.set_read_timeout(Some(wait::DEADLINE)).unwrap();
            Self { stream, buffer: Vec::new() }
        }

        fn say(&mut self, line: &str) {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let mut bytes = Vec::new();
            resp::encode_command(&mut bytes, &words);
            self.stream.write_all(&bytes).unwrap();
        }

        #[track_caller]
        fn expect(&mut self, text: &str) {
            while self.buffer.len() < text.len() {
                assert!(read_more(&self.stream, &mut self.buffer), "it closed before {text:?}");
            }
            let came: Vec<u8> = self.buffer.drain(..text.len()).collect();
            assert_eq!(came.escape_ascii().to_string(), text.as_bytes().escape_ascii().to_string());
        }
    }

    /// Tests every fate of a message, with a separate key for each.
    #[test]
    fn replies_are_lost_doubled_overtaken_changed_and_held() {
        let redis = Redis::start("");
        let proxy = RespProxy::start(redis.address());
        proxy.decide(|seen| match (seen.name().as_str(), seen.key()) {
            ("GET", b"drop") => Fate::Drop,
            ("GET", b"twice") => Fate::Twice,
            ("GET", b"late") => Fate::AfterNext,
            ("GET", b"changed") => Fate::Replace(b"$2\r\nno\r\n".to_vec()),
            ("GET", b"held") => Fate::Hold,
            _ => Fate::Pass,
        });
        let mut talk = Talk::with(&proxy);
        for key in ["drop", "twice", "late", "changed", "held"] {
            talk.say(&format!("SET {key} {}", &key[..1]));
            talk.expect("+OK\r\n");
            talk.say(&format!("GET {key}"));
            talk.say("ECHO x");
            talk.expect(match key {
                "drop" | "held" => "$1\r\nx\r\n",
                "twice" => "$1\r\nt\r\n$1\r\nt\r\n$1\r\nx\r\n",
                "late" => "$1\r\nx\r\n$1\r\nl\r\n",
                _ => "$2\r\nno\r\n$1\r\nx\r\n",
            });
        }
        assert_eq!(proxy.held(), 1);
        proxy.release();
        talk.expect("$1\r\nh\r\n");
        assert_eq!(proxy.held(), 0);
    }

    #[test]
    fn pushes_are_told_from_replies() {
        let redis = Redis::start("");
        let proxy = RespProxy::start(redis.address());
        proxy.decide(|seen| if seen.invalidates(b"a") { Fate::Hold } else { Fate::Pass });
        let mut talk = Talk::with(&proxy);
        talk.say("CLIENT REPLY ON");
        talk.expect("+OK\r\n");
        talk.say("HELLO 3");
        talk.say("ECHO here");
        wait::until_true("it is greeted", || {
            read_more(&talk.stream, &mut talk.buffer);
            talk.buffer.ends_with(b"here\r\n")
        });
        talk.buffer.clear();
        talk.say("CLIENT TRACKING ON");
        talk.expect("+OK\r\n");
        for key in ["a", "b"] {
            talk.say(&format!("GET {key}"));
            talk.expect("_\r\n");
        }
        redis.command("SET a 1");
        redis.command("SET b 1");
        talk.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nb\r\n");
        assert_eq!(proxy.held(), 1);
        proxy.release();
        talk.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
        talk.say("ECHO x");
        talk.expect("$1\r\nx\r\n");
    }

    #[test]
    fn a_server_that_is_gone_is_gone_to_its_clients() {
        let mut redis = Redis::start("");
        let proxy = RespProxy::start(redis.address());
        let mut talk = Talk::with(&proxy);
        talk.say("ECHO x");
        talk.expect("$1\r\nx\r\n");
        redis.kill();
        assert!(!read_more(&talk.stream, &mut talk.buffer));
    }
}
