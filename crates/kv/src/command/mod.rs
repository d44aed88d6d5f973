//! Commands: the table of them, and what is the same for all.

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

/// Which other commands may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Those of other workers.
    Turn,
    /// None.
    Alone,
}

/// Whether a command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    /// It needs [`Isolation::Alone`], and has done nothing.
    NotAlone,
    /// It has to wait for the end of a pause, and has done nothing.
    NotNow,
    /// It goes on when others had their turn, behind what it has told already.
    NotYet,
}

/// One command under way.
pub(crate) struct Call<'a> {
    /// The name first.
    arguments: Arguments<'a>,
    session: &'a mut Session,
    shared: &'a Shared,
    statistics: &'a Statistics,
    isolation: Isolation,
    /// An argument that has memory of its own.
    body: Option<&'a Arc<Vec<u8>>>,
    /// What LCS may still compare.
    cells: &'a mut Cells,
    effort: &'a Effort,
    now_ms: u64,
}

/// A value that is to be stored.
enum NewValue<'a> {
    /// An argument, to be copied.
    Small(&'a [u8]),
    Large(Stored),
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
    /// Another server of the cluster has the slot: its number and the address.
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
    #[error("OOM the tables of what clients watch and listen to need more memory")]
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
    /// Not told: the command is executed again, alone.
    #[error("the command needs to be alone")]
    NotAlone,
    /// Not told: the command is executed when a pause is over.
    #[error("the command has to wait")]
    NotNow,
    /// Not told: the command goes on in the next turn.
    #[error("the command takes several turns")]
    NotYet,
}

pub(crate) type Outcome = Result<(), Refusal>;

/// Executes one request and replies to it.
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
        // What was replied so far would be taken for the reply.
        reply.out.truncate(begin);
        match refusal {
            Refusal::NotAlone => return Done::NotAlone,
            Refusal::NotNow => return Done::NotNow,
            _ => {}
        }
        let text = refusal.to_string();
        shared.errors.add(&text);
        if call.session.is_reply_begun {
            // What it is told now would be taken for the length of an array.
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

    /// What a command begins with that must see, or show, all keys at one moment.
    fn alone(&self) -> Outcome {
        if self.isolation == Isolation::Alone { Ok(()) } else { Err(Refusal::NotAlone) }
    }

    /// This command has changed a key, whose shard is still locked.
    fn changed<S: DerefMut<Target = Shard>>(&self, located: &Located<'_, S>, change: Change) {
        changed(self.session, self.shared, located, change);
    }

    /// All keys from this argument on, at once.
    fn lock_from(&self, index: usize) -> Locked<'a> {
        self.engine().lock_all(self.from(index).map(|bytes| self.key_of(bytes)))
    }

    /// It has changed keys, of which others were told together. One change, for those who count them.
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
            // Two quotes and a space count too.
            bytes += repeated::bytes(&text).count() + 3;
            arguments.extend(["'", &text, "' "]);
        }
        Refusal::Unknown { name: repeated::text_within(name, TOLD_BYTES_MAX), arguments }
    }

    fn unknown_part(&self, command: &Command) -> Refusal {
        let name = repeated::text_within(self.argument(1), TOLD_BYTES_MAX);
        Refusal::UnknownSubcommand { command: command.name.to_ascii_uppercase(), name }
    }

    /// The database that the client has chosen.
    fn database(&self) -> Database {
        self.session.database
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
        self.shared.engine.key(self.database(), bytes)
    }

    fn engine(&self) -> &'a Engine {
        &self.shared.engine
    }

    /// An argument as it is to be stored. One that has memory of its own stays there, and a large one is packed: nothing may be locked.
    fn value(&self, index: usize) -> NewValue<'a> {
        let value = self.argument(index);
        if let Some(body) = self.body.filter(|body| std::ptr::eq(body.as_slice(), value)) {
            return NewValue::Large(self.pack(Arc::clone(body)));
        }
        // What could not be held is refused by whoever stores it, and need not be copied for that.
        if self.engine().is_to_be_packed(value.len()) && self.engine().could_hold(value.len()) {
            return NewValue::Large(self.pack(Arc::new(value.to_vec())));
        }
        NewValue::Small(value)
    }

    /// One that the command has put together.
    fn new_value(&self, value: Vec<u8>) -> Result<NewValue<'a>, Refusal> {
        self.check_size(value.len())?;
        Ok(NewValue::Large(self.pack(Arc::new(value))))
    }

    /// What the client has sent itself is no more than it has sent.
    fn pack(&self, value: Arc<Vec<u8>>) -> Stored {
        let is_long = self.engine().is_to_be_packed(value.len()) && effort::is_long(value.len());
        self.session.has_taken_long.set(self.session.has_taken_long.get() || is_long);
        self.engine().pack(value)
    }

    /// Before so many bytes of values are unpacked, packed or compared.
    fn go_through(&self, bytes: usize) -> Outcome {
        if self.effort.go_through(bytes)? {
            self.session.has_taken_long.set(true);
        }
        Ok(())
    }

    /// Before a look at all of a value.
    fn look_through(&self, stored: &Stored) -> Outcome {
        self.go_through(effort::bytes_of(stored))
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
        if let Ok(done) = write() {
            return Ok(done);
        }
        self.check_size(self.arguments.bytes_everywhere())?;
        self.engine().with_room(key, self.now_ms, write).map_err(|OutOfMemory| Refusal::OutOfMemory)
    }
}

/// A command of this session has changed a key; whether that is to be told when nothing is locked any more. The shard is still locked, so that
/// what is told of a key has the order in which it happened.
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

/// A command whose second word says which it is.
fn container(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let table = &call.shared.table;
    let Some(command) = table.find(call.argument(0)) else { return Err(call.unknown(call.argument(0))) };
    let Some(part) = table.find_subcommand(command, call.argument(1)) else {
        // DEBUG has it too, and nobody is told of it.
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

/// Of the name of a command that does not exist, and of its arguments together: the one in which they reach this is the last.
const TOLD_BYTES_MAX: usize = 128;
