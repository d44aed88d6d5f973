//! The log: one string to which records are appended.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value, cmd, pipe};

use super::connections::Connections;
use super::log_bytes::{self, HEADER_BYTES, Header, LogError, READ_BYTES};
use super::names::{Names, random_id};
use super::records::ttl_ms;
use super::reply::{self, Executed, Written};
use super::settings::Access;
use super::transaction::{ATTEMPTS, contended};
use super::wire::Wire;
use crate::Refusal;
use crate::backing::{
    AppendOutcome, BackingError, LOG_APPEND_BYTES_MAX, LOG_KEPT_BYTES_MAX, LogCursor, LogId, LogOffset,
    LogPart, LogRecord, LogState, Replication,
};

/// Last known start of the log. A guess that usually saves a request when reading.
#[derive(Debug, Default)]
pub(super) struct LastSeen(Mutex<Option<Header>>);

impl LastSeen {
    /// Returns the id of the log, if it is known.
    pub(super) fn id(&self) -> Option<LogId> {
        self.0.lock().map(|header| header.id)
    }

    fn floor(&self, id: LogId) -> LogOffset {
        self.0.lock().filter(|seen| seen.id == id).map_or(LogOffset(0), |seen| seen.floor)
    }

    pub(super) fn note(&self, state: LogState) -> LogState {
        *self.0.lock() = Some(Header { id: state.id, floor: state.floor });
        state
    }
}

/// Makes the server follow the log, so that the next change is announced.
pub(super) async fn follow(connections: &Connections) -> Result<(), BackingError> {
    let mut following = pipe();
    following.cmd("CLIENT").arg("CACHING").arg("YES");
    // This holds even if there is no log, because creating it is also a change.
    following.cmd("STRLEN").arg(connections.names.log());
    let [caching, _] = connections.control.ask_for(&following).await?;
    reply::done(caching)
}

/// Returns the extent of the log, which is created if missing.
pub(super) async fn state(connections: &Connections) -> Result<LogState, BackingError> {
    for _ in 0..ATTEMPTS {
        let mut question = pipe();
        look(&mut question, &connections.names);
        let [header, length, again] = connections.control.ask_for(&question).await?;
        match found_twice(header, length, &again)? {
            Some(Found::Log(state)) => return Ok(state),
            Some(Found::NoLog) => {}
            None => continue,
        }
        let begun = match begin(connections).await? {
            WriteAttempt::Conflict => replace_foreign(connections, &[]).await?,
            done => done,
        };
        match begun {
            WriteAttempt::Done(state) => return Ok(state),
            WriteAttempt::NoRoom => return Err(BackingError::Full),
            WriteAttempt::Conflict => {}
        }
    }
    Err(contended())
}

/// Creates a log if the key doesn't exist; [`WriteAttempt::Conflict`] if it does.
async fn begin(connections: &Connections) -> Result<WriteAttempt, BackingError> {
    let header = Header::new(random_id());
    let mut set = cmd("SET");
    set.arg(connections.names.log()).arg(&header.encode()[..]).arg("NX");
    Ok(match reply::written(connections.control.ask_one(&set).await?)? {
        Written::Yes => WriteAttempt::Done(header.state(HEADER_BYTES as u64)),
        Written::NoRoom => WriteAttempt::NoRoom,
        Written::No => WriteAttempt::Conflict,
    })
}

pub(super) async fn append(
    connections: &Connections,
    records: &[Bytes],
) -> Result<AppendOutcome, BackingError> {
    let Some(frames) = log_bytes::encode(records) else {
        return Ok(AppendOutcome::NotStored(Refusal::TooLarge));
    };
    for _ in 0..ATTEMPTS {
        let appended = match append_once(connections, &frames).await? {
            // Records that were appended to a value that isn't a log are lost with it, so they are written again.
            WriteAttempt::Conflict => replace_foreign(connections, &frames).await?,
            done => done,
        };
        match appended {
            WriteAttempt::Done(state) => {
                return Ok(AppendOutcome::Taken(state));
            }
            WriteAttempt::NoRoom => return Ok(AppendOutcome::NotStored(Refusal::OverBudget)),
            WriteAttempt::Conflict => {}
        }
    }
    Err(contended())
}

