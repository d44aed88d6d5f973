//! Optimistic transactions: watch, read, decide, and write unless the values have changed.

use bytes::Bytes;
use redis::{Pipeline, pipe};

use super::connections::Connections;
use super::reply::{self, Executed};
use crate::backing::{BackingError, RECORD_BYTES_MAX, Token};

/// Maximum number of attempts at a change.
pub(super) const ATTEMPTS: u32 = 3;

pub(super) fn contended() -> BackingError {
    BackingError::Contended { attempts: ATTEMPTS }
}

/// Keys on which a change depends.
pub(super) struct Watched<'a> {
    pub(super) record: Option<&'a str>,
    pub(super) lease: Option<&'a str>,
}

/// Values of the watched keys.
pub(super) struct Observed {
    pub(super) record: Option<Bytes>,
    pub(super) holder: Option<Token>,
}

/// Decision about the values that were read.
pub(super) enum Decision<T> {
    /// Execute these commands.
    Do(Pipeline),
    /// Execute nothing, and return this value.
    End(T),
}

/// Result of a transaction.
pub(super) enum Outcome<T> {
    Done,
    NoRoom,
    /// [`Decision::End`] with its value; no commands were executed.
    Ended(T),
}

/// Reads, decides and writes, and starts over if a value has changed, up to [`ATTEMPTS`] times in total. Each attempt takes two round
/// trips.
pub(super) async fn transact<T>(
    connections: &Connections,
    watched: Watched<'_>,
    decide: impl Fn(Observed) -> Decision<T>,
) -> Result<Outcome<T>, BackingError> {
    let wire = connections.exclusive().await?;
    for _ in 0..ATTEMPTS {
        let seen = watched.seen(wire.ask(&watched.question()).await?)?;
        let commands = match decide(seen) {
            Decision::Do(commands) => commands,
            Decision::End(how) => return Ok(Outcome::Ended(how)),
        };
        let mut all = pipe();
        all.cmd("MULTI");
        for command in commands.cmd_iter() {
            all.add_command(command.clone());
        }
        all.cmd("EXEC");
        match reply::executed(wire.ask(&all).await?)? {
            Executed::Done(answers) => {
                answers.into_iter().try_for_each(reply::done)?;
                return Ok(Outcome::Done);
            }
            Executed::NoRoom => return Ok(Outcome::NoRoom),
            Executed::Overtaken => {}
        }
    }
    Err(contended())
}

impl Watched<'_> {
    /// Begins with UNWATCH, because the previous user of the connection may have left it without EXEC.
    fn question(&self) -> Pipeline {
        let mut question = pipe();
        question.cmd("UNWATCH");
        // One command for each: a node that is taking over their slot refuses several keys of which one is missing.
        for name in self.record.iter().chain(&self.lease) {
            question.cmd("WATCH").arg(*name);
        }
        if let Some(record) = self.record {
            question.cmd("GETRANGE").arg(record).arg(0).arg(RECORD_BYTES_MAX);
        }
        if let Some(lease) = self.lease {
            question.cmd("GETRANGE").arg(lease).arg(0).arg(TOKEN_BYTES - 1);
        }
        question
    }

    fn seen(&self, answers: Vec<redis::Value>) -> Result<Observed, BackingError> {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        reply::done(next())?;
        for _ in self.record.iter().chain(&self.lease) {
            reply::done(next())?;
        }
        let record = match self.record {
            Some(_) => reply::part(next(), RECORD_BYTES_MAX)?,
            None => None,
        };
        let token = match self.lease {
            Some(_) => reply::part(next(), TOKEN_BYTES)?,
            None => None,
        };
        let holder = token.and_then(|token| token[..].try_into().ok().map(Token));
        Ok(Observed { record, holder })
    }
}

/// Length of the token at the start of a lease.
pub(super) const TOKEN_BYTES: usize = 16;
