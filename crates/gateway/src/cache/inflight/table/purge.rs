//! What a purge by other than a key does to forwards in progress.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Answer, FetchTable, InFlight, LeaderGuard, Listed};
use crate::cache::record::stored::StoredHead;

/// What a purge makes of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    Spared,
    /// Its response will tell.
    Undecided,
    Doomed,
}

impl FetchTable {
    /// Forbids the forwards in progress that a purge takes to store what they bring, and hides them from new requests, whatever their keys. Those of which nobody can tell yet stay, but nobody
    /// joins them any more. Returns how many of both there were.
    pub(crate) fn purge(&self, doom: impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> usize {
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

    /// How many forwards a purge would take.
    pub(crate) fn count(&self, doom: impl Fn(&[u8], Option<&StoredHead>) -> Doom) -> usize {
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
    /// What it brings is for those who wait: what it is a part of was taken away.
    pub(crate) fn keep_from_others(&self) {
        self.in_flight.invalidated.store(true, Ordering::Release);
        self.hide();
    }
}
