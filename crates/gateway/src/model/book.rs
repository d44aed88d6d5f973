//! Record of all events, and the check of answers against the guarantees of `docs/internals/coherence.md`.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::double::DoubleServer;
use tokio::time::Instant;

use super::VERIFICATION;
use super::urls::{URLS, names};

/// Sequence number of an answer of the origin.
pub(super) type FetchId = usize;

/// Record of all events of a history.
pub(super) struct Book {
    pages: Mutex<Pages>,
}

struct Pages {
    begun: Instant,
    /// Times at which the origin answered.
    fetches: Vec<Instant>,
    purges: Vec<Purge>,
    /// Stored records by region and name.
    stored: HashMap<(usize, Box<[u8]>), Stored>,
    /// Number of instances in each region.
    per_region: usize,
    /// Time from which all failures have ended, and everything is known everywhere.
    settled: Option<Instant>,
    lines: Vec<LineLife>,
    /// Last times at which the store lost the end of its log (`lost`) or any part of it (`cut`).
    lost: Option<Instant>,
    cut: Option<Instant>,
    notes: Vec<String>,
}

/// Current record under a name, and the time at which it was stored.
#[derive(Clone, Copy)]
struct Stored {
    fetch: FetchId,
    since: Instant,
}

#[derive(Default, Clone)]
struct LineLife {
    told: HashMap<Box<[u8]>, Instant>,
    /// Last time at which a message was lost.
    trouble: Option<Instant>,
    cuts: Vec<(Instant, Option<Instant>)>,
    died: Option<Instant>,
    is_stopped: bool,
}

/// A purge or an invalidation.
#[derive(Clone, Debug)]
pub(super) struct Purge {
    pub(super) urls: Vec<&'static str>,
    pub(super) force: Force,
    pub(super) begun: Instant,
    /// Time at which the purge takes effect.
    pub(super) holds: Instant,
    pub(super) by: usize,
    /// Instances that the purge must reach.
    pub(super) reach: Reach,
}

/// Mode of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    Hard,
    /// The responses are kept, and validated before use.
    Soft,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    All,
    One(usize),
    /// All instances of the region that have run without failures for a while.
    Settled,
    /// All instances, once all failures have ended.
    Finally,
}

/// A stored response that an instance has sent as an answer.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) instance: usize,
    pub(super) url: &'static str,
    pub(super) name: Vec<u8>,
    pub(super) asked: Instant,
    /// Whether the response was loaded from the tier.
    pub(super) is_loaded: bool,
    /// Position in the history, for messages.
    pub(super) place: String,
    /// `fetch` is the last origin answer that confirmed the response; `body` is the origin answer that supplied its
    /// bytes.
    pub(super) fetch: FetchId,
    pub(super) body: FetchId,
    /// Whether a change to the record still has to be written to the tier.
    pub(super) is_pending: bool,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance, url, fetch, body, is_loaded, place, .. } = self;
        let way = if *is_loaded { "after a load" } else { "from memory" };
        write!(f, "{url} of fetch {fetch} with the body of {body}, served {way} by {instance}, {place}")
    }
}

/// An answer that breaks a guarantee.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

/// Maximum time from the end of an outage until an instance is in step again.
const BACK_IN_STEP: Duration = VERIFICATION.saturating_add(Duration::from_secs(1));

impl Book {
    pub(super) fn new(instances: usize, per_region: usize) -> Self {
        Self {
            pages: Mutex::new(Pages {
                begun: Instant::now(),
                fetches: Vec::new(),
                purges: Vec::new(),
                stored: HashMap::new(),
                per_region,
                settled: None,
                lines: vec![LineLife::default(); instances],
                lost: None,
                cut: None,
                notes: Vec::new(),
            }),
        }
    }

    pub(super) fn note(&self, note: impl fmt::Display) {
        let mut pages = self.pages.lock();
        let line = format!("{:>7} {note}", pages.begun.elapsed().as_millis());
        pages.notes.push(line);
    }