async fn append_once(connections: &Connections, frames: &[u8]) -> Result<WriteAttempt, BackingError> {
    let mut appending = pipe();
    appending.cmd("MULTI");
    appending.cmd("SET").arg(connections.names.log()).arg(&Header::new(random_id()).encode()[..]).arg("NX");
    ask_for_header(&mut appending, &connections.names);
    appending.cmd("APPEND").arg(connections.names.log()).arg(frames).cmd("EXEC");
    let answers = match reply::executed(connections.control.ask(&appending).await?)? {
        Executed::Done(answers) => answers,
        Executed::NoRoom => return Ok(WriteAttempt::NoRoom),
        Executed::Overtaken => return Ok(WriteAttempt::Conflict),
    };
    let [_, header, length] = reply::exactly(answers)?;
    Ok(match found(header, length)? {
        Found::Log(state) => WriteAttempt::Done(state),
        Found::NoLog => WriteAttempt::Conflict,
    })
}

/// Waits until most of the servers, with the master, have everything that was appended before: then it takes two failures at once to lose
/// it. WAIT blocks its connection and concerns only that connection's writes, so it follows a write on an exclusive one.
pub(super) async fn replicate(
    connections: &Connections,
    replicas: u32,
    limit: Duration,
) -> Result<Replication, BackingError> {
    if replicas == 0 {
        return Ok(Replication::Complete);
    }
    let wanted = replicas.div_ceil(2);
    let wire = connections.exclusive().await?;
    let mut waiting = pipe();
    waiting.cmd("SET").arg(connections.names.replicated()).arg("").arg("PX").arg(1000);
    waiting.cmd("WAIT").arg(wanted).arg(ttl_ms(limit));
    let [set, acknowledged] = wire.ask_for(&waiting).await?;
    reply::done(set)?;
    let is_complete = reply::integer(acknowledged)? >= i64::from(wanted);
    Ok(if is_complete { Replication::Complete } else { Replication::Incomplete })
}

pub(super) async fn read(
    connections: &Connections,
    (seen, access): (&LastSeen, Access),
    from: LogCursor,
) -> Result<LogPart, BackingError> {
    for _ in 0..ATTEMPTS {
        let guess = Header { id: from.id, floor: seen.floor(from.id) };
        let first = guess.place(from.offset);
        let mut reading = pipe();
        ask_for_header(&mut reading, &connections.names);
        reading.cmd("STRLEN").arg(connections.names.log());
        reading.add_command(range(&connections.names, first, READ_BYTES));
        ask_for_header(&mut reading, &connections.names);
        let [header, length, records, again] = connections.control.ask_for(&reading).await?;
        let state = match found_twice(header, length, &again)? {
            Some(Found::Log(state)) => seen.note(state),
            Some(Found::NoLog) if access == Access::Reading => {
                return Err(BackingError::NoLog);
            }
            Some(Found::NoLog) => seen.note(state(connections).await?),
            None => continue,
        };
        if state.id != from.id {
            return Ok(LogPart { state, records: Vec::new() });
        }
        if state.floor == guess.floor {
            let read = reply::part(records, READ_BYTES)?.unwrap_or_default();
            return match readable(state, from, &read) {
                Ok(records) => Ok(LogPart { state, records }),
                Err(damage) if access == Access::Reading => Err(BackingError::Corrupt(damage.into())),
                Err(damage) => {
                    let state = seen.note(replace_damaged(connections, from, damage).await?);
                    Ok(LogPart { state, records: Vec::new() })
                }
            };
        }
    }
    Err(contended())
}

/// Decodes the records after a position.
fn readable(state: LogState, from: LogCursor, read: &Bytes) -> Result<Vec<LogRecord>, LogError> {
    // The log was set back: a reader that had read further gives it another id.
    if state.end < from.offset {
        return Ok(Vec::new());
    }
    log_bytes::decode(read, from.offset.max(state.floor), LOG_APPEND_BYTES_MAX)
}

