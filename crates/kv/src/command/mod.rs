//! Commands: the command table, and code shared by all commands.

mod arguments;
mod bits;
mod bounded;
mod catalog;
mod client;
mod cluster;
mod conditional;
mod config;
mod connection;
mod dumping;
mod editing;
mod expiry;
mod gates;
mod info;
mod info_constants;
mod keys;
mod keyspace;
mod latency;
mod long_double;
mod measured;
mod numbers;
mod object;
mod options;
mod output_limits;
mod plain;
mod pubsub;
mod reference;
mod roles;
mod room;
mod saving;
mod scripting;
mod server;
mod strings;
mod subsequence;
mod syntax;
mod table;
mod tracking;
mod transaction_room;
mod transactions;
mod walk;

use std::ops::DerefMut;
use std::sync::Arc;

use engine::{Database, Engine, Expiry, Key, Located, Locked, OutOfMemory, Shard, Stored};
use resp::Arguments;
use thiserror::Error;

pub(crate) use config::{memory, number};
pub(crate) use editing::VALUE_BYTES_MAX;
pub(crate) use plain::{Executed, Form, PLAIN_COMMANDS, Plain};
pub use reference::commands_markdown;
pub(crate) use table::{Command, Table};
pub(crate) use walk::Walk;

use crate::conversation::Context;
use crate::effort::{self, Effort, Scope, TooMuch};
use crate::lcs::Cells;
pub(crate) use crate::notify::Change;
use crate::repeated;
use crate::reply::Reply;
use crate::session::{Gates, Session};
use crate::shared::Shared;
use crate::statistics::Statistics;

/// Commands that may run at the same time as this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Commands of other workers.
    Turn,
    /// No other commands.
    Alone,
}

/// Whether a command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    /// Not executed: it needs [`Isolation::Alone`].
    NotAlone,
    /// Not executed: it has to wait for the end of a pause.
    NotNow,
    /// Partly executed: it continues after other clients' turns, and appends to the reply so far.
    NotYet,
}

/// A command being executed.
pub(crate) struct Call<'a> {
    /// The arguments, beginning with the name.
    arguments: Arguments<'a>,
    session: &'a mut Session,
    shared: &'a Shared,
    statistics: &'a Statistics,
    isolation: Isolation,
    /// An argument in a buffer of its own.
    body: Option<&'a Arc<Vec<u8>>>,
    /// The remaining budget of LCS.
    cells: &'a mut Cells,
    effort: &'a Effort,
    now_ms: u64,
}

/// A value to be stored.
enum NewValue<'a> {
    /// An argument that has to be copied.
    Small(&'a [u8]),
    Large(Stored),
}

