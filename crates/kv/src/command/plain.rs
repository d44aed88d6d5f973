//! A fast path for GET, SET and DEL in their usual form. It avoids the command table, the list of arguments,
//! and the paths for errors.

use engine::{Access, Batch, Database, Expiry, Hint, Key, Located, Shard, Stored, Value};
use resp::{Short, ShortScanner};

use super::{Change, Command, changed, table};
use crate::conversation::Context;
use crate::output::Output;
use crate::reply::{Reply, Version};
use crate::session::Session;
use crate::statistics::PLAIN;

/// A GET or DEL of one key, or a SET without options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    /// Length of the request. It is short, so 32 bits suffice, and with them the struct has 64 bytes.
    bytes: u32,
    verb: Verb,
    pub(crate) key: Key<'a>,
    /// The likely position of the key.
    hint: Hint,
    /// The value to set; empty for other verbs.
    value: &'a [u8],
}

/// The wire format of requests and replies. The code is monomorphised for each, because a check per request
/// would cost a tenth of its time.
pub(crate) trait Form {
    /// Parses the request at the beginning of `bytes`. `None` only means that the slow path has to try.
    fn short<'a>(&self, bytes: &'a [u8]) -> Option<Short<'a>>;

    /// The RESP version in which replies are first written.
    fn version(session: &Session) -> Version;

    /// Converts the reply that begins at `begin` to the wire format.
    fn finish(out: &mut Output, begin: usize);
}

/// The Redis protocol.
impl Form for ShortScanner {
    #[inline]
    fn short<'a>(&self, bytes: &'a [u8]) -> Option<Short<'a>> {
        self.scan(bytes)
    }

    #[inline]
    fn version(session: &Session) -> Version {
        session.version
    }

    #[inline]
    fn finish(_out: &mut Output, _begin: usize) {}
}

/// The operation on the key.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Get,
    Set,
    Del,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Executed {
    Yes,
    /// Executed: observers have to be notified when no lock is held.
    Told,
    /// Executed, with a large value in the output, which should be sent first.
    Large,
    /// Not executed: [`execute`](super::execute) has to handle it.
    No,
}

/// Sets the bit that makes a letter lower case. No other byte becomes a letter of these names.
const LOWER: u32 = 0x0020_2020;
const GET: u32 = u32::from_le_bytes(*b"get\0");
const SET: u32 = u32::from_le_bytes(*b"set\0");
const DEL: u32 = u32::from_le_bytes(*b"del\0");

static GET_COMMAND: &Command = table::named("get");
static SET_COMMAND: &Command = table::named("set");
static DEL_COMMAND: &Command = table::named("del");

impl<'a> Plain<'a> {
    /// Returns `None` for other commands. Prefetches the bucket of the key.
    #[inline(always)]
    pub(crate) fn of(short: &Short<'a>, batch: &mut Batch<'_>, database: Database) -> Option<Self> {
        let name = u32::from_le_bytes([short.name[0], short.name[1], short.name[2], 0]) | LOWER;
        let (verb, value) = match (name, short.value) {
            (GET, None) => (Verb::Get, &[][..]),
            (SET, Some(value)) => (Verb::Set, value),
            (DEL, None) => (Verb::Del, &[][..]),
            _ => return None,
        };
        let key = batch.engine().key(database, short.key);
        Some(Self { bytes: short.bytes as u32, verb, key, hint: batch.prefetch(&key), value })
    }

    /// Length of the request.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Prefetches the item of the key.
    #[inline]
    pub(crate) fn prefetch_item(&mut self, batch: &mut Batch<'_>) {
        batch.prefetch_item(&self.key, &mut self.hint);
    }

