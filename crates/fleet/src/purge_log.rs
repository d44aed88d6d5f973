//! Purge log that instances share: the purges that this instance appends, and its reports of how far it has read the log.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cache::invalidation::shared::Posted;
use parking_lot::{Mutex, MutexGuard};
use store::FillId;
use store::backing::{
    AppendOutcome, Backing, BackingError, Continuity, LOG_APPEND_BYTES_MAX, LOG_KEPT_BYTES_MAX, LastRecord,
    LogCursor, LogPart, LogState, Replication, Source,
};
use store::fleet::{Arrivals, Fleet, InstanceId};
use store::purge::{PurgeId, PurgeMode, PurgeRecord, PurgeTarget};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::origins::Origins;
use crate::touch::Touch;

/// Purge log of the tier, and the membership of this instance.
pub struct FleetLog {
    pub backing: Arc<dyn Backing>,
    pub fleet: Fleet,
    pub verification: Duration,
    touch: Touch,
    /// Whether this instance is listed in the tier, so that other instances wait for it to read a purge.
    is_listed: AtomicBool,
    /// Whether the log has been read since this instance was listed: before that, purges of the tier's records are unknown.
    is_read: AtomicBool,
    /// Generation of the connection over which the log was last read.
    read_over: AtomicU32,
    /// Whether this instance reads the log in time, as other instances expect. A server may report changed records, but be too slow for the
    /// log, or refuse access to it: this instance then learns of no purges.
    is_followed: AtomicBool,
    /// Last error of the tier when this instance used the log.
    refusal: Mutex<Option<String>>,
    /// Purges to be written.
    outbox: Mutex<Outbox>,
    /// This lock is held from when a purge gets its number until it is in the outbox.
    numbered: Mutex<()>,
    /// Serialises appends to the purge log. Contains the end of the last purge of this instance.
    turn: tokio::sync::Mutex<Option<LogCursor>>,
    /// The last answer of the replicas.
    replicated: tokio::sync::Mutex<Replicated>,
    /// How far the logs of other regions have been carried into this one.
    pub origins: Mutex<Origins>,
    /// Notified when this instance has read on.
    pub heard: Notify,
    /// Notified when the outbox gets a purge.
    pub posted: Notify,
}

/// Whether replicas have the purges up to a position.
struct Replicated {
    upto: Posted,
    replication: Replication,
}

#[derive(Default)]
struct Outbox {
    records: VecDeque<OwnPurge>,
    bytes: usize,
    /// The last written purges, and when each was written.
    written: VecDeque<(Instant, OwnPurge)>,
    /// Number of purges removed so far; `put` counts those added.
    taken: u64,
    put: u64,
}

/// A purge of this instance.
struct OwnPurge {
    id: PurgeId,
    bytes: Bytes,
    /// Whether the current log is known to have it.
    is_read: bool,
}

/// Maximum number of written purges that are kept, in case a fail-over loses them.
const WRITTEN_MAX: usize = 256;
/// Time for which they are kept. Replicas that lag by more than that have other troubles, and older purges must not be repeated.
const WRITTEN_KEPT: Duration = Duration::from_secs(60);
/// Maximum wait for replicas. Those that take longer don't count.
const REPLICATION_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum size of the outbox while the tier is unreachable. If the outbox becomes larger, a single purge of everything
/// replaces the pending purges.
const OUTBOX_BYTES_MAX: usize = 256 << 10;
/// Pause between attempts to write purges during shutdown.
const FLUSH_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Length above which the log is trimmed to half of it. It has room for the purges that another region can't read for a while.
const LOG_BYTES_MAX: u64 = 2 * LOG_KEPT_BYTES_MAX;

