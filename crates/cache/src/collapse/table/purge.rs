//! Effects of purges by criteria other than a key on running forwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Answer, FetchTable, InFlight, LeaderGuard, Listed};
use crate::entry::stored::StoredHead;

/// Effect of a purge on a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    Spared,
    /// Not known until the response arrives.
    Undecided,
    Doomed,
}

impl FetchTable {
    /// Forbids the running forwards that a purge matches to store their responses, and hides them from new requests, whatever their keys.
    /// Forwards that can't be decided yet stay, but no request joins them any more. Returns the number of both.
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

    /// Returns the number of forwards that a purge would take.
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
    /// Keeps the response to the current waiters only: the response that it is a part of was purged.
    pub fn keep_from_others(&self) {
        self.in_flight.invalidated.store(true, Ordering::Release);
        self.hide();
    }
}
