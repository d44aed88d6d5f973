//! Synchronisation of this instance with the others that share the tier behind memory, through notifications of the tier and the purge
//! log.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cache::Cache;
use fleet::Tier;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::backing::{BackingError, LogCursor, Source, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::config::StoreIndex;
use crate::purge::heard;
use crate::stores::Store;
use crate::worker::Shared;

/// Receives notifications of the tier, on the thread that reads its connection.
struct Hearing {
    shared: Weak<Shared>,
    store: StoreIndex,
    log_changed: Notify,
}

impl Watcher for Hearing {
    fn suspect(&self, names: &[&[u8]]) {
        if let Some(shared) = self.shared.upgrade() {
            shared.stores.at(self.store).tier.iter().for_each(|tier| tier.suspect(names));
        }
    }

    fn all_suspect(&self, _source: Option<Source>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.stores.at(self.store).tier.iter().for_each(|tier| tier.all_suspect());
        }
    }

    fn log_changed(&self) {
        self.log_changed.notify_one();
    }
}

/// Pause after a failure. No request waits for its end.
const RETRY: Duration = Duration::from_millis(100);

/// Keeps this instance in step with the others that share the tier of a store, and never returns. Without a tier, it returns
/// immediately.
pub(crate) async fn keep_in_step(shared: Arc<Shared>, store: StoreIndex) {
    let Store { cache, tier: Some(tier), .. } = shared.stores.at(store) else { return };
    let log = &tier.log;
    let hearing = Arc::new(Hearing { shared: Arc::downgrade(&shared), store, log_changed: Notify::new() });
    let watcher: Weak<Hearing> = Arc::downgrade(&hearing);
    tier.watch(watcher);
    // The list of members requires two reads per verification time.
    let mut ticks = interval(log.verification / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        let is_tick = tokio::select! {
            // With a fixed order, the events depend only on the notifications, and in tests on the seed.
            biased;
            _ = ticks.tick() => true,
            () = hearing.log_changed.notified() => false,
            () = log.posted.notified() => false,
        };
        let begun = Instant::now();
        let when = if is_tick { When::Tick } else { When::Told };
        if let Err(error) = keep(&shared, (cache, tier), &mut told, when).await {
            log.failed(begun, &error);
            // A notification arrives when the connection is restored.
            let _ = timeout(RETRY, hearing.log_changed.notified()).await;
            hearing.log_changed.notify_one();
            continue;
        }
        tier.answers();
    }
}

/// Returns the tasks of this instance's region, which never end.
pub(crate) fn region_tasks(tier: &Tier) -> Vec<BoxFuture<'static, ()>> {
    let Some(region) = &tier.region else { return Vec::new() };
    let (leading, confirming) = (Arc::clone(region), Arc::clone(region));
    let mut tasks =
        vec![async move { leading.lead().await }.boxed(), async move { confirming.confirm().await }.boxed()];
    tasks.extend((0..region.peers.len()).map(|peer| {
        let region = Arc::clone(region);
        async move { region.follow(&region.peers[peer]).await }.boxed()
    }));
    tasks
}

/// Reason for reading the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Regular read.
    Tick,
    /// A notification arrived, or a record is waiting to be written.
    Told,
}

/// Synchronises this instance, and keeps it in the list of instances that share the tier. Other instances only know instances in this
/// list.
async fn keep(
    shared: &Shared,
    (cache, tier): (&Cache, &Tier),
    told: &mut Option<LogCursor>,
    when: When,
) -> Result<(), BackingError> {
    step(shared, (cache, tier), told).await?;
    let log = &tier.log;
    if !log.is_listed() {
        // Until this point, purges completed without this instance. The log contains these purges, so it is read again before stored
        // responses are used.
        log.enlist().await?;
        *told = None;
        return step(shared, (cache, tier), told).await;
    }
    if when == When::Tick {
        // If this fails, the next tick tries again.
        let _ = log.enlist().await;
        *told = None;
    }
    Ok(())
}

/// Writes pending records, reads new ones, and publishes how far this instance has read.
async fn step(
    shared: &Shared,
    (cache, tier): (&Cache, &Tier),
    told: &mut Option<LogCursor>,
) -> Result<(), BackingError> {
    let log = &tier.log;
    log.send().await?;
    loop {
        let (sent, source) = (log.sent(), log.backing.source());
        let read = heard::read_on(shared, (cache, tier)).await?;
        let has_lost = log.record_read_over(source);
        cache.invalidations.own_are_read(sent);
        if has_lost {
            tracing::warn!("the shared store has lost purges: they are written again");
            log.send().await?;
            continue;
        }
        if *told == Some(read) {
            return Ok(());
        }
        *told = None;
        // An instance that isn't listed stops here, and continues when it is listed.
        if log.heartbeat(read).await? || !log.is_listed() {
            *told = Some(read);
            return Ok(());
        }
    }
}