impl FleetLog {
    pub(super) fn new(backing: Arc<dyn Backing>, name: &str, verification: Duration) -> Self {
        let FillId { process, sequence } = FillId::next();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&process.to_be_bytes());
        id[8..].copy_from_slice(&sequence.to_be_bytes());
        Self {
            fleet: Fleet::new(Arc::clone(&backing), InstanceId(id), name, verification),
            backing,
            verification,
            touch: Touch::new(Instant::now(), verification),
            is_listed: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            read_over: AtomicU32::new(0),
            is_followed: AtomicBool::new(false),
            refusal: Mutex::default(),
            outbox: Mutex::default(),
            numbered: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            replicated: tokio::sync::Mutex::new(Replicated {
                upto: Posted(0),
                replication: Replication::Complete,
            }),
            origins: Mutex::default(),
            heard: Notify::new(),
            posted: Notify::new(),
        }
    }

    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    /// Records that the log was read to its end over the connection of `source`. The first time over a connection, own purges that the log
    /// lacks are posted again, because a server that took over may not have received them. Returns whether there are any.
    pub fn record_read_over(&self, source: Source) -> bool {
        let before = self.read_over.swap(source.generation, Ordering::AcqRel);
        if self.is_listed() {
            self.is_read.store(true, Ordering::Release);
        }
        before != source.generation && self.outbox.lock().post_unread(Instant::now())
    }

    /// Notes that an own purge was read from the log.
    pub fn own_was_read(&self, id: PurgeId) {
        let mut outbox = self.outbox.lock();
        let written = outbox.written.iter_mut().map(|(_, purge)| purge);
        written.filter(|purge| purge.id == id).for_each(|purge| purge.is_read = true);
    }

    /// Notes that the log that was read has been lost, and is read from its beginning.
    pub fn was_lost(&self) {
        self.outbox.lock().written.iter_mut().for_each(|(_, purge)| purge.is_read = false);
        self.origins.lock().clear();
    }

    /// Waits until most servers of the tier have the purges that were written up to a position. Purges that wait at the same time share a
    /// question.
    pub async fn replicate(&self, upto: Posted) -> Replication {
        let mut replicated = self.replicated.lock().await;
        if replicated.upto < upto {
            let (sent, source) = (self.sent(), self.backing.source());
            let answer = self.backing.replicate_log(REPLICATION_WAIT_MAX).await;
            let same_server = source == self.backing.source();
            let replication = match answer {
                Ok(replication) if same_server => replication,
                Ok(_) | Err(_) => Replication::Incomplete,
            };
            *replicated = Replicated { upto: sent, replication };
        }
        replicated.replication
    }

    /// Returns whether the log was read over this connection, so that this instance knows all purges from before the connection.
    pub fn was_read_over(&self, source: Source) -> bool {
        self.is_read() && self.read_over.load(Ordering::Acquire) == source.generation
    }

    /// Returns whether this instance learns of each purge by another instance before the purge is complete.
    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Acquire)
    }

    /// Pretends that this instance is listed in the tier and has read all purges.
    #[cfg(any(test, feature = "test-double"))]
    pub fn pretend_to_be_in_step(&self) {
        self.is_followed.store(true, Ordering::Release);
        self.is_listed.store(true, Ordering::Release);
        self.is_read.store(true, Ordering::Release);
        self.touch.renewed(Instant::now(), Duration::from_secs(3600));
    }

    /// Locks the numbering of purges: while the lock is held, no other purge gets a number or enters the outbox.
    pub fn numbered(&self) -> MutexGuard<'_, ()> {
        self.numbered.lock()
    }

    /// Adds a purge to the outbox.
    pub fn post(&self, record: &PurgeRecord) -> Posted {
        let posted = self.outbox.lock().post(record);
        self.posted.notify_one();
        posted
    }

    /// Writes all purges of the outbox. Returns the end of the log after the last purge of this instance, or `None` if there was none.
    ///
    /// # Errors
    /// Returns the tier's error. Unwritten purges stay in the outbox.
    pub async fn send(&self) -> Result<Option<LogCursor>, BackingError> {
        let mut end = self.turn.lock().await;
        loop {
            let records = self.outbox.lock().next();
            if records.is_empty() {
                return Ok(*end);
            }
            let AppendOutcome::Taken(state) = self.backing.append_log(&records).await? else {
                // The server has no memory for the purges, so other instances don't get them.
                return Err(BackingError::Full);
            };
            *end = Some(state.cursor());
            self.outbox.lock().sent(records.len(), Instant::now());
            self.trim(state).await;
        }
    }

    /// Appends records that are no purges of this instance. Returns the end of the log.
    ///
    /// # Errors
    /// Returns the tier's error.
    pub(crate) async fn append(&self, records: &[Bytes]) -> Result<LogCursor, BackingError> {
        let _turn = self.turn.lock().await;
        let AppendOutcome::Taken(state) = self.backing.append_log(records).await? else {
            return Err(BackingError::Full);
        };
        self.trim(state).await;
        Ok(state.cursor())
    }

    /// Writes all purges of the outbox, retrying until `end`. Returns the number of unwritten purges.
    pub(crate) async fn flush(&self, end: Instant) -> u64 {
        while self.pending() > 0 && Instant::now() < end {
            // With an open circuit breaker, the attempt fails immediately, so the loop pauses.
            if let Ok(Err(_)) = tokio::time::timeout_at(end, self.send()).await {
                tokio::time::sleep_until(end.min(Instant::now() + FLUSH_RETRY_PAUSE)).await;
            }
        }
        self.pending()
    }

    fn pending(&self) -> u64 {
        let outbox = self.outbox.lock();
        outbox.put - outbox.taken
    }

    /// Returns the last position up to which all purges have been written.
    pub fn sent(&self) -> Posted {
        Posted(self.outbox.lock().taken)
    }

    /// Trims a log that is too long. Failures are ignored.
    async fn trim(&self, state: LogState) {
        let length = state.end.0.saturating_sub(state.floor.0);
        if length > LOG_BYTES_MAX {
            let floor = store::backing::LogOffset(state.end.0 - LOG_KEPT_BYTES_MAX);
            let _ = self.backing.trim_log(LogCursor { id: state.id, offset: floor }).await;
        }
    }

    /// Reports to other instances how far this one has read the log. Returns whether other instances have waited for this one without
    /// interruption. If the result is false, purges may be complete that this instance hasn't read.
    pub async fn heartbeat(&self, read: LogCursor) -> Result<bool, BackingError> {
        let sent = Instant::now();
        self.fleet.beat(read).await?;
        if !self.touch.listed((sent, Instant::now()), self.fleet.lifetime()) {
            return Ok(false);
        }
        if self.is_listed() {
            self.touch.renewed(sent, self.fleet.lifetime());
            if !self.is_followed.swap(true, Ordering::AcqRel) {
                tracing::info!("the purge log of the shared store is being read");
            }
        }
        Ok(true)
    }

    /// Notes that an append, a read or a heartbeat that began at `begun` has failed.
    pub fn failed(&self, begun: Instant, error: &BackingError) {
        let now = Instant::now();
        self.touch.failed(silent_since(error, (begun, now)), now);
        let mut refusal = self.refusal.lock();
        // The error of an open circuit breaker doesn't contain the cause.
        if !matches!(error, BackingError::Open { .. }) {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            *refusal = Some(format!("{error}{cause}"));
        }
        if !self.touch.is_awaited(now) && self.is_followed.swap(false, Ordering::AcqRel) {
            let error = refusal.take().unwrap_or_else(|| error.to_string());
            tracing::warn!(
                error,
                "the purge log of the shared store can't be read: purges by other instances are unknown here"
            );
        }
    }

    /// Returns whether purges may have completed that this instance hasn't read. If the tier is known to be unreachable, returns false.
    pub fn is_out_of_touch(&self) -> bool {
        !self.touch.holds(Instant::now())
    }

    /// Waits a short time for this instance to be in touch with the others again.
    pub async fn in_touch(&self) {
        if self.is_out_of_touch() {
            self.touch.restored().await;
        }
    }

    pub async fn enlist(&self) -> Result<(), BackingError> {
        self.fleet.enlist().await?;
        self.is_listed.store(true, Ordering::Release);
        Ok(())
    }

    /// Waits until all instances have read the log up to a position, but at most for the verification time plus one second.
    pub async fn reach(&self, place: LogCursor) -> Arrivals {
        self.fleet.reach(place, self.reach_wait_max()).await
    }

    /// Returns the maximum wait for the instances that a purge has to reach.
    pub fn reach_wait_max(&self) -> Duration {
        self.verification + Duration::from_secs(1)
    }
}

