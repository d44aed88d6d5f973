//! The one list of commands.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::arguments::parse_integer;
use super::{
    Call, Outcome, bits, bounded, catalog, client, cluster, conditional, config, connection, dumping,
    editing, expiry, info, keys, keyspace, latency, numbers, object, pubsub, roles, saving, scripting,
    server, strings, subsequence, tracking, transactions,
};
use crate::reply::Reply;

/// What is known of a command.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Arguments with the name: exactly so many, or at least, if negative.
    pub(crate) arity: i32,
    pub(crate) flags: &'static [&'static str],
    pub(crate) keys: Keys,
    pub(crate) group: &'static str,
    /// Of Redis.
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
    /// Its arguments as one writes them: `[]` for what may be left out, `|` between alternatives, capitals for words.
    pub(crate) syntax: &'static str,
    /// Time that it takes, where it is not constant.
    complexity: &'static str,
    /// In which way it is not as in Redis 7.0.
    pub(super) difference: &'static str,
    pub(super) run: fn(&mut Call<'_>, &mut Reply<'_>) -> Outcome,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// The first, the last (from the end, if negative), and from one to the next.
    Range(i32, i32, i32),
    /// Behind a number of them, which is this argument; from one to the next.
    Numbered(i32, i32),
}

impl Keys {
    /// As clients know it that know only ranges.
    pub(super) fn range(self) -> (i32, i32, i32) {
        match self {
            Self::Range(first, last, step) => (first, last, step),
            Self::None | Self::Numbered(..) => (0, 0, 0),
        }
    }

    /// Which arguments of a request are keys; nothing if its arguments contradict each other.
    pub(crate) fn positions<'a>(
        self,
        count: usize,
        argument: impl Fn(usize) -> &'a [u8],
    ) -> Option<std::iter::StepBy<std::ops::Range<usize>>> {
        let (first, end, step) = match self {
            Self::None => (0, 0, 1),
            Self::Range(first, last, step) => {
                let end = if last < 0 { count as i32 + last + 1 } else { last + 1 };
                (first as usize, end.max(0) as usize, step as usize)
            }
            Self::Numbered(number, step) => {
                let (number, step) = (number as usize, step as usize);
                let keys = parse_integer(argument(number)).ok().and_then(|keys| usize::try_from(keys).ok());
                (number + 1, keys?.checked_mul(step)?.checked_add(number + 1)?, step)
            }
        };
        (end <= count).then(|| (first..end.max(first)).step_by(step))
    }
}

impl Command {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub(super) fn complexity(&self) -> &'static str {
        match self.keys {
            _ if !self.complexity.is_empty() => self.complexity,
            Keys::Range(_, -1, _) => "O(N) for N keys",
            _ => "O(1)",
        }
    }

    /// Whether it is a part of another command.
    pub(super) fn is_part(&self) -> bool {
        self.name.contains('|')
    }

    /// Whether it is a part of that command.
    pub(super) fn is_part_of(&self, container: &Self) -> bool {
        self.name.strip_prefix(container.name).is_some_and(|rest| rest.starts_with('|'))
    }

    /// The command that it is a part of, or itself.
    pub(super) fn container(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(container, _)| container)
    }

    /// Whether it is executed at once after MULTI.
    pub(super) fn goes_before_exec(&self) -> bool {
        matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Whether clients of RESP2 that have subscribed may execute it.
    pub(super) fn is_for_subscribers(&self) -> bool {
        self.name.ends_with("subscribe") || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Whether it is to wait while writes are paused.
    pub(super) fn may_write(&self) -> bool {
        self.has("write") || self.name.ends_with("publish")
    }

    /// Whether nothing has happened when nobody learns its reply.
    pub(super) fn only_tells(&self) -> bool {
        self.has("readonly")
            || matches!(self.container(), "command" | "echo" | "info" | "ping" | "time")
            || matches!(self.name, "client|info" | "client|list" | "config|get" | "pubsub|channels")
            || matches!(self.name, "latency|histogram" | "pubsub|numsub" | "pubsub|shardchannels")
            || matches!(self.name, "pubsub|shardnumsub" | "slowlog|get")
    }

    /// Whether it needs no password.
    pub(super) fn is_for_anybody(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Commands by name.
#[derive(Debug)]
pub(crate) struct Table {
    by_name: HashMap<&'static [u8], &'static Command, FixedState>,
    /// Parts of others, which are called by two words.
    parts: HashMap<&'static [u8], &'static Command, FixedState>,
}

/// No name is longer.
const NAME_BYTES_MAX: usize = 32;

impl Table {
    pub(crate) fn new() -> Self {
        let named = COMMANDS.iter().map(|command| (command.name.as_bytes(), command));
        let (parts, by_name) = named.partition(|(_, command)| command.is_part());
        Self { by_name, parts }
    }

    /// In any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// Its place among all commands and parts of commands.
    pub(crate) fn number(&self, command: &'static Command) -> usize {
        // All that are used are elements of the list: where they lie tells.
        let behind = std::ptr::from_ref(command).addr().wrapping_sub(COMMANDS.as_ptr().addr());
        behind / size_of::<Command>()
    }

    /// Of a number that [`Table::number`] gave.
    pub(super) fn name(&self, number: usize) -> Option<&'static str> {
        COMMANDS.get(number).map(|command| command.name)
    }

    /// The one of a command that is many.
    pub(super) fn find_subcommand(&self, container: &Command, name: &[u8]) -> Option<&'static Command> {
        let joined = [container.name.as_bytes(), b"|", name].concat().to_ascii_lowercase();
        self.parts.get(joined.as_slice()).copied()
    }

    /// All that a command consists of; most have none.
    pub(super) fn subcommands(&self, container: &Command) -> &'static [Command] {
        let is_before = |command: &Command| command.name <= container.name;
        let behind = &COMMANDS[COMMANDS.partition_point(is_before)..];
        &behind[..behind.iter().take_while(|command| command.is_part_of(container)).count()]
    }

    /// Also a part of a command, by both words.
    pub(super) fn find_with_parts(&self, name: &[u8]) -> Option<&'static Command> {
        self.find(name).or_else(|| self.parts.get(name.to_ascii_lowercase().as_slice()).copied())
    }

    /// With the parts of commands.
    pub(crate) fn with_parts(&self) -> &'static [Command] {
        COMMANDS
    }

    /// Without the parts of commands.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Command> + Clone {
        COMMANDS.iter().filter(|command| !command.is_part())
    }
}

