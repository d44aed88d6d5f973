//! Changes that depend on what is there: watched, looked at, and done only if nothing came in between.

use bytes::Bytes;
use redis::{Pipeline, pipe};

use super::connections::Connections;
use super::reply::{self, Executed};
use crate::backing::{BackingError, RECORD_BYTES_MAX, Token};

/// How often a change is tried.
pub(super) const ATTEMPTS: u32 = 3;

pub(super) fn contended() -> BackingError {
    BackingError::Contended { attempts: ATTEMPTS }
}

/// What a change depends on.
pub(super) struct Watched<'a> {
    pub(super) record: Option<&'a str>,
    pub(super) lease: Option<&'a str>,
}

/// What was there when it was looked at.
pub(super) struct Seen {
    pub(super) record: Option<Bytes>,
    pub(super) holder: Option<Token>,
}

/// What is to be done with what was seen.
pub(super) enum Decision<T> {
    /// These commands.
    Do(Pipeline),
    /// Nothing: this is how it ends.
    End(T),
}

/// What a transaction came to.
pub(super) enum Outcome<T> {
    Done,
    NoRoom,
    /// It was decided to do nothing.
    Ended(T),
}

/// Looks, decides, and does; again if something came in between, [`ATTEMPTS`] times in all. Two round trips each.
pub(super) async fn transact<T>(
    connections: &Connections,
    watched: Watched<'_>,
    decide: impl Fn(Seen) -> Decision<T>,
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
    /// Who used the connection before may have decided to do nothing.
    fn question(&self) -> Pipeline {
        let mut question = pipe();
        question.cmd("UNWATCH").cmd("WATCH");
        for name in self.record.iter().chain(&self.lease) {
            question.arg(*name);
        }
        if let Some(record) = self.record {
            question.cmd("GETRANGE").arg(record).arg(0).arg(RECORD_BYTES_MAX);
        }
        if let Some(lease) = self.lease {
            question.cmd("GETRANGE").arg(lease).arg(0).arg(TOKEN_BYTES - 1);
        }
        question
    }

    fn seen(&self, answers: Vec<redis::Value>) -> Result<Seen, BackingError> {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        reply::done(next())?;
        reply::done(next())?;
        let record = match self.record {
            Some(_) => reply::part(next(), RECORD_BYTES_MAX)?,
            None => None,
        };
        let token = match self.lease {
            Some(_) => reply::part(next(), TOKEN_BYTES)?,
            None => None,
        };
        let holder = token.and_then(|token| token[..].try_into().ok().map(Token));
        Ok(Seen { record, holder })
    }
}

/// What a lease begins with.
pub(super) const TOKEN_BYTES: usize = 16;