/// Reads the records after a position, and compares the log with the part that was read before. To detect a log that was reset and has grown
/// to the same length since, it reads the record before the position again.
///
/// # Errors
/// Returns the tier's error.
pub async fn read_behind(
    backing: &dyn Backing,
    from: LogCursor,
    last: Option<LastRecord>,
) -> Result<(LogPart, Continuity), BackingError> {
    if let Some(last) = last {
        let mut part = backing.read_log(LogCursor { offset: last.begins, ..from }).await?;
        let continuity = part.continues(&from, &last);
        part.records.retain(|record| record.end > from.offset);
        // The last known record may fill the whole read. The records after it are then read separately.
        if continuity != Continuity::Whole || !part.records.is_empty() || part.state.end <= from.offset {
            return Ok((part, continuity));
        }
    }
    let part = backing.read_log(from).await?;
    let continuity = part.state.continues(&from);
    Ok((part, continuity))
}

/// Returns the time since which the tier has not answered, given an error. A timeout belongs to the last of several operations, which
/// waited no longer than its deadline. If the process was suspended before, the time of the pause doesn't count. Any other error counts as
/// an answer.
fn silent_since(error: &BackingError, (begun, now): (Instant, Instant)) -> Instant {
    match error {
        BackingError::TimedOut { after } => now.checked_sub(*after).map_or(begun, |since| since.max(begun)),
        _ => now,
    }
}