    pub(super) fn story(&self) -> String {
        self.pages.lock().notes.join("\n")
    }

    /// Records an answer of the origin.
    pub(super) fn fetched(&self) -> FetchId {
        let mut pages = self.pages.lock();
        pages.fetches.push(Instant::now());
        pages.fetches.len() - 1
    }

    pub(super) fn purged(&self, purge: Purge) {
        self.pages.lock().purges.push(purge);
    }

    /// Records that the store has notified an instance of a change to a record.
    pub(super) fn told(&self, instance: usize, name: &[u8]) {
        self.pages.lock().lines[instance].told.insert(name.into(), Instant::now());
    }

    pub(super) fn trouble(&self, instance: usize) {
        self.pages.lock().lines[instance].trouble = Some(Instant::now());
    }

    pub(super) fn died(&self, instance: usize) {
        self.trouble(instance);
        self.pages.lock().lines[instance].died = Some(Instant::now());
    }

    pub(super) fn stopped(&self, instance: usize) {
        self.trouble(instance);
        self.pages.lock().lines[instance].is_stopped = true;
    }

    pub(super) fn went_on(&self, instance: usize) {
        self.trouble(instance);
        self.pages.lock().lines[instance].is_stopped = false;
    }

    /// Records that the store has lost the end of its log, or all of it.
    pub(super) fn lost(&self) {
        self.trimmed();
        self.pages.lock().lost = Some(Instant::now());
    }

    /// Records that the store has lost the beginning of its log, which instances may not have read.
    pub(super) fn trimmed(&self) {
        self.pages.lock().cut = Some(Instant::now());
    }

    pub(super) fn cut(&self, instance: usize) {
        self.pages.lock().lines[instance].cuts.push((Instant::now(), None));
    }

    pub(super) fn mended(&self, instance: usize) {
        let mut pages = self.pages.lock();
        if let Some((_, end)) = pages.lines[instance].cuts.last_mut() {
            end.get_or_insert_with(Instant::now);
        }
    }

    /// Records that all failures have ended, and everything is known everywhere.
    pub(super) fn settled(&self) {
        self.pages.lock().settled = Some(Instant::now());
    }

    /// Reads the contents of the store of an instance.
    pub(super) fn look(&self, instance: usize, server: &DoubleServer) {
        for ((url, _), name) in URLS.iter().zip(names()) {
            let fetch = server.record(&name).and_then(|bytes| fetch_of(&bytes));
            let is_news = self.pages.lock().stored(instance, name, fetch);
            if is_news {
                self.note(format!("the store has {fetch:?} for {url}"));
            }
        }
    }

    /// Judges an answer.
    ///
    /// # Errors
    /// Returns the guarantee that the answer breaks.
    pub(super) fn judge(&self, served: &Served) -> Result<(), Violation> {
        let pages = self.pages.lock();
        pages.purged(served)?;
        pages.changed(served)
    }
}

impl Pages {
    /// Updates the known record under a name. Returns whether the record has changed.
    fn stored(&mut self, instance: usize, name: Vec<u8>, fetch: Option<FetchId>) -> bool {
        let name = (instance / self.per_region, name.into_boxed_slice());
        if self.stored.get(&name).map(|stored| stored.fetch) == fetch {
            return false;
        }
        match fetch {
            Some(fetch) => _ = self.stored.insert(name, Stored { fetch, since: Instant::now() }),
            None => _ = self.stored.remove(&name),
        }
        true
    }

    fn purged(&self, served: &Served) -> Result<(), Violation> {
        for purge in self.purges.iter().filter(|purge| purge.urls.contains(&served.url)) {
            // An instance that can't read a part of the log knows that a purge happened, but not its mode. Neither does a region that
            // first reads the log of another one.
            let is_cut = self.cut.is_some_and(|cut| cut >= purge.begun) || purge.reach == Reach::Finally;
            let since = match purge.force {
                Force::Hard if !is_cut => served.body,
                Force::Hard | Force::Soft => served.fetch,
            };
            if self.fetches[since] < purge.begun && self.is_held_by(purge, served) {
                let at = purge.begun.duration_since(self.begun).as_millis();
                let purge = format!(
                    "the {:?} purge for {:?} that {} began at {at}",
                    purge.force, purge.reach, purge.by
                );
                return Err(Violation(format!("{served} was taken by {purge}")));
            }
        }
        Ok(())
    }

