//! Plays a script to a server.

use std::sync::Arc;

use engine::{Engine, Policy, Settings};
use kv::{Offline, OfflineClient, TextProtocol};
use resp::{Limits, RequestScanner, Scanner};

use super::has_word;
use super::observer::Observer;
use super::script::{CLIENTS, Form, Step, steps};

const BEGIN_MS: u64 = 1_700_000_000_000;

pub struct Play {
    steps: Vec<Step>,
    form: Form,
    rules: Rules,
    engine: Arc<Engine>,
    server: Offline,
    clients: [Option<Client>; CLIENTS],
    observer: Option<Observer>,
    now_ms: u64,
    transcript: Transcript,
}

/// The checks that apply to a script.
#[derive(Clone, Copy)]
struct Rules {
    /// All replies are RESP.
    has_whole_replies: bool,
    /// There is one reply for each request.
    counts_replies: bool,
    /// Each client gets a reply to a final request.
    has_last_word: bool,
}

/// The output of all clients, in order.
#[derive(Default)]
pub struct Transcript {
    replies: Vec<u8>,
    pub has_evicted: bool,
}

struct Client {
    connection: Option<OfflineClient>,
    heard: Vec<u8>,
    told: Vec<u8>,
}

impl Transcript {
    pub fn text(&self) -> String {
        self.replies.escape_ascii().to_string().replace("\\r\\n", "\n")
    }
}

impl Rules {
    fn of(script: &[u8], form: Form) -> Self {
        let is_plain = !form.is_text_protocol;
        let keeps_quiet = has_word(script, &["reply", "subscribe", "monitor"]);
        let shuts_out = has_word(script, &["pause", "pass"]);
        Self {
            has_whole_replies: is_plain,
            counts_replies: is_plain && !keeps_quiet,
            has_last_word: is_plain && !shuts_out,
        }
    }
}

impl Play {
    pub fn new(script: &[u8], form: Form) -> Self {
        let settings = Settings { bytes_max: 2 << 20, policy: Policy::default(), seed: 7, threads: 1 };
        let engine = Arc::new(Engine::new(&settings));
        let text = if form.is_text_protocol { TextProtocol::UnitSeparator } else { TextProtocol::Inline };
        let server = Offline::new(Arc::clone(&engine), text).expect("an event queue");
        let rules = Rules::of(script, form);
        let now_ms = BEGIN_MS;
        let clients = [const { None }; CLIENTS];
        let observer = rules.has_last_word.then(|| Observer::new(&server, now_ms));
        let (steps, transcript) = (steps(script, form), Transcript::default());
        Self { steps, form, rules, engine, server, clients, observer, now_ms, transcript }
    }

    pub fn run(mut self) -> Transcript {
        for step in std::mem::take(&mut self.steps) {
            self.take(step);
            if let Some(observer) = &mut self.observer
                && observer.look(self.now_ms).is_none()
            {
                // The script has disconnected the observer.
                self.observer = None;
            }
        }
        (0..CLIENTS).for_each(|number| self.leave(number));
        self.check_engine();
        self.transcript
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Say { client: number, bytes } => {
                let new = || Client::new(&self.server, number, self.now_ms);
                let client = self.clients[number].get_or_insert_with(new);
                for piece in bytes.chunks(self.form.piece_bytes) {
                    client.say(piece, self.now_ms);
                }
            }
            Step::Wait(ms) => {
                self.now_ms += ms;
                self.server.tick(self.now_ms);
                self.clients.iter_mut().flatten().for_each(|client| client.say(b"", self.now_ms));
                self.check_engine();
            }
            Step::Close(client) => self.leave(client),
            Step::CloseAll => (0..CLIENTS).for_each(|client| self.leave(client)),
        }
    }

    fn leave(&mut self, number: usize) {
        if let Some(client) = self.clients[number].take() {
            self.transcript.replies.extend(client.end(self.rules, self.now_ms));
            self.transcript.replies.extend(b"==\r\n");
        }
    }

    fn check_engine(&mut self) {
        self.engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
        self.transcript.has_evicted |= self.engine.counts().evicted > 0;
    }
}

impl Client {
    fn new(server: &Offline, number: usize, now_ms: u64) -> Self {
        let mut client =
            Self { connection: Some(server.connect(now_ms)), heard: Vec::new(), told: Vec::new() };
        if number % 2 == 1 {
            client.say(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", now_ms);
        }
        client
    }

    fn say(&mut self, bytes: &[u8], now_ms: u64) {
        if let Some(connection) = &mut self.connection {
            self.heard.extend_from_slice(bytes);
            if connection.hear(bytes, now_ms, &mut self.told).is_none() {
                self.connection = None;
            }
        }
    }

    /// Returns all output, with messages after the replies, because a message may arrive before or after any reply.
    fn end(mut self, rules: Rules, now_ms: u64) -> Vec<u8> {
        self.say(b"", now_ms);
        if !rules.has_whole_replies {
            return self.told;
        }
        let requests = count_requests(&self.heard);
        if let Some(requests) = requests.filter(|_| self.connection.is_some()) {
            let replies = split(&self.told).0.len();
            if rules.counts_replies && rules.has_last_word {
                assert_eq!(replies, requests, "{}", self.heard.escape_ascii());
            }
            if rules.has_last_word {
                self.say(b"RESET\r\nECHO last-word\r\n", now_ms);
                assert!(
                    self.told.ends_with(b"+RESET\r\n$9\r\nlast-word\r\n"),
                    "{}",
                    self.told.escape_ascii()
                );
            }
        }
        let (replies, messages) = split(&self.told);
        [replies.concat(), messages.concat()].concat()
    }
}

/// Counts complete requests that expect a reply; `None` if the last one is incomplete.
fn count_requests(mut bytes: &[u8]) -> Option<usize> {
    let mut requests = 0;
    while !bytes.is_empty() {
        let mut scanner = RequestScanner::new(Limits::default());
        let arguments = scanner.scan(bytes).ok().flatten()?;
        requests += usize::from(!arguments.is_empty());
        bytes = &bytes[arguments.bytes..];
    }
    Some(requests)
}

/// Separates replies from messages; all must be complete.
fn split(mut bytes: &[u8]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let (mut replies, mut messages) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let length = Scanner::new(Limits::default()).scan(bytes).expect("replies are RESP");
        let (reply, rest) = bytes.split_at(length.expect("replies are whole"));
        let is_message = MESSAGES.iter().any(|begin| reply.starts_with(begin));
        if is_message { &mut messages } else { &mut replies }.push(reply);
        bytes = rest;
    }
    (replies, messages)
}

/// Beginnings of messages, in RESP3 and in RESP2.
const MESSAGES: [&[u8]; 4] = [b">", b"*3\r\n$7\r\nmessage", b"*4\r\n$8\r\npmessage", b"*3\r\n$8\r\nsmessage"];
