//! The log: one string that grows at its end.

use parking_lot::Mutex;
use redis::{Pipeline, Value, pipe};

use super::connections::Connections;
use super::log_bytes::{self, HEADER_BYTES, Header, READ_BYTES};
use super::names::Names;
use super::random;
use super::reply::{self, Executed};
use super::transaction::{ATTEMPTS, contended};
use super::wire::Wire;
use crate::Refusal;
use crate::backing::{
    Appended, BackingError, LOG_APPEND_BYTES_MAX, LogCursor, LogId, LogOffset, LogPart, LogState, Safety,
};

/// Where the log was seen to begin last; a guess, so that reading needs one question.
#[derive(Debug, Default)]
pub(super) struct LastSeen(Mutex<Option<Header>>);

impl LastSeen {
    fn floor(&self, id: LogId) -> LogOffset {
        self.0.lock().filter(|seen| seen.id == id).map_or(LogOffset(0), |seen| seen.floor)
    }

    fn note(&self, state: LogState) -> LogState {
        *self.0.lock() = Some(Header { id: state.id, floor: state.floor });
        state
    }
}

/// As it is now, and whoever listens is told of the next change.
pub(super) async fn follow(connections: &Connections, names: &Names) -> Result<LogState, BackingError> {
    // A transaction is followed by some servers only.
    let mut reading = pipe();
    reading.cmd("CLIENT").arg("CACHING").arg("YES");
    reading.cmd("STRLEN").arg(names.log());
    let [caching, length] = connections.control.ask_for(&reading).await?;
    reply::done(caching)?;
    // Of another type: what makes it a log is a change, too.
    drop(length);
    state(connections, names).await
}

/// As it is now; begins one if there is none.
pub(super) async fn state(connections: &Connections, names: &Names) -> Result<LogState, BackingError> {
    for _ in 0..ATTEMPTS {
        let mut looking = transaction();
        look(&mut looking, names);
        looking.cmd("EXEC");
        if let Found::Log(state) = seen(reply::executed(connections.control.ask(&looking).await?)?)? {
            return Ok(state);
        }
        begin_anew(connections, names, &[]).await?;
    }
    Err(contended())
}

pub(super) async fn append(
    connections: &Connections,
    names: &Names,
    records: &[bytes::Bytes],
) -> Result<Appended, BackingError> {
    let Some(frames) = log_bytes::encode(records) else {
        return Ok(Appended::NotStored(Refusal::TooLarge));
    };
    let mut appending = transaction();
    appending.cmd("SET").arg(names.log()).arg(&Header::new(random::id()).encode()[..]).arg("NX");
    appending.cmd("GETRANGE").arg(names.log()).arg(0).arg(HEADER_BYTES - 1);
    appending.cmd("APPEND").arg(names.log()).arg(frames.as_slice()).cmd("EXEC");
    let answers = match reply::executed(connections.control.ask(&appending).await?)? {
        Executed::Done(answers) => answers,
        Executed::NoRoom => return Ok(Appended::NotStored(Refusal::OverBudget)),
        Executed::Overtaken => return Err(contended()),
    };
    let [_, header, length] = reply::exactly(answers)?;
    if let Found::Log(state) = found(header, length)? {
        return Ok(Appended::Taken { state, safety: Safety::AsConfigured });
    }
    match begin_anew(connections, names, &frames).await? {
        Some(state) => Ok(Appended::Taken { state, safety: Safety::AsConfigured }),
        // Somebody else has, or there is no room: nothing of this is in it.
        None => Err(contended()),
    }
}

pub(super) async fn read(
    connections: &Connections,
    names: &Names,
    seen: &LastSeen,
    from: LogCursor,
) -> Result<LogPart, BackingError> {
    for _ in 0..ATTEMPTS {
        let guess = Header { id: from.id, floor: seen.floor(from.id) };
        let first = guess.place(from.offset);
        let mut reading = transaction();
        look(&mut reading, names);
        reading.cmd("GETRANGE").arg(names.log()).arg(first).arg(first + READ_BYTES as u64 - 1).cmd("EXEC");
        let executed = reply::executed(connections.control.ask(&reading).await?)?;
        let Executed::Done(mut answers) = executed else { return Err(contended()) };
        let records = answers.pop().unwrap_or_default();
        let Found::Log(state) = self::seen(Executed::Done(answers))? else {
            let state = state(connections, names).await?;
            return Ok(LogPart { state, records: Vec::new() });
        };
        seen.note(state);
        if state.id != from.id {
            return Ok(LogPart { state, records: Vec::new() });
        }
        if state.floor == guess.floor {
            let read = reply::part(records, READ_BYTES)?.unwrap_or_default();
            let start = from.offset.max(state.floor);
            let records = log_bytes::decode(&read, start, LOG_APPEND_BYTES_MAX)
                .map_err(|error| BackingError::Corrupt(Box::new(error)))?;
            return Ok(LogPart { state, records });
        }
    }
    Err(contended())
}

