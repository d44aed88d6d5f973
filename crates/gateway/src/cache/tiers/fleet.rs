//! The log of purges that instances share, as far as one of them writes it and is asked how far it has read.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use store::FillId;
use store::backing::{
    Appended, Backing, BackingError, LOG_APPEND_BYTES_MAX, LogCursor, LogPart, LogState, Source,
};
use store::fleet::{Fleet, InstanceId, Reached};
use store::purge::{PurgeMode, PurgeRecord, What};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::touch::Touch;

/// See the module.
pub(crate) struct FleetLog {
    backing: Arc<dyn Backing>,
    fleet: Fleet,
    verification: Duration,
    touch: Touch,
    /// Whether others find this instance when they ask who has reached a purge.
    is_listed: AtomicBool,
    /// Whether the log was read since: before, nobody knows what of the tier was purged.
    is_read: AtomicBool,
    /// Over which connection it was read last.
    read_over: AtomicU32,
    /// Whether it is read in time, as the others expect. A server may go on to tell of changed records, and be too slow for the log, or
    /// refuse it: then nobody here knows what was purged.
    is_followed: AtomicBool,
    /// What the tier has last answered in place of the log.
    refusal: Mutex<Option<String>>,
    /// What is to be written.
    outbox: Mutex<Outbox>,
    /// Held from the number of a purge until it is to be written.
    numbered: Mutex<()>,
    /// Held by whoever writes, so that all is written in order.
    turn: tokio::sync::Mutex<()>,
    /// Tells that something is to be written.
    waiting: Notify,
}

#[derive(Default)]
struct Outbox {
    records: VecDeque<Bytes>,
    bytes: usize,
    /// So many were taken out so far, and put in.
    taken: u64,
    put: u64,
}

/// What the others have known of this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing until now: it has to read what they have purged meanwhile.
    First,
    /// They have waited for it all the time.
    Next,
}

/// A purge that others are to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Posted(u64);