impl Outbox {
    fn post(&mut self, record: &PurgeRecord) -> Posted {
        self.put += 1;
        // A purge that exceeds a limit of the log becomes a purge of everything.
        let bytes = record.encode().or_else(|_| everything(record).encode()).unwrap_or_default();
        self.push(record.id, bytes.into());
        if self.bytes > OUTBOX_BYTES_MAX {
            let count = self.records.len() as u64;
            self.records.clear();
            self.bytes = 0;
            self.taken += count - 1;
            self.push(record.id, everything(record).encode().unwrap_or_default().into());
        }
        Posted(self.put)
    }

    fn push(&mut self, id: PurgeId, bytes: Bytes) {
        self.bytes += bytes.len();
        self.records.push_back(OwnPurge { id, bytes, is_read: false });
    }

    /// Returns purges from the front that fit in one append.
    fn next(&self) -> Vec<Bytes> {
        let mut bytes = 0;
        let fits = |record: &&OwnPurge| {
            bytes += record.bytes.len();
            bytes <= LOG_APPEND_BYTES_MAX
        };
        self.records.iter().take_while(fits).map(|record| record.bytes.clone()).collect()
    }

    fn sent(&mut self, count: usize, now: Instant) {
        for record in self.records.drain(..count.min(self.records.len())) {
            self.bytes -= record.bytes.len();
            self.taken += 1;
            self.written.push_back((now, record));
        }
        let surplus = self.written.len().saturating_sub(WRITTEN_MAX);
        self.written.drain(..surplus);
    }

    /// Posts recently written purges again that were not read from the log. Returns whether there are any.
    fn post_unread(&mut self, now: Instant) -> bool {
        self.written.retain(|(at, _)| now.saturating_duration_since(*at) < WRITTEN_KEPT);
        let (read, unread) = self.written.drain(..).partition::<VecDeque<_>, _>(|(_, purge)| purge.is_read);
        self.written = read;
        self.put += unread.len() as u64;
        let is_any = !unread.is_empty();
        unread.into_iter().for_each(|(_, purge)| self.push(purge.id, purge.bytes));
        is_any
    }
}

fn everything(record: &PurgeRecord) -> PurgeRecord {
    PurgeRecord { what: PurgeTarget::Everything, mode: PurgeMode::Soft, ..record.clone() }
}

#[cfg(test)]
mod tests {
    use store::backing::double::{Behaviour, DoubleLimits, DoubleServer};

    use super::*;

