//! Another region, as the carrier of this one sees it.

use std::error::Error as _;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::{Backing, BackingError, Continuity, LastRecord, LogCursor, LogId, LogOffset, LogRecord};
use store::backing::{LOG_APPEND_BYTES_MAX, Source, Tracking, Watcher};
use store::fleet::{Carried, CarriedWhat, Following, LogEntry, NOWHERE, PeerRecord, REGION, RegionRecord};
use store::purge::PurgeId;
use tokio::sync::Notify;

use super::StartPeer;
use crate::origins::Origin;
use crate::purge_log::read_behind;

/// Another region.
pub struct Peer {
    /// Name of the region.
    pub name: Box<str>,
    pub(super) backing: Arc<dyn Backing>,
    pub(super) hearing: Arc<Hearing>,
    state: Mutex<State>,
}

/// Notified when the peer's log or record has changed, or everything may have.
#[derive(Default)]
pub(super) struct Hearing(pub(super) Notify);

struct State {
    /// Position in the peer's log that was read last.
    reading: Option<Reading>,
    /// The log in which `complete` is.
    log: LogId,
    complete: LastRecord,
    /// Log of the own region for which the confirmations of the peer were compared.
    compared: Option<LogId>,
    confirmed: LogCursor,
    current_at_ms: u64,
    following: Following,
    refusal: Box<str>,
}

/// Position in the log of a peer.
#[derive(Clone, Copy)]
struct Reading {
    log: LogId,
    /// The last record that was read, if it is behind `carried`: records that the peer has carried itself aren't carried again.
    skipped: Option<LastRecord>,
    /// End of the last record that was carried when it was read.
    carried: LogOffset,
}

/// Reason why purges of a peer, or its confirmations, don't arrive.
#[derive(Debug)]
pub(super) enum Refusal {
    Peer(BackingError),
    Near(BackingError),
    NearUnread,
    Reset,
    SameStore,
    SameName,
    OtherRegion(Box<str>),
    NoCarrier,
    Unknown,
    /// The reason that the peer reports.
    Theirs(Box<str>),
}

impl Refusal {
    /// Returns whether this follows from an earlier failure, and doesn't contain the cause.
    pub(super) fn is_without_cause(&self) -> bool {
        matches!(self, Self::Peer(BackingError::Open { .. }) | Self::Near(BackingError::Open { .. }))
    }

    /// Describes the reason for operators of either region, given the names of the own region and of the peer.
    pub(super) fn described(&self, near: &str, peer: &str) -> String {
        match self {
            Self::Peer(BackingError::NoLog) => format!(
                "the store of {peer} has no purge log with this `prefix`: no instance of {peer} has ever run, or the prefix is wrong"
            ),
            Self::Peer(error) => format!("the store of {peer} can't be read from {near} ({})", told(error)),
            Self::Near(error) => format!("the store of {near} can't be written ({})", told(error)),
            Self::NearUnread => format!("the purge log of {near} has not been read yet"),
            Self::Reset => format!(
                "the purge log of {peer} was reset to an earlier state, and {peer} has not begun another one yet"
            ),
            Self::SameStore => format!("`url` and `prefix` of {peer} lead to the store of {near}"),
            Self::SameName => format!("the region behind `url` of {peer} has the name {near}, too"),
            Self::OtherRegion(name) => {
                format!("`url` and `prefix` of {peer} lead to the store of the region \"{name}\"")
            }
            Self::NoCarrier => {
                format!("no instance of {peer} carries purges: none is running, or none has a `[region]`")
            }
            Self::Unknown => format!("{peer} doesn't know {near}: its `[[region.peers]]` lacks the name"),
            Self::Theirs(reason) => reason.to_string(),
        }
    }
}

/// Returns the cause of an error.
fn told(error: &BackingError) -> String {
    match error {
        BackingError::TimedOut { after } => format!("no reply within {} ms", after.as_millis()),
        BackingError::Open { .. } => "it has failed repeatedly".to_owned(),
        error => error.source().map_or_else(|| error.to_string(), ToString::to_string),
    }
}

/// Content of a peer's record about this region.
pub(super) struct Confirmations {
    /// The entry about this region.
    pub(super) of_us: Option<PeerRecord>,
    /// Reason why the peer confirms nothing now.
    pub(super) obstacle: Option<Refusal>,
}

impl Confirmations {
    fn none(obstacle: Refusal) -> Self {
        Self { of_us: None, obstacle: Some(obstacle) }
    }
}

/// News from a peer.
pub(super) struct News {
    /// Records for the log of this region.
    pub(super) records: Vec<Bytes>,
    /// Whether these are all records of the peer's log.
    pub(super) is_all: bool,
}

