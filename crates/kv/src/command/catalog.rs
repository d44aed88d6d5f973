//! COMMAND and its subcommands: the command table for clients.

use std::collections::BTreeMap;

use super::syntax;
use super::table::{Command, Keys};
use super::{Call, Outcome, Refusal, container};
use crate::glob::Matcher;
use crate::output::Output;
use crate::reply::Reply;

/// COMMAND without a subcommand describes all commands.
pub(super) fn command(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.length() > 1 {
        return container(call, reply);
    }
    let table = &call.shared.table;
    reply.array(table.all().count());
    table.all().for_each(|command| describe(call, command, reply));
    Ok(())
}

pub(super) fn count(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.count(call.shared.table.all().count());
    Ok(())
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]
pub(super) fn list(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let wanted = call.argument(4).to_ascii_lowercase();
    let mut matcher = Matcher::default();
    let is_wanted = |command: &&Command| match () {
        () if call.length() == 2 => true,
        () if call.is_word(3, "pattern") => matcher.matches(&wanted, command.name.as_bytes()),
        () if call.is_word(3, "aclcat") => {
            command.categories().iter().any(|category| category.as_bytes() == wanted)
        }
        () => false,
    };
    let is_filter = call.is_word(2, "filterby")
        && ["module", "aclcat", "pattern"].into_iter().any(|word| call.is_word(3, word));
    if call.length() != 2 && !(call.length() == 5 && is_filter) {
        return Err(Refusal::Syntax);
    }
    let found: Vec<&Command> = call.shared.table.with_parts().iter().filter(is_wanted).collect();
    matcher.check()?;
    reply.array(found.len());
    found.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    Ok(())
}

/// COMMAND INFO [name ...]
pub(super) fn info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let table = &call.shared.table;
    if call.length() == 2 {
        reply.array(table.all().count());
        table.all().for_each(|command| describe(call, command, reply));
        return Ok(());
    }
    reply.array(call.length() - 2);
    tell_each(call, call.from(2).map(|name| table.find_with_parts(name)), describe, reply)
}

/// Replies with a description of each command, or null. A request may name a command a million times, so each
/// description is encoded only once.
fn tell_each(
    call: &Call<'_>,
    commands: impl Iterator<Item = Option<&'static Command>>,
    tell: fn(&Call<'_>, &Command, &mut Reply<'_>),
    reply: &mut Reply<'_>,
) -> Outcome {
    let mut told = BTreeMap::new();
    for command in commands {
        let name = command.map(|command| command.name);
        let text = told.entry(name).or_insert_with(|| {
            let mut out = Output::default();
            let one = &mut Reply { out: &mut out, version: reply.version };
            match command {
                Some(command) => tell(call, command, one),
                None => one.null(),
            }
            out
        });
        if !reply.out.has_room(text.len()) {
            return Err(Refusal::ReplyOverLimit);
        }
        reply.out.extend_from_slice(text.bytes());
        // Evict keys for the reply while it grows.
        call.shared.make_room_owed(call.now_ms);
    }
    Ok(())
}

/// Replies with name, arity, flags, first key, last key, step, categories, tips, key specifications, and
/// subcommands.
fn describe(call: &Call<'_>, command: &Command, reply: &mut Reply<'_>) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    let movable = matches!(command.keys, Keys::Numbered(..)).then_some("movablekeys");
    reply.set(command.flags.len() + usize::from(movable.is_some()));
    command.flags.iter().copied().chain(movable).for_each(|flag| reply.simple(flag));
    let (first, last, step) = command.keys.range();
    [first, last, step].into_iter().for_each(|number| reply.integer(i64::from(number)));
    let categories = command.categories();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    let tips = command.tips();
    reply.array(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    key_specifications(command, reply);
    let parts = call.shared.table.subcommands(command);
    reply.array(parts.len());
    parts.iter().for_each(|part| describe(call, part, reply));
}

fn key_specifications(command: &Command, reply: &mut Reply<'_>) {
    let specifications: &[(Keys, KeyFlags)] = match command.keys {
        Keys::None => &[],
        _ if second_key_flags(command).is_some() => &[
            (Keys::Range(1, 1, 1), key_flags(command)),
            (Keys::Range(2, 2, 1), second_key_flags(command).unwrap_or_default()),
        ],
        keys => &[(keys, key_flags(command))],
    };
    reply.array(specifications.len());
    specifications.iter().for_each(|(keys, flags)| key_specification(*keys, flags, reply));
}

