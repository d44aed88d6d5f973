//! The command table.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::arguments::parse_integer;
use super::{
    Call, Outcome, bits, bounded, catalog, client, cluster, conditional, config, connection, dumping,
    editing, expiry, info, keys, keyspace, latency, numbers, object, pubsub, roles, saving, scripting,
    server, strings, subsequence, tracking, transactions,
};
use crate::reply::Reply;

/// An entry of the command table.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Number of arguments including the name; if negative, the minimum.
    pub(crate) arity: i32,
    pub(crate) flags: &'static [&'static str],
    pub(crate) keys: Keys,
    pub(crate) group: &'static str,
    /// Version of Redis that introduced the command.
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
    /// Arguments: `[]` for optional parts, `|` between alternatives, capitals for literal words.
    pub(crate) syntax: &'static str,
    /// Time complexity, if not constant.
    complexity: &'static str,
    /// Difference from Redis 7.0.
    pub(super) difference: &'static str,
    pub(super) run: fn(&mut Call<'_>, &mut Reply<'_>) -> Outcome,
}

/// The positions of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// The first key, the last (from the end, if negative), and the step.
    Range(i32, i32, i32),
    /// Keys after an argument with their number: the position of that argument, and the step.
    Numbered(i32, i32),
}

impl Keys {
    /// The range for clients that support only ranges.
    pub(super) fn range(self) -> (i32, i32, i32) {
        match self {
            Self::Range(first, last, step) => (first, last, step),
            Self::None | Self::Numbered(..) => (0, 0, 0),
        }
    }

    /// Positions of the keys in a request; `None` if the number of keys is invalid.
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

    /// Returns whether this is a subcommand.
    pub(super) fn is_part(&self) -> bool {
        self.name.contains('|')
    }

    /// Returns whether this is a subcommand of `container`.
    pub(super) fn is_part_of(&self, container: &Self) -> bool {
        self.name.strip_prefix(container.name).is_some_and(|rest| rest.starts_with('|'))
    }

    /// The container of a subcommand, or the command itself.
    pub(super) fn container(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(container, _)| container)
    }

    /// Returns whether the command is executed immediately within a transaction.
    pub(super) fn goes_before_exec(&self) -> bool {
        matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Returns whether RESP2 clients with subscriptions may execute the command.
    pub(super) fn is_for_subscribers(&self) -> bool {
        self.name.ends_with("subscribe") || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Returns whether the command has to wait while writes are paused.
    pub(super) fn may_write(&self) -> bool {
        self.has("write") || self.name.ends_with("publish")
    }

    /// Returns whether the command's only effect is its reply.
    pub(super) fn only_tells(&self) -> bool {
        self.has("readonly")
            || matches!(self.container(), "command" | "echo" | "info" | "ping" | "time")
            || matches!(self.name, "client|info" | "client|list" | "config|get" | "pubsub|channels")
            || matches!(self.name, "latency|histogram" | "pubsub|numsub" | "pubsub|shardchannels")
            || matches!(self.name, "pubsub|shardnumsub" | "slowlog|get")
    }

    /// Returns whether the command may be executed without authentication.
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
    /// Subcommands, which are called by two words.
    parts: HashMap<&'static [u8], &'static Command, FixedState>,
}

/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 32;

impl Table {
    pub(crate) fn new() -> Self {
        let named = COMMANDS.iter().map(|command| (command.name.as_bytes(), command));
        let (parts, by_name) = named.partition(|(_, command)| command.is_part());
        Self { by_name, parts }
    }

    /// Finds a command, ignoring case.
    pub(super) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// The index among all commands and subcommands.
    pub(crate) fn number(&self, command: &'static Command) -> usize {
        // Every command in use is an element of the list, so its address gives the index.
        let behind = std::ptr::from_ref(command).addr().wrapping_sub(COMMANDS.as_ptr().addr());
        behind / size_of::<Command>()
    }

    /// The name for an index from [`Table::number`].
    pub(super) fn name(&self, number: usize) -> Option<&'static str> {
        COMMANDS.get(number).map(|command| command.name)
    }

    /// Finds a subcommand of a command.
    pub(super) fn find_subcommand(&self, container: &Command, name: &[u8]) -> Option<&'static Command> {
        let joined = [container.name.as_bytes(), b"|", name].concat().to_ascii_lowercase();
        self.parts.get(joined.as_slice()).copied()
    }

    /// The subcommands of a command; most have none.
    pub(super) fn subcommands(&self, container: &Command) -> &'static [Command] {
        let is_before = |command: &Command| command.name <= container.name;
        let behind = &COMMANDS[COMMANDS.partition_point(is_before)..];
        &behind[..behind.iter().take_while(|command| command.is_part_of(container)).count()]
    }

    /// Finds a command or a subcommand, which has two words.
    pub(super) fn find_with_parts(&self, name: &[u8]) -> Option<&'static Command> {
        self.find(name).or_else(|| self.parts.get(name.to_ascii_lowercase().as_slice()).copied())
    }

    /// All commands and subcommands.
    pub(crate) fn with_parts(&self) -> &'static [Command] {
        COMMANDS
    }

    /// All commands without subcommands.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Command> + Clone {
        COMMANDS.iter().filter(|command| !command.is_part())
    }
}

