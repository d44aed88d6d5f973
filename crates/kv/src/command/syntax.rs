//! Parses the arguments in the command table for `COMMAND DOCS`.
//!
//! Example: `key [NX | XX] [EX seconds | PERSIST] [key value ...]`. Words in capitals are literal, brackets
//! enclose optional parts, bars separate alternatives, and dots at the end of a bracket mark repetition.

use crate::reply::Reply;

/// An argument, or a group of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    name: String,
    kind: Kind,
    /// The literal word before the argument, or the word that it consists of.
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    parts: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Key,
    String,
    Integer,
    UnixTime,
    Pattern,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::UnixTime => "unix-time",
            Self::Pattern => "pattern",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }

    fn of(name: &str) -> Self {
        match name {
            "key" | "newkey" | "key1" | "key2" | "source" | "destination" => Self::Key,
            "pattern" => Self::Pattern,
            _ if name.starts_with("unix-time") => Self::UnixTime,
            "seconds" | "milliseconds" | "increment" | "decrement" | "count" | "start" | "end" | "offset"
            | "index" | "index1" | "index2" | "numkeys" | "len" | "db" | "destination-db" | "cursor"
            | "protover" | "timeout" | "numreplicas" => Self::Integer,
            _ => Self::String,
        }
    }
}

/// Parses a syntax into its arguments.
pub(super) fn arguments(syntax: &str) -> Vec<Argument> {
    let spaced = syntax.replace('[', "[ ").replace(']', " ]");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    sequence(&mut words.as_slice())
}

/// Parses up to the closing bracket, or the end.
fn sequence(words: &mut &[&str]) -> Vec<Argument> {
    let mut alternatives = vec![Vec::<Argument>::new()];
    while let Some((word, rest)) = words.split_first() {
        if *word == "]" {
            break;
        }
        *words = rest;
        let arguments = alternatives.last_mut().expect("there is always at least one");
        match *word {
            "|" => alternatives.push(Vec::new()),
            "[" => bracket(words, arguments),
            "..." => {}
            _ => plain(word, words, arguments),
        }
    }
    if alternatives.len() == 1 {
        return alternatives.swap_remove(0);
    }
    let parts = alternatives.into_iter().map(as_one).collect();
    vec![Argument::group("condition", Kind::OneOf, parts)]
}

fn bracket(words: &mut &[&str], before: &mut Vec<Argument>) {
    let begin = *words;
    let inside = sequence(words);
    let is_multiple = begin[..begin.len() - words.len()].last() == Some(&"...");
    *words = words.get(1..).unwrap_or_default();
    let repeated: Vec<_> = inside.iter().map(|argument| &argument.name).collect();
    let tail = before.len().saturating_sub(repeated.len());
    if is_multiple && before[tail..].iter().map(|argument| &argument.name).eq(repeated) {
        // "key value [key value ...]" is one repeated argument.
        let mut whole = as_one(before.split_off(tail));
        whole.is_multiple = true;
        before.push(whole);
        return;
    }
    let mut whole = as_one(inside);
    whole.is_optional = true;
    whole.is_multiple |= is_multiple;
    before.push(whole);
}

/// A word in capitals is the token of the argument that follows, if there is one.
fn plain(word: &str, words: &mut &[&str], arguments: &mut Vec<Argument>) {
    let is_token = word.bytes().all(|byte| !byte.is_ascii_lowercase());
    if !is_token {
        arguments.push(Argument::plain(word, Kind::of(word)));
        return;
    }
    let next =
        words.first().filter(|next| next.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
    let mut argument = match next {
        Some(next) => {
            *words = &words[1..];
            Argument::plain(next, Kind::of(next))
        }
        None => Argument::plain(&word.to_ascii_lowercase(), Kind::PureToken),
    };
    argument.token = Some(word.to_owned());
    arguments.push(argument);
}

fn as_one(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.swap_remove(0),
        _ => Argument::group("data", Kind::Block, arguments),
    }
}

impl Argument {
    fn plain(name: &str, kind: Kind) -> Self {
        let name = name.to_owned();
        Self { name, kind, token: None, is_optional: false, is_multiple: false, parts: Vec::new() }
    }

    fn group(name: &str, kind: Kind, parts: Vec<Self>) -> Self {
        Self { parts, ..Self::plain(name, kind) }
    }

    pub(super) fn tell(&self, reply: &mut Reply<'_>) {
        let flags = [("optional", self.is_optional), ("multiple", self.is_multiple)];
        let flags: Vec<_> = flags.into_iter().filter(|(_, is_set)| *is_set).collect();
        let optional_fields =
            [self.token.is_some(), !flags.is_empty(), !self.parts.is_empty(), self.kind == Kind::Key];
        reply.map(2 + optional_fields.into_iter().filter(|is_there| *is_there).count());
        reply.bulk(b"name");
        reply.bulk(self.name.as_bytes());
        reply.bulk(b"type");
        reply.bulk(self.kind.name().as_bytes());
        if self.kind == Kind::Key {
            reply.bulk(b"key_spec_index");
            reply.integer(0);
        }
        if let Some(token) = &self.token {
            reply.bulk(b"token");
            reply.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(flags.len());
            flags.iter().for_each(|(flag, _)| reply.simple(flag));
        }
        if !self.parts.is_empty() {
            reply.bulk(b"arguments");
            reply.array(self.parts.len());
            self.parts.iter().for_each(|part| part.tell(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short form of a parsed argument.
    fn show(argument: &Argument) -> String {
        let token = argument.token.as_ref().map(|token| format!("{token}:")).unwrap_or_default();
        let parts: Vec<String> = argument.parts.iter().map(show).collect();
        let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(" ")) };
        let optional = if argument.is_optional { "?" } else { "" };
        let multiple = if argument.is_multiple { "*" } else { "" };
        format!("{token}{}{parts}{optional}{multiple}", argument.kind.name())
    }

    #[test]
    fn a_syntax_is_read_as_it_is_written() {
        let check = |syntax: &str, expected: &str| {
            let read: Vec<String> = arguments(syntax).iter().map(show).collect();
            assert_eq!(read.join(" "), expected, "{syntax}");
        };
        check("", "");
        check("key value", "key string");
        check("key [key ...]", "key*");
        check("key value [key value ...]", "block(key string)*");
        check("[message]", "string?");
        check("[section [section ...]]", "string?*");
        check("[NX | XX]", "oneof(NX:pure-token XX:pure-token)?");
        check("key [EX seconds | PERSIST]", "key oneof(EX:integer PERSIST:pure-token)?");
        check("cursor [MATCH pattern] [COUNT count]", "integer MATCH:pattern? COUNT:integer?");
        check("[AUTH username password]", "block(AUTH:string string)?");
        check("YES | NO", "oneof(YES:pure-token NO:pure-token)");
        check("pattern [pattern ...]", "pattern*");
    }
}