/// One that is there, found when this is compiled.
pub(super) const fn named(name: &str) -> &'static Command {
    let mut number = 0;
    while !is_equal(COMMANDS[number].name.as_bytes(), name.as_bytes()) {
        number += 1;
    }
    &COMMANDS[number]
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const NONE: Keys = Keys::None;
const ONE: Keys = Keys::Range(1, 1, 1);
const SECOND: Keys = Keys::Range(2, 2, 1);
const FIRST_TWO: Keys = Keys::Range(1, 2, 1);
const ALL: Keys = Keys::Range(1, -1, 1);
const PAIRS: Keys = Keys::Range(1, -1, 2);
const NUMBERED: Keys = Keys::Numbered(1, 2);
const OF_SCRIPT: Keys = Keys::Numbered(2, 1);

const READ: &[&str] = &["readonly", "fast"];
const READ_SLOW: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const WRITE_SLOW: &[&str] = &["write", "denyoom"];
const REMOVE: &[&str] = &["write", "fast"];
const REMOVE_SLOW: &[&str] = &["write"];
const SESSION: &[&str] = &["noscript", "loading", "stale", "fast"];
const SESSION_SLOW: &[&str] = &["loading", "stale"];
const FAST: &[&str] = &["fast"];
const OPEN: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const PUBSUB: &[&str] = &["pubsub", "loading", "stale", "fast"];
const SUBSCRIBE: &[&str] = &["pubsub", "noscript", "loading", "stale"];
const CHANNELS: &[&str] = &["pubsub", "loading", "stale"];
const TRANSACTION: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];
const EXEC: &[&str] = &["noscript", "loading", "stale", "skip_slowlog"];
const CLIENT: &[&str] = &["noscript", "loading", "stale"];
const SAVE: &[&str] = &["admin", "noscript", "loading", "stale", "no_multi"];
const SCRIPTS: &[&str] = &["noscript", "stale"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];

macro_rules! commands {
    ($($name:literal $arity:literal $flags:ident $keys:ident $group:literal $since:literal $run:path, $summary:literal $(, $syntax:literal $(, $complexity:literal $(, $difference:literal)?)?)?;)*) => {
        {
            // Named, so that it exists once: references to its elements are compared by where they lie.
            static LIST: [Command; [$($name),*].len()] = [$(Command {
            name: $name, arity: $arity, flags: $flags, keys: $keys, group: $group, since: $since, summary: $summary,
            syntax: concat!($($syntax)?), complexity: concat!($($($complexity)?)?),
            difference: concat!($($($($difference)?)?)?), run: $run,
        }),*];
            &LIST
        }
    };
}