fn key_specification(keys: Keys, flags: KeyFlags, reply: &mut Reply<'_>) {
    let (begin, fields) = match keys {
        Keys::Range(first, last, step) => {
            // Here, the last key is relative to the first; in the table, it is counted from the name.
            let last = if last < 0 { last } else { last - first };
            (first, [("lastkey", last), ("keystep", step), ("limit", 0)])
        }
        Keys::Numbered(number, step) => (number, [("keynumidx", 0), ("firstkey", 1), ("keystep", step)]),
        Keys::None => (0, [("lastkey", 0), ("keystep", 0), ("limit", 0)]),
    };
    let kind = if matches!(keys, Keys::Numbered(..)) { "keynum" } else { "range" };
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    specification("index", &[("index", begin)], reply);
    reply.bulk(b"find_keys");
    specification(kind, &fields, reply);
}

fn specification(kind: &str, fields: &[(&str, i32)], reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, number) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(i64::from(*number));
    }
}

type KeyFlags = &'static [&'static str];

/// Flags for the access to a key: `OW` overwrites, `RW` changes, `RM` removes, and `RO` reads it; `access`
/// means that the reply contains its value.
fn key_flags(command: &Command) -> KeyFlags {
    match command.name {
        "del" | "unlink" => &["RM", "delete"],
        "delex" | "delifeq" => &["RW", "delete"],
        "set" => &["RW", "access", "update", "variable_flags"],
        "setnx" | "msetnx" => &["OW", "insert"],
        "mset" | "msetex" | "setex" | "psetex" => &["OW", "update"],
        "append" => &["RW", "insert"],
        "eval" | "evalsha" | "fcall" => &["RW", "access", "update"],
        "eval_ro" | "evalsha_ro" | "fcall_ro" => &["RO", "access"],
        "getdel" => &["RW", "access", "delete"],
        "rename" | "renamenx" => &["RW", "access", "delete"],
        "copy" | "dump" => &["RO", "access"],
        "restore" => &["OW", "update"],
        "setrange" => &["RW", "update"],
        "move" => &["RW", "access", "update"],
        "exists" | "type" | "strlen" | "touch" => &["RO"],
        "ttl" | "pttl" | "expiretime" | "pexpiretime" => &["RO", "access"],
        _ if command.has("write") => match command.group {
            "generic" => &["RW", "update"],
            _ => &["RW", "access", "update"],
        },
        _ => match command.group {
            "string" | "bitmap" => &["RO", "access"],
            _ => &["RO"],
        },
    }
}

/// Flags of the second key, if they differ from those of the first.
fn second_key_flags(command: &Command) -> Option<KeyFlags> {
    match command.name {
        "copy" | "rename" => Some(&["OW", "update"]),
        "renamenx" => Some(&["OW", "insert"]),
        _ => None,
    }
}

/// COMMAND DOCS [name ...]
pub(super) fn docs(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let table = &call.shared.table;
    if call.length() == 2 {
        reply.map(table.all().count());
        return tell_each(call, table.all().map(Some), document, reply);
    }
    let wanted = || call.from(2).filter_map(|name| table.find_with_parts(name));
    reply.map(wanted().count());
    tell_each(call, wanted().map(Some), document, reply)
}

fn document(call: &Call<'_>, command: &Command, reply: &mut Reply<'_>) {
    let (arguments, parts) = (syntax::arguments(command.syntax), call.shared.table.subcommands(command));
    reply.bulk(command.name.as_bytes());
    reply.map(4 + usize::from(!arguments.is_empty()) + usize::from(!parts.is_empty()));
    for (name, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| argument.tell(reply));
    }
    if !parts.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(parts.len());
        parts.iter().for_each(|part| document(call, part, reply));
    }
}

