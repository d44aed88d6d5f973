//! Records, and the leases under which they are put.

use std::time::Duration;

use redis::{Cmd, Pipeline, cmd, pipe};

use super::connections::{Comparison, Connections};
use super::names::{Digest, version_of};
use super::reply::{self, Written};
use super::transaction::{Decision, Observed, Outcome, TOKEN_BYTES, Watched, transact};
use crate::Refusal;
use crate::backing::{
    BackingError, Expected, KEY_BYTES_MAX, Lease, Loaded, PutOutcome, RECORD_BYTES_MAX, Source, Tracking,
    Write,
};

/// Effect of a put on its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseEffect {
    Keep,
    Release,
}

pub(super) async fn load(
    connections: &Connections,
    keys: &[&[u8]],
    tracking: Tracking,
) -> Result<Vec<Option<Loaded>>, BackingError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(key)).collect();
    let followed: Vec<_> = keys
        .iter()
        .zip(&digests)
        .map(|(key, digest)| match tracking {
            // A node that takes a slot over can't follow its keys yet.
            Tracking::UntilChanged if !connections.is_asking() => connections.dispatcher.load(*digest, key),
            Tracking::UntilChanged | Tracking::Off => None,
        })
        .collect();
    let mut question = pipe();
    for ((key, digest), followed) in keys.iter().zip(&digests).zip(&followed) {
        if followed.is_some() {
            question.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        look(&mut question, &connections.names.record_of(key, *digest));
    }
    let mut answers = connections.control.ask(&question).await?.into_iter();
    let mut found = Vec::with_capacity(keys.len());
    for followed in &followed {
        if followed.is_some() {
            reply::done(answers.next().unwrap_or_default())?;
        }
        let bytes = reply::part(answers.next().unwrap_or_default(), RECORD_BYTES_MAX)?;
        let tracking = if followed.is_some() { Tracking::UntilChanged } else { Tracking::Off };
        found.push(bytes.map(|bytes| loaded(bytes, connections.source, tracking)));
    }
    Ok(found)
}

pub(super) async fn put(
    connections: &Connections,
    key: &[u8],
    write: &Write<'_>,
    lease_effect: LeaseEffect,
) -> Result<PutOutcome, BackingError> {
    if write.bytes.len() > RECORD_BYTES_MAX || key.len() > KEY_BYTES_MAX {
        return Ok(PutOutcome::NotStored(Refusal::TooLarge));
    }
    if write.lease.is_some_and(|lease| *lease.key != *key) {
        return Ok(PutOutcome::LeaseLost);
    }
    let digest = Digest::of(key);
    let name = connections.names.record_of(key, digest);
    let condition: &[&[u8]] = match (write.lease, write.expected) {
        (None, Expected::Any) => &[],
        (None, Expected::Absent) => &[b"NX"],
        (None, Expected::Is(known)) if connections.comparison == Comparison::ByServer => {
            &[b"IFEQ", &known.bytes]
        }
        (None, Expected::Is(_)) => return put_watching(connections, &name, None, write, lease_effect).await,
        (Some(lease), _) => {
            let lease_name = connections.names.lease_of(key, digest);
            let lease = Some((lease, &*lease_name));
            return put_watching(connections, &name, lease, write, lease_effect).await;
        }
    };
    match put_at_once(connections, &name, write, condition).await? {
        // A value that isn't a record occupies the key.
        PutOutcome::Conflict(None) if matches!(write.expected, Expected::Absent) => {
            put_watching(connections, &name, None, write, LeaseEffect::Keep).await
        }
        put => Ok(put),
    }
}

/// Removes a record. Returns `true` if there was one.
pub(super) async fn remove(connections: &Connections, key: &[u8]) -> Result<bool, BackingError> {
    let name = connections.names.record_of(key, Digest::of(key));
    Ok(reply::integer(connections.control.ask_one(cmd("UNLINK").arg(name)).await?)? > 0)
}

/// Requests the record under a name, up to one byte more than the longest record, so that an overlong value is detected.
pub(super) fn look(question: &mut Pipeline, name: &str) {
    question.cmd("GETRANGE").arg(name).arg(0).arg(RECORD_BYTES_MAX);
}

pub(super) fn loaded(bytes: bytes::Bytes, source: Source, tracking: Tracking) -> Loaded {
    Loaded { version: version_of(&bytes), bytes, source, tracking }
}

/// Returns a time to live in milliseconds: at least one, and at most what servers can add to their clock.
pub(super) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, TTL_MS_MAX)
}