    fn is_held_by(&self, purge: &Purge, served: &Served) -> bool {
        let is_noticed = |lost: Instant| lost < purge.begun || served.asked >= lost + BACK_IN_STEP;
        let by = &self.lines[purge.by];
        let is_reached = match purge.reach {
            Reach::All => true,
            Reach::One(instance) => instance == served.instance,
            Reach::Finally => {
                let has_ended = self.settled.is_some_and(|settled| served.asked >= settled);
                has_ended && by.died.is_none_or(|died| died < purge.begun)
            }
            Reach::Settled => {
                purge.by / self.per_region == served.instance / self.per_region
                    && by.died.is_none_or(|died| died < purge.begun)
                    && self.lost.is_none_or(|lost| lost < purge.begun)
                    && self.lines.iter().all(|line| line.is_settled(purge.begun, served.asked))
            }
        };
        let line = &self.lines[served.instance];
        let is_known = matches!(purge.reach, Reach::All | Reach::Finally)
            || line.died.is_none_or(|died| died < purge.begun);
        is_reached
            && is_known
            && served.asked >= purge.holds
            && self.lost.is_none_or(is_noticed)
            && !line.is_out(purge.holds, served.asked)
    }

    fn changed(&self, served: &Served) -> Result<(), Violation> {
        let name = (served.instance / self.per_region, served.name.clone().into_boxed_slice());
        let Some(stored) = self.stored.get(&name) else { return Ok(()) };
        let line = &self.lines[served.instance];
        if stored.fetch == served.fetch || served.is_pending {
            return Ok(());
        }
        let is_disturbed = line.is_cut() || line.trouble.is_some_and(|trouble| trouble >= stored.since);
        let told = line.told.get(&*served.name).filter(|told| **told >= stored.since);
        let is_told = !is_disturbed && told.is_some_and(|told| *told <= served.asked);
        if is_told || line.is_settled(stored.since, served.asked) {
            let says = if is_told { "was told" } else { "should have been told" };
            let (fetch, ago) = (stored.fetch, served.asked - stored.since);
            return Err(Violation(format!("{served} {says} of {fetch}, stored {ago:?} before")));
        }
        Ok(())
    }
}

impl LineLife {
    fn is_cut(&self) -> bool {
        self.cuts.last().is_some_and(|(_, end)| end.is_none())
    }

    /// Returns whether the instance has run without failures for long enough to know of an event at time `since`.
    fn is_settled(&self, since: Instant, now: Instant) -> bool {
        let ends = self.cuts.iter().filter_map(|(_, end)| *end).chain(self.trouble).chain([since]);
        !self.is_cut() && !self.is_stopped && ends.max().is_some_and(|last| now >= last + BACK_IN_STEP)
    }

    /// Returns whether the instance was cut off when a purge took effect, and was reconnected only recently or not at
    /// all. The record of the purge may have expired or been lost.
    fn is_out(&self, holds: Instant, asked: Instant) -> bool {
        self.cuts.iter().any(|(begun, end)| {
            let was_cut = *begun <= holds && end.is_none_or(|end| end > holds);
            was_cut && end.is_none_or(|end| asked < end + BACK_IN_STEP)
        })
    }
}

/// Returns the number of the origin answer in a record, from its fields.
fn fetch_of(bytes: &Bytes) -> Option<FetchId> {
    const NAME: &[u8] = b"x-fetch";
    let place = memchr::memmem::find(bytes, NAME)? + NAME.len();
    let length = usize::from(u16::from_le_bytes([*bytes.get(place)?, *bytes.get(place + 1)?]));
    std::str::from_utf8(bytes.get(place + 2..place + 2 + length)?).ok()?.parse().ok()
}
