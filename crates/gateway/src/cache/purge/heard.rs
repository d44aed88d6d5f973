//! Purges in the log that several instances share: those of the others take effect here, and those of this one there.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use store::backing::{BackingError, Continuity, LogCursor, LogOffset, LogPart, LogRecord};
use store::fleet::{Reach, Reached};
use store::purge::{PurgeId, PurgeMode, PurgeRecord, Selection, UrlScheme, What};

use super::count::doom;
use super::record;
use super::url::split_url;
use crate::active::ActiveConfig;
use crate::cache::key::key_of;
use crate::cache::tiers::fleet::{FleetLog, Posted};
use crate::clock::now;
use crate::message::head::Scheme;
use crate::worker::Shared;

/// How far a purge came among the instances that share a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeReach {
    /// Whether all instances have reached it, and these are all.
    pub complete: bool,
    /// Each of them.
    pub instances: Vec<InstanceReach>,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceReach {
    /// What its operator calls it.
    pub name: String,
    /// Of this run of it.
    pub id: String,
    /// After how long it was known to have reached the purge; none: it was not, in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_ms: Option<u64>,
}

impl From<Reach> for InstanceReach {
    fn from(reach: Reach) -> Self {
        let reached_ms = reach.after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        Self { name: reach.name.into(), id: reach.id.to_string(), reached_ms }
    }
}

/// Reads the log to its end, and applies what is new. Up to where that was.
///
/// # Errors
/// What the tier answered.
pub(crate) async fn read_on(shared: &Shared, log: &FleetLog) -> Result<LogCursor, BackingError> {
    let epochs = shared.cache.epochs();
    loop {
        let from = match epochs.log_read() {
            Some(from) => from,
            None => {
                let state = log.state().await?;
                let from = LogCursor { id: state.id, offset: state.floor };
                epochs.log_begins(from);
                from
            }
        };
        let LogPart { state, records } = log.read(from).await?;
        let continuity = state.continues(&from);
        if continuity != Continuity::Whole {
            // What others have written at places of what is gone is judged by none of what comes in its place.
            let state = match continuity {
                Continuity::Lost => log.rename(epochs.read_before(state.id, from)).await?,
                Continuity::Trimmed | Continuity::Whole => state,
            };
            epochs.log_was_lost(LogCursor { id: state.id, offset: state.floor });
            continue;
        }
        let end = records.last().map_or(from.offset, |record| record.end);
        records.iter().for_each(|record| apply(shared, record));
        if end >= state.end || records.is_empty() {
            log.has_read();
            return Ok(LogCursor { id: state.id, offset: end });
        }
    }
}

fn apply(shared: &Shared, LogRecord { bytes, end }: &LogRecord) {
    let record = PurgeRecord::decode(bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "a record of the purge log can't be read: everything older counts as purged");
        unknown()
    });
    let key = match &record.what {
        What::Url(url) => key_of_url(&shared.live.load(), url),
        What::Selected(_) | What::Everything => None,
    };
    match (&record.what, key) {
        (What::Url(_), None) => shared.cache.epochs().hear_nothing(*end),
        (_, key) => heard(shared, record, key.as_deref(), *end),
    }
}

fn heard(shared: &Shared, record: PurgeRecord, key: Option<&[u8]>, end: LogOffset) {
    let Some(kept) = shared.cache.epochs().hear(record, key, end) else { return };
    shared.cache.heard_purge();
    let fetches = shared.cache.fetches();
    if let Some(key) = key {
        fetches.invalidate(key, None);
    }
    fetches.purge(|key, head| doom(&kept.reach, key, head));
}

/// Something was purged, and nobody here understands what.
fn unknown() -> PurgeRecord {
    let at_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    PurgeRecord { id: PurgeId([0; 16]), at_ms, mode: PurgeMode::Hard, what: What::Everything }
}

fn key_of_url(live: &ActiveConfig, url: &str) -> Option<Vec<u8>> {
    let (scheme, authority, path_and_query) = split_url(url)?;
    let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path);
    Some(key_of(live.routes.site(authority, path)?, scheme, authority, path_and_query))
}

/// Tells the others of a purge that has taken effect here, and waits until they have read it.
pub(super) async fn tell(shared: &Shared, record: &PurgeRecord) -> Option<PurgeReach> {
    let log = shared.cache.fleet_log()?;
    let before = shared.cache.epochs().log_read();
    let said = log.said().await.unwrap_or_default();
    let posted = post(shared, record)?;
    let reached = match log.send().await {
        // The log is shorter than it was, and somebody had read more: what others say that they have read of it means nothing.
        Ok(Some(place))
            if before.is_some_and(|before| before.id != place.id || before.offset >= place.offset)
                || said.iter().any(|read| read.id == place.id && read.offset >= place.offset) =>
        {
            Reached { is_complete: false, ..log.reach(place).await }
        }
        Ok(Some(place)) => log.reach(place).await,
        // Somebody else has written it, in the meantime.
        Ok(None) => log.reach(log.state().await.ok()?.cursor()).await,
        Err(error) => {
            tracing::warn!(%error, "other instances are told of a purge later");
            return Some(PurgeReach::default());
        }
    };
    let instances: Vec<InstanceReach> = reached.instances.into_iter().map(InstanceReach::from).collect();
    let all = instances.iter().all(|instance| instance.reached_ms.is_some());
    let complete = reached.is_complete && all && !instances.is_empty() && log.is_sent(posted);
    Some(PurgeReach { complete, instances })
}

/// For the others: what lies under a URL was changed by a request.
pub(in crate::cache) fn of_url(scheme: Scheme, authority: &str, path_and_query: &str) -> PurgeRecord {
    let url = format!("{}://{authority}{path_and_query}", scheme.as_str());
    record(What::Url(url), PurgeMode::Hard)
}

/// For the others: what of a request's origin has one of these groups was changed by it; all of it where there are none, or more than a
/// purge has.
pub(in crate::cache) fn of_origin(groups: Vec<String>, scheme: Scheme, authority: &str) -> PurgeRecord {
    let scheme = match scheme {
        Scheme::Http => UrlScheme::Http,
        Scheme::Https => UrlScheme::Https,
    };
    let selection = Selection {
        host: Some(authority.to_ascii_lowercase()),
        scheme: Some(scheme),
        ..Selection::default()
    };
    let named = record(What::Selected(Selection { tags: groups, ..selection.clone() }), PurgeMode::Hard);
    match named.what.check() {
        Ok(()) => named,
        Err(_) => record(What::Selected(selection), PurgeMode::Hard),
    }
}

/// Puts a purge that has taken effect here on its way to the others.
pub(in crate::cache) fn post(shared: &Shared, record: &PurgeRecord) -> Option<Posted> {
    let posted = shared.cache.fleet_log()?.post(record);
    shared.cache.epochs().is_posted(record.id, posted);
    Some(posted)
}

/// The client of an unsafe request waits until the log has what it has invalidated, but not for long, and not for the others.
pub(in crate::cache) async fn tell_briefly(shared: &Arc<Shared>) {
    if let Some(log) = shared.cache.fleet_log() {
        // What is not written in time is written by whoever waits for it always.
        let _ = tokio::time::timeout(TELL_WAIT_MAX, log.send()).await;
    }
}

/// How long the client of an unsafe request waits.
const TELL_WAIT_MAX: Duration = Duration::from_millis(20);
