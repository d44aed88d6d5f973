//! Leases, and waiting for their holders.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Pipeline, Value, cmd, pipe};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use super::connections::Connections;
use super::link::Link;
use super::names::{Digest, random_id};
use super::records::{self, ttl_ms};
use super::reply::{self, Written};
use super::transaction::{ATTEMPTS, Decision, Outcome, TOKEN_BYTES, Watched, contended, transact};
use crate::backing::{
    BackingError, LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, RECORD_BYTES_MAX, RenewOutcome,
    TakeOutcome, Token, Tracking, Version, WaitOutcome,
};

/// An attempt to take a lease. If it is dropped before the reply arrives, the lease is released in the background, so that no instance
/// waits for it.
pub(super) struct LeaseAttempt {
    link: Weak<Link>,
    runtime: Handle,
    lease: Lease,
    ttl: Duration,
    is_answered: bool,
}

impl LeaseAttempt {
    pub(super) fn new(link: &Arc<Link>, runtime: &Handle, key: &[u8], ttl: Duration) -> Self {
        Self {
            link: Arc::downgrade(link),
            runtime: runtime.clone(),
            lease: Lease { key: key.into(), token: Token(random_id()) },
            ttl,
            is_answered: true,
        }
    }

    pub(super) async fn take(
        mut self,
        connections: &Connections,
        request: LeaseRequest<'_>,
    ) -> Result<TakeOutcome, BackingError> {
        let note = &request.note[..request.note.len().min(LEASE_NOTE_BYTES_MAX)];
        let value = [&self.lease.token.0[..], note].concat();
        let name = connections.names.lease_of(&self.lease.key, Digest::of(&self.lease.key));
        if request.mode == LeaseMode::Overwrite {
            return self.overwrite(connections, &name, &value).await;
        }
        for _ in 0..ATTEMPTS {
            let mut question = pipe();
            question.cmd("SET").arg(&name).arg(value.as_slice()).arg("PX").arg(ttl_ms(self.ttl)).arg("NX");
            question.cmd("GETRANGE").arg(&name).arg(TOKEN_BYTES).arg(TOKEN_BYTES + LEASE_NOTE_BYTES_MAX - 1);
            question.cmd("PTTL").arg(&name);
            let [set, note, left] = self.ask_for(connections, &question).await?;
            match (written(set)?, remaining(left)?) {
                (Written::Yes, _) => return Ok(TakeOutcome::Taken(self.lease.clone())),
                (_, Remaining::For(left)) => {
                    let note = reply::part(note, LEASE_NOTE_BYTES_MAX)?.unwrap_or_default();
                    return Ok(TakeOutcome::Held { note: note[..].into(), left });
                }
                // The lease expired between the two commands.
                (_, Remaining::Free) => {}
                // Leases always expire, so this value isn't a lease.
                (_, Remaining::Endless) => return self.overwrite(connections, &name, &value).await,
            }
        }
        Err(contended())
    }

    async fn overwrite(
        &mut self,
        connections: &Connections,
        name: &str,
        value: &[u8],
    ) -> Result<TakeOutcome, BackingError> {
        let mut question = pipe();
        question.cmd("SET").arg(name).arg(value).arg("PX").arg(ttl_ms(self.ttl));
        let [answer] = self.ask_for(connections, &question).await?;
        written(answer)?;
        Ok(TakeOutcome::Taken(self.lease.clone()))
    }

    async fn ask_for<const N: usize>(
        &mut self,
        connections: &Connections,
        question: &Pipeline,
    ) -> Result<[Value; N], BackingError> {
        self.is_answered = false;
        let answers = connections.control.ask_for(question).await?;
        self.is_answered = true;
        Ok(answers)
    }
}

impl Drop for LeaseAttempt {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let Some(link) = self.link.upgrade() else { return };
        // Beyond the limit, leases aren't released but expire.
        if let Ok(place) = Arc::clone(&link.releases).try_acquire_owned() {
            let (lease, ttl) = (self.lease.clone(), self.ttl);
            let release = release_unanswered(self.link.clone(), lease, place);
            // `timeout` is called inside the task, because the current runtime, which may be about to end, must not own the timer.
            drop(self.runtime.spawn(async move { timeout(ttl, release).await }));
        }
    }
}

/// Frees a lease that may have been granted, as soon as the server is reachable. Retries without limit: the caller must stop it when the
/// lease expires.
async fn release_unanswered(link: Weak<Link>, lease: Lease, _place: OwnedSemaphorePermit) {
    loop {
        let Some(link) = link.upgrade() else { return };
        if let Ok(connections) = link.connections()
            && free(&connections, &lease).await.is_ok()
        {
            return;
        }
        drop(link);
        sleep(RELEASE_RETRY_PAUSE).await;
    }
}