/// Replaces a log that can't be read from a position on. The extent of the loss is unknown, so the new log gets a new id, by which all
/// readers notice it. The log is read once more first, so that only its current value counts, and only one of many readers replaces it.
async fn replace_damaged(
    connections: &Connections,
    from: LogCursor,
    damage: LogError,
) -> Result<LogState, BackingError> {
    let wire = connections.exclusive().await?;
    for _ in 0..ATTEMPTS {
        let Some(Found::Log(there)) = watch(&wire, &connections.names).await? else { continue };
        let first = Header { id: there.id, floor: there.floor }.place(from.offset);
        let read = wire.ask_one(&range(&connections.names, first, READ_BYTES)).await?;
        let read = reply::part(read, READ_BYTES)?.unwrap_or_default();
        if there.id != from.id {
            return Ok(there);
        }
        if readable(there, from, &read).is_ok() {
            // Another reader's new log may have replaced the damaged value.
            return state(connections).await;
        }
        let header = Header::new(random_id());
        match replace(&wire, &connections.names, &header.encode()).await? {
            Executed::Done(_) => {
                tracing::warn!(%damage, "damaged purge log replaced: older responses will be validated before their next use");
                return Ok(header.state(HEADER_BYTES as u64));
            }
            Executed::NoRoom => return Err(BackingError::Full),
            Executed::Overtaken => {}
        }
    }
    Err(contended())
}

pub(super) async fn trim(connections: &Connections, floor: LogCursor) -> Result<LogState, BackingError> {
    rewrite(connections, |state| {
        let floor = LogCursor { id: floor.id, offset: floor.offset.min(state.end) };
        (state.id == floor.id && floor.offset > state.floor)
            .then_some(Header { id: state.id, floor: floor.offset })
    })
    .await
}

/// Gives another id to a log that ends before a reader's position. Keeps the end of a log that is too long for one reply.
pub(super) async fn rename(connections: &Connections, read: LogCursor) -> Result<LogState, BackingError> {
    let next = LogId(random_id());
    let has_lost = |state: LogState| state.id == read.id && state.end < read.offset;
    let kept_from = |state: LogState| LogOffset(state.end.0.saturating_sub(LOG_KEPT_BYTES_MAX));
    let renamed = |state: LogState| Header { id: next, floor: state.floor.max(kept_from(state)) };
    let state = rewrite(connections, |state| has_lost(state).then(|| renamed(state))).await?;
    if has_lost(state) { Err(BackingError::Full) } else { Ok(state) }
}

/// Replaces the header of the log, if `decide` returns one, and removes the records below its floor. Returns the resulting extent of the
/// log.
async fn rewrite(
    connections: &Connections,
    decide: impl Fn(LogState) -> Option<Header>,
) -> Result<LogState, BackingError> {
    let wire = connections.exclusive().await?;
    for _ in 0..ATTEMPTS {
        let state = match watch(&wire, &connections.names).await? {
            Some(Found::Log(state)) => state,
            Some(Found::NoLog) => return state(connections).await,
            None => continue,
        };
        let Some(mut header) = decide(state) else { return Ok(state) };
        if header.floor != state.floor {
            header.floor = boundary(&wire, &connections.names, state, header.floor).await?;
        }
        let now = Header { id: state.id, floor: state.floor };
        let mut reading = cmd("GETRANGE");
        reading.arg(connections.names.log()).arg(now.place(header.floor)).arg(-1);
        let rest = wire.ask_one(&reading).await?;
        let rest = reply::part(rest, usize::MAX)?.unwrap_or_default();
        let value = [&header.encode()[..], &rest].concat();
        match replace(&wire, &connections.names, &value).await? {
            Executed::Done(_) => return Ok(header.state(value.len() as u64)),
            Executed::NoRoom => return Ok(state),
            Executed::Overtaken => {}
        }
    }
    Err(contended())
}

