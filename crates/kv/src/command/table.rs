//! The one list of commands.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{Call, Outcome, connection, expiry, keys, numbers, server, strings};
use crate::reply::Reply;

/// What is known of a command.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Arguments with the name: exactly so many, or at least, if negative.
    pub(crate) arity: i32,
    pub(crate) flags: &'static [&'static str],
    /// Which arguments are keys: the first, the last (from the end, if negative), and from one to the next. 0: none.
    pub(crate) keys: (i32, i32, i32),
    pub(crate) group: &'static str,
    /// Of Redis.
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
    pub(super) run: fn(&mut Call<'_>, &mut Reply<'_>) -> Outcome,
}

impl Command {
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
}

/// No name is longer.
const NAME_BYTES_MAX: usize = 32;

impl Table {
    pub(crate) fn new() -> Self {
        let named = COMMANDS.iter().map(|command| (command.name.as_bytes(), command));
        Self { by_name: named.collect() }
    }

    /// In any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// Its place in [`Table::all`].
    pub(crate) fn number(&self, command: &Command) -> usize {
        COMMANDS.binary_search_by_key(&command.name, |other| other.name).unwrap_or(usize::MAX)
    }

    pub(super) fn all(&self) -> &'static [Command] {
        COMMANDS
    }
}

const NONE: (i32, i32, i32) = (0, 0, 0);
const ONE: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);

const READ: &[&str] = &["readonly", "fast"];
const READ_SLOW: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const WRITE_SLOW: &[&str] = &["write", "denyoom"];
const REMOVE: &[&str] = &["write", "fast"];
const REMOVE_SLOW: &[&str] = &["write"];
const SESSION: &[&str] = &["noscript", "loading", "stale", "fast"];
const OPEN: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];

macro_rules! commands {
    ($($name:literal $arity:literal $flags:ident $keys:ident $group:literal $since:literal $run:path, $summary:literal;)*) => {
        &[$(Command {
            name: $name, arity: $arity, flags: $flags, keys: $keys, group: $group, since: $since, summary: $summary, run: $run,
        }),*]
    };
}