    fn record(url: &str) -> PurgeRecord {
        PurgeRecord {
            id: PurgeId([1; 16]),
            at_ms: 1,
            mode: PurgeMode::Hard,
            what: PurgeTarget::Url(url.to_owned()),
        }
    }

    #[test]
    fn a_failure_tells_of_no_longer_than_its_deadline() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let timed_out = BackingError::TimedOut { after: Duration::from_millis(500) };
        for (now_ms, since_ms) in [(300, 0), (500, 0), (700, 200), (10_000, 9_500)] {
            assert_eq!(silent_since(&timed_out, (begun, at(now_ms))), at(since_ms), "{now_ms}");
        }
        assert_eq!(silent_since(&BackingError::Full, (begun, at(10_000))), at(10_000));
    }

    /// During shutdown, the process waits for a store that is unreachable for a limited time.
    #[tokio::test(start_paused = true)]
    async fn purges_that_wait_are_written_until_the_end() {
        for (away, left) in [(Duration::from_secs(1), 0), (Duration::from_secs(10), 1)] {
            let server = DoubleServer::new(DoubleLimits::default(), 1);
            let backing = Arc::new(server.connect(Behaviour::default()));
            let log = FleetLog::new(Arc::clone(&backing) as Arc<dyn Backing>, "one", Duration::from_secs(2));
            log.post(&record("http://a/1"));
            backing.behave(Behaviour { unreachable_permille: 1000, ..Behaviour::default() });
            let back = async {
                tokio::time::sleep(away).await;
                backing.behave(Behaviour::default());
            };
            let (pending, ()) = tokio::join!(log.flush(Instant::now() + Duration::from_secs(3)), back);
            assert_eq!(pending, left, "away for {away:?}");
        }
    }

    #[test]
    fn what_was_posted_is_sent_in_order() {
        let mut outbox = Outbox::default();
        let first = outbox.post(&record("http://a/1"));
        let second = outbox.post(&record("http://a/2"));
        let next = outbox.next();
        let decoded: Vec<_> = next.iter().map(|bytes| PurgeRecord::decode(bytes).unwrap()).collect();
        assert_eq!(decoded, [record("http://a/1"), record("http://a/2")]);
        outbox.sent(1, Instant::now());
        assert!(outbox.taken >= first.0 && outbox.taken < second.0);
        outbox.sent(1, Instant::now());
        assert!(outbox.taken >= second.0 && outbox.bytes == 0 && outbox.next().is_empty());
    }

    #[test]
    fn a_purge_that_the_log_lacks_is_posted_again() {
        let mut outbox = Outbox::default();
        for (number, url) in ["http://a/1", "http://a/2", "http://a/3"].iter().enumerate() {
            outbox.post(&PurgeRecord { id: PurgeId([number as u8; 16]), ..record(url) });
        }
        let now = Instant::now();
        outbox.sent(2, now);
        outbox.written[0].1.is_read = true;
        assert!(outbox.post_unread(now));
        let urls: Vec<_> =
            outbox.next().iter().map(|bytes| PurgeRecord::decode(bytes).unwrap().what).collect();
        let url = |url: &str| PurgeTarget::Url(url.to_owned());
        assert_eq!(urls, [url("http://a/3"), url("http://a/2")], "what waits keeps its turn");
        outbox.sent(2, now);
        assert_eq!(outbox.taken, outbox.put);
        assert!(!outbox.post_unread(now + WRITTEN_KEPT), "purges from long ago are not repeated");
    }

    #[test]
    fn what_is_too_much_becomes_one_purge_of_everything() {
        let mut outbox = Outbox::default();
        let long = format!("http://a/{}", "x".repeat(10_000));
        let last = (0..100).map(|_| outbox.post(&record(&long))).max().unwrap();
        assert!(outbox.bytes <= OUTBOX_BYTES_MAX + 10_100);
        let first = PurgeRecord::decode(&outbox.records[0].bytes).unwrap();
        assert_eq!((first.what, first.mode), (PurgeTarget::Everything, PurgeMode::Soft));
        while !outbox.next().is_empty() {
            outbox.sent(outbox.next().len(), Instant::now());
        }
        assert_eq!(Posted(outbox.taken), last);
    }
}