#[rustfmt::skip]
static COMMANDS: &[Command] = commands! {
    "acl" -2 SESSION NONE "server" "6.0.0" super::container, "Tells of users; there is one.";
    "acl|cat" -2 SESSION NONE "server" "6.0.0" roles::cat, "Gives the groups of commands, or the commands of one.", "[category]", "O(N) for N commands";
    "acl|dryrun" -4 ADMIN NONE "server" "7.0.0" roles::dryrun, "Tells whether a user may execute a command.", "username command [arg [arg ...]]";
    "acl|getuser" 3 ADMIN NONE "server" "6.0.0" roles::getuser, "Tells what a user may do.", "username", "", "The passwords are not told.";
    "acl|help" 2 SESSION_SLOW NONE "server" "6.0.0" super::help, "Tells the parts of this command.";
    "acl|list" 2 ADMIN NONE "server" "6.0.0" roles::acl_list, "Tells what users may do.", "", "", "There is one user; its passwords are not told.";
    "acl|log" -2 ADMIN NONE "server" "6.0.0" roles::acl_log, "Tells which commands users were refused: none.", "[count | RESET]";
    "acl|users" 2 ADMIN NONE "server" "6.0.0" roles::users, "Gives the names of users.";
    "acl|whoami" 2 SESSION NONE "server" "6.0.0" roles::whoami, "Gives the name of the user.";
    "append" 3 WRITE ONE "string" "2.0.0" editing::append, "Appends to a value; sets it if there is none.", "key value", "O(1) on average, for a short part", "A value that is kept compressed, or that is being sent to a client, is copied as a whole.";
    "asking" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Is accepted: no slot moves here.";
    "auth" -2 OPEN NONE "connection" "1.0.0" connection::auth, "Tells the password.", "[username] password";
    "bgrewriteaof" 1 ADMIN NONE "server" "1.0.0" roles::bgrewriteaof, "Is accepted: there is no append only file.";
    "bgsave" -1 ADMIN NONE "server" "1.0.0" saving::bgsave, "Writes all keys to disk, while clients go on.", "[SCHEDULE]";
    "bitcount" -2 READ_SLOW ONE "bitmap" "2.6.0" bits::bitcount, "Counts the bits of a value that are set.", "key [start end [BYTE | BIT]]", "O(N) for N bytes";
    "client" -2 SESSION NONE "connection" "2.4.0" super::container, "Tells of and changes connections.";
    "client|caching" 3 CLIENT NONE "connection" "6.0.0" tracking::caching, "Says whether what the next command reads is tracked.", "YES | NO";
    "client|getname" 2 CLIENT NONE "connection" "2.6.9" client::getname, "Gives the name of the connection.";
    "client|getredir" 2 CLIENT NONE "connection" "6.0.0" tracking::getredir, "Gives the connection that is told of changes in place of this one.";
    "client|help" 2 SESSION_SLOW NONE "connection" "5.0.0" super::help, "Tells the parts of this command.";
    "client|id" 2 CLIENT NONE "connection" "5.0.0" client::id, "Gives the number of the connection.";
    "client|info" 2 CLIENT NONE "connection" "6.2.0" client::info, "Tells of this connection.";
    "client|kill" -3 ADMIN NONE "connection" "2.4.0" client::kill, "Ends connections.", "ip:port | [ID client-id] [TYPE NORMAL | MASTER | REPLICA | PUBSUB] [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME YES | NO] [MAXAGE seconds]", "O(N) for N clients", "Connections of other workers end at once, but maybe after the reply.";
    "client|list" -2 ADMIN NONE "connection" "2.4.0" client::list, "Tells of connections.", "[TYPE NORMAL | MASTER | REPLICA | PUBSUB] [ID client-id [client-id ...]]", "O(N) for N clients", "Sizes of buffers are told in qbuf, omem and tot-mem alone; fd is 0.";
    "client|no-evict" 3 ADMIN NONE "connection" "7.0.0" client::no_evict, "Says whether the connection may be closed to free memory.", "ON | OFF";
    "client|no-touch" 3 CLIENT NONE "connection" "7.2.0" client::no_touch, "Is understood, and changes nothing.", "ON | OFF", "O(1)", "Reads count for eviction in any case.";
    "client|pause" -3 ADMIN NONE "connection" "2.9.50" client::pause, "Lets commands of all connections wait.", "timeout [WRITE | ALL]", "O(1)", "Keys expire and are evicted meanwhile.";
    "client|reply" 3 CLIENT NONE "connection" "3.2.0" client::reply, "Says whether commands are replied to.", "ON | OFF | SKIP";
    "client|setinfo" 4 CLIENT NONE "connection" "7.2.0" client::setinfo, "Tells the library of the client.", "LIB-NAME libname | LIB-VER libver";
    "client|setname" 3 CLIENT NONE "connection" "2.6.9" client::setname, "Names the connection.", "connection-name";
    "client|tracking" -3 CLIENT NONE "connection" "6.0.0" tracking::tracking, "Begins or ends client-side caching.", "ON | OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]";
    "client|trackinginfo" 2 CLIENT NONE "connection" "6.2.0" tracking::trackinginfo, "Tells of client-side caching of this connection.";
    "client|unblock" -3 ADMIN NONE "connection" "5.0.0" client::unblock, "Is 0: no command blocks.", "client-id [TIMEOUT | ERROR]", "O(1)", "No command blocks.";
    "client|unpause" 2 ADMIN NONE "connection" "6.2.0" client::unpause, "Ends a pause.";
    "cluster" -2 SESSION NONE "cluster" "3.0.0" super::container, "Tells of the cluster.";
    "cluster|countkeysinslot" 3 SESSION NONE "cluster" "3.0.0" cluster::countkeysinslot, "Counts the keys of a slot.", "slot", "O(N) for N keys of the server";
    "cluster|getkeysinslot" 4 SESSION NONE "cluster" "3.0.0" cluster::getkeysinslot, "Gives keys of a slot.", "slot count", "O(N) for N keys of the server";
    "cluster|help" 2 SESSION_SLOW NONE "cluster" "5.0.0" super::help, "Tells the parts of this command.";
    "cluster|info" 2 SESSION NONE "cluster" "3.0.0" cluster::info, "Tells how the cluster is.";
    "cluster|keyslot" 3 SESSION NONE "cluster" "3.0.0" cluster::keyslot, "Tells the slot of a key.", "key";
    "cluster|links" 2 SESSION NONE "cluster" "7.0.0" cluster::links, "Tells of connections between nodes, of which there are none.";
    "cluster|myid" 2 SESSION NONE "cluster" "3.0.0" cluster::myid, "Tells the id of this node.";
    "cluster|nodes" 2 SESSION NONE "cluster" "3.0.0" cluster::nodes, "Tells the nodes and their slots, as text.";
    "cluster|replicas" 3 SESSION NONE "cluster" "5.0.0" cluster::replicas, "Tells the replicas of a node, of which there are none.", "node-id";
    "cluster|shards" 2 SESSION NONE "cluster" "7.0.0" cluster::shards, "Tells the nodes and their slots.";
    "cluster|slots" 2 SESSION NONE "cluster" "3.0.0" cluster::slots, "Tells ranges of slots and their nodes.";
    "command" -1 SESSION NONE "server" "2.8.13" catalog::command, "Tells which commands there are.", "", "O(N) for N commands";
    "command|count" 2 SESSION NONE "server" "2.8.13" catalog::count, "Tells how many commands there are.";
    "command|docs" -2 SESSION NONE "server" "7.0.0" catalog::docs, "Tells what commands are for.", "[command-name [command-name ...]]", "O(N) for N commands", "The words are those of Larder; there is no history.";
    "command|getkeys" -4 SESSION NONE "server" "2.8.13" catalog::getkeys, "Tells which arguments of a command are keys.", "command [arg [arg ...]]", "O(N) for N arguments";
    "command|getkeysandflags" -4 SESSION NONE "server" "7.0.0" catalog::getkeysandflags, "Tells which arguments of a command are keys, and what is done to them.", "command [arg [arg ...]]", "O(N) for N arguments";
    "command|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Tells the parts of this command.";
    "command|info" -2 SESSION NONE "server" "2.8.13" catalog::info, "Tells how commands are called.", "[command-name [command-name ...]]", "O(N) for N commands";
    "command|list" -2 SESSION NONE "server" "7.0.0" catalog::list, "Gives the names of commands.", "[FILTERBY MODULE module-name | ACLCAT category | PATTERN pattern]", "O(N) for N commands";
    "config" -2 ADMIN NONE "server" "2.0.0" super::container, "Reads and changes settings.";
    "config|get" -3 ADMIN NONE "server" "2.0.0" config::get, "Gives settings whose names match.", "pattern [pattern ...]", "O(N) for N settings", "The value of `requirepass` is told to nobody: it is `(hidden)`, or empty.";
    "config|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Tells the parts of this command.";
    "config|resetstat" 2 ADMIN NONE "server" "2.0.0" config::resetstat, "Lets all counts begin again.", "", "", "Connections, evicted and expired keys are counted from the start of the server on.";
    "config|rewrite" 2 ADMIN NONE "server" "2.8.0" config::rewrite, "Is refused: the file of the configuration belongs to its operator.";
    "config|set" -4 ADMIN NONE "server" "2.0.0" config::set, "Changes settings until the next start.", "parameter value [parameter value ...]", "O(N) for N settings", "Settings that mean nothing here are taken and change nothing; of others one value is possible, such as `appendonly no`. `requirepass` takes the place of all passwords until the configuration is loaded again.";
    "copy" -3 WRITE_SLOW FIRST_TWO "generic" "6.2.0" keyspace::copy, "Copies a value to another key, or database.", "source destination [DB destination-db] [REPLACE]";
    "dbsize" 1 READ NONE "server" "1.0.0" server::dbsize, "Counts the keys of the database.";
    "debug" -2 ADMIN NONE "server" "1.0.0" super::container, "Is for tests.";
    "debug|error" 3 ADMIN NONE "server" "1.0.0" roles::debug_error, "Replies with an error.", "message";
    "debug|htstats" 3 ADMIN NONE "server" "1.0.0" roles::debug_htstats, "Tells how long a search for a key can be.", "dbid", "O(N) for N keys", "All databases share their tables: the chain is the longest of all, in buckets of ten keys.";
    "debug|object" 3 ADMIN SECOND "server" "1.0.0" roles::debug_object, "Tells how a value is stored.", "key";
    "debug|panic" 2 ADMIN NONE "server" "1.0.0" roles::panic, "Ends the server, as an error in it would.";
    "debug|set-active-expire" 3 ADMIN NONE "server" "1.0.0" roles::set_active_expire, "Lets expired keys be until they are asked for, or not.", "0 | 1";
    "debug|sleep" 3 ADMIN NONE "server" "1.0.0" roles::sleep, "Does nothing for a while, up to a minute.", "seconds";
    "decr" 2 WRITE ONE "string" "1.0.0" numbers::decr, "Takes one from a number.", "key";
    "decrby" 3 WRITE ONE "string" "1.0.0" numbers::decrby, "Takes a number from a number.", "key decrement";
    "del" -2 REMOVE_SLOW ALL "generic" "1.0.0" keys::del, "Removes keys.", "key [key ...]";
    "delex" -2 REMOVE ONE "string" "8.4.0" conditional::delex, "Removes a key if its value, or the digest of it, is or is not this.", "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]", "O(1), O(N) for a digest of N bytes";
    "delifeq" 3 REMOVE ONE "string" "9.0.0" conditional::delifeq, "Removes a key if its value is this (Valkey 9).", "key value";
    "digest" 2 READ ONE "string" "8.4.0" conditional::digest_of, "Gives the XXH3 digest of a value, as 16 hexadecimal digits.", "key", "O(N) for N bytes";
    "discard" 1 TRANSACTION NONE "transactions" "2.0.0" transactions::discard, "Gives up a transaction.";
    "dump" 2 READ_SLOW ONE "generic" "2.6.0" dumping::dump, "Gives a value in the form in which RESTORE takes it.", "key", "O(N) for N bytes", "Long values are not compressed; other servers take them as well.";
    "echo" 2 SESSION NONE "connection" "1.0.0" connection::echo, "Says what it is told.", "message";
    "eval" -3 SCRIPTS OF_SCRIPT "scripting" "2.6.0" scripting::refuse, "Is refused: there are no scripts.", "script numkeys [key [key ...]] [arg [arg ...]]";
    "eval_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Is refused: there are no scripts.", "script numkeys [key [key ...]] [arg [arg ...]]";
    "evalsha" -3 SCRIPTS OF_SCRIPT "scripting" "2.6.0" scripting::refuse, "Is refused: there are no scripts.", "sha1 numkeys [key [key ...]] [arg [arg ...]]";
    "evalsha_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Is refused: there are no scripts.", "sha1 numkeys [key [key ...]] [arg [arg ...]]";
    "exec" 1 EXEC NONE "transactions" "1.2.0" transactions::exec, "Executes the commands of a transaction.", "", "That of the commands", "What the client itself is told because of them comes behind the reply.";
    "exists" -2 READ ALL "generic" "1.0.0" keys::exists, "Counts which of the keys are there.", "key [key ...]";
    "expire" -3 REMOVE ONE "generic" "1.0.0" expiry::expire, "Sets when a key expires, in seconds from now.", "key seconds [NX | XX | GT | LT]";
    "expireat" -3 REMOVE ONE "generic" "1.2.0" expiry::expireat, "Sets when a key expires, in seconds since 1970.", "key unix-time-seconds [NX | XX | GT | LT]";
    "expiretime" 2 READ ONE "generic" "7.0.0" expiry::expiretime, "Tells when a key expires, in seconds since 1970.", "key";
    "fcall" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Is refused: there are no functions.", "function numkeys [key [key ...]] [arg [arg ...]]";
    "fcall_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Is refused: there are no functions.", "function numkeys [key [key ...]] [arg [arg ...]]";
    "flushall" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushall, "Removes all keys of all databases.", "[ASYNC | SYNC]";
    "flushdb" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushdb, "Removes all keys of the database.", "[ASYNC | SYNC]";
    "function" -2 SESSION NONE "scripting" "7.0.0" super::container, "Is about functions, of which there are none.";
    "function|delete" 3 REMOVE_SLOW NONE "scripting" "7.0.0" scripting::function_delete, "Is refused: there are no functions.", "library-name";
    "function|flush" -2 REMOVE_SLOW NONE "scripting" "7.0.0" scripting::function_flush, "Removes all functions.", "[ASYNC | SYNC]";
    "function|help" 2 SESSION_SLOW NONE "scripting" "7.0.0" super::help, "Tells the parts of this command.";
    "function|kill" 2 SCRIPTS NONE "scripting" "7.0.0" scripting::kill, "Is refused: no function is being executed.";
    "function|list" -2 SCRIPTS NONE "scripting" "7.0.0" scripting::function_list, "Tells of functions, of which there are none.", "[LIBRARYNAME library-name-pattern] [WITHCODE]";
    "function|load" -3 WRITE_SLOW NONE "scripting" "7.0.0" scripting::refuse, "Is refused: there are no functions.", "[REPLACE] function-code";
    "function|restore" -3 WRITE_SLOW NONE "scripting" "7.0.0" scripting::refuse, "Is refused: there are no functions.", "serialized-value [FLUSH | APPEND | REPLACE]";
    "function|stats" 2 SCRIPTS NONE "scripting" "7.0.0" scripting::function_stats, "Tells which function is being executed: none.";
    "get" 2 READ ONE "string" "1.0.0" strings::get, "Gives a value.", "key";
    "getbit" 3 READ ONE "bitmap" "2.2.0" bits::getbit, "Gives a bit of a value.", "key offset";
    "getdel" 2 REMOVE ONE "string" "6.2.0" strings::getdel, "Gives a value and removes the key.", "key";
    "getex" -2 REMOVE ONE "string" "6.2.0" strings::getex, "Gives a value and sets when it expires.", "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]";
    "getrange" 4 READ_SLOW ONE "string" "2.4.0" strings::getrange, "Gives a part of a value.", "key start end";
    "getset" 3 WRITE ONE "string" "1.0.0" strings::getset, "Sets a value and gives the old one.", "key value";
    "hello" -1 OPEN NONE "connection" "6.0.0" connection::hello, "Chooses the protocol.", "[protover [AUTH username password] [SETNAME clientname]]";
    "incr" 2 WRITE ONE "string" "1.0.0" numbers::incr, "Adds one to a number.", "key";
    "incrby" 3 WRITE ONE "string" "1.0.0" numbers::incrby, "Adds a number to a number.", "key increment";
    "incrbyfloat" 3 WRITE ONE "string" "2.6.0" numbers::incrbyfloat, "Adds a fraction to a number.", "key increment";
    "increx" -2 WRITE ONE "string" "8.8.0" bounded::increx, "Adds to a number within bounds, and sets when it expires.", "key [BYFLOAT increment | BYINT increment] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]";
    "info" -1 SESSION_SLOW NONE "server" "1.0.0" info::info, "Tells how the server is.", "[section [section ...]]";
    "keys" 2 READ_SLOW NONE "generic" "1.0.0" keyspace::keys, "Gives all keys that match a pattern.", "pattern", "O(N) for N keys";
    "lastsave" 1 SESSION NONE "server" "1.0.0" saving::lastsave, "Tells when all keys were written to disk.";
    "latency" -2 ADMIN NONE "server" "2.8.13" super::container, "Tells what took long, and how long commands take.";
    "latency|doctor" 2 ADMIN NONE "server" "2.8.13" latency::doctor, "Tells in words what took long.";
    "latency|graph" 3 ADMIN NONE "server" "2.8.13" latency::graph, "Draws what took long.", "event";
    "latency|help" 2 SESSION_SLOW NONE "server" "2.8.13" super::help, "Tells the parts of this command.";
    "latency|histogram" -2 ADMIN NONE "server" "7.0.0" latency::histogram, "Tells how long commands took.", "[command [command ...]]", "O(N) for N commands", "Times of quick commands are those of samples.";
    "latency|history" 3 ADMIN NONE "server" "2.8.13" latency::history, "Tells when something took long.", "event", "", "Events are `command` and `fast-command`.";
    "latency|latest" 2 ADMIN NONE "server" "2.8.13" latency::latest, "Tells what took long the last time.";
    "latency|reset" -2 ADMIN NONE "server" "2.8.13" latency::reset, "Forgets what took long.", "[event [event ...]]";
    "lcs" -3 READ_SLOW FIRST_TWO "string" "7.0.0" subsequence::lcs, "Gives the longest common subsequence of two values.", "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]", "O(N*M) for values of N and M bytes", "The lengths of both values, multiplied, are at most 16,777,216, and those of all LCS of a transaction together: beyond it each is an error in the reply of EXEC.";
    "memory" -2 READ_SLOW NONE "server" "4.0.0" super::container, "Tells what memory is used for.";
    "memory|doctor" 2 READ_SLOW NONE "server" "4.0.0" object::memory_doctor, "Tells what is wrong with memory.";
    "memory|help" 2 SESSION_SLOW NONE "server" "4.0.0" super::help, "Tells the parts of this command.";
    "memory|malloc-stats" 2 READ_SLOW NONE "server" "4.0.0" object::memory_malloc_stats, "Tells of the allocator.";
    "memory|purge" 2 READ_SLOW NONE "server" "4.0.0" object::memory_purge, "Gives memory back that was freed and is kept for the next values.";
    "memory|stats" 2 READ_SLOW NONE "server" "4.0.0" object::memory_stats, "Tells what memory is used for, in numbers.", "", "", "There are fewer numbers.";
    "memory|usage" -3 READ_SLOW SECOND "server" "4.0.0" object::memory_usage, "Tells how many bytes a key takes with its value.", "key [SAMPLES count]", "", "It is what Larder takes for it: less than Redis.";
    "mget" -2 READ ALL "string" "1.0.0" strings::mget, "Gives several values.", "key [key ...]";
    "module" -2 ADMIN NONE "server" "4.0.0" super::container, "Is about modules, of which there are none.";
    "module|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Tells the parts of this command.";
    "module|list" 2 ADMIN NONE "server" "4.0.0" roles::module_list, "Tells of modules, of which there are none.";
    "monitor" 1 ADMIN NONE "server" "1.0.0" connection::monitor, "Shows every command of every client, but for passwords and commands that manage the server.", "", "", "A monitor that does not read is closed, as a subscriber is.";
    "move" 3 REMOVE ONE "generic" "1.0.0" keyspace::r#move, "Moves a key to another database.", "key db";
    "mset" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::mset, "Sets several values at once.", "key value [key value ...]";
    "msetex" -4 WRITE_SLOW NUMBERED "string" "8.4.0" conditional::msetex, "Sets several values at once, with one expiry.", "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", "O(N) for N keys";
    "msetnx" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::msetnx, "Sets several values if none of the keys is there.", "key value [key value ...]";
    "multi" 1 TRANSACTION NONE "transactions" "1.2.0" transactions::multi, "Begins a transaction.";
    "object" -2 READ_SLOW NONE "generic" "2.2.3" super::container, "Tells how a value is stored.";
    "object|encoding" 3 READ_SLOW SECOND "generic" "2.2.3" object::encoding, "Tells what Redis would store the value as.", "key";
    "object|freq" 3 READ_SLOW SECOND "generic" "4.0.0" object::freq, "Tells how often a key was used, as far as eviction counts.", "key", "", "It also counts for `allkeys-s3fifo`, up to 3.";
    "object|help" 2 SESSION_SLOW NONE "generic" "6.2.0" super::help, "Tells the parts of this command.";
    "object|idletime" 3 READ_SLOW SECOND "generic" "2.2.3" object::idletime, "Tells how many seconds ago a key was used.", "key", "", "It is told for every policy, up to 48 days.";
    "object|refcount" 3 READ_SLOW SECOND "generic" "2.2.3" object::refcount, "Is 1 for every key that is there.", "key", "", "Small numbers are not shared, so that it is 1 for them, too.";
    "persist" 2 REMOVE ONE "generic" "2.2.0" expiry::persist, "Lets a key not expire.", "key";
    "pexpire" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpire, "Sets when a key expires, in milliseconds from now.", "key milliseconds [NX | XX | GT | LT]";
    "pexpireat" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpireat, "Sets when a key expires, in milliseconds since 1970.", "key unix-time-milliseconds [NX | XX | GT | LT]";
    "pexpiretime" 2 READ ONE "generic" "7.0.0" expiry::pexpiretime, "Tells when a key expires, in milliseconds since 1970.", "key";
    "ping" -1 FAST NONE "connection" "1.0.0" connection::ping, "Says PONG.", "[message]";
    "psetex" 4 WRITE_SLOW ONE "string" "2.6.0" strings::psetex, "Sets a value that expires, in milliseconds.", "key milliseconds value";
    "psubscribe" -2 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::psubscribe, "Receives messages of channels that match patterns.", "pattern [pattern ...]";
    "pttl" 2 READ ONE "generic" "2.6.0" expiry::pttl, "Tells in how many milliseconds a key expires.", "key";
    "publish" 3 PUBSUB NONE "pubsub" "2.0.0" pubsub::publish, "Sends a message to a channel.", "channel message", "O(N + M) for N subscribers of the channel and M patterns of all clients", "Messages to the client itself come behind the reply.";
    "pubsub" -2 CHANNELS NONE "pubsub" "2.8.0" super::container, "Tells of channels.";
    "pubsub|channels" -2 CHANNELS NONE "pubsub" "2.8.0" pubsub::channels, "Gives the channels that somebody has subscribed to.", "[pattern]", "O(N) for N channels";
    "pubsub|help" 2 SESSION_SLOW NONE "pubsub" "6.2.0" super::help, "Tells the parts of this command.";
    "pubsub|numpat" 2 CHANNELS NONE "pubsub" "2.8.0" pubsub::numpat, "Counts the patterns that somebody has subscribed to.";
    "pubsub|numsub" -2 CHANNELS NONE "pubsub" "2.8.0" pubsub::numsub, "Counts the subscribers of channels.", "[channel [channel ...]]";
    "pubsub|shardchannels" -2 CHANNELS NONE "pubsub" "7.0.0" pubsub::shardchannels, "Gives the shard channels that somebody has subscribed to.", "[pattern]", "O(N) for N channels";
    "pubsub|shardnumsub" -2 CHANNELS NONE "pubsub" "7.0.0" pubsub::shardnumsub, "Counts the subscribers of shard channels.", "[shardchannel [shardchannel ...]]";
    "punsubscribe" -1 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::punsubscribe, "Receives no messages of patterns any more.", "[pattern [pattern ...]]";
    "quit" -1 OPEN NONE "connection" "1.0.0" connection::quit, "Ends the connection.";
    "randomkey" 1 READ_SLOW NONE "generic" "1.0.0" keyspace::randomkey, "Gives some key.", "", "O(1); O(N) in a database with a small part of all N keys";
    "readonly" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Is accepted: there are no replicas.";
    "readwrite" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Is accepted: there are no replicas.";
    "rename" 3 REMOVE_SLOW FIRST_TWO "generic" "1.0.0" keyspace::rename, "Gives a value another key.", "key newkey";
    "renamenx" 3 REMOVE FIRST_TWO "generic" "1.0.0" keyspace::renamenx, "Gives a value another key that is not there.", "key newkey";
    "replicaof" 3 ADMIN NONE "server" "5.0.0" roles::replicaof, "NO ONE is accepted; nothing else is: this is no replica.", "NO ONE";
    "reset" 1 OPEN NONE "connection" "6.2.0" connection::reset, "Makes the connection as if it were new.";
    "restore" -4 WRITE_SLOW ONE "generic" "2.6.0" dumping::restore, "Sets a value that DUMP has given.", "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]", "O(N) for N bytes";
    "role" 1 SESSION NONE "server" "2.8.12" roles::role, "Tells that this is no replica.";
    "save" 1 SAVE NONE "server" "1.0.0" saving::save, "Writes all keys to disk, while clients wait.";
    "scan" -2 READ_SLOW NONE "generic" "2.8.0" keyspace::scan, "Goes through the keys in steps.", "cursor [MATCH pattern] [COUNT count] [TYPE type]", "O(1) for each step";
    "script" -2 SCRIPTS NONE "scripting" "2.6.0" super::container, "Is about scripts, of which there are none.";
    "script|exists" -3 SCRIPTS NONE "scripting" "2.6.0" scripting::script_exists, "Tells which scripts there are: none.", "sha1 [sha1 ...]", "O(N) for N scripts";
    "script|flush" -2 SCRIPTS NONE "scripting" "2.6.0" scripting::script_flush, "Removes all scripts.", "[ASYNC | SYNC]";
    "script|help" 2 SESSION_SLOW NONE "scripting" "5.0.0" super::help, "Tells the parts of this command.";
    "script|kill" 2 SCRIPTS NONE "scripting" "2.6.0" scripting::kill, "Is refused: no script is being executed.";
    "script|load" 3 SCRIPTS NONE "scripting" "2.6.0" scripting::refuse, "Is refused: there are no scripts.", "script";
    "select" 2 SESSION NONE "connection" "1.0.0" connection::select, "Chooses the database.", "index";
    "set" -3 WRITE_SLOW ONE "string" "1.0.0" strings::set, "Sets a value.", "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]";
    "setbit" 4 WRITE_SLOW ONE "bitmap" "2.2.0" editing::setbit, "Sets a bit of a value.", "key offset value";
    "setex" 4 WRITE_SLOW ONE "string" "2.0.0" strings::setex, "Sets a value that expires, in seconds.", "key seconds value";
    "setnx" 3 WRITE ONE "string" "1.0.0" strings::setnx, "Sets a value if the key is not there.", "key value";
    "setrange" 4 WRITE_SLOW ONE "string" "2.2.0" editing::setrange, "Writes over a part of a value.", "key offset value";
    "shutdown" -1 SAVE NONE "server" "1.0.0" saving::shutdown, "Ends the server; all keys are written to disk before, if it has a file for them.", "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]";
    "slaveof" 3 ADMIN NONE "server" "1.0.0" roles::replicaof, "As REPLICAOF.", "NO ONE";
    "slowlog" -2 ADMIN NONE "server" "2.2.12" super::container, "Tells which commands took long.";
    "slowlog|get" -2 ADMIN NONE "server" "2.2.12" latency::slowlog_get, "Gives the last commands that took long.", "[count]", "O(N) for N entries";
    "slowlog|help" 2 SESSION_SLOW NONE "server" "6.2.0" super::help, "Tells the parts of this command.";
    "slowlog|len" 2 ADMIN NONE "server" "2.2.12" latency::slowlog_len, "Counts the commands that took long.";
    "slowlog|reset" 2 ADMIN NONE "server" "2.2.12" latency::slowlog_reset, "Forgets the commands that took long.", "", "O(N) for N entries";
    "spublish" 3 PUBSUB ONE "pubsub" "7.0.0" pubsub::spublish, "Sends a message to a shard channel.", "shardchannel message", "O(N) for N subscribers of the channel";
    "ssubscribe" -2 SUBSCRIBE ALL "pubsub" "7.0.0" pubsub::ssubscribe, "Receives messages of shard channels.", "shardchannel [shardchannel ...]";
    "strlen" 2 READ ONE "string" "2.2.0" strings::strlen, "Tells how long a value is.", "key";
    "subscribe" -2 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::subscribe, "Receives messages of channels.", "channel [channel ...]";
    "substr" 4 READ_SLOW ONE "string" "1.0.0" strings::getrange, "Gives a part of a value.", "key start end";
    "sunsubscribe" -1 SUBSCRIBE ALL "pubsub" "7.0.0" pubsub::sunsubscribe, "Receives no messages of shard channels any more.", "[shardchannel [shardchannel ...]]";
    "swapdb" 3 REMOVE NONE "server" "4.0.0" keyspace::swapdb, "Lets two databases change their numbers.", "index1 index2";
    "time" 1 SESSION NONE "server" "2.6.0" server::time, "Tells the time.";
    "touch" -2 READ ALL "generic" "3.2.1" keys::touch, "Uses keys.", "key [key ...]";
    "ttl" 2 READ ONE "generic" "1.0.0" expiry::ttl, "Tells in how many seconds a key expires.", "key";
    "type" 2 READ ONE "generic" "1.0.0" keys::kind, "Tells the type of a value.", "key";
    "unlink" -2 REMOVE ALL "generic" "4.0.0" keys::del, "Removes keys.", "key [key ...]";
    "unsubscribe" -1 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::unsubscribe, "Receives no messages of channels any more.", "[channel [channel ...]]";
    "unwatch" 1 TRANSACTION NONE "transactions" "2.2.0" transactions::unwatch, "Watches no keys any more.", "", "O(N) for N watched keys";
    "wait" 3 SESSION NONE "generic" "3.0.0" roles::wait, "Waits for replicas, of which there are none.", "numreplicas timeout";
    "watch" -2 TRANSACTION ALL "transactions" "2.2.0" transactions::watch, "Lets EXEC do nothing if one of the keys changes before it.", "key [key ...]";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        let table = Table::new();
        for command in COMMANDS {
            let name = command.name.to_ascii_uppercase();
            let found = table.find(name.as_bytes());
            let found = found.or_else(|| {
                let (container, part) = name.split_once('|')?;
                table.find_subcommand(table.find(container.as_bytes())?, part.as_bytes())
            });
            assert_eq!(found.map(|found| found.name), Some(command.name));
            assert_eq!(table.find(name.as_bytes()).is_none(), command.is_part(), "one name is no two words");
        }
        assert!(COMMANDS.iter().enumerate().all(|(number, command)| table.number(command) == number));
        assert!(table.find(b"").is_none() && table.find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn arity_is_exact_or_a_least() {
        let takes = |name: &str, arguments| {
            Table::new().find(name.as_bytes()).map(|command| command.takes(arguments))
        };
        assert_eq!(
            [takes("get", 1), takes("get", 2), takes("get", 3)],
            [Some(false), Some(true), Some(false)]
        );
        assert_eq!(
            [takes("set", 2), takes("set", 3), takes("set", 9)],
            [Some(false), Some(true), Some(true)]
        );
    }
}