    /// Executes the request and writes the reply, for a session with open gates.
    #[inline(always)]
    pub(crate) fn execute<F: Form>(
        &self,
        batch: &mut Batch<'_>,
        session: &mut Session,
        out: &mut Output,
        context: &Context<'_>,
    ) -> Executed {
        let (begin, version) = (out.len(), F::version(session));
        let reply = &mut Reply { out, version };
        let located = batch.at(&self.key);
        let executed = match self.verb {
            Verb::Get => self.get(located, session, reply, context.now_ms),
            Verb::Set => self.set(located, session, reply, context),
            Verb::Del => self.del(located, session, reply, context),
        };
        if !matches!(executed, Executed::No) {
            F::finish(reply.out, begin);
        }
        executed
    }

    #[inline(always)]
    fn get(
        &self,
        mut located: Located<'_, &mut Shard>,
        session: &mut Session,
        reply: &mut Reply<'_>,
        now_ms: u64,
    ) -> Executed {
        session.command = Some(GET_COMMAND);
        let Some(value) = located.get_seen(self.hint, now_ms) else {
            return self.get_anywhere(located, session, reply, now_ms);
        };
        reply.short_bulk(value);
        session.tally.hits += 1;
        Executed::Yes
    }

    #[inline(always)]
    fn set(
        &self,
        mut located: Located<'_, &mut Shard>,
        session: &mut Session,
        reply: &mut Reply<'_>,
        context: &Context<'_>,
    ) -> Executed {
        let now_ms = context.now_ms;
        let is_set = located.overwrite_seen(self.hint, self.value, now_ms)
            || !context.shared.engine.is_to_be_packed(self.value.len())
                && located.set(self.value, Expiry::Never, now_ms).is_ok();
        if !is_set {
            return Executed::No;
        }
        reply.ok();
        session.tally.sets += 1;
        session.command = Some(SET_COMMAND);
        executed(changed(session, context.shared, &located, Change::Set))
    }

    fn del(
        &self,
        mut located: Located<'_, &mut Shard>,
        session: &mut Session,
        reply: &mut Reply<'_>,
        context: &Context<'_>,
    ) -> Executed {
        let is_removed = located.remove(context.now_ms);
        reply.count(usize::from(is_removed));
        session.tally.dels += 1;
        session.command = Some(DEL_COMMAND);
        executed(is_removed && changed(session, context.shared, &located, Change::Del))
    }

    /// GET of a key that was not found at the hinted position.
    fn get_anywhere(
        &self,
        mut located: Located<'_, &mut Shard>,
        session: &mut Session,
        reply: &mut Reply<'_>,
        now_ms: u64,
    ) -> Executed {
        let found = located.get(Access::Use, now_ms).map(|found| found.value);
        match found {
            // The value has to be decompressed without a lock, and may be refused.
            Some(Value::Large(Stored::Packed(_))) => return Executed::No,
            Some(_) => session.tally.hits += 1,
            None => session.tally.misses += 1,
        }
        reply.value_or_null(found.as_ref());
        if reply.out.has_values() { Executed::Large } else { Executed::Yes }
    }
}

#[inline(always)]
fn executed(is_told: bool) -> Executed {
    if is_told { Executed::Told } else { Executed::Yes }
}

/// The commands with a fast path.
pub(crate) static PLAIN_COMMANDS: [&Command; PLAIN] = [GET_COMMAND, SET_COMMAND, DEL_COMMAND];

#[cfg(test)]
mod tests {
    use super::{DEL, DEL_COMMAND, GET, GET_COMMAND, LOWER, SET, SET_COMMAND};

    #[test]
    fn names_are_those_of_the_commands_and_no_others() {
        assert_eq!((GET_COMMAND.name, SET_COMMAND.name, DEL_COMMAND.name), ("get", "set", "del"));
        let all = (0..1_u32 << 24).filter(|name| [GET, SET, DEL].contains(&(name | LOWER)));
        let names: Vec<Vec<u8>> = all.map(|name| name.to_le_bytes()[..3].to_ascii_lowercase()).collect();
        assert_eq!(names.len(), 24);
        assert!(names.iter().all(|name| [b"get", b"set", b"del"].iter().any(|known| name == known)));
    }
}