/// Finds an existing command at compile time.
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
            // The list is a named static, so that it exists once: references to its elements are compared by
            // address.
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
    "acl" -2 SESSION NONE "server" "6.0.0" super::container, "Access control commands; there is a single user.";
    "acl|cat" -2 SESSION NONE "server" "6.0.0" roles::cat, "Lists the ACL categories, or the commands in a category.", "[category]", "O(N) for N commands";
    "acl|dryrun" -4 ADMIN NONE "server" "7.0.0" roles::dryrun, "Checks whether a user may execute a command.", "username command [arg [arg ...]]";
    "acl|getuser" 3 ADMIN NONE "server" "6.0.0" roles::getuser, "Returns the rules of a user.", "username", "", "Passwords are not shown.";
    "acl|help" 2 SESSION_SLOW NONE "server" "6.0.0" super::help, "Returns help about the subcommands.";
    "acl|list" 2 ADMIN NONE "server" "6.0.0" roles::acl_list, "Lists the users with their rules.", "", "", "There is one user; its passwords are not shown.";
    "acl|log" -2 ADMIN NONE "server" "6.0.0" roles::acl_log, "Lists denied commands; always empty.", "[count | RESET]";
    "acl|users" 2 ADMIN NONE "server" "6.0.0" roles::users, "Lists the user names.";
    "acl|whoami" 2 SESSION NONE "server" "6.0.0" roles::whoami, "Returns the user name of the connection.";
    "append" 3 WRITE ONE "string" "2.0.0" editing::append, "Appends a string to the value of a key; creates the key if it doesn't exist.", "key value", "O(1) on average, for a short string", "A value that is compressed, or being sent to a client, is copied as a whole.";
    "asking" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Accepted for compatibility: slots never move.";
    "auth" -2 OPEN NONE "connection" "1.0.0" connection::auth, "Authenticates the connection.", "[username] password";
    "bgrewriteaof" 1 ADMIN NONE "server" "1.0.0" roles::bgrewriteaof, "Accepted for compatibility: there is no append-only file.";
    "bgsave" -1 ADMIN NONE "server" "1.0.0" saving::bgsave, "Saves the data set to disk in the background.", "[SCHEDULE]";
    "bitcount" -2 READ_SLOW ONE "bitmap" "2.6.0" bits::bitcount, "Counts the set bits of a value.", "key [start end [BYTE | BIT]]", "O(N) for N bytes";
    "client" -2 SESSION NONE "connection" "2.4.0" super::container, "Connection management commands.";
    "client|caching" 3 CLIENT NONE "connection" "6.0.0" tracking::caching, "Sets whether the keys in the next request are tracked.", "YES | NO";
    "client|getname" 2 CLIENT NONE "connection" "2.6.9" client::getname, "Returns the name of the connection.";
    "client|getredir" 2 CLIENT NONE "connection" "6.0.0" tracking::getredir, "Returns the ID of the client to which invalidation messages are redirected.";
    "client|help" 2 SESSION_SLOW NONE "connection" "5.0.0" super::help, "Returns help about the subcommands.";
    "client|id" 2 CLIENT NONE "connection" "5.0.0" client::id, "Returns the ID of the connection.";
    "client|info" 2 CLIENT NONE "connection" "6.2.0" client::info, "Returns information about the connection.";
    "client|kill" -3 ADMIN NONE "connection" "2.4.0" client::kill, "Closes connections.", "ip:port | [ID client-id] [TYPE NORMAL | MASTER | REPLICA | PUBSUB] [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME YES | NO] [MAXAGE seconds]", "O(N) for N clients", "Connections of other workers may be closed shortly after the reply.";
    "client|list" -2 ADMIN NONE "connection" "2.4.0" client::list, "Lists the open connections.", "[TYPE NORMAL | MASTER | REPLICA | PUBSUB] [ID client-id [client-id ...]]", "O(N) for N clients", "Buffer sizes are in qbuf, omem and tot-mem only; fd is 0.";
    "client|no-evict" 3 ADMIN NONE "connection" "7.0.0" client::no_evict, "Sets whether the connection may be closed to free memory.", "ON | OFF";
    "client|no-touch" 3 CLIENT NONE "connection" "7.2.0" client::no_touch, "Accepted for compatibility; no effect.", "ON | OFF", "O(1)", "Reads always count for eviction.";
    "client|pause" -3 ADMIN NONE "connection" "2.9.50" client::pause, "Suspends commands of all connections.", "timeout [WRITE | ALL]", "O(1)", "Keys expire and are evicted meanwhile.";
    "client|reply" 3 CLIENT NONE "connection" "3.2.0" client::reply, "Sets whether the server replies to commands.", "ON | OFF | SKIP";
    "client|setinfo" 4 CLIENT NONE "connection" "7.2.0" client::setinfo, "Sets the name or version of the client library.", "LIB-NAME libname | LIB-VER libver";
    "client|setname" 3 CLIENT NONE "connection" "2.6.9" client::setname, "Sets the name of the connection.", "connection-name";
    "client|tracking" -3 CLIENT NONE "connection" "6.0.0" tracking::tracking, "Enables or disables client-side caching for the connection.", "ON | OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]";
    "client|trackinginfo" 2 CLIENT NONE "connection" "6.2.0" tracking::trackinginfo, "Returns the state of client-side caching for the connection.";
    "client|unblock" -3 ADMIN NONE "connection" "5.0.0" client::unblock, "Returns 0, because no command blocks.", "client-id [TIMEOUT | ERROR]", "O(1)", "No command blocks.";
    "client|unpause" 2 ADMIN NONE "connection" "6.2.0" client::unpause, "Ends a CLIENT PAUSE.";
    "cluster" -2 SESSION NONE "cluster" "3.0.0" super::container, "Cluster commands.";
    "cluster|countkeysinslot" 3 SESSION NONE "cluster" "3.0.0" cluster::countkeysinslot, "Returns the number of keys in a slot.", "slot", "O(N) for N keys of the server";
    "cluster|getkeysinslot" 4 SESSION NONE "cluster" "3.0.0" cluster::getkeysinslot, "Returns keys in a slot.", "slot count", "O(N) for N keys of the server";
    "cluster|help" 2 SESSION_SLOW NONE "cluster" "5.0.0" super::help, "Returns help about the subcommands.";
    "cluster|info" 2 SESSION NONE "cluster" "3.0.0" cluster::info, "Returns the state of the cluster.";
    "cluster|keyslot" 3 SESSION NONE "cluster" "3.0.0" cluster::keyslot, "Returns the slot of a key.", "key";
    "cluster|links" 2 SESSION NONE "cluster" "7.0.0" cluster::links, "Lists the connections between nodes; always empty.";
    "cluster|myid" 2 SESSION NONE "cluster" "3.0.0" cluster::myid, "Returns the ID of the node.";
    "cluster|nodes" 2 SESSION NONE "cluster" "3.0.0" cluster::nodes, "Returns the nodes and their slots as text.";
    "cluster|replicas" 3 SESSION NONE "cluster" "5.0.0" cluster::replicas, "Lists the replicas of a node; always empty.", "node-id";
    "cluster|shards" 2 SESSION NONE "cluster" "7.0.0" cluster::shards, "Returns the nodes and their slots.";
    "cluster|slots" 2 SESSION NONE "cluster" "3.0.0" cluster::slots, "Returns the slot ranges and their nodes.";
    "command" -1 SESSION NONE "server" "2.8.13" catalog::command, "Returns information about all commands.", "", "O(N) for N commands";
    "command|count" 2 SESSION NONE "server" "2.8.13" catalog::count, "Returns the number of commands.";
    "command|docs" -2 SESSION NONE "server" "7.0.0" catalog::docs, "Returns documentation about commands.", "[command-name [command-name ...]]", "O(N) for N commands", "Larder's own descriptions, without a history of changes.";
    "command|getkeys" -4 SESSION NONE "server" "2.8.13" catalog::getkeys, "Extracts the keys from a command.", "command [arg [arg ...]]", "O(N) for N arguments";
    "command|getkeysandflags" -4 SESSION NONE "server" "7.0.0" catalog::getkeysandflags, "Extracts the keys and their access flags from a command.", "command [arg [arg ...]]", "O(N) for N arguments";
    "command|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Returns help about the subcommands.";
    "command|info" -2 SESSION NONE "server" "2.8.13" catalog::info, "Returns information about some or all commands.", "[command-name [command-name ...]]", "O(N) for N commands";
    "command|list" -2 SESSION NONE "server" "7.0.0" catalog::list, "Returns the names of commands.", "[FILTERBY MODULE module-name | ACLCAT category | PATTERN pattern]", "O(N) for N commands";
    "config" -2 ADMIN NONE "server" "2.0.0" super::container, "Configuration commands.";
    "config|get" -3 ADMIN NONE "server" "2.0.0" config::get, "Returns the values of settings whose names match.", "pattern [pattern ...]", "O(N) for N settings", "The value of `requirepass` is never returned: it is `(hidden)`, or empty.";
    "config|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Returns help about the subcommands.";
    "config|resetstat" 2 ADMIN NONE "server" "2.0.0" config::resetstat, "Resets the statistics.", "", "", "Connections, evicted keys and expired keys are counted from the start of the server.";
    "config|rewrite" 2 ADMIN NONE "server" "2.8.0" config::rewrite, "Refused: the server never writes its configuration file.";
    "config|set" -4 ADMIN NONE "server" "2.0.0" config::set, "Changes settings until the next start.", "parameter value [parameter value ...]", "O(N) for N settings", "Settings without effect are accepted; others allow a single value, such as `appendonly no`. `requirepass` replaces all passwords until the configuration is reloaded.";
    "copy" -3 WRITE_SLOW FIRST_TWO "generic" "6.2.0" keyspace::copy, "Copies the value of a key to another key, or database.", "source destination [DB destination-db] [REPLACE]";
    "dbsize" 1 READ NONE "server" "1.0.0" server::dbsize, "Returns the number of keys in the database.";
    "debug" -2 ADMIN NONE "server" "1.0.0" super::container, "Debugging commands.";
    "debug|error" 3 ADMIN NONE "server" "1.0.0" roles::debug_error, "Replies with an error.", "message";
    "debug|htstats" 3 ADMIN NONE "server" "1.0.0" roles::debug_htstats, "Returns statistics of the hash tables.", "dbid", "O(N) for N keys", "All databases share the tables: the reported chain is the longest in any database, with buckets of ten keys.";
    "debug|object" 3 ADMIN SECOND "server" "1.0.0" roles::debug_object, "Returns internal information about a value.", "key";
    "debug|panic" 2 ADMIN NONE "server" "1.0.0" roles::panic, "Stops the server like an internal error.";
    "debug|set-active-expire" 3 ADMIN NONE "server" "1.0.0" roles::set_active_expire, "Enables or disables the active removal of expired keys.", "0 | 1";
    "debug|sleep" 3 ADMIN NONE "server" "1.0.0" roles::sleep, "Blocks a worker for up to a minute.", "seconds";
    "decr" 2 WRITE ONE "string" "1.0.0" numbers::decr, "Decrements the integer value of a key by one.", "key";
    "decrby" 3 WRITE ONE "string" "1.0.0" numbers::decrby, "Decrements the integer value of a key by a number.", "key decrement";
    "del" -2 REMOVE_SLOW ALL "generic" "1.0.0" keys::del, "Deletes keys.", "key [key ...]";
    "delex" -2 REMOVE ONE "string" "8.4.0" conditional::delex, "Deletes a key if its value, or the digest of its value, is equal or not equal to an operand.", "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]", "O(1), O(N) for a digest of N bytes";
    "delifeq" 3 REMOVE ONE "string" "9.0.0" conditional::delifeq, "Deletes a key if its value is equal to an operand (Valkey 9).", "key value";
    "digest" 2 READ ONE "string" "8.4.0" conditional::digest_of, "Returns the XXH3 digest of a value as 16 hexadecimal digits.", "key", "O(N) for N bytes";
    "discard" 1 TRANSACTION NONE "transactions" "2.0.0" transactions::discard, "Discards a transaction.";
    "dump" 2 READ_SLOW ONE "generic" "2.6.0" dumping::dump, "Returns the serialized value of a key, for RESTORE.", "key", "O(N) for N bytes", "Long values are not compressed; other servers accept them.";
    "echo" 2 SESSION NONE "connection" "1.0.0" connection::echo, "Returns the given string.", "message";
    "eval" -3 SCRIPTS OF_SCRIPT "scripting" "2.6.0" scripting::refuse, "Refused: scripts are not supported.", "script numkeys [key [key ...]] [arg [arg ...]]";
    "eval_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Refused: scripts are not supported.", "script numkeys [key [key ...]] [arg [arg ...]]";
    "evalsha" -3 SCRIPTS OF_SCRIPT "scripting" "2.6.0" scripting::refuse, "Refused: scripts are not supported.", "sha1 numkeys [key [key ...]] [arg [arg ...]]";
    "evalsha_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Refused: scripts are not supported.", "sha1 numkeys [key [key ...]] [arg [arg ...]]";
    "exec" 1 EXEC NONE "transactions" "1.2.0" transactions::exec, "Executes the commands of a transaction.", "", "Depends on the commands", "Messages that a client causes with its own commands follow the reply.";
    "exists" -2 READ ALL "generic" "1.0.0" keys::exists, "Returns how many of the keys exist.", "key [key ...]";
    "expire" -3 REMOVE ONE "generic" "1.0.0" expiry::expire, "Sets the expiration time of a key, in seconds from now.", "key seconds [NX | XX | GT | LT]";
    "expireat" -3 REMOVE ONE "generic" "1.2.0" expiry::expireat, "Sets the expiration time of a key, as a Unix timestamp in seconds.", "key unix-time-seconds [NX | XX | GT | LT]";
    "expiretime" 2 READ ONE "generic" "7.0.0" expiry::expiretime, "Returns the expiration time of a key, as a Unix timestamp in seconds.", "key";
    "fcall" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Refused: functions are not supported.", "function numkeys [key [key ...]] [arg [arg ...]]";
    "fcall_ro" -3 SCRIPTS OF_SCRIPT "scripting" "7.0.0" scripting::refuse, "Refused: functions are not supported.", "function numkeys [key [key ...]] [arg [arg ...]]";
    "flushall" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushall, "Removes all keys from all databases.", "[ASYNC | SYNC]";
    "flushdb" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushdb, "Removes all keys from the database.", "[ASYNC | SYNC]";
    "function" -2 SESSION NONE "scripting" "7.0.0" super::container, "Function commands; functions are not supported.";
    "function|delete" 3 REMOVE_SLOW NONE "scripting" "7.0.0" scripting::function_delete, "Refused: functions are not supported.", "library-name";
    "function|flush" -2 REMOVE_SLOW NONE "scripting" "7.0.0" scripting::function_flush, "Accepted for compatibility: there are no functions.", "[ASYNC | SYNC]";
    "function|help" 2 SESSION_SLOW NONE "scripting" "7.0.0" super::help, "Returns help about the subcommands.";
    "function|kill" 2 SCRIPTS NONE "scripting" "7.0.0" scripting::kill, "Refused: no function is running.";
    "function|list" -2 SCRIPTS NONE "scripting" "7.0.0" scripting::function_list, "Lists the functions; always empty.", "[LIBRARYNAME library-name-pattern] [WITHCODE]";
    "function|load" -3 WRITE_SLOW NONE "scripting" "7.0.0" scripting::refuse, "Refused: functions are not supported.", "[REPLACE] function-code";
    "function|restore" -3 WRITE_SLOW NONE "scripting" "7.0.0" scripting::refuse, "Refused: functions are not supported.", "serialized-value [FLUSH | APPEND | REPLACE]";
    "function|stats" 2 SCRIPTS NONE "scripting" "7.0.0" scripting::function_stats, "Returns the running function; always none.";
    "get" 2 READ ONE "string" "1.0.0" strings::get, "Returns the value of a key.", "key";
    "getbit" 3 READ ONE "bitmap" "2.2.0" bits::getbit, "Returns a bit of a value.", "key offset";
    "getdel" 2 REMOVE ONE "string" "6.2.0" strings::getdel, "Returns the value of a key and deletes the key.", "key";
    "getex" -2 REMOVE ONE "string" "6.2.0" strings::getex, "Returns the value of a key and sets its expiration time.", "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]";
    "getrange" 4 READ_SLOW ONE "string" "2.4.0" strings::getrange, "Returns a part of a value.", "key start end";
    "getset" 3 WRITE ONE "string" "1.0.0" strings::getset, "Sets the value of a key and returns the old value.", "key value";
    "hello" -1 OPEN NONE "connection" "6.0.0" connection::hello, "Selects the protocol version.", "[protover [AUTH username password] [SETNAME clientname]]";
    "incr" 2 WRITE ONE "string" "1.0.0" numbers::incr, "Increments the integer value of a key by one.", "key";
    "incrby" 3 WRITE ONE "string" "1.0.0" numbers::incrby, "Increments the integer value of a key by a number.", "key increment";
    "incrbyfloat" 3 WRITE ONE "string" "2.6.0" numbers::incrbyfloat, "Increments the value of a key by a floating-point number.", "key increment";
    "increx" -2 WRITE ONE "string" "8.8.0" bounded::increx, "Increments a number within bounds and sets its expiration time.", "key [BYFLOAT increment | BYINT increment] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]";
    "info" -1 SESSION_SLOW NONE "server" "1.0.0" info::info, "Returns information and statistics about the server.", "[section [section ...]]";
    "keys" 2 READ_SLOW NONE "generic" "1.0.0" keyspace::keys, "Returns all keys that match a pattern.", "pattern", "O(N) for N keys";
    "lastsave" 1 SESSION NONE "server" "1.0.0" saving::lastsave, "Returns the Unix timestamp of the last save.";
    "latency" -2 ADMIN NONE "server" "2.8.13" super::container, "Latency monitoring commands.";
    "latency|doctor" 2 ADMIN NONE "server" "2.8.13" latency::doctor, "Returns a latency report.";
    "latency|graph" 3 ADMIN NONE "server" "2.8.13" latency::graph, "Returns a graph of the latency samples of an event.", "event";
    "latency|help" 2 SESSION_SLOW NONE "server" "2.8.13" super::help, "Returns help about the subcommands.";
    "latency|histogram" -2 ADMIN NONE "server" "7.0.0" latency::histogram, "Returns the latency distribution of commands.", "[command [command ...]]", "O(N) for N commands", "Times of quick commands are sampled.";
    "latency|history" 3 ADMIN NONE "server" "2.8.13" latency::history, "Returns the latency samples of an event.", "event", "", "Events are `command` and `fast-command`.";
    "latency|latest" 2 ADMIN NONE "server" "2.8.13" latency::latest, "Returns the latest latency sample of each event.";
    "latency|reset" -2 ADMIN NONE "server" "2.8.13" latency::reset, "Removes the latency samples of events.", "[event [event ...]]";
    "lcs" -3 READ_SLOW FIRST_TWO "string" "7.0.0" subsequence::lcs, "Returns the longest common subsequence of two values.", "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]", "O(N*M) for values of N and M bytes", "The product of both lengths is at most 16,777,216, and so is the sum of these products in a transaction. Beyond that sum, each LCS returns an error in the reply of EXEC.";
    "memory" -2 READ_SLOW NONE "server" "4.0.0" super::container, "Memory diagnostics commands.";
    "memory|doctor" 2 READ_SLOW NONE "server" "4.0.0" object::memory_doctor, "Returns a report about memory problems.";
    "memory|help" 2 SESSION_SLOW NONE "server" "4.0.0" super::help, "Returns help about the subcommands.";
    "memory|malloc-stats" 2 READ_SLOW NONE "server" "4.0.0" object::memory_malloc_stats, "Returns statistics of the allocator.";
    "memory|purge" 2 READ_SLOW NONE "server" "4.0.0" object::memory_purge, "Returns freed memory to the system.";
    "memory|stats" 2 READ_SLOW NONE "server" "4.0.0" object::memory_stats, "Returns details about memory usage.", "", "", "There are fewer fields.";
    "memory|usage" -3 READ_SLOW SECOND "server" "4.0.0" object::memory_usage, "Returns the memory usage of a key in bytes.", "key [SAMPLES count]", "", "Larder uses less memory for a key than Redis.";
    "mget" -2 READ ALL "string" "1.0.0" strings::mget, "Returns the values of keys.", "key [key ...]";
    "module" -2 ADMIN NONE "server" "4.0.0" super::container, "Module commands; modules are not supported.";
    "module|help" 2 SESSION_SLOW NONE "server" "5.0.0" super::help, "Returns help about the subcommands.";
    "module|list" 2 ADMIN NONE "server" "4.0.0" roles::module_list, "Lists the modules; always empty.";
    "monitor" 1 ADMIN NONE "server" "1.0.0" connection::monitor, "Streams every command of every client, except passwords and administrative commands.", "", "", "A monitor that doesn't read is closed, like a subscriber.";
    "move" 3 REMOVE ONE "generic" "1.0.0" keyspace::r#move, "Moves a key to another database.", "key db";
    "mset" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::mset, "Sets the values of keys.", "key value [key value ...]";
    "msetex" -4 WRITE_SLOW NUMBERED "string" "8.4.0" conditional::msetex, "Sets the values of keys, with one expiration time.", "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", "O(N) for N keys";
    "msetnx" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::msetnx, "Sets the values of keys if none of the keys exists.", "key value [key value ...]";
    "multi" 1 TRANSACTION NONE "transactions" "1.2.0" transactions::multi, "Starts a transaction.";
    "object" -2 READ_SLOW NONE "generic" "2.2.3" super::container, "Commands to inspect keys.";
    "object|encoding" 3 READ_SLOW SECOND "generic" "2.2.3" object::encoding, "Returns the encoding that Redis would use for a value.", "key";
    "object|freq" 3 READ_SLOW SECOND "generic" "4.0.0" object::freq, "Returns the access frequency of a key, as counted for eviction.", "key", "", "It also works with `allkeys-s3fifo`, with frequencies up to 3.";
    "object|help" 2 SESSION_SLOW NONE "generic" "6.2.0" super::help, "Returns help about the subcommands.";
    "object|idletime" 3 READ_SLOW SECOND "generic" "2.2.3" object::idletime, "Returns the time since the last access to a key, in seconds.", "key", "", "It works with every policy, up to 48 days.";
    "object|refcount" 3 READ_SLOW SECOND "generic" "2.2.3" object::refcount, "Returns 1 for every key that exists.", "key", "", "Small numbers are not shared, so they return 1, too.";
    "persist" 2 REMOVE ONE "generic" "2.2.0" expiry::persist, "Removes the expiration time of a key.", "key";
    "pexpire" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpire, "Sets the expiration time of a key, in milliseconds from now.", "key milliseconds [NX | XX | GT | LT]";
    "pexpireat" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpireat, "Sets the expiration time of a key, as a Unix timestamp in milliseconds.", "key unix-time-milliseconds [NX | XX | GT | LT]";
    "pexpiretime" 2 READ ONE "generic" "7.0.0" expiry::pexpiretime, "Returns the expiration time of a key, as a Unix timestamp in milliseconds.", "key";
    "ping" -1 FAST NONE "connection" "1.0.0" connection::ping, "Returns PONG, or the given message.", "[message]";
    "psetex" 4 WRITE_SLOW ONE "string" "2.6.0" strings::psetex, "Sets the value of a key and its expiration time, in milliseconds.", "key milliseconds value";
    "psubscribe" -2 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::psubscribe, "Subscribes to channels that match patterns.", "pattern [pattern ...]";
    "pttl" 2 READ ONE "generic" "2.6.0" expiry::pttl, "Returns the remaining time to live of a key, in milliseconds.", "key";
    "publish" 3 PUBSUB NONE "pubsub" "2.0.0" pubsub::publish, "Publishes a message to a channel.", "channel message", "O(N + M) for N subscribers of the channel and M patterns of all clients", "Messages to the client itself follow the reply.";
    "pubsub" -2 CHANNELS NONE "pubsub" "2.8.0" super::container, "Commands to inspect publish/subscribe.";
    "pubsub|channels" -2 CHANNELS NONE "pubsub" "2.8.0" pubsub::channels, "Lists the channels with subscribers.", "[pattern]", "O(N) for N channels";
    "pubsub|help" 2 SESSION_SLOW NONE "pubsub" "6.2.0" super::help, "Returns help about the subcommands.";
    "pubsub|numpat" 2 CHANNELS NONE "pubsub" "2.8.0" pubsub::numpat, "Returns the number of patterns with subscribers.";
    "pubsub|numsub" -2 CHANNELS NONE "pubsub" "2.8.0" pubsub::numsub, "Returns the number of subscribers of channels.", "[channel [channel ...]]";
    "pubsub|shardchannels" -2 CHANNELS NONE "pubsub" "7.0.0" pubsub::shardchannels, "Lists the shard channels with subscribers.", "[pattern]", "O(N) for N channels";
    "pubsub|shardnumsub" -2 CHANNELS NONE "pubsub" "7.0.0" pubsub::shardnumsub, "Returns the number of subscribers of shard channels.", "[shardchannel [shardchannel ...]]";
    "punsubscribe" -1 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::punsubscribe, "Unsubscribes from patterns.", "[pattern [pattern ...]]";
    "quit" -1 OPEN NONE "connection" "1.0.0" connection::quit, "Closes the connection.";
    "randomkey" 1 READ_SLOW NONE "generic" "1.0.0" keyspace::randomkey, "Returns a random key.", "", "O(1); O(N) in a database with a small part of all N keys";
    "readonly" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Accepted for compatibility: there are no replicas.";
    "readwrite" 1 SESSION NONE "cluster" "3.0.0" cluster::accept, "Accepted for compatibility: there are no replicas.";
    "rename" 3 REMOVE_SLOW FIRST_TWO "generic" "1.0.0" keyspace::rename, "Renames a key, and overwrites an existing one.", "key newkey";
    "renamenx" 3 REMOVE FIRST_TWO "generic" "1.0.0" keyspace::renamenx, "Renames a key if the new name doesn't exist.", "key newkey";
    "replicaof" 3 ADMIN NONE "server" "5.0.0" roles::replicaof, "Accepts NO ONE only: replication is not supported.", "NO ONE";
    "reset" 1 OPEN NONE "connection" "6.2.0" connection::reset, "Resets the connection.";
    "restore" -4 WRITE_SLOW ONE "generic" "2.6.0" dumping::restore, "Creates a key from a value serialized by DUMP.", "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]", "O(N) for N bytes";
    "role" 1 SESSION NONE "server" "2.8.12" roles::role, "Returns the replication role, which is always master.";
    "save" 1 SAVE NONE "server" "1.0.0" saving::save, "Saves the data set to disk while clients wait.";
    "scan" -2 READ_SLOW NONE "generic" "2.8.0" keyspace::scan, "Iterates over the keys of the database.", "cursor [MATCH pattern] [COUNT count] [TYPE type]", "O(1) for each step";
    "script" -2 SCRIPTS NONE "scripting" "2.6.0" super::container, "Script commands; scripts are not supported.";
    "script|exists" -3 SCRIPTS NONE "scripting" "2.6.0" scripting::script_exists, "Returns 0 for each script.", "sha1 [sha1 ...]", "O(N) for N scripts";
    "script|flush" -2 SCRIPTS NONE "scripting" "2.6.0" scripting::script_flush, "Accepted for compatibility: there are no scripts.", "[ASYNC | SYNC]";
    "script|help" 2 SESSION_SLOW NONE "scripting" "5.0.0" super::help, "Returns help about the subcommands.";
    "script|kill" 2 SCRIPTS NONE "scripting" "2.6.0" scripting::kill, "Refused: no script is running.";
    "script|load" 3 SCRIPTS NONE "scripting" "2.6.0" scripting::refuse, "Refused: scripts are not supported.", "script";
    "select" 2 SESSION NONE "connection" "1.0.0" connection::select, "Selects the database.", "index";
    "set" -3 WRITE_SLOW ONE "string" "1.0.0" strings::set, "Sets the value of a key.", "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]";
    "setbit" 4 WRITE_SLOW ONE "bitmap" "2.2.0" editing::setbit, "Sets or clears a bit of a value.", "key offset value";
    "setex" 4 WRITE_SLOW ONE "string" "2.0.0" strings::setex, "Sets the value of a key and its expiration time, in seconds.", "key seconds value";
    "setnx" 3 WRITE ONE "string" "1.0.0" strings::setnx, "Sets the value of a key if the key doesn't exist.", "key value";
    "setrange" 4 WRITE_SLOW ONE "string" "2.2.0" editing::setrange, "Overwrites a part of a value.", "key offset value";
    "shutdown" -1 SAVE NONE "server" "1.0.0" saving::shutdown, "Stops the server, and saves the data set first if there is a save file.", "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]";
    "slaveof" 3 ADMIN NONE "server" "1.0.0" roles::replicaof, "An alias of REPLICAOF.", "NO ONE";
    "slowlog" -2 ADMIN NONE "server" "2.2.12" super::container, "Slow log commands.";
    "slowlog|get" -2 ADMIN NONE "server" "2.2.12" latency::slowlog_get, "Returns the latest entries of the slow log.", "[count]", "O(N) for N entries";
    "slowlog|help" 2 SESSION_SLOW NONE "server" "6.2.0" super::help, "Returns help about the subcommands.";
    "slowlog|len" 2 ADMIN NONE "server" "2.2.12" latency::slowlog_len, "Returns the number of entries in the slow log.";
    "slowlog|reset" 2 ADMIN NONE "server" "2.2.12" latency::slowlog_reset, "Removes all entries from the slow log.", "", "O(N) for N entries";
    "spublish" 3 PUBSUB ONE "pubsub" "7.0.0" pubsub::spublish, "Publishes a message to a shard channel.", "shardchannel message", "O(N) for N subscribers of the channel";
    "ssubscribe" -2 SUBSCRIBE ALL "pubsub" "7.0.0" pubsub::ssubscribe, "Subscribes to shard channels.", "shardchannel [shardchannel ...]";
    "strlen" 2 READ ONE "string" "2.2.0" strings::strlen, "Returns the length of a value.", "key";
    "subscribe" -2 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::subscribe, "Subscribes to channels.", "channel [channel ...]";
    "substr" 4 READ_SLOW ONE "string" "1.0.0" strings::getrange, "Returns a part of a value.", "key start end";
    "sunsubscribe" -1 SUBSCRIBE ALL "pubsub" "7.0.0" pubsub::sunsubscribe, "Unsubscribes from shard channels.", "[shardchannel [shardchannel ...]]";
    "swapdb" 3 REMOVE NONE "server" "4.0.0" keyspace::swapdb, "Swaps two databases.", "index1 index2";
    "time" 1 SESSION NONE "server" "2.6.0" server::time, "Returns the server time.";
    "touch" -2 READ ALL "generic" "3.2.1" keys::touch, "Updates the last access time of keys.", "key [key ...]";
    "ttl" 2 READ ONE "generic" "1.0.0" expiry::ttl, "Returns the remaining time to live of a key, in seconds.", "key";
    "type" 2 READ ONE "generic" "1.0.0" keys::kind, "Returns the type of a value.", "key";
    "unlink" -2 REMOVE ALL "generic" "4.0.0" keys::del, "Deletes keys.", "key [key ...]";
    "unsubscribe" -1 SUBSCRIBE NONE "pubsub" "2.0.0" pubsub::unsubscribe, "Unsubscribes from channels.", "[channel [channel ...]]";
    "unwatch" 1 TRANSACTION NONE "transactions" "2.2.0" transactions::unwatch, "Unwatches all keys.", "", "O(N) for N watched keys";
    "wait" 3 SESSION NONE "generic" "3.0.0" roles::wait, "Returns 0 immediately, because there are no replicas.", "numreplicas timeout";
    "watch" -2 TRANSACTION ALL "transactions" "2.2.0" transactions::watch, "Watches keys: EXEC aborts if one of them has changed.", "key [key ...]";
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