/// Reasons for refusing a command, with Redis' texts, which clients match on.
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
    /// Another node owns the slot. Contains the slot and the node's address.
    #[error("MOVED {0}")]
    Moved(String),
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    CrossSlot,
    #[error(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server."
    )]
    Debug,
    #[error("ERR Unknown node {0}")]
    UnknownNode(String),
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownSubcommand { command: String, name: String },
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
    #[error("OOM the reply needs more memory than 'maxmemory' and 'maxmemory-clients' leave")]
    ReplyOverLimit,
    #[error("OOM not enough memory for watched keys and subscriptions")]
    TablesOverLimit,
    #[error(transparent)]
    Pattern(#[from] crate::glob::TooLong),
    #[error(transparent)]
    Lcs(#[from] crate::lcs::TooLong),
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error("OOM the message needs more memory")]
    MessageOverLimit,
    #[error("NOAUTH Authentication required.")]
    NoPassword,
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    Subscribed(&'static str),
    #[error("ERR No samples available for event '{0}'")]
    NoSamples(String),
    #[error("ERR Unknown category '{0}'")]
    UnknownCategory(String),
    #[error("{0}")]
    Other(&'static str),
    #[error("{0}")]
    Told(String),
    /// Internal: the command is executed again, alone.
    #[error("the command must run alone")]
    NotAlone,
    /// Internal: the command is retried after a pause.
    #[error("the command has to wait")]
    NotNow,
    /// Internal: the command continues in the next turn.
    #[error("the command takes several turns")]
    NotYet,
}

pub(crate) type Outcome = Result<(), Refusal>;

/// Executes a request and writes the reply.
pub(crate) fn execute(
    arguments: &Arguments<'_>,
    session: &mut Session,
    context: &Context<'_>,
    reply: &mut Reply<'_>,
) -> Done {
    let Some(name) = arguments.at(0) else {
        session.skip_nothing();
        return Done::Yes;
    };
    let begin = reply.out.len();
    let Context { shared, statistics, isolation, body, now_ms, .. } = *context;
    let (cells, effort) = (&mut Cells::default(), &Effort::new(Scope::Command));
    let mut call =
        Call { arguments: *arguments, session, shared, statistics, isolation, body, cells, effort, now_ms };
    let are_gates_open = call.session.gates.are_open();
    let outcome = if are_gates_open { call.run_openly(name, reply) } else { call.run_gated(name, reply) };
    let outcome = if reply.out.take_refusal() { outcome.and(Err(Refusal::ReplyOverLimit)) } else { outcome };
    if reply.out.is_charged() {
        shared.make_room_for_reply(now_ms);
    }
    if outcome == Err(Refusal::NotYet) {
        return Done::NotYet;
    }
    if let Err(refusal) = outcome {
        // The client would take a partial reply for the whole reply.
        reply.out.truncate(begin);
        match refusal {
            Refusal::NotAlone => return Done::NotAlone,
            Refusal::NotNow => return Done::NotNow,
            _ => {}
        }
        let text = refusal.to_string();
        shared.errors.add(&text);
        if call.session.is_reply_begun {
            // The client would take an error within an array for one of its elements.
            call.session.is_over = true;
        } else {
            reply.error(&text);
        }
    }
    call.session.end_turns(shared);
    if call.session.gates.is_closed(Gates::REPLIES) && !call.session.end() {
        reply.out.truncate(begin);
    }
    Done::Yes
}

impl NewValue<'_> {
    fn store<S: DerefMut<Target = Shard>>(
        &self,
        located: &mut Located<'_, S>,
        expiry: Expiry,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        match self {
            Self::Small(value) => located.set(value, expiry, now_ms),
            Self::Large(stored) => located.set_stored(stored.clone(), expiry, now_ms),
        }
    }
}

impl<'a> Call<'a> {
    fn run(&mut self, name: &[u8], reply: &mut Reply<'_>) -> Outcome {
        let command = self.find(name)?;
        self.measure(command, reply)
    }

    fn find(&mut self, name: &[u8]) -> Result<&'static Command, Refusal> {
        let command = self.shared.table.find(name).ok_or_else(|| self.unknown(name))?;
        if !command.takes(self.arguments.len()) {
            self.rejected(command);
            return Err(Refusal::Arity(command.name.to_ascii_lowercase()));
        }
        if command.name == "debug" && !self.permits_debug() {
            return Err(Refusal::Debug);
        }
        self.session.command = Some(command);
        Ok(command)
    }

    fn permits_debug(&self) -> bool {
        self.shared.access.read().permits_debug(self.session.client.ends.client)
    }

    /// Returns an error if other commands may run at the same time. Called first by commands that must see,
    /// or change, all keys at one moment.
    fn alone(&self) -> Outcome {
        if self.isolation == Isolation::Alone { Ok(()) } else { Err(Refusal::NotAlone) }
    }

    /// Records that the command has changed a key, whose shard is still locked.
    fn changed<S: DerefMut<Target = Shard>>(&self, located: &Located<'_, S>, change: Change) {
        changed(self.session, self.shared, located, change);
    }

    /// Locks the keys from this argument on.
    fn lock_from(&self, index: usize) -> Locked<'a> {
        self.engine().lock_all(self.from(index).map(|bytes| self.key_of(bytes)))
    }

    /// Counts one change, for a command whose notifications were sent for all keys together.
    fn changed_many(&self) {
        self.session.changes.set(self.session.changes.get() + 1);
    }

    fn unknown(&self, name: &[u8]) -> Refusal {
        let (mut arguments, mut bytes) = (String::new(), 0);
        for argument in self.from(1) {
            if bytes >= TOLD_BYTES_MAX {
                break;
            }
            let text = repeated::text_within(argument, TOLD_BYTES_MAX - bytes);
            // Each argument is shown with two quotes and a space.
            bytes += repeated::bytes(&text).count() + 3;
            arguments.extend(["'", &text, "' "]);
        }
        Refusal::Unknown { name: repeated::text_within(name, TOLD_BYTES_MAX), arguments }
    }

    fn unknown_part(&self, command: &Command) -> Refusal {
        let name = repeated::text_within(self.argument(1), TOLD_BYTES_MAX);
        Refusal::UnknownSubcommand { command: command.name.to_ascii_uppercase(), name }
    }

    /// The selected database.
    fn database(&self) -> Database {
        self.session.database
    }

    /// An argument whose presence is guaranteed by the arity.
    fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index).unwrap_or_default()
    }

    /// Number of arguments, including the name.
    fn length(&self) -> usize {
        self.arguments.len()
    }

    fn key(&self, index: usize) -> Key<'a> {
        self.key_of(self.argument(index))
    }

    fn key_of(&self, bytes: &'a [u8]) -> Key<'a> {
        self.shared.engine.key(self.database(), bytes)
    }

    fn engine(&self) -> &'a Engine {
        &self.shared.engine
    }

    /// Prepares an argument to be stored. An argument in its own buffer is not copied, and a large one is
    /// compressed. The caller must not hold a lock.
    fn value(&self, index: usize) -> NewValue<'a> {
        let value = self.argument(index);
        if let Some(body) = self.body.filter(|body| std::ptr::eq(body.as_slice(), value)) {
            return NewValue::Large(self.pack(Arc::clone(body)));
        }
        // A value that is too large is refused when it is stored, so it isn't copied.
        if self.engine().is_to_be_packed(value.len()) && self.engine().could_hold(value.len()) {
            return NewValue::Large(self.pack(Arc::new(value.to_vec())));
        }
        NewValue::Small(value)
    }

    /// Prepares a value that the command has computed.
    fn new_value(&self, value: Vec<u8>) -> Result<NewValue<'a>, Refusal> {
        self.check_size(value.len())?;
        Ok(NewValue::Large(self.pack(Arc::new(value))))
    }

    /// Compresses a value. No budget is charged, because the work is bounded by the bytes that the client has
    /// sent.
    fn pack(&self, value: Arc<Vec<u8>>) -> Stored {
        let is_long = self.engine().is_to_be_packed(value.len()) && effort::is_long(value.len());
        self.session.has_taken_long.set(self.session.has_taken_long.get() || is_long);
        self.engine().pack(value)
    }

    /// Charges the budget before values are processed.
    fn go_through(&self, bytes: usize) -> Outcome {
        if self.effort.go_through(bytes)? {
            self.session.has_taken_long.set(true);
        }
        Ok(())
    }

    /// Charges the budget before a whole value is processed.
    fn look_through(&self, stored: &Stored) -> Outcome {
        self.go_through(effort::bytes_of(stored))
    }

    /// Refuses a value that would not fit even in an empty store.
    fn check_size(&self, bytes: usize) -> Outcome {
        if self.engine().could_hold(bytes) { Ok(()) } else { Err(Refusal::OutOfMemory) }
    }

    /// Calls `write`. If the key's own shard has nothing to evict, evicts from other shards and retries.
    /// Nothing is evicted for a value that can't fit at all.
    fn with_room<T>(
        &self,
        key: &Key<'_>,
        mut write: impl FnMut() -> Result<T, OutOfMemory>,
    ) -> Result<T, Refusal> {
        if let Ok(done) = write() {
            return Ok(done);
        }
        self.check_size(self.arguments.bytes_everywhere())?;
        self.engine().with_room(key, self.now_ms, write).map_err(|OutOfMemory| Refusal::OutOfMemory)
    }
}