#[rustfmt::skip]
static COMMANDS: &[Command] = commands! {
    "append" 3 WRITE ONE "string" "2.0.0" strings::append, "Appends to a value; sets it if there is none.";
    "auth" -2 OPEN NONE "connection" "1.0.0" connection::auth, "Tells the password.";
    "client" -2 SESSION NONE "connection" "2.4.0" connection::client, "Tells of and changes connections.";
    "command" -1 SESSION NONE "server" "2.8.13" server::command, "Tells which commands there are.";
    "config" -2 ADMIN NONE "server" "2.0.0" server::config, "Reads and changes settings.";
    "dbsize" 1 READ NONE "server" "1.0.0" server::dbsize, "Counts the keys of the database.";
    "decr" 2 WRITE ONE "string" "1.0.0" numbers::decr, "Takes one from a number.";
    "decrby" 3 WRITE ONE "string" "1.0.0" numbers::decrby, "Takes a number from a number.";
    "del" -2 REMOVE_SLOW ALL "generic" "1.0.0" keys::del, "Removes keys.";
    "echo" 2 SESSION NONE "connection" "1.0.0" connection::echo, "Says what it is told.";
    "exists" -2 READ ALL "generic" "1.0.0" keys::exists, "Counts which of the keys are there.";
    "expire" -3 REMOVE ONE "generic" "1.0.0" expiry::expire, "Sets when a key expires, in seconds from now.";
    "expireat" -3 REMOVE ONE "generic" "1.2.0" expiry::expireat, "Sets when a key expires, in seconds since 1970.";
    "expiretime" 2 READ ONE "generic" "7.0.0" expiry::expiretime, "Tells when a key expires, in seconds since 1970.";
    "flushall" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushall, "Removes all keys of all databases.";
    "flushdb" -1 REMOVE_SLOW NONE "server" "1.0.0" server::flushdb, "Removes all keys of the database.";
    "get" 2 READ ONE "string" "1.0.0" strings::get, "Gives a value.";
    "getdel" 2 REMOVE ONE "string" "6.2.0" strings::getdel, "Gives a value and removes the key.";
    "getex" -2 REMOVE ONE "string" "6.2.0" strings::getex, "Gives a value and sets when it expires.";
    "getrange" 4 READ_SLOW ONE "string" "2.4.0" strings::getrange, "Gives a part of a value.";
    "getset" 3 WRITE ONE "string" "1.0.0" strings::getset, "Sets a value and gives the old one.";
    "hello" -1 OPEN NONE "connection" "6.0.0" connection::hello, "Chooses the protocol.";
    "incr" 2 WRITE ONE "string" "1.0.0" numbers::incr, "Adds one to a number.";
    "incrby" 3 WRITE ONE "string" "1.0.0" numbers::incrby, "Adds a number to a number.";
    "incrbyfloat" 3 WRITE ONE "string" "2.6.0" numbers::incrbyfloat, "Adds a fraction to a number.";
    "info" -1 ADMIN NONE "server" "1.0.0" server::info, "Tells how the server is.";
    "mget" -2 READ ALL "string" "1.0.0" strings::mget, "Gives several values.";
    "mset" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::mset, "Sets several values at once.";
    "msetnx" -3 WRITE_SLOW PAIRS "string" "1.0.1" strings::msetnx, "Sets several values if none of the keys is there.";
    "persist" 2 REMOVE ONE "generic" "2.2.0" expiry::persist, "Lets a key not expire.";
    "pexpire" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpire, "Sets when a key expires, in milliseconds from now.";
    "pexpireat" -3 REMOVE ONE "generic" "2.6.0" expiry::pexpireat, "Sets when a key expires, in milliseconds since 1970.";
    "pexpiretime" 2 READ ONE "generic" "7.0.0" expiry::pexpiretime, "Tells when a key expires, in milliseconds since 1970.";
    "ping" -1 SESSION NONE "connection" "1.0.0" connection::ping, "Says PONG.";
    "psetex" 4 WRITE_SLOW ONE "string" "2.6.0" strings::psetex, "Sets a value that expires, in milliseconds.";
    "pttl" 2 READ ONE "generic" "2.6.0" expiry::pttl, "Tells in how many milliseconds a key expires.";
    "quit" -1 OPEN NONE "connection" "1.0.0" connection::quit, "Ends the connection.";
    "reset" 1 OPEN NONE "connection" "6.2.0" connection::reset, "Makes the connection as if it were new.";
    "select" 2 SESSION NONE "connection" "1.0.0" connection::select, "Chooses the database.";
    "set" -3 WRITE_SLOW ONE "string" "1.0.0" strings::set, "Sets a value.";
    "setex" 4 WRITE_SLOW ONE "string" "2.0.0" strings::setex, "Sets a value that expires, in seconds.";
    "setnx" 3 WRITE ONE "string" "1.0.0" strings::setnx, "Sets a value if the key is not there.";
    "setrange" 4 WRITE_SLOW ONE "string" "2.2.0" strings::setrange, "Writes over a part of a value.";
    "strlen" 2 READ ONE "string" "2.2.0" strings::strlen, "Tells how long a value is.";
    "substr" 4 READ_SLOW ONE "string" "1.0.0" strings::getrange, "Gives a part of a value.";
    "time" 1 SESSION NONE "server" "2.6.0" server::time, "Tells the time.";
    "touch" -2 READ ALL "generic" "3.2.1" keys::touch, "Uses keys.";
    "ttl" 2 READ ONE "generic" "1.0.0" expiry::ttl, "Tells in how many seconds a key expires.";
    "type" 2 READ ONE "generic" "1.0.0" keys::kind, "Tells the type of a value.";
    "unlink" -2 REMOVE ALL "generic" "4.0.0" keys::del, "Removes keys.";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        let table = Table::new();
        for command in COMMANDS {
            let found = table.find(command.name.to_ascii_uppercase().as_bytes());
            assert_eq!(found.map(|found| found.name), Some(command.name));
        }
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