impl Watcher for Hearing {
    fn suspect(&self, keys: &[&[u8]]) {
        if keys.contains(&REGION) {
            self.0.notify_one();
        }
    }

    fn all_suspect(&self, _source: Option<Source>) {
        self.0.notify_one();
    }

    fn log_changed(&self) {
        self.0.notify_one();
    }
}

impl Peer {
    pub(super) fn new(StartPeer { name, backing }: StartPeer) -> Self {
        let hearing = Arc::<Hearing>::default();
        let watcher: Weak<Hearing> = Arc::downgrade(&hearing);
        backing.watch(watcher);
        let state = State {
            reading: None,
            log: NOWHERE.id,
            complete: LastRecord::nothing(LogOffset(0)),
            compared: None,
            confirmed: NOWHERE,
            current_at_ms: 0,
            following: Following::No,
            refusal: Box::default(),
        };
        Self { name: name.into(), backing, hearing, state: Mutex::new(state) }
    }

    pub(super) fn record(&self) -> PeerRecord {
        let state = self.state.lock();
        PeerRecord {
            name: self.name.clone(),
            log: state.log,
            complete: state.complete,
            confirmed: state.confirmed,
            current_at_ms: state.current_at_ms,
            following: state.following,
            refusal: state.refusal.clone(),
        }
    }

    /// Takes over what an earlier carrier of this region has recorded.
    pub(super) fn take_over(&self, record: &PeerRecord) {
        let mut state = self.state.lock();
        (state.log, state.complete) = (record.log, record.complete);
        state.confirmed = record.confirmed;
        state.current_at_ms = state.current_at_ms.max(record.current_at_ms);
    }

    pub(super) fn log(&self) -> Option<LogId> {
        self.state.lock().reading.map(|reading| reading.log)
    }

    /// Returns whether all instances of this region are known to have applied the purges of the peer up to here.
    pub(super) fn is_complete(&self, origin: Origin) -> bool {
        let state = self.state.lock();
        (state.log, state.complete) == (origin.log, origin.last)
    }

    pub(super) fn set_complete(&self, origin: Origin) {
        let mut state = self.state.lock();
        (state.log, state.complete) = (origin.log, origin.last);
    }

    /// Returns whether the confirmations of the peer have to be compared with the own region's log, as far as this instance has read it.
    pub(super) fn is_doubtful(&self, near: LogCursor, complete: LastRecord) -> bool {
        complete.end() > near.offset || self.state.lock().compared != Some(near.id)
    }

    /// Notes that the confirmations of the peer belong to this log.
    pub(super) fn note_compared(&self, near: LogId) {
        self.state.lock().compared = Some(near);
    }

    /// Takes over a confirmation. Returns whether it is new.
    pub(super) fn confirm(&self, confirmed: LogCursor) -> bool {
        let mut state = self.state.lock();
        std::mem::replace(&mut state.confirmed, confirmed) != confirmed
    }

    /// Notes that all purges of the peer were known here at this time.
    pub(super) fn note_current(&self, at_ms: u64) {
        self.state.lock().current_at_ms = at_ms;
    }

    /// Returns whether there is a reason why the peer isn't followed, or confirms nothing.
    pub(super) fn is_refused(&self) -> bool {
        !self.state.lock().refusal.is_empty()
    }

    /// Returns whether this changes the reason why the peer isn't followed, or confirms nothing.
    pub(super) fn set_refusal(&self, following: Following, refusal: &str) -> bool {
        let mut state = self.state.lock();
        let is_new = *state.refusal != *refusal || state.following != following;
        state.following = following;
        if is_new {
            state.refusal = refusal.into();
        }
        is_new
    }

    /// Reads the record of the peer.
    pub(super) async fn confirmations(&self, own: &str) -> Result<Confirmations, Refusal> {
        let loaded = self.backing.load(&[REGION], Tracking::UntilChanged).await.map_err(Refusal::Peer)?;
        let loaded = loaded.into_iter().next().flatten();
        let record = loaded.and_then(|loaded| RegionRecord::decode(&loaded.bytes).ok());
        let Some(record) = record else { return Ok(Confirmations::none(Refusal::NoCarrier)) };
        if *record.name == *own {
            return Err(Refusal::SameName);
        }
        if record.name != self.name {
            return Err(Refusal::OtherRegion(record.name));
        }
        let of_us = record.peers.into_iter().find(|peer| *peer.name == *own);
        let obstacle = match &of_us {
            None => Some(Refusal::Unknown),
            // The reason of a peer that follows this region is one that it has read here. One that has just begun has no reason yet.
            Some(of_us) if of_us.following == Following::Yes || of_us.refusal.is_empty() => None,
            Some(of_us) => Some(Refusal::Theirs(of_us.refusal.clone())),
        };
        Ok(Confirmations { of_us, obstacle })
    }