/// Frees a lease if it is held, keeps the record under its key, and wakes its waiters. It uses the same connection as the command that took
/// the lease, so the server executes it later.
async fn free(connections: &Connections, lease: &Lease) -> Result<(), BackingError> {
    let digest = Digest::of(&lease.key);
    let names = &connections.names;
    let (name, lease_name) = (names.record_of(&lease.key, digest), names.lease_of(&lease.key, digest));
    let mut question = cmd("GETRANGE");
    question.arg(&lease_name).arg(0).arg(TOKEN_BYTES - 1);
    let holder = connections.control.ask_one(&question).await?;
    let is_own = |token: &[u8]| token == lease.token.0;
    if !reply::part(holder, TOKEN_BYTES)?.is_some_and(|token| is_own(&token)) {
        return Ok(());
    }
    let watched = Watched { record: Some(&name), lease: Some(&lease_name) };
    let outcome = transact(connections, watched, |seen| {
        if seen.holder != Some(lease.token) {
            return Decision::End(());
        }
        let mut commands = pipe();
        match seen.record {
            Some(record) => {
                commands.cmd("SET").arg(&name).arg(&record[..]).arg("KEEPTTL").cmd("DEL").arg(&lease_name)
            }
            None => commands.cmd("RENAME").arg(&lease_name).arg(&name).cmd("UNLINK").arg(&name),
        };
        Decision::Do(commands)
    });
    if let Outcome::NoRoom = outcome.await? {
        records::free_without_room(connections, &name, lease, &lease_name).await;
    }
    Ok(())
}

pub(super) async fn renew(
    connections: &Connections,
    lease: &Lease,
    ttl: Duration,
) -> Result<RenewOutcome, BackingError> {
    let name = connections.names.lease_of(&lease.key, Digest::of(&lease.key));
    let watched = Watched { record: None, lease: Some(&name) };
    let outcome = transact(connections, watched, |seen| {
        if seen.holder != Some(lease.token) {
            return Decision::End(RenewOutcome::Lost);
        }
        let mut commands = pipe();
        commands.cmd("PEXPIRE").arg(&name).arg(ttl_ms(ttl));
        Decision::Do(commands)
    });
    match outcome.await? {
        Outcome::Done => Ok(RenewOutcome::Renewed),
        Outcome::Ended(renewed) => Ok(renewed),
        Outcome::NoRoom => Err(BackingError::Full),
    }
}

pub(super) async fn wait(
    connections: &Connections,
    key: &[u8],
    seen: Option<Version>,
    limit: Duration,
) -> Result<WaitOutcome, BackingError> {
    let end = Instant::now() + limit;
    let digest = Digest::of(key);
    let waiter = connections.dispatcher.wait(digest);
    let mut lease_ends = None;
    loop {
        // `changed` receives all changes from here on, so none is missed between the check and the wait.
        let changed = waiter.signal.changed.notified();
        let (found, held) = look(connections, (key, digest)).await?;
        // The reply includes all changes that were reported before it.
        let changes = waiter.signal.changes();
        if found.as_ref().map(|found| found.version) != seen {
            return Ok(WaitOutcome::Changed(found));
        }
        let now = Instant::now();
        let Some(held) = held else {
            let has_ended = lease_ends.is_some_and(|ends| ends <= now);
            return Ok(if has_ended { WaitOutcome::Expired } else { WaitOutcome::Free });
        };
        lease_ends = Some(now + held.lease_left);
        let left = end.saturating_duration_since(now);
        if left.is_zero() {
            return Ok(WaitOutcome::StillHeld);
        }
        let _ = timeout(left.min(held.quiet), changed).await;
        if waiter.signal.changes() != changes {
            return Ok(WaitOutcome::Told);
        }
    }
}

/// A lease that is being held.
struct ActiveLease {
    lease_left: Duration,
    /// Time after which to check again even without an announcement: by then, the lease or the record has expired.
    quiet: Duration,
}

/// Loads the record under a key, and the state of its lease.
async fn look(
    connections: &Connections,
    (key, digest): (&[u8], Digest),
) -> Result<(Option<crate::backing::Loaded>, Option<ActiveLease>), BackingError> {
    let name = connections.names.record_of(key, digest);
    let mut question = pipe();
    question.cmd("CLIENT").arg("CACHING").arg("YES");
    records::look(&mut question, &name);
    question.cmd("PTTL").arg(&name).cmd("PTTL").arg(connections.names.lease_of(key, digest));
    let [caching, record, record_left, lease_left] = connections.control.ask_for(&question).await?;
    reply::done(caching)?;
    let record = reply::part(record, RECORD_BYTES_MAX)?;
    let found = record.map(|bytes| records::loaded(bytes, connections.source, Tracking::Off));
    let record_left = match remaining(record_left)? {
        Remaining::For(left) => left,
        Remaining::Free | Remaining::Endless => Duration::MAX,
    };
    let held = match remaining(lease_left)? {
        Remaining::For(lease_left) => {
            Some(ActiveLease { lease_left, quiet: lease_left.min(record_left) + TICK })
        }
        Remaining::Free | Remaining::Endless => None,
    };
    Ok((found, held))
}

/// Parses the reply to SET. Lack of memory is an error: callers that can't get a lease collapse requests within the process.
fn written(answer: Value) -> Result<Written, BackingError> {
    match reply::written(answer)? {
        Written::NoRoom => Err(BackingError::Full),
        written => Ok(written),
    }
}

/// Remaining time to live of a key.
enum Remaining {
    For(Duration),
    /// The key doesn't exist.
    Free,
    Endless,
}

fn remaining(pttl: Value) -> Result<Remaining, BackingError> {
    match reply::of(pttl) {
        Ok(Value::Int(-2)) => Ok(Remaining::Free),
        Ok(Value::Int(ms)) => {
            Ok(u64::try_from(ms).map_or(Remaining::Endless, |ms| Remaining::For(Duration::from_millis(ms))))
        }
        Ok(other) => Err(reply::unexpected(&other)),
        Err(refused) => Err(refused.into()),
    }
}

/// Pause between attempts. Short, because most connections that are restored at all are restored soon.
const RELEASE_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Resolution of times to live in Redis.
const TICK: Duration = Duration::from_millis(1);