pub(super) async fn trim(
    connections: &Connections,
    names: &Names,
    floor: LogCursor,
) -> Result<LogState, BackingError> {
    let wire = connections.exclusive().await?;
    for _ in 0..ATTEMPTS {
        let Found::Log(state) = watch(&wire, names).await? else {
            return state(connections, names).await;
        };
        let target = LogCursor { id: floor.id, offset: floor.offset.min(state.end) };
        if state.id != target.id || target.offset <= state.floor {
            return Ok(state);
        }
        let now = Header { id: state.id, floor: state.floor };
        let mut reading = pipe();
        reading.cmd("GETRANGE").arg(names.log()).arg(now.place(target.offset)).arg(-1);
        let [rest] = wire.ask_for(&reading).await?;
        let rest = reply::part(rest, usize::MAX)?.unwrap_or_default();
        let header = Header { id: state.id, floor: target.offset };
        let mut value = header.encode().to_vec();
        value.extend_from_slice(&rest);
        match replace(&wire, names, &value).await? {
            Executed::Done(_) => return Ok(header.state(value.len() as u64)),
            Executed::NoRoom => return Ok(state),
            Executed::Overtaken => {}
        }
    }
    Err(contended())
}

/// Puts a new log, with these records, in the place of what is none; `None` if somebody else was faster, or there is no room.
async fn begin_anew(
    connections: &Connections,
    names: &Names,
    frames: &[u8],
) -> Result<Option<LogState>, BackingError> {
    let wire = connections.exclusive().await?;
    if let Found::Log(_) = watch(&wire, names).await? {
        return Ok(None);
    }
    let header = Header::new(random::id());
    let value = [&header.encode()[..], frames].concat();
    let executed = replace(&wire, names, &value).await?;
    Ok(matches!(executed, Executed::Done(_)).then(|| header.state(value.len() as u64)))
}

async fn watch(wire: &Wire, names: &Names) -> Result<Found, BackingError> {
    let mut watching = pipe();
    watching.cmd("UNWATCH").cmd("WATCH").arg(names.log());
    look(&mut watching, names);
    let [unwatch, watch, header, length] = wire.ask_for(&watching).await?;
    reply::done(unwatch)?;
    reply::done(watch)?;
    found(header, length)
}

async fn replace(wire: &Wire, names: &Names, value: &[u8]) -> Result<Executed, BackingError> {
    let mut replacing = transaction();
    replacing.cmd("SET").arg(names.log()).arg(value).cmd("EXEC");
    reply::executed(wire.ask(&replacing).await?)
}

/// What lies under the name of the log.
enum Found {
    Log(LogState),
    /// Nothing, or what is no log.
    NoLog,
}

fn transaction() -> Pipeline {
    let mut pipeline = pipe();
    pipeline.cmd("MULTI");
    pipeline
}

fn look(pipeline: &mut Pipeline, names: &Names) {
    pipeline.cmd("GETRANGE").arg(names.log()).arg(0).arg(HEADER_BYTES - 1);
    pipeline.cmd("STRLEN").arg(names.log());
}

fn seen(executed: Executed) -> Result<Found, BackingError> {
    let Executed::Done(answers) = executed else { return Err(contended()) };
    let [header, length] = reply::exactly(answers)?;
    found(header, length)
}

fn found(header: Value, length: Value) -> Result<Found, BackingError> {
    let Some(header) = reply::part(header, HEADER_BYTES)?.and_then(|bytes| Header::decode(&bytes)) else {
        return Ok(Found::NoLog);
    };
    let length = u64::try_from(reply::integer(length)?).unwrap_or(0);
    Ok(Found::Log(header.state(length)))
}