    /// Reads the log of the peer on. `position` returns how far a log has been carried.
    pub(super) async fn read_on(
        &self,
        near: LogId,
        position: impl Fn(LogId) -> Option<Origin>,
    ) -> Result<News, Refusal> {
        let reading = self.state.lock().reading;
        let at = reading.and_then(|reading| Some((reading, position(reading.log)?)));
        let last = at.map(|(reading, known)| reading.last(known));
        let from = at
            .zip(last)
            .map_or(NOWHERE, |((reading, _), last)| LogCursor { id: reading.log, offset: last.end() });
        let last = last.filter(LastRecord::is_there);
        let (part, continuity) = read_behind(&*self.backing, from, last).await.map_err(Refusal::Peer)?;
        let log = part.state.id;
        if log == near {
            return Err(Refusal::SameStore);
        }
        let beginning = |offset| {
            // Records that were skipped may be gone, too.
            self.state.lock().reading = Some(Reading { log, skipped: None, carried: offset });
            let last = LastRecord::nothing(offset);
            let beginning = Carried {
                id: PurgeId::next(),
                origin: log,
                after: offset,
                last,
                what: CarriedWhat::Beginning,
            };
            News { records: vec![beginning.encode()], is_all: false }
        };
        let known = match at {
            Some((_, known)) if log == from.id => known,
            _ if position(log).is_none() => return Ok(beginning(part.state.end)),
            _ => {
                self.state.lock().reading = Some(Reading { log, skipped: None, carried: LogOffset(0) });
                return Ok(News { records: Vec::new(), is_all: false });
            }
        };
        match continuity {
            Continuity::Lost => {
                self.state.lock().log = log;
                Err(Refusal::Reset)
            }
            Continuity::Trimmed => Ok(beginning(part.state.floor)),
            Continuity::Whole => {
                let is_all = part.records.last().is_none_or(|record| record.end >= part.state.end);
                Ok(News { records: self.carried(known, from, &part.records), is_all })
            }
        }
    }

    /// Returns the records for this region's log, and notes those that are skipped.
    fn carried(&self, known: Origin, from: LogCursor, records: &[LogRecord]) -> Vec<Bytes> {
        let (mut begins, mut after) = (from.offset, known.last.end());
        let mut carried = Vec::new();
        let mut skipped = None;
        for record in records {
            let last = LastRecord::new(begins, record);
            begins = record.end;
            // What the peer has carried itself comes from its own log.
            if let Ok(LogEntry::Carried(_)) = LogEntry::decode(&record.bytes) {
                skipped = Some(last);
                continue;
            }
            skipped = None;
            let what = match record.bytes.len() <= PURGE_BYTES_MAX {
                true => CarriedWhat::Purge(record.bytes.clone()),
                false => CarriedWhat::Beginning,
            };
            carried.push(Carried { id: PurgeId::next(), origin: from.id, after, last, what }.encode());
            after = record.end;
        }
        let mut state = self.state.lock();
        let before = state.reading.and_then(|reading| reading.skipped).filter(|_| records.is_empty());
        state.reading = Some(Reading { log: from.id, skipped: skipped.or(before), carried: after });
        carried
    }

    /// Returns a record of the position, if it is far beyond the last record that says so: in the log of the peer, whose beginning may be
    /// trimmed, or in the log of this region, whose end is `end`.
    pub(super) fn position(&self, known: Origin, end: LogOffset) -> Option<Bytes> {
        let last = self.state.lock().reading?.last(known);
        let is_far = last.end().0.saturating_sub(known.last.end().0) > POSITION_EVERY_BYTES;
        let is_old = end.0.saturating_sub(known.noted_at.0) > POSITION_EVERY_BYTES;
        let after = known.last.end();
        (is_far || is_old).then(|| {
            Carried { id: PurgeId::next(), origin: known.log, after, last, what: CarriedWhat::Position }
                .encode()
        })
    }
}

impl Reading {
    /// Returns the last record of the peer's log that was read, given how far it has been carried.
    fn last(self, known: Origin) -> LastRecord {
        let skipped =
            self.skipped.filter(|last| self.carried == known.last.end() && last.end() > self.carried);
        skipped.unwrap_or(known.last)
    }
}

/// Maximum length of a purge that is carried; a longer one becomes a soft purge of everything.
const PURGE_BYTES_MAX: usize = LOG_APPEND_BYTES_MAX - 68;
/// Number of bytes of a log after which a position in it is recorded again. It is less than what remains of a log that is trimmed.
const POSITION_EVERY_BYTES: u64 = 256 << 10;