/// COMMAND GETKEYS command [argument ...]
pub(super) fn getkeys(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (_, keys) = keys_of(call)?;
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS command [argument ...]
pub(super) fn getkeysandflags(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (command, keys) = keys_of(call)?;
    let first_flags: KeyFlags = match command.name {
        // The flags of SET depend on its options.
        "set" if call.from(5).any(|option| option.eq_ignore_ascii_case(b"get")) => {
            &["RW", "access", "update"]
        }
        "set" => &["OW", "update"],
        _ => key_flags(command),
    };
    let second_flags = second_key_flags(command).unwrap_or(first_flags);
    reply.array(keys.len());
    for (place, key) in keys.into_iter().enumerate() {
        let flags = if place == 1 { second_flags } else { first_flags };
        reply.array(2);
        reply.bulk(key);
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    Ok(())
}

fn keys_of<'a>(call: &Call<'a>) -> Result<(&'static Command, Vec<&'a [u8]>), Refusal> {
    let table = &call.shared.table;
    let command = table.find(call.argument(2));
    let command = command.ok_or(Refusal::Other("ERR Invalid command specified"))?;
    let command = match table.subcommands(command) {
        [] => command,
        _ => table
            .find_subcommand(command, call.argument(3))
            .ok_or(Refusal::Other("ERR Invalid command specified"))?,
    };
    if matches!(command.keys, Keys::None) {
        return Err(Refusal::Other("ERR The command has no key arguments"));
    }
    let arguments: Vec<&[u8]> = call.from(2).collect();
    let invalid = Refusal::Other("ERR Invalid number of arguments specified for command");
    if !command.takes(arguments.len()) {
        return Err(invalid);
    }
    let positions = command.keys.positions(arguments.len(), |index| arguments[index]);
    match positions {
        Some(positions) => Ok((command, positions.map(|index| arguments[index]).collect())),
        // Scripts may have no keys.
        None if command.runs_script() => Ok((command, Vec::new())),
        None => Err(Refusal::Other("ERR Invalid arguments specified for command")),
    }
}

impl Command {
    /// ACL categories of the command, in Redis' order.
    pub(super) fn categories(&self) -> Vec<&'static str> {
        let (name, group) = (self.name, self.group);
        let is_of_keys = group == "generic" || matches!(name, "flushall" | "flushdb" | "swapdb");
        let is_dangerous = self.has("admin")
            || matches!(name, "flushall" | "flushdb" | "keys" | "swapdb" | "info" | "role" | "lastsave")
            || name == "restore";
        let all = [
            ("keyspace", is_of_keys),
            ("read", self.has("readonly")),
            ("write", self.has("write")),
            ("string", group == "string"),
            ("bitmap", group == "bitmap"),
            ("pubsub", group == "pubsub" && name != "pubsub|help"),
            ("admin", self.has("admin")),
            ("fast", self.has("fast")),
            ("slow", !self.has("fast")),
            ("dangerous", is_dangerous),
            ("connection", group == "connection" || self.container() == "command"),
            ("transaction", group == "transactions"),
            ("scripting", group == "scripting"),
        ];
        all.into_iter().filter(|(_, is_in)| *is_in).map(|(category, _)| category).collect()
    }

    /// Hints for cluster clients: how to distribute the command to several nodes and combine the replies.
    fn tips(&self) -> &'static [&'static str] {
        match self.name {
            _ if self.name.ends_with("|help") => &[],
            "mget" => &["request_policy:multi_shard"],
            "mset" => &["request_policy:multi_shard", "response_policy:all_succeeded"],
            "msetnx" => &["request_policy:multi_shard", "response_policy:agg_min"],
            "del" | "unlink" | "exists" | "touch" => {
                &["request_policy:multi_shard", "response_policy:agg_sum"]
            }
            "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
            "flushall" | "flushdb" | "ping" | "memory|purge" | "config|set" | "config|resetstat" => {
                &["request_policy:all_shards", "response_policy:all_succeeded"]
            }
            "keys" => &["request_policy:all_shards", "nondeterministic_output_order"],
            "randomkey" => &["request_policy:all_shards", "nondeterministic_output"],
            "scan" => &["nondeterministic_output", "request_policy:special"],
            "info" | "memory|stats" | "memory|doctor" | "memory|malloc-stats" => {
                &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]
            }
            "ttl" | "pttl" | "time" | "dump" => &["nondeterministic_output"],
            _ if self.name.starts_with("object|") => &["nondeterministic_output"],
            _ if self.name.starts_with("command|") => &["nondeterministic_output_order"],
            _ => &[],
        }
    }
}
