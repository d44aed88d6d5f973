//! Purges in the shared log: applies the purges of other instances, and sends the purges of this instance to the others.

use std::time::Duration;

use cache::Cache;
use fleet::Tier;
use fleet::origins::CarriedEffect;
use fleet::purge_log::read_behind;
use fleet::regions::arrival::RegionArrival;
use futures_util::future::{join, join_all};
use message::clock::now;
use message::head::Scheme;
use serde::Serialize;
use store::backing::{
    BackingError, Continuity, LastRecord, LogCursor, LogOffset, LogPart, LogRecord, Replication,
};
use store::fleet::{Arrival, Arrivals, Carried, CarriedWhat, LogEntry};
use store::purge::{PurgeBytesError, PurgeId, PurgeMode, PurgeRecord, PurgeTarget, Selection};

use super::count::doom;
use super::order::PurgeWait;
use super::record;
use super::url::split_url;
use crate::active::ActiveConfig;
use crate::config::path_of;
use crate::routing::host_of;
use crate::routing::{key_of, key_without_site};
use crate::stores::Store;
use crate::worker::Shared;

/// Reach of a purge among the instances that share a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeReach {
    /// Whether all instances have applied the purge, and all are listed, in all regions.
    pub complete: bool,
    /// The reach in each instance.
    pub instances: Vec<InstanceReach>,
    /// Stores whose servers haven't recorded the purge yet. Other instances apply the purge when the servers have recorded it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_stores: Vec<String>,
    /// Stores whose replicas haven't confirmed the purge in time: a fail-over may lose it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_replicated: Vec<String>,
    /// The reach in each other region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionReach>,
}

/// Reach of a purge in another region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionReach {
    /// Name of the region.
    pub name: String,
    /// Time until the region reported that all of its instances have applied the purge; `None` if it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_ms: Option<u64>,
    /// Reason why it isn't complete there yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

impl RegionReach {
    /// Returns the reach of a purge that isn't in the log of this region yet.
    fn waiting(store: &Store) -> Vec<Self> {
        let region = store.tier.as_ref().and_then(|tier| tier.region.as_ref());
        let pending = Some("this region's store has not received it yet".to_owned());
        let peers = region.into_iter().flat_map(|region| &region.peers);
        peers
            .map(|peer| Self { name: peer.name.to_string(), complete_ms: None, pending: pending.clone() })
            .collect()
    }

    fn of(arrival: RegionArrival) -> Self {
        let name = arrival.name.into();
        match arrival.after {
            Ok(after) => Self { name, complete_ms: Some(millis(after)), pending: None },
            Err(why) => Self { name, complete_ms: None, pending: Some(why.into()) },
        }
    }
}

/// Answers about a purge in one store.
struct Reached {
    arrivals: Arrivals,
    replication: Replication,
    regions: Vec<RegionArrival>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl PurgeReach {
    fn of(store: &Store, reached: Result<Reached, BackingError>) -> Self {
        let Reached { arrivals: Arrivals { instances, is_complete }, replication, regions } = match reached {
            Ok(reached) => reached,
            Err(error) => {
                tracing::warn!(store = store.name, %error, "purge not yet written to the shared store; other instances apply it when the store answers");
                let regions = RegionReach::waiting(store);
                return Self { silent_stores: vec![store.name.clone()], regions, ..Self::default() };
            }
        };
        let instances: Vec<_> = instances.into_iter().map(|reach| InstanceReach::of(store, reach)).collect();
        let all = instances.iter().all(|instance| instance.reached_ms.is_some());
        let not_replicated = match replication {
            Replication::Complete => Vec::new(),
            Replication::Incomplete => vec![store.name.clone()],
        };
        let regions: Vec<_> = regions.into_iter().map(RegionReach::of).collect();
        let everywhere = regions.iter().all(|region| region.complete_ms.is_some());
        let complete = is_complete && all && everywhere && !instances.is_empty() && not_replicated.is_empty();
        Self { complete, instances, not_replicated, regions, ..Self::default() }
    }

    /// Combines the reach in two stores.
    fn and(mut self, other: Self) -> Self {
        self.complete &= other.complete;
        self.instances.extend(other.instances);
        self.silent_stores.extend(other.silent_stores);
        self.not_replicated.extend(other.not_replicated);
        self.regions.extend(other.regions);
        self
    }
}

/// Reach of a purge in one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceReach {
    /// Configured name.
    pub name: String,
    /// Identifier of the current run of its process.
    pub id: String,
    /// Store that it shares; `None` for the default store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Time until the instance reported that it has applied the purge; `None` if it didn't report that in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_ms: Option<u64>,
}

impl InstanceReach {
    fn of(store: &Store, reach: Arrival) -> Self {
        let reached_ms = reach.after.map(millis);
        let store = store.given_name().map(str::to_owned);
        Self { name: reach.name.into(), id: reach.id.to_string(), store, reached_ms }
    }
}

