//! Commands: the table of them, and what is the same for all.

mod arguments;
mod connection;
mod expiry;
mod keys;
mod numbers;
mod server;
mod strings;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::{Engine, Key, OutOfMemory};
use resp::Arguments;
use thiserror::Error;

pub(crate) use table::Table;

use crate::reply::Reply;
use crate::session::Session;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Table,
    pub(crate) version: String,
    clients_made: AtomicU64,
    clients: AtomicU64,
}

impl Shared {
    pub(crate) fn new(engine: Arc<Engine>, version: String) -> Self {
        let (clients_made, clients) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { engine, table: Table::new(), version, clients_made, clients }
    }

    pub(crate) fn next_client_id(&self) -> u64 {
        self.clients_made.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn connected(&self) {
        self.clients.fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    fn clients_made(&self) -> u64 {
        self.clients_made.load(Relaxed)
    }
}

/// One command under way.
pub(crate) struct Call<'a> {
    /// The name first.
    arguments: Arguments<'a>,
    session: &'a mut Session,
    shared: &'a Shared,
    now_ms: u64,
}

/// Why a command is refused, in the words of Redis, on which clients match.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    Unknown { name: String, arguments: String },
    #[error("ERR unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownSubcommand { command: &'static str, name: String },
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR value is not a valid float")]
    NotFloat,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireOptions,
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireOrder,
    #[error("ERR Unsupported option {0}")]
    UnknownOption(String),
    #[error("ERR offset is out of range")]
    Offset,
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    #[error("ERR DB index is out of range")]
    Database,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("{0}")]
    Other(&'static str),
}

pub(crate) type Outcome = Result<(), Refusal>;

/// Executes one request and replies to it.
pub(crate) fn execute(
    arguments: &Arguments<'_>,
    session: &mut Session,
    shared: &Shared,
    reply: &mut Reply<'_>,
    now_ms: u64,
) {
    let Some(name) = arguments.at(0) else { return };
    let begin = reply.out.len();
    let is_answered = session.is_answered();
    let mut call = Call { arguments: *arguments, session, shared, now_ms };
    if let Err(refusal) = call.run(name, reply) {
        // What was replied so far would be taken for the reply.
        reply.out.truncate(begin);
        reply.error(&refusal.to_string());
    }
    if !is_answered || call.session.replies != crate::session::Replies::On {
        reply.out.truncate(begin);
    }
}

impl<'a> Call<'a> {
    fn run(&mut self, name: &[u8], reply: &mut Reply<'_>) -> Outcome {
        let command = self.shared.table.find(name).ok_or_else(|| self.unknown(name))?;
        if !command.takes(self.arguments.len()) {
            return Err(Refusal::Arity(command.name.to_ascii_lowercase()));
        }
        (command.run)(self, reply)
    }

    fn unknown(&self, name: &[u8]) -> Refusal {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
        let arguments = self.arguments.iter().skip(1).take(ARGUMENTS_TOLD);
        let arguments: String = arguments.map(|argument| format!("'{}' ", text(argument))).collect();
        Refusal::Unknown { name: text(name), arguments }
    }

    /// An argument that the arity promises.
    fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index).unwrap_or_default()
    }

    /// How many arguments there are, with the name.
    fn length(&self) -> usize {
        self.arguments.len()
    }

    fn key(&self, index: usize) -> Key<'a> {
        self.key_of(self.argument(index))
    }

    fn key_of(&self, bytes: &'a [u8]) -> Key<'a> {
        self.shared.engine.key(self.session.database, bytes)
    }

    fn engine(&self) -> &'a Engine {
        &self.shared.engine
    }

    /// Refuses what could not be held even if all else were evicted for it.
    fn check_size(&self, bytes: usize) -> Outcome {
        if self.engine().could_hold(bytes) { Ok(()) } else { Err(Refusal::OutOfMemory) }
    }

    /// Tries to write; where the key's own shard has nothing to evict, others make room. Nothing is evicted for a request
    /// that is too large in any case.
    fn with_room<T>(
        &self,
        key: &Key<'_>,
        mut write: impl FnMut() -> Result<T, OutOfMemory>,
    ) -> Result<T, Refusal> {
        loop {
            match write() {
                Ok(done) => return Ok(done),
                Err(OutOfMemory) if !self.engine().could_hold(self.arguments.bytes) => {
                    return Err(Refusal::OutOfMemory);
                }
                Err(OutOfMemory) if self.engine().relieve(key, self.now_ms) => {}
                Err(OutOfMemory) => return Err(Refusal::OutOfMemory),
            }
        }
    }
}

/// Of a command that does not exist.
const ARGUMENTS_TOLD: usize = 20;
