//! Counts the responses that a purge would remove, by a walk over memory.

use std::time::Duration;

use cache::Cache;
use cache::collapse::table::Doom;
use cache::entry::stored::{CacheEntry, StoredHead};
use cache::invalidation::{Reach, Verdict};
use cache::membership::Membership;

use super::PurgeOutcome;

/// Number of entries examined in one step, which takes a fraction of a millisecond.
const STEP_ENTRIES: usize = 500;
/// Pause between steps, so that requests can use the processor.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of steps of a count: a few seconds, since an operator waits for the answer.
const STEPS_MAX: usize = 4_000;

/// Counts entries in memory. Run this on a thread that answers no requests.
pub(super) async fn count(cache: &Cache, reach: &Reach) -> PurgeOutcome {
    let mut counted = PurgeOutcome::default();
    let mut walk = cache.memory.walk();
    for _ in 0..STEPS_MAX {
        let goes_on = walk.step(STEP_ENTRIES, |key, entry| {
            let responses = responses(cache, reach, key, entry);
            counted.responses_purged += responses;
            counted.keys_matched += usize::from(responses > 0);
        });
        if !goes_on {
            return counted;
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    PurgeOutcome { cut: true, ..counted }
}

fn responses(cache: &Cache, reach: &Reach, key: &[u8], entry: &CacheEntry) -> usize {
    let is_there = |head: &StoredHead| !matches!(cache.invalidations.judge(key, head), Verdict::Removed(_));
    let taken = |head: &StoredHead| is_there(head) && reach.takes(key, tags_of(head));
    entry.variants().iter().filter(|variant| taken(&variant.head)).count()
}

/// Returns the effect of a purge on a forward in progress.
pub(super) fn doom(reach: &Reach, key: &[u8], head: Option<&StoredHead>) -> Doom {
    let is_taken = match head {
        Some(head) => reach.takes(key, tags_of(head)),
        None => reach.takes(key, Some(&[])),
    };
    if is_taken {
        Doom::Doomed
    } else if head.is_none() && reach.takes(key, None) {
        Doom::Undecided
    } else {
        Doom::Spared
    }
}

fn tags_of(head: &StoredHead) -> Option<&[store::purge::Name]> {
    head.membership().map_or(Some(&[]), Membership::tags)
}