/// More is not kept while the tier is away: one purge of everything stands for what was to be written then.
const OUTBOX_BYTES_MAX: usize = 256 << 10;
/// The log is made shorter when it is longer, and to half of it.
const LOG_BYTES_MAX: u64 = 1 << 20;

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
            waiting: Notify::new(),
        }
    }

    pub(crate) fn verification(&self) -> Duration {
        self.verification
    }

    /// How many instances are known to share the tier.
    pub(crate) fn instances(&self) -> usize {
        self.fleet.known()
    }

    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    /// The connection that there is.
    pub(crate) fn source(&self) -> Source {
        self.backing.source()
    }

    /// The log was read to its end over this connection, or a later one.
    pub(crate) fn has_read_over(&self, source: Source) {
        self.read_over.store(source.generation, Ordering::Release);
        if self.is_listed() {
            self.is_read.store(true, Ordering::Release);
        }
    }

    /// Whether it was read over this connection: what was purged while there was none is known.
    pub(crate) fn was_read_over(&self, source: Source) -> bool {
        self.is_read() && self.read_over.load(Ordering::Acquire) == source.generation
    }

    /// Whether this instance knows what others purge before their purges are complete.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Acquire)
    }

    /// As if others knew of this instance, and it of all purges.
    #[cfg(test)]
    pub(crate) fn pretend_to_be_in_step(&self) {
        self.is_followed.store(true, Ordering::Release);
        self.is_listed.store(true, Ordering::Release);
        self.is_read.store(true, Ordering::Release);
        self.touch.told(Instant::now(), Duration::from_secs(3600));
    }

    /// As long as it is held, nobody else gives a purge its number and puts it on its way.
    pub(crate) fn numbered(&self) -> MutexGuard<'_, ()> {
        self.numbered.lock()
    }

    /// Puts a purge on its way to the others.
    pub(crate) fn post(&self, record: &PurgeRecord) -> Posted {
        let posted = self.outbox.lock().post(record);
        self.waiting.notify_one();
        posted
    }

    /// Waits until there may be something to write.
    pub(crate) async fn posted(&self) {
        self.waiting.notified().await;
    }

    /// Writes what is to be written. Where that is: behind it.
    ///
    /// # Errors
    /// What the tier answered; what was not written is kept.
    pub(crate) async fn send(&self) -> Result<Option<LogCursor>, BackingError> {
        let _turn = self.turn.lock().await;
        let mut end = None;
        loop {
            let records = self.outbox.lock().next();
            if records.is_empty() {
                return Ok(end);
            }
            let Appended::Taken { state, .. } = self.backing.append_log(&records).await? else {
                // A server without memory: what is not written is told to nobody.
                return Err(BackingError::Full);
            };
            end = Some(state.cursor());
            self.outbox.lock().sent(records.len());
            self.trim(state).await;
        }
    }

    /// Up to which one all were written.
    pub(crate) fn sent(&self) -> Posted {
        Posted(self.outbox.lock().taken)
    }

    /// Whether a purge was written.
    pub(crate) fn is_sent(&self, posted: Posted) -> bool {
        self.sent() >= posted
    }

    /// What is shorter than before is none of the caller's business.
    async fn trim(&self, state: LogState) {
        let length = state.end.0.saturating_sub(state.floor.0);
        if length > LOG_BYTES_MAX {
            let floor = store::backing::LogOffset(state.end.0 - LOG_BYTES_MAX / 2);
            let _ = self.backing.trim_log(LogCursor { id: state.id, offset: floor }).await;
        }
    }

    /// As the tier has it.
    pub(crate) async fn state(&self) -> Result<LogState, BackingError> {
        self.backing.log_state().await
    }

    pub(crate) async fn read(&self, from: LogCursor) -> Result<LogPart, BackingError> {
        self.backing.read_log(from).await
    }

    /// The log has lost its end: no place in what was read of it is one in what it becomes.
    pub(crate) async fn rename(&self, read: LogCursor) -> Result<LogState, BackingError> {
        self.backing.rename_log(read).await
    }

    /// Tells the others how far this instance has read.
    pub(crate) async fn beat(&self, read: LogCursor) -> Result<Beat, BackingError> {
        let sent = Instant::now();
        self.fleet.beat(read).await?;
        if !self.touch.listed((sent, Instant::now()), self.fleet.lifetime()) {
            return Ok(Beat::First);
        }
        if self.is_listed() {
            self.touch.told(sent, self.fleet.lifetime());
            if !self.is_followed.swap(true, Ordering::AcqRel) {
                tracing::info!("the purge log of the shared store is read");
            }
        }
        Ok(Beat::Next)
    }

    /// Writing, reading or telling has failed that was begun then.
    pub(crate) fn failed(&self, begun: Instant, error: &BackingError) {
        let now = Instant::now();
        self.touch.failed(silent_since(error, (begun, now)), now);
        let mut refusal = self.refusal.lock();
        // That nobody asks for a while tells nothing of why.
        if !matches!(error, BackingError::Open { .. }) {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            *refusal = Some(format!("{error}{cause}"));
        }
        if !self.touch.is_told(now) && self.is_followed.swap(false, Ordering::AcqRel) {
            let error = refusal.take().unwrap_or_else(|| error.to_string());
            tracing::warn!(
                error,
                "the purge log of the shared store can't be read: purges of other instances are not known here"
            );
        }
    }

    /// Whether purges may have been complete without this instance, unless the tier is known to be away.
    pub(crate) fn is_out_of_touch(&self) -> bool {
        !self.touch.holds(Instant::now())
    }

    /// Waits until that is known, but not for long.
    pub(crate) async fn in_touch(&self) {
        if self.is_out_of_touch() {
            self.touch.restored().await;
        }
    }

    pub(crate) async fn enlist(&self) -> Result<(), BackingError> {
        self.fleet.enlist().await?;
        self.is_listed.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) async fn leave(&self) -> Result<(), BackingError> {
        self.fleet.leave().await
    }

    /// How far all instances say now that they have read.
    pub(crate) async fn said(&self) -> Result<Vec<LogCursor>, BackingError> {
        self.fleet.said().await
    }

    /// Waits until all instances have read up to a place.
    pub(crate) async fn reach(&self, place: LogCursor) -> Reached {
        self.fleet.reach(place, self.verification + Duration::from_secs(1)).await
    }
}