/// Reads the log to its end, applies new records, and returns the position of the end.
///
/// # Errors
/// If the tier fails.
pub(crate) async fn read_on(
    shared: &Shared,
    (cache, tier): (&Cache, &Tier),
) -> Result<LogCursor, BackingError> {
    let (invalidations, log) = (&cache.invalidations, &tier.log);
    loop {
        let from = match invalidations.log_read() {
            Some(from) => from,
            None => {
                let state = log.backing.log_state().await?;
                let from = LogCursor { id: state.id, offset: state.floor };
                invalidations.log_begins(from);
                from
            }
        };
        let (LogPart { state, records }, continuity) =
            read_behind(&*log.backing, from, invalidations.last_record()).await?;
        if continuity != Continuity::Whole {
            // The positions of responses in the lost log must not be compared with records of the new log, so the new log gets a
            // different name.
            let state = match continuity {
                Continuity::Lost => {
                    tracing::warn!(
                        "the purge log of the shared store was reset to an earlier state: starting a new log"
                    );
                    log.backing.rename_log(invalidations.read_before(state.id, from)).await?
                }
                Continuity::Trimmed | Continuity::Whole => state,
            };
            log.was_lost();
            invalidations.log_was_lost(LogCursor { id: state.id, offset: state.floor });
            continue;
        }
        let end = records.last().map_or(from.offset, |record| record.end);
        let mut begins = from.offset;
        for record in &records {
            apply(shared, (cache, tier), record);
            invalidations.record_read(LastRecord::new(begins, record));
            begins = record.end;
        }
        log.heard.notify_waiters();
        if end >= state.end || records.is_empty() {
            return Ok(LogCursor { id: state.id, offset: end });
        }
    }
}

fn apply(shared: &Shared, store: (&Cache, &Tier), LogRecord { bytes, end }: &LogRecord) {
    match LogEntry::decode(bytes) {
        Ok(LogEntry::Purge(record)) => apply_purge(shared, store, record, *end),
        Ok(LogEntry::Carried(carried)) => apply_carried(shared, store, carried, *end),
        Err(error) => apply_purge(shared, store, unreadable(&error), *end),
    }
}

/// Applies a purge of another region.
fn apply_carried(shared: &Shared, store: (&Cache, &Tier), carried: Carried, end: LogOffset) {
    let effect = store.1.log.origins.lock().note(&carried, end);
    match (effect, carried.what) {
        (CarriedEffect::Known, _) | (CarriedEffect::Next, CarriedWhat::Position | CarriedWhat::Beginning) => {
            store.0.invalidations.hear_nothing(end);
        }
        (CarriedEffect::Next, CarriedWhat::Purge(purge)) => {
            let record = PurgeRecord::decode(&purge).unwrap_or_else(|error| unreadable(&error));
            apply_purge(shared, store, record, end);
        }
        (CarriedEffect::Unknown, _) => {
            // At the start, this instance reads of earlier losses.
            if store.1.log.is_read() {
                tracing::warn!(
                    "purges of another region may have been lost: everything older counts as purged softly"
                );
            }
            apply_purge(shared, store, everything(PurgeMode::Soft), end);
        }
    }
}

fn apply_purge(shared: &Shared, (cache, tier): (&Cache, &Tier), record: PurgeRecord, end: LogOffset) {
    match &record.what {
        PurgeTarget::Url(url) => match keys_of_url(&shared.live.load(), url) {
            Some(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                heard((cache, tier), record, &keys, end);
            }
            None => cache.invalidations.hear_nothing(end),
        },
        PurgeTarget::Selected(_) | PurgeTarget::Everything => heard((cache, tier), record, &[], end),
    }
}

fn heard((cache, tier): (&Cache, &Tier), record: PurgeRecord, keys: &[&[u8]], end: LogOffset) {
    let id = record.id;
    let Some(kept) = cache.invalidations.hear(record, keys, end) else {
        return tier.log.own_was_read(id);
    };
    tier.heard_purge();
    cache.fetches.purge(|key, head| doom(&kept.reach, key, head));
}

/// Returns a purge of everything, in place of a record that can't be decoded.
fn unreadable(error: &PurgeBytesError) -> PurgeRecord {
    tracing::warn!(%error, "can't decode a record of the purge log: everything older counts as purged");
    everything(PurgeMode::Hard)
}

fn everything(mode: PurgeMode) -> PurgeRecord {
    let at_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    PurgeRecord { id: PurgeId([0; 16]), at_ms, mode, what: PurgeTarget::Everything }
}

/// Returns the keys of a URL. If the URL belongs to no site of this instance, its key has no site, because a reload may have removed
/// the site, and may restore it.
fn keys_of_url(live: &ActiveConfig, url: &str) -> Option<Vec<Vec<u8>>> {
    let (scheme, authority, path_and_query) = split_url(url)?;
    let sites = live.routes.sites_storing(authority, &path_and_query);
    if sites.is_empty() {
        return Some(vec![key_without_site(scheme, authority, path_of(&path_and_query))]);
    }
    Some(sites.into_iter().map(|site| key_of(site, scheme, authority, &path_and_query)).collect())
}

