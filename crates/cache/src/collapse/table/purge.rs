//! Effects of purges on running forwards, for purges that select responses by anything other than a key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Answer, FetchTable, InFlight, LeaderGuard, Listed};
use crate::entry::stored::StoredHead;

/// Effect of a purge on a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    Spared,
    /// The effect depends on the response, which hasn't arrived.
    Undecided,
    Doomed,
}

impl FetchTable {
    /// Forbids storing the responses of running forwards that a purge matches, whatever their keys, and hides them from new requests. If
    /// the effect on a forward isn't known yet, the forward continues, but no more requests can join it. Returns the number of forwards of
    /// both kinds.
    pub fn purge(&self, doom: impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> usize {
        self.shards.iter().map(|shard| self.purge_shard(&mut shard.lock(), &doom)).sum()
    }

    fn purge_shard(&self, shard: &mut Listed, doom: &impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> usize {
        let mut undecided = Vec::new();
        let doomed = shard.remove(|in_flight| {
            let doom = in_flight.judged_by(doom);
            match doom {
                Doom::Spared => {}
                Doom::Undecided => undecided.push(Arc::clone(in_flight)),
                Doom::Doomed => in_flight.doom(),
            }
            doom == Doom::Doomed
        });
        let crowds = undecided.iter().filter_map(|in_flight| in_flight.crowd.as_ref());
        crowds.for_each(|crowd| shard.close(crowd));
        doomed + undecided.len()
    }

    /// Returns the number of forwards that a purge would affect.
    pub fn count(&self, doom: impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> usize {
        let is_taken = |in_flight: &&Arc<InFlight>| in_flight.judged_by(&doom) != Doom::Spared;
        self.shards.iter().map(|shard| shard.lock().forwards.values().filter(is_taken).count()).sum()
    }
}

impl InFlight {
    fn judged_by(&self, doom: &impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> Doom {
        match &self.progress.lock().answer {
            Some(Answer::Filling(filling)) => doom(&self.primary, Some(&filling.head)),
            _ => doom(&self.primary, None),
        }
    }
}

impl LeaderGuard {
    /// Delivers the response only to the current waiters, because it is a part of a purged response.
    pub fn keep_from_others(&self) {
        self.in_flight.invalidated.store(true, Ordering::Release);
        self.hide();
    }
}