/// From when on the tier has not answered, as a failure tells. Of several operations it is the last one that has failed, and that has waited for no longer
/// than it may: a process that was stopped meanwhile has not waited. An error that came tells of the moment when it came.
fn silent_since(error: &BackingError, (begun, now): (Instant, Instant)) -> Instant {
    match error {
        BackingError::TimedOut { after } => now.checked_sub(*after).map_or(begun, |since| since.max(begun)),
        _ => now,
    }
}

impl Outbox {
    fn post(&mut self, record: &PurgeRecord) -> Posted {
        self.put += 1;
        // What is beyond a limit of the log takes more than it says.
        let bytes = record.encode().or_else(|_| everything(record).encode()).unwrap_or_default();
        self.push(bytes.into());
        if self.bytes > OUTBOX_BYTES_MAX {
            let count = self.records.len() as u64;
            self.records.clear();
            self.bytes = 0;
            self.taken += count - 1;
            self.push(everything(record).encode().unwrap_or_default().into());
        }
        Posted(self.put)
    }

    fn push(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.records.push_back(bytes);
    }

    /// As many as one append takes.
    fn next(&self) -> Vec<Bytes> {
        let mut bytes = 0;
        let fits = |record: &&Bytes| {
            bytes += record.len();
            bytes <= LOG_APPEND_BYTES_MAX
        };
        self.records.iter().take_while(fits).cloned().collect()
    }

    fn sent(&mut self, count: usize) {
        for record in self.records.drain(..count.min(self.records.len())) {
            self.bytes -= record.len();
            self.taken += 1;
        }
    }
}

fn everything(record: &PurgeRecord) -> PurgeRecord {
    PurgeRecord { what: What::Everything, mode: PurgeMode::Soft, ..record.clone() }
}

#[cfg(test)]
mod tests {
    use store::purge::PurgeId;

    use super::*;

    fn record(url: &str) -> PurgeRecord {
        PurgeRecord { id: PurgeId([1; 16]), at_ms: 1, mode: PurgeMode::Hard, what: What::Url(url.to_owned()) }
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

    #[test]
    fn what_was_posted_is_sent_in_order() {
        let mut outbox = Outbox::default();
        let first = outbox.post(&record("http://a/1"));
        let second = outbox.post(&record("http://a/2"));
        let next = outbox.next();
        let decoded: Vec<_> = next.iter().map(|bytes| PurgeRecord::decode(bytes).unwrap()).collect();
        assert_eq!(decoded, [record("http://a/1"), record("http://a/2")]);
        outbox.sent(1);
        assert!(outbox.taken >= first.0 && outbox.taken < second.0);
        outbox.sent(1);
        assert!(outbox.taken >= second.0 && outbox.bytes == 0 && outbox.next().is_empty());
    }

    #[test]
    fn what_is_too_much_becomes_one_purge_of_everything() {
        let mut outbox = Outbox::default();
        let long = format!("http://a/{}", "x".repeat(10_000));
        let last = (0..100).map(|_| outbox.post(&record(&long))).max().unwrap();
        assert!(outbox.bytes <= OUTBOX_BYTES_MAX + 10_100);
        let first = PurgeRecord::decode(&outbox.records[0]).unwrap();
        assert_eq!((first.what, first.mode), (What::Everything, PurgeMode::Soft));
        while !outbox.next().is_empty() {
            outbox.sent(outbox.next().len());
        }
        assert_eq!(Posted(outbox.taken), last);
    }
}