/// Records that a command has changed a key. Returns whether observers have to be notified after the locks
/// are released. The shard is still locked, so that the changes of a key are recorded in order.
#[inline]
fn changed<S: DerefMut<Target = Shard>>(
    session: &Session,
    shared: &Shared,
    located: &Located<'_, S>,
    change: Change,
) -> bool {
    session.changes.set(session.changes.get() + 1);
    let is_told = !shared.interests.flags().are_indifferent();
    if is_told {
        gates::note(session, shared, located.key(), change);
    }
    is_told
}

/// Executes a command that consists of subcommands.
fn container(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let table = &call.shared.table;
    let Some(command) = table.find(call.argument(0)) else { return Err(call.unknown(call.argument(0))) };
    let Some(part) = table.find_subcommand(command, call.argument(1)) else {
        // DEBUG has HELP too, which COMMAND doesn't list.
        return if call.is_word(1, "help") { help(call, reply) } else { Err(call.unknown_part(command)) };
    };
    if !part.takes(call.length()) {
        return Err(Refusal::Arity(part.name.to_owned()));
    }
    call.session.command = Some(part);
    (part.run)(call, reply)
}

fn help(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let Some(command) = call.shared.table.find(call.argument(0)) else {
        return Err(call.unknown(call.argument(0)));
    };
    if call.length() != 2 {
        return Err(Refusal::Arity(format!("{}|help", command.name)));
    }
    let name = command.name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    let parts = call.shared.table.subcommands(command).iter();
    for part in parts.filter(|part| !part.name.ends_with("|help")) {
        let part_name = part.name.split_once('|').map_or(part.name, |(_, name)| name).to_ascii_uppercase();
        lines.push(format!("{part_name} {}", part.syntax).trim_end().to_owned());
        lines.push(format!("    {}", part.summary));
    }
    lines.extend(["HELP".to_owned(), "    Prints this help.".to_owned()]);
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
    Ok(())
}

/// Limit of the name, and of the arguments, in the error for an unknown command. The argument that reaches
/// the limit is the last one shown.
const TOLD_BYTES_MAX: usize = 128;