/// Sets the record with one SET. If the put has a condition, the same pipeline also requests the current record.
async fn put_at_once(
    connections: &Connections,
    name: &str,
    write: &Write<'_>,
    condition: &[&[u8]],
) -> Result<PutOutcome, BackingError> {
    let mut set = set(name, write);
    set.arg(condition);
    let mut question = pipe();
    question.add_command(set);
    if !condition.is_empty() {
        look(&mut question, name);
    }
    let mut answers = connections.control.ask(&question).await?.into_iter();
    match reply::written(answers.next().unwrap_or_default())? {
        Written::Yes => Ok(PutOutcome::Stored(version_of(&write.bytes))),
        Written::NoRoom => Ok(PutOutcome::NotStored(Refusal::OverBudget)),
        Written::No => {
            let current = reply::part(answers.next().unwrap_or_default(), RECORD_BYTES_MAX)?;
            Ok(PutOutcome::Conflict(current.map(|bytes| loaded(bytes, connections.source, Tracking::Off))))
        }
    }
}

async fn put_watching(
    connections: &Connections,
    name: &str,
    lease: Option<(&Lease, &str)>,
    write: &Write<'_>,
    lease_effect: LeaseEffect,
) -> Result<PutOutcome, BackingError> {
    let watched = Watched {
        record: (!matches!(write.expected, Expected::Any)).then_some(name),
        lease: lease.map(|(_, name)| name),
    };
    let outcome = transact(connections, watched, |Observed { record, holder }| {
        if lease.is_some_and(|(lease, _)| holder != Some(lease.token)) {
            return Decision::End(PutOutcome::LeaseLost);
        }
        if !is_expected(record.as_deref(), write.expected) {
            let current = record.map(|bytes| loaded(bytes, connections.source, Tracking::Off));
            return Decision::End(PutOutcome::Conflict(current));
        }
        let mut commands = pipe();
        commands.add_command(set(name, write));
        if let (Some((_, lease)), LeaseEffect::Release) = (lease, lease_effect) {
            commands.cmd("DEL").arg(lease);
        }
        Decision::Do(commands)
    });
    match outcome.await? {
        Outcome::Done => Ok(PutOutcome::Stored(version_of(&write.bytes))),
        Outcome::NoRoom => {
            if let (Some((lease, lease_name)), LeaseEffect::Release) = (lease, lease_effect) {
                free_without_room(connections, name, lease, lease_name).await;
            }
            Ok(PutOutcome::NotStored(Refusal::OverBudget))
        }
        Outcome::Ended(put) => Ok(put),
    }
}

/// Frees a lease and removes the record if the server has no memory for a new one. Waiters follow the record, and removing a missing record
/// would wake none of them. So the lease is renamed to the record first, which takes no memory. A server without memory queues no commands
/// after `MULTI`, so WATCH can't be used. Instead, the lease must last longer than the command takes to arrive, because no other instance
/// can take it until then. A lease that expires sooner is left to expire.
pub(super) async fn free_without_room(
    connections: &Connections,
    name: &str,
    lease: &Lease,
    lease_name: &str,
) {
    let freed = async {
        let mut question = pipe();
        question.cmd("GETRANGE").arg(lease_name).arg(0).arg(TOKEN_BYTES - 1).cmd("PTTL").arg(lease_name);
        let [holder, left_ms] = connections.control.ask_for(&question).await?;
        let is_own = reply::part(holder, TOKEN_BYTES)?.is_some_and(|token| token[..] == lease.token.0);
        let mut question = pipe();
        if is_own && reply::integer(left_ms)? >= ON_ITS_WAY_MS {
            question.cmd("RENAME").arg(lease_name).arg(name);
        }
        question.cmd("UNLINK").arg(name);
        connections.control.ask(&question).await?.into_iter().try_for_each(reply::done)
    };
    if let Err(error) = freed.await {
        tracing::debug!(%error, "lease not freed: left to expire");
    }
}

fn is_expected(record: Option<&[u8]>, expected: Expected<'_>) -> bool {
    match expected {
        Expected::Any => true,
        Expected::Absent => record.is_none(),
        Expected::Is(known) => record == Some(&known.bytes[..]),
    }
}

fn set(name: &str, write: &Write<'_>) -> Cmd {
    let mut set = cmd("SET");
    set.arg(name).arg(&write.bytes[..]).arg("PX").arg(ttl_ms(write.ttl));
    set
}

/// Remaining lifetime that a lease needs: more than a command takes to arrive, and less than the duration of leases.
const ON_ITS_WAY_MS: i64 = 250;
/// A hundred years.
const TTL_MS_MAX: u64 = 100 * 366 * 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_within_what_servers_take() {
        for (ttl, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_micros(999), 1),
            (Duration::from_secs(2), 2000),
            (Duration::MAX, TTL_MS_MAX),
        ] {
            assert_eq!(ttl_ms(ttl), expected, "{ttl:?}");
        }
    }
}
