//! What the tier behind memory tells unasked, and the log of purges: what keeps this instance in step with those that share the tier.

use std::sync::{Arc, Weak};
use std::time::Duration;

use store::backing::{BackingError, LogCursor, Source, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::cache::Cache;
use crate::cache::purge::heard;
use crate::cache::tiers::fleet::{Beat, FleetLog};
use crate::config::StoreIndex;
use crate::worker::Shared;

/// Is told by the tier, on whatever thread reads its connection.
struct Hearing {
    shared: Weak<Shared>,
    store: StoreIndex,
    log_changed: Notify,
}

impl Watcher for Hearing {
    fn suspect(&self, names: &[&[u8]]) {
        if let Some(shared) = self.shared.upgrade() {
            shared.stores.at(self.store).cache.suspect(names);
        }
    }

    fn all_suspect(&self, _source: Option<Source>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.stores.at(self.store).cache.all_suspect();
        }
    }

    fn log_changed(&self) {
        self.log_changed.notify_one();
    }
}

/// After something has failed; nobody waits for it.
const RETRY: Duration = Duration::from_millis(100);

/// Keeps in step with those that share the tier of a store, for ever; ends at once where there is none.
pub(crate) async fn keep_in_step(shared: Arc<Shared>, store: StoreIndex) {
    let cache = &shared.stores.at(store).cache;
    let Some(log) = cache.fleet_log() else { return };
    let hearing = Arc::new(Hearing { shared: Arc::downgrade(&shared), store, log_changed: Notify::new() });
    let watcher: Weak<Hearing> = Arc::downgrade(&hearing);
    cache.watch(watcher);
    // Twice in the time of verification, as a list of members wants.
    let mut ticks = interval(log.verification() / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        let is_tick = tokio::select! {
            // So that what happens follows from what is told, and in tests from a seed.
            biased;
            _ = ticks.tick() => true,
            () = hearing.log_changed.notified() => false,
            () = log.posted() => false,
        };
        let begun = Instant::now();
        let when = if is_tick { When::Tick } else { When::Told };
        if let Err(error) = keep(&shared, (cache, log), &mut told, when).await {
            log.failed(begun, &error);
            // It is told when there is a connection again.
            let _ = timeout(RETRY, hearing.log_changed.notified()).await;
            hearing.log_changed.notify_one();
            continue;
        }
        cache.tier_answers();
    }
}

/// Why it is time to look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// It is, from time to time.
    Tick,
    /// Something was told, or is to be told.
    Told,
}

/// Keeps in step, and in the list of those that share the tier: one that is not listed is found by nobody.
async fn keep(
    shared: &Shared,
    (cache, log): (&Cache, &FleetLog),
    told: &mut Option<LogCursor>,
    when: When,
) -> Result<(), BackingError> {
    step(shared, (cache, log), told).await?;
    if !log.is_listed() {
        // Purges were complete without this instance until now. They stand in the log, so that is read again before anything is used.
        log.enlist().await?;
        *told = None;
        return step(shared, (cache, log), told).await;
    }
    if when == When::Tick {
        // The next tick tries again.
        let _ = log.enlist().await;
        *told = None;
    }
    Ok(())
}

/// Writes what is to be written, reads what is new, and tells the others how far that went.
async fn step(
    shared: &Shared,
    (cache, log): (&Cache, &FleetLog),
    told: &mut Option<LogCursor>,
) -> Result<(), BackingError> {
    log.send().await?;
    loop {
        let (sent, source) = (log.sent(), log.source());
        let read = heard::read_on(shared, (cache, log)).await?;
        log.has_read_over(source);
        cache.own_purges_are_read(sent);
        if *told == Some(read) {
            return Ok(());
        }
        *told = None;
        // One that is not in the list yet reads on when it is.
        if log.beat(read).await? == Beat::Next || !log.is_listed() {
            *told = Some(read);
            return Ok(());
        }
    }
}
