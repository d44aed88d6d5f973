//! GET and SET as nearly all clients send them, without what other commands need: a table, a list of arguments, room for refusals.

use std::sync::Arc;

use engine::{Access, Batch, Database, Expiry, Hint, Key, Shard, Value};
use resp::Short;

use super::{Change, Command, Table, changed, table};
use crate::conversation::Context;
use crate::reply::Reply;
use crate::session::Session;

/// GET of a key, or SET of a value without options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    /// Of the request.
    pub(crate) bytes: usize,
    pub(crate) key: Key<'a>,
    /// Where it seems to be.
    hint: Hint,
    /// To be set.
    value: Option<&'a [u8]>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Executed {
    Yes,
    /// The reply is a bulk string: its length has been written, these bytes and the line end are to follow.
    Announced(Arc<Vec<u8>>),
    /// Nothing has happened, and [`execute`](super::execute) is to tell why.
    No,
}

/// Letters are in lower case with this, and no other byte becomes a letter of these names.
const LOWER: u32 = 0x0020_2020;
const GET: u32 = u32::from_le_bytes(*b"get\0");
const SET: u32 = u32::from_le_bytes(*b"set\0");

static GET_COMMAND: &Command = table::named("get");
static SET_COMMAND: &Command = table::named("set");

impl<'a> Plain<'a> {
    /// None: it is another command. The bucket of the key is on its way into the caches.
    #[inline]
    pub(crate) fn of(short: &Short<'a>, batch: &mut Batch<'_>, database: Database) -> Option<Self> {
        let name = u32::from_le_bytes([short.name[0], short.name[1], short.name[2], 0]) | LOWER;
        if name != if short.value.is_none() { GET } else { SET } {
            return None;
        }
        let key = batch.engine().key(database, short.key);
        Some(Self { bytes: short.bytes, key, hint: batch.prefetch(&key), value: short.value })
    }

    /// The item of the key is on its way too.
    #[inline]
    pub(crate) fn prefetch_item(&mut self, batch: &mut Batch<'_>) {
        batch.prefetch_item(&self.key, &mut self.hint);
    }

    /// Executes it and replies to it, for a session whose gates are open.
    #[inline]
    pub(crate) fn execute(
        &self,
        batch: &mut Batch<'_>,
        session: &mut Session,
        reply: &mut Reply<'_>,
        context: &Context<'_>,
    ) -> Executed {
        let now_ms = context.now_ms;
        let shard = batch.shard(&self.key);
        let Some(value) = self.value else {
            session.command = Some(GET_COMMAND);
            if let Some(value) = shard.get_seen(&self.key, self.hint, now_ms) {
                reply.bulk(value);
                session.tally.hits += 1;
                return Executed::Yes;
            }
            return self.get(shard, session, reply, now_ms);
        };
        let is_set = shard.overwrite_seen(&self.key, self.hint, value, now_ms)
            || shard.set(&self.key, value, Expiry::Never, now_ms).is_ok();
        if !is_set {
            return Executed::No;
        }
        reply.ok();
        session.tally.sets += 1;
        session.command = Some(SET_COMMAND);
        changed(session, context.shared, &self.key, Change::Set);
        Executed::Yes
    }

    /// GET of a key that may be anywhere or nowhere.
    fn get(&self, shard: &mut Shard, session: &mut Session, reply: &mut Reply<'_>, now_ms: u64) -> Executed {
        match shard.get(&self.key, Access::Use, now_ms).map(|found| found.value) {
            Some(Value::Inline(value)) => {
                reply.bulk(value);
                session.tally.hits += 1;
            }
            Some(large @ (Value::Shared(_) | Value::Unpacked(_))) => {
                let value = large.to_shared();
                reply.announce(value.len());
                session.tally.hits += 1;
                return Executed::Announced(value);
            }
            None => {
                reply.null();
                session.tally.misses += 1;
            }
        }
        Executed::Yes
    }
}

/// The numbers of GET and SET.
pub(crate) fn plain_numbers(table: &Table) -> [usize; 2] {
    [GET_COMMAND, SET_COMMAND].map(|command| table.number(command))
}

#[cfg(test)]
mod tests {
    use super::{GET, GET_COMMAND, LOWER, SET, SET_COMMAND};

    #[test]
    fn names_are_those_of_the_commands_and_no_others() {
        assert_eq!((GET_COMMAND.name, SET_COMMAND.name), ("get", "set"));
        let all = (0..1_u32 << 24).filter(|name| [GET, SET].contains(&(name | LOWER)));
        let names: Vec<Vec<u8>> = all.map(|name| name.to_le_bytes()[..3].to_ascii_lowercase()).collect();
        assert_eq!(names.len(), 16);
        assert!(names.iter().all(|name| name == b"get" || name == b"set"));
    }
}
