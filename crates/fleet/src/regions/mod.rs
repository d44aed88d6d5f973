//! Regions: stores in several places, whose purges apply everywhere.
//!
//! Each instance uses its own region's store alone. In each region, one instance, the *carrier*, reads the purge logs of the other regions
//! (the *peers*) and appends their purges to its own region's log (`carrier.rs`). All instances of the region read them there, like their
//! own (`crate::origins`). The carrier also writes the region's record, which says how far the region has applied the purges of each peer;
//! the peers' carriers read it, so that a purge can report where it is complete (`arrival.rs`).
//!
//! `docs/internals/coherence.md` has the guarantees.

pub mod arrival;
mod carrier;
mod peer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cache::invalidation::Invalidations;
use message::clock::now;
use parking_lot::Mutex;
use store::backing::{Backing, Lease, LogId};
use store::fleet::RegionRecord;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use self::peer::Peer;

use crate::purge_log::FleetLog;

/// Settings of this instance's region.
pub struct StartRegion {
    /// Name of the region.
    pub name: String,
    /// Time for which purges of a peer may be unknown before nothing is verified.
    pub purge_lag_max: Duration,
    /// The other regions.
    pub peers: Vec<StartPeer>,
}

/// Settings of another region.
pub struct StartPeer {
    /// Name of the region.
    pub name: String,
    /// Store of the region, which this one only reads. It has to enforce its own deadlines.
    pub backing: Arc<dyn Backing>,
}

/// This instance's region.
pub struct Region {
    name: Box<str>,
    begun: Instant,
    purge_lag_max: Duration,
    /// Whether purges of a peer may have been unknown for too long, or the peer was never reached.
    is_behind: AtomicBool,
    log: Arc<FleetLog>,
    invalidations: Arc<Invalidations>,
    /// The other regions, in the order of the configuration.
    pub peers: Vec<Peer>,
    is_carrier: watch::Sender<bool>,
    lease: tokio::sync::Mutex<Option<Lease>>,
    /// The record of this region, as it was last read or written.
    record: Mutex<Option<RegionRecord>>,
    /// Notified when this instance has to write the record.
    changed: Notify,
    /// Notified when this instance has carried purges.
    carried: Notify,
}

/// State of this instance's region, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStatus {
    /// Name of the region.
    pub name: Box<str>,
    /// Whether this instance carries the purges of the peers.
    pub is_carrier: bool,
    /// State of the peers.
    pub peers: Vec<PeerStatus>,
}

/// State of another region, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Name of the region.
    pub name: Box<str>,
    /// Time since this region last knew all purges of the peer; since the start of this instance if it never has.
    pub lag: Duration,
}

impl Region {
    pub(crate) fn new(region: StartRegion, log: Arc<FleetLog>, invalidations: Arc<Invalidations>) -> Self {
        let peers = region.peers.into_iter().map(Peer::new).collect();
        Self {
            name: region.name.into(),
            begun: Instant::now(),
            purge_lag_max: region.purge_lag_max,
            is_behind: AtomicBool::new(true),
            log,
            invalidations,
            peers,
            is_carrier: watch::channel(false).0,
            lease: tokio::sync::Mutex::default(),
            record: Mutex::default(),
            changed: Notify::new(),
            carried: Notify::new(),
        }
    }

    /// Returns whether this instance carries the purges of the peers.
    fn is_carrier(&self) -> bool {
        *self.is_carrier.borrow()
    }

    /// Returns the id of the log of this region, once this instance has begun to read it.
    fn near_log(&self) -> Option<LogId> {
        self.invalidations.log_read().map(|read| read.id)
    }

    /// Returns the time by the clock of the region's store, in milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        let ahead_ms = self.log.backing.clock_ahead_ms().unwrap_or(0);
        u64::try_from(now().plus_ms(ahead_ms).as_ms()).unwrap_or(0)
    }

    /// Returns whether purges of a peer may have been unknown for too long.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Finds out whether purges of a peer may have been unknown for too long.
    fn note_lag(&self) {
        let is_late = |peer: &Peer| self.lag(peer).is_none_or(|lag| lag > self.purge_lag_max);
        self.is_behind.store(self.peers.iter().any(is_late), Ordering::Release);
    }

    /// Returns the time since this region last knew all purges of a peer; `None` if it never has.
    fn lag(&self, peer: &Peer) -> Option<Duration> {
        let record = self.record.lock();
        let known = record.as_ref()?.peers.iter().find(|known| known.name == peer.name)?;
        let is_known = known.current_at_ms > 0;
        is_known.then(|| Duration::from_millis(self.now_ms().saturating_sub(known.current_at_ms)))
    }

    /// Returns the state of the region.
    pub fn status(&self) -> RegionStatus {
        let of_peer = |peer: &Peer| {
            let lag = self.lag(peer).unwrap_or_else(|| self.begun.elapsed());
            PeerStatus { name: peer.name.clone(), lag }
        };
        let peers = self.peers.iter().map(of_peer).collect();
        RegionStatus { name: self.name.clone(), is_carrier: self.is_carrier(), peers }
    }
}
