//! Arrival of a purge in other regions.

use std::time::Duration;

use store::backing::{LogCursor, Tracking};
use store::fleet::{PeerRecord, REGION, RegionRecord};
use tokio::time::{Instant, sleep};

use super::{Peer, Region};
#[cfg(feature = "test-double")]
use crate::faults::{self, Fault};

/// Progress of a region toward a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionArrival {
    /// Name of the region.
    pub name: Box<str>,
    /// Time after which the region had applied the purge, or the reason why it hasn't.
    pub after: Result<Duration, Box<str>>,
}

/// Reason if no instance of this region carries purges.
const NO_CARRIER: &str = "no instance here is in contact with the region";
const LATE: &str = "the region has not confirmed it in time";
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Time after which a region that can't be reached isn't waited for.
const REFUSED_WAIT_MAX: Duration = Duration::from_millis(500);

impl Region {
    /// Waits up to `limit` until all other regions have applied the purges up to a position in the log of this one.
    pub async fn reach(&self, place: LogCursor, limit: Duration) -> Vec<RegionArrival> {
        let begun = Instant::now();
        let pending = |peer: &Peer| RegionArrival { name: peer.name.clone(), after: Err(NO_CARRIER.into()) };
        let mut arrivals: Vec<_> = self.peers.iter().map(pending).collect();
        loop {
            // With this pause, the result is late by at most a quarter of the elapsed time.
            let pause = (begun.elapsed() / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let record = self.log.backing.load(&[REGION], Tracking::Off).await;
            let record = record.ok().and_then(|mut loaded| RegionRecord::decode(&loaded.pop()??.bytes).ok());
            let peers = record.as_ref().map_or(&[][..], |record| &record.peers);
            for arrival in arrivals.iter_mut().filter(|arrival| arrival.after.is_err()) {
                let peer = peers.iter().find(|peer| peer.name == arrival.name);
                arrival.after = match peer {
                    #[cfg(feature = "test-double")]
                    _ if faults::is_planted(Fault::WaitsForNoRegion) => Ok(begun.elapsed()),
                    Some(peer) if has_reached(peer.confirmed, place) => Ok(begun.elapsed()),
                    Some(PeerRecord { refusal, .. }) if !refusal.is_empty() => Err(refusal.clone()),
                    Some(_) => Err(LATE.into()),
                    None => Err(NO_CARRIER.into()),
                };
            }
            let is_awaited = |arrival: &RegionArrival| match &arrival.after {
                Ok(_) => false,
                Err(why) => **why == *LATE || begun.elapsed() < REFUSED_WAIT_MAX,
            };
            if begun.elapsed() + pause > limit || !arrivals.iter().any(is_awaited) {
                return arrivals;
            }
            sleep(pause).await;
        }
    }
}

/// Returns whether a region that has confirmed up to `confirmed` has applied everything before `place`.
fn has_reached(confirmed: LogCursor, place: LogCursor) -> bool {
    confirmed.id == place.id && confirmed.offset >= place.offset
}