/// Returns the end of the last record that ends at or before `upto`, because a record must begin at the floor.
async fn boundary(
    wire: &Wire,
    names: &Names,
    state: LogState,
    upto: LogOffset,
) -> Result<LogOffset, BackingError> {
    let header = Header { id: state.id, floor: state.floor };
    let mut at = state.floor;
    loop {
        let first = header.place(at);
        let read = wire.ask_one(&range(names, first, WALKED_BYTES)).await?;
        let read = reply::part(read, WALKED_BYTES)?.unwrap_or_default();
        let next = log_bytes::last_boundary(&read, at, upto)
            .map_err(|error| BackingError::Corrupt(Box::new(error)))?;
        if next == at {
            return Ok(at);
        }
        at = next;
    }
}

/// Replaces a value that isn't a log with a new log that has these records; [`WriteAttempt::Conflict`] if the value has changed meanwhile.
async fn replace_foreign(connections: &Connections, frames: &[u8]) -> Result<WriteAttempt, BackingError> {
    let wire = connections.exclusive().await?;
    let Some(Found::NoLog) = watch(&wire, &connections.names).await? else {
        return Ok(WriteAttempt::Conflict);
    };
    let header = Header::new(random_id());
    let value = [&header.encode()[..], frames].concat();
    Ok(match replace(&wire, &connections.names, &value).await? {
        Executed::Done(_) => WriteAttempt::Done(header.state(value.len() as u64)),
        Executed::NoRoom => WriteAttempt::NoRoom,
        Executed::Overtaken => WriteAttempt::Conflict,
    })
}

async fn watch(wire: &Wire, names: &Names) -> Result<Option<Found>, BackingError> {
    let mut watching = pipe();
    watching.cmd("UNWATCH").cmd("WATCH").arg(names.log());
    look(&mut watching, names);
    let [unwatch, watch, header, length, again] = wire.ask_for(&watching).await?;
    reply::done(unwatch)?;
    reply::done(watch)?;
    found_twice(header, length, &again)
}

async fn replace(wire: &Wire, names: &Names, value: &[u8]) -> Result<Executed, BackingError> {
    let mut replacing = pipe();
    replacing.cmd("MULTI").cmd("SET").arg(names.log()).arg(value).cmd("EXEC");
    reply::executed(wire.ask(&replacing).await?)
}

/// Number of bytes per read when searching for record boundaries: several of the longest records.
const WALKED_BYTES: usize = 4 * READ_BYTES;

/// Value under the name of the log.
enum Found {
    Log(LogState),
    /// No value, or a value that isn't a log.
    NoLog,
}

/// Result of an attempt to write the log.
enum WriteAttempt {
    Done(LogState),
    NoRoom,
    /// The value differed from the one on which the write depends.
    Conflict,
}

/// Requests the header, the length, and the header again.
fn look(pipeline: &mut Pipeline, names: &Names) {
    ask_for_header(pipeline, names);
    pipeline.cmd("STRLEN").arg(names.log());
    ask_for_header(pipeline, names);
}

fn ask_for_header(pipeline: &mut Pipeline, names: &Names) {
    pipeline.add_command(range(names, 0, HEADER_BYTES));
}

fn range(names: &Names, first: u64, bytes: usize) -> Cmd {
    let mut range = cmd("GETRANGE");
    range.arg(names.log()).arg(first).arg(first + bytes as u64 - 1);
    range
}

/// Parses replies between two reads of the header. They are consistent if both headers are equal, because floors only rise and no id is
/// used twice. (A transaction would also work, but a server without memory refuses to queue even reads.) `None` if the headers differ.
fn found_twice(header: Value, length: Value, again: &Value) -> Result<Option<Found>, BackingError> {
    if header == *again { found(header, length).map(Some) } else { Ok(None) }
}

fn found(header: Value, length: Value) -> Result<Found, BackingError> {
    let Some(header) = reply::part(header, HEADER_BYTES)?.and_then(|bytes| Header::decode(&bytes)) else {
        return Ok(Found::NoLog);
    };
    let length = u64::try_from(reply::integer(length)?).unwrap_or(0);
    Ok(Found::Log(header.state(length)))
}
