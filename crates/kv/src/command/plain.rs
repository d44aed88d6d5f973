//! GET and SET as nearly all clients send them, without what other commands need: a table, a list of arguments, room for refusals.

use engine::{Access, Expiry};
use resp::Short;

use super::{Change, Command, changed, table};
use crate::conversation::Context;
use crate::reply::Reply;
use crate::session::Session;

/// Executes a request and replies to it, if it is one of these and all goes well; else nothing has happened, and
/// [`execute`](super::execute) is to be asked. The gates of the session must be open.
#[inline]
pub(crate) fn execute_short(
    short: &Short<'_>,
    session: &mut Session,
    context: &Context<'_>,
    reply: &mut Reply<'_>,
) -> bool {
    match (u32::from_le_bytes([short.name[0], short.name[1], short.name[2], 0]) | LOWER, short.value) {
        (GET, None) => get(short.key, session, context, reply),
        (SET, Some(value)) => set(short.key, value, session, context, reply),
        _ => false,
    }
}

/// Letters are in lower case with this, and no other byte becomes a letter of these names.
const LOWER: u32 = 0x0020_2020;
const GET: u32 = u32::from_le_bytes(*b"get\0");
const SET: u32 = u32::from_le_bytes(*b"set\0");

static GET_COMMAND: &Command = table::named("get");
static SET_COMMAND: &Command = table::named("set");

fn get(key: &[u8], session: &mut Session, context: &Context<'_>, reply: &mut Reply<'_>) -> bool {
    let engine = &context.shared.engine;
    let key = engine.key(session.database, key);
    let mut shard = engine.lock(&key);
    match shard.get(&key, Access::Use, context.now_ms) {
        Some(found) => reply.bulk(found.value.bytes()),
        None => reply.null(),
    }
    session.command = Some(GET_COMMAND);
    true
}

fn set(
    key: &[u8],
    value: &[u8],
    session: &mut Session,
    context: &Context<'_>,
    reply: &mut Reply<'_>,
) -> bool {
    let engine = &context.shared.engine;
    let key = engine.key(session.database, key);
    if engine.lock(&key).set(&key, value, Expiry::Never, context.now_ms).is_err() {
        return false;
    }
    reply.ok();
    session.command = Some(SET_COMMAND);
    changed(session, &key, Change::Set);
    true
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