/// Returns the positions up to which all instances report that they have read the log of each of these stores. Call this before
/// announcing a purge.
pub(super) async fn said(stores: &[&Store]) -> Vec<Vec<LogCursor>> {
    let said = stores.iter().map(async |store| match &store.tier {
        Some(tier) => tier.log.fleet.said().await.unwrap_or_default(),
        None => Vec::new(),
    });
    join_all(said).await
}

/// Announces a purge of this instance to the others, in all of these stores concurrently, and waits until the others have read it.
/// `said` has their previous positions, in the order of the stores.
pub(super) async fn tell(
    stores: &[&Store],
    said: &[Vec<LogCursor>],
    (record, wait): (&PurgeRecord, PurgeWait),
) -> Option<PurgeReach> {
    let told = stores.iter().zip(said).map(async |(store, said)| {
        let tier = store.tier.as_ref()?;
        Some(PurgeReach::of(store, tell_in((&store.cache, tier), said, (record, wait)).await))
    });
    join_all(told).await.into_iter().flatten().reduce(PurgeReach::and)
}

/// Announces a purge to the instances of one store, and returns the reach. If the record can't be written now, it is written later.
async fn tell_in(
    (cache, tier): (&Cache, &Tier),
    said: &[LogCursor],
    (record, wait): (&PurgeRecord, PurgeWait),
) -> Result<Reached, BackingError> {
    let log = &tier.log;
    let before = cache.invalidations.log_read();
    let posted = log.post(record);
    cache.invalidations.record_posted(record.id, posted);
    let place = match log.send().await? {
        Some(place) => place,
        None => log.backing.log_state().await?.cursor(),
    };
    // The log has become shorter than the part that an instance has read, so the reported positions have no meaning.
    let is_reached = |read: LogCursor| read.id == place.id && read.offset >= place.offset;
    let has_shrunk = before.is_some_and(|before| before.id != place.id || is_reached(before))
        || said.iter().copied().any(is_reached);
    let in_regions = async {
        match (&tier.region, wait) {
            (Some(region), PurgeWait::All) => region.reach(place, log.reach_wait_max()).await,
            (Some(_), PurgeWait::Near | PurgeWait::None) | (None, _) => Vec::new(),
        }
    };
    let near = async {
        match wait {
            PurgeWait::None => {
                (Arrivals { instances: Vec::new(), is_complete: false }, Replication::Complete)
            }
            PurgeWait::All | PurgeWait::Near => join(log.reach(place), log.replicate(posted)).await,
        }
    };
    let ((reached, replication), regions) = join(near, in_regions).await;
    let is_complete = reached.is_complete && !has_shrunk && log.sent() >= posted;
    Ok(Reached { arrivals: Arrivals { is_complete, ..reached }, replication, regions })
}

/// Returns the record that informs other instances that a request has changed the entries of a URL.
pub(crate) fn of_url(scheme: Scheme, authority: &str, path_and_query: &str) -> PurgeRecord {
    let url = format!("{}://{authority}{path_and_query}", scheme.as_str());
    record(PurgeTarget::Url(url), PurgeMode::Hard)
}

/// Returns the record that informs other instances that a request has changed the responses of its host in these groups. Without
/// groups, or with more groups than a purge can have, the record covers all responses of the host.
pub(crate) fn of_host(groups: Vec<String>, authority: &str) -> PurgeRecord {
    let host = host_of(authority).to_ascii_lowercase();
    let selection = Selection { host: Some(host), ..Selection::default() };
    let named =
        record(PurgeTarget::Selected(Selection { tags: groups, ..selection.clone() }), PurgeMode::Hard);
    match named.what.check() {
        Ok(()) => named,
        Err(_) => record(PurgeTarget::Selected(selection), PurgeMode::Hard),
    }
}

/// Applies an invalidation here, and posts its record for other instances.
///
/// The invalidation and its record are handled under one lock, so that the log has the invalidations by requests in the order of
/// their numbers in this process. In a different order, the log would have no position after the invalidation by one POST and before
/// the next one. The stored response to the first POST would then count as older than the second invalidation, and be lost.
pub(crate) fn in_turn(store: &Store, record: &PurgeRecord, take: impl FnOnce()) {
    let Some(log) = store.tier.as_ref().map(|tier| &tier.log) else { return take() };
    let _turn = log.numbered();
    take();
    store.cache.invalidations.record_posted(record.id, log.post(record));
}

/// Waits for a short time until the invalidations of an unsafe request are in the log. The function doesn't wait for other instances.
pub(crate) async fn tell_briefly(stores: &[&Store]) {
    let sends = stores.iter().filter_map(|store| Some(store.tier.as_ref()?.log.send()));
    // If records aren't written in time, the synchronisation task writes them.
    let _ = tokio::time::timeout(TELL_WAIT_MAX, join_all(sends)).await;
}

/// Maximum time for which the client of an unsafe request waits.
const TELL_WAIT_MAX: Duration = Duration::from_millis(20);
