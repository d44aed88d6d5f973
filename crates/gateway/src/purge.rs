//! Purges stored responses for operators.
//!
//! A purge is a record in the log. Only the purge of a URL changes entries immediately; other purges take effect when a look-up finds a
//! response. A purge also applies to fetches in progress: their responses are delivered, but not reused.

mod count;
pub(crate) mod heard;
mod order;
mod url;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, Method};
use serde::Serialize;
use store::Change;
use store::backing::LogCursor;
use store::purge::{PurgeEffect, PurgeId, PurgeMode, PurgeRecord, PurgeTarget, Selection};
use telemetry::PurgeAnswer;
use tokio::sync::oneshot;

pub use self::heard::{InstanceReach, PurgeReach, RegionReach};
pub use self::order::{PurgeError, PurgeHints, PurgeOrder, PurgeWait, SiteUrls};

use self::order::{Miss, miss, sites, warnings, what_of};
pub(crate) use self::url::asked_as;
use message::head::Scheme;

use self::url::split_url;
use crate::active::ActiveConfig;
use crate::config::{Site, StoreIndex};
use crate::question::{ExplainJob, Question};
use crate::routing::key_of;
use crate::stores::{Store, Stores};
use crate::worker::Shared;
use cache::Cache;
use cache::collapse::table::Waiter;
use fleet::tier::load::Asker;
use message::clock::now;

/// Outcome of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeOutcome {
    /// Cache keys with a stored response or a fetch in progress.
    pub keys_matched: usize,
    /// Stored responses, including all variants, that were removed or made stale.
    pub responses_purged: usize,
    /// Forwards in progress that new requests no longer join, or whose responses won't be stored.
    pub fills_doomed: usize,
    /// Fetches started to refresh purged responses.
    #[serde(skip_serializing_if = "is_zero")]
    pub refreshes: usize,
    /// Whether keys and responses aren't counted, because the purge takes effect only when a look-up finds them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// Whether the count is incomplete, because memory holds more entries than were examined.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether this was a dry run: the numbers are for a purge that hasn't been carried out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether the purge may also affect responses that aren't counted: responses whose cache keys contain request content or fields,
    /// because no list of these keys exists.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keyed_uncounted: bool,
    /// Main selector of the purge: `url`, `tag`, ...
    #[serde(skip_serializing_if = "str::is_empty")]
    pub form: &'static str,
    /// Reach of the purge among the instances that share a tier; `None` without a tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<PurgeReach>,
    /// Identifier of the purge; `None` if nothing was purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Warnings for the operator, for example that nothing can match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Hints for the operator, if no response matched, or no site serves the host.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub hints: Option<PurgeHints>,
}

impl PurgeOutcome {
    /// Adds the outcome of another key or store.
    fn and(self, other: &Self) -> Self {
        Self {
            keys_matched: self.keys_matched + other.keys_matched,
            responses_purged: self.responses_purged + other.responses_purged,
            fills_doomed: self.fills_doomed + other.fills_doomed,
            cut: self.cut || other.cut,
            keyed_uncounted: self.keyed_uncounted || other.keyed_uncounted,
            ..self
        }
    }

    /// Logs the purge and its client for operators.
    pub fn log(&self, order: &PurgeOrder, client: IpAddr) {
        // Queries may contain secrets, and this log has no redaction.
        let url = order.url.as_deref().map(|url| match url.split_once('?') {
            Some((url, _)) => format!("{url}?..."),
            None => url.to_owned(),
        });
        let Self { keys_matched, responses_purged, fills_doomed, id, .. } = self;
        tracing::info!(
            %client,
            url,
            tags = ?order.tags,
            site = order.site,
            host = order.host,
            prefix = order.prefix,
            everything = order.everything,
            mode = order.mode.as_str(),
            id,
            keys_matched,
            responses_purged,
            fills_doomed,
            "purged"
        );
    }

    /// Values for metrics.
    pub fn counted(&self, mode: PurgeMode, took: Duration) -> PurgeAnswer {
        let is_complete = self.fleet.as_ref().is_none_or(|fleet| fleet.complete);
        PurgeAnswer {
            form: self.form,
            mode: mode.as_str(),
            reach: if is_complete { "complete" } else { "partial" },
            duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Carries out a purge order in memory and in the tiers behind it, or counts the responses that it would remove.
pub(crate) async fn purge(shared: &Shared, order: &PurgeOrder) -> Result<PurgeOutcome, PurgeError> {
    let live = shared.live.load_full();
    let what = what_of(order, &live)?;
    let form = what.form();
    let warnings = warnings(&what, &live);
    if let PurgeTarget::Url(url) = &what {
        let outcome = OfUrl { shared, live: &live, url, order }.purge().await?;
        return Ok(PurgeOutcome { form, dry_run: order.dry_run, warnings, ..outcome });
    }
    let stores = concerned(&shared.stores, &live, &of_sites(&live, &what));
    let Miss { warnings: missed, hints } = miss(order, &what, &live);
    let warnings = warnings.into_iter().chain(missed).collect();
    let outcome = match order.dry_run {
        true => count_selected(&stores, &what).await,
        false => purge_selected(&stores, what, order).await,
    };
    Ok(PurgeOutcome { form, dry_run: order.dry_run, warnings, hints, ..outcome })
}

/// Returns the stores to which a purge applies, given the stores of its sites. If the purge matches no site, returns all stores,
/// because a matching site may have used any of them before a reload. For the same reason, always includes stores that no site uses,
/// and stores whose sites a reload has changed. Other stores and their servers aren't contacted.
fn concerned<'a>(stores: &'a Stores, live: &ActiveConfig, of_sites: &BTreeSet<StoreIndex>) -> Vec<&'a Store> {
    let is_concerned = |index: &StoreIndex| {
        of_sites.is_empty() || of_sites.contains(index) || live.routes.may_hold_more(*index)
    };
    stores.indices().filter(is_concerned).map(|index| stores.at(index)).collect()
}

/// Returns the stores of the sites that a purge applies to.
fn of_sites(live: &ActiveConfig, what: &PurgeTarget) -> BTreeSet<StoreIndex> {
    match what {
        PurgeTarget::Selected(Selection { site: Some(name), .. }) => {
            let sites = live.config.sites.iter().filter(|site| site.name == *name);
            sites.map(|site| site.store).collect()
        }
        PurgeTarget::Selected(Selection { host: Some(host), .. }) => live.routes.stores_of_host(host),
        PurgeTarget::Selected(_) => live.config.sites.iter().map(|site| site.store).collect(),
        PurgeTarget::Url(_) | PurgeTarget::Everything => BTreeSet::new(),
    }
}

/// Purges a selection. The cost doesn't depend on the number of stored responses.
async fn purge_selected(stores: &[&Store], what: PurgeTarget, order: &PurgeOrder) -> PurgeOutcome {
    let is_counted =
        stores.iter().all(|Store { cache, tier, .. }| tier.is_none() && cache.invalidations.lacks(&what));
    let record = record(what, order.mode);
    let doomed = stores.iter().map(|Store { cache, .. }| {
        let kept = cache.invalidations.purge(record.clone(), &[]);
        cache.fetches.purge(|key, head| count::doom(&kept.reach, key, head))
    });
    let fills_doomed = doomed.sum();
    let said = heard::said(stores).await;
    let fleet = heard::tell(stores, &said, (&record, order.wait)).await;
    let id = Some(record.id.to_string());
    PurgeOutcome { id, fills_doomed, fleet, uncounted: !is_counted, ..PurgeOutcome::default() }
}

async fn count_selected(stores: &[&Store], what: &PurgeTarget) -> PurgeOutcome {
    let mut outcome = PurgeOutcome::default();
    for Store { cache, .. } in stores {
        let reach = cache.invalidations.reach(what, &[]);
        outcome.fills_doomed += cache.fetches.count(|key, head| count::doom(&reach, key, head));
        outcome = outcome.and(&count::count(cache, &reach).await);
    }
    outcome
}

fn record(what: PurgeTarget, mode: PurgeMode) -> PurgeRecord {
    PurgeRecord { id: PurgeId::next(), at_ms: u64::try_from(now().as_ms()).unwrap_or(0), mode, what }
}

/// Purge of a URL with all its variants.
struct OfUrl<'a> {
    shared: &'a Shared,
    live: &'a ActiveConfig,
    url: &'a str,
    order: &'a PurgeOrder,
}

impl OfUrl<'_> {
    async fn purge(&self) -> Result<PurgeOutcome, PurgeError> {
        let Self { shared, live, url, order } = *self;
        let invalid = || PurgeError::UrlInvalid { url: url.to_owned() };
        let (scheme, authority, path_and_query) = split_url(url).ok_or_else(invalid)?;
        let places = self.places(scheme, authority, &path_and_query);
        if places.is_empty() {
            return Err(PurgeError::SiteUnknown { sites: sites(live) });
        }
        // A response has to be loaded before it can be made stale and counted.
        let loads = join_all(places.iter().map(UrlLocation::load));
        let outcome = if order.dry_run {
            loads.await;
            self.count(&places)
        } else {
            let of_sites = places.iter().map(|place| place.site.store).collect();
            let stores = concerned(&shared.stores, live, &of_sites);
            // The loads and the query for positions run concurrently, because round trips to the store may be slow.
            let (_loaded, said) = tokio::join!(loads, heard::said(&stores));
            self.apply(&stores, &said, &places).await
        };
        join_all(places.iter().map(UrlLocation::written)).await;
        let hints = (outcome.keys_matched == 0).then(|| PurgeHints { sites: sites(live) });
        Ok(PurgeOutcome { hints, ..outcome })
    }

    fn places(&self, scheme: Scheme, authority: &str, path_and_query: &str) -> Vec<UrlLocation<'_>> {
        let routes = &self.live.routes;
        let own = routes.site(authority, path_and_query);
        let sites = routes.sites_storing(authority, path_and_query);
        let asked = asked_as(scheme, authority, &self.live.config);
        let mut places = Vec::with_capacity(sites.len() * asked.len());
        for site in sites {
            places.extend(asked.iter().map(|(scheme, authority)| {
                UrlLocation {
                    site: &site.config,
                    store: self.shared.stores.of(&site.config),
                    key: key_of(site, *scheme, authority, path_and_query),
                    url: format!("{}://{authority}{path_and_query}", scheme.as_str()),
                    asker: Asker {
                        rules: self
                            .live
                            .config
                            .storage_rules(&site.config, site.rule_at(site.rule("GET", path_and_query))),
                        site_key: None,
                    },
                    is_own: own.is_some_and(|own| Arc::ptr_eq(own, site)),
                }
            }));
        }
        places
    }

    async fn apply(
        &self,
        stores: &[&Store],
        said: &[Vec<LogCursor>],
        places: &[UrlLocation<'_>],
    ) -> PurgeOutcome {
        let mode = self.order.mode;
        let record = record(PurgeTarget::Url(self.url.to_owned()), mode);
        let mut outcome = PurgeOutcome { id: Some(record.id.to_string()), ..PurgeOutcome::default() };
        let mut stale = Vec::new();
        for Store { cache, .. } in stores {
            let here = places.iter().filter(|place| ptr::eq(&place.store.cache, cache));
            let keys: Vec<&[u8]> = here.clone().map(|place| &place.key[..]).collect();
            // A store that lost its sites in a reload may have the response under any key of the URL.
            let any = [&places[0].key[..]];
            let kept = cache.invalidations.purge(record.clone(), if keys.is_empty() { &any } else { &keys });
            for place in here {
                let found = purge_key(cache, &place.key, mode, None);
                // Responses with a rewritten URL aren't refreshed, because clients request them under a different URL.
                stale.extend(Some(&place.url).filter(|_| place.is_own && found.responses_purged > 0));
                outcome = outcome.and(&found);
            }
            // Fetches under keys that contain the URL and more parts are doomed, too.
            outcome.fills_doomed += cache.fetches.purge(|key, head| count::doom(&kept.reach, key, head));
        }
        let fleet = heard::tell(stores, said, (&record, self.order.wait)).await;
        let refreshes = match mode {
            PurgeMode::Refresh => stale.into_iter().filter(|url| self.refresh(url)).count(),
            PurgeMode::Hard | PurgeMode::Soft => 0,
        };
        PurgeOutcome { fleet, refreshes, ..outcome }
    }

    fn count(&self, places: &[UrlLocation<'_>]) -> PurgeOutcome {
        let what = PurgeTarget::Url(self.url.to_owned());
        let count = |UrlLocation { store: Store { cache, .. }, key, .. }: &UrlLocation<'_>| {
            let reach = cache.invalidations.reach(&what, &[key]);
            let responses_purged = cache.look_up(key).map_or(0, |entry| entry.variants().len());
            let fills_doomed = cache.fetches.count(|key, head| count::doom(&reach, key, head));
            found((responses_purged, fills_doomed), cache)
        };
        places.iter().map(count).fold(PurgeOutcome::default(), |all, found| all.and(&found))
    }

    /// Queues a request for a URL, without fields, for a worker. Returns whether the request was queued. If it was not, the next
    /// request of a client refreshes the response.
    fn refresh(&self, url: &str) -> bool {
        let Ok(url) = url.parse() else { return false };
        let question = Question { method: Method::GET, url, fields: HeaderMap::new() };
        let job = ExplainJob { question, answer: oneshot::channel().0 };
        self.shared.explain_jobs.try_send(job).is_ok()
    }
}

/// Location under which a response for a URL may be stored.
struct UrlLocation<'a> {
    site: &'a Site,
    store: &'a Store,
    key: Vec<u8>,
    /// URL as requested by clients.
    url: String,
    asker: Asker<'a>,
    /// Whether a request for the URL belongs to this site without rewriting.
    is_own: bool,
}

impl UrlLocation<'_> {
    async fn load(&self) {
        if let Some(tier) = &self.store.tier {
            let _answer = tier.load(&self.key, self.asker).await;
        }
    }

    /// Waits for a short time until the changes are written to the tier behind memory.
    async fn written(&self) {
        if let Some(tier) = &self.store.tier {
            tier.written(&self.key).await;
        }
    }
}

/// Purges the entry under the key of a URL, and the fetches for it. `spared` is a forward that may still store its response.
pub(super) fn purge_key(cache: &Cache, key: &[u8], mode: PurgeMode, spared: Option<&Waiter>) -> PurgeOutcome {
    let mut responses_purged = 0;
    let fills_doomed = cache.invalidate(key, spared, |entry| {
        responses_purged = entry.variants().len();
        match mode {
            PurgeMode::Hard => Change::Remove,
            PurgeMode::Soft | PurgeMode::Refresh => {
                let (now, variants) = (now(), entry.variants().iter());
                entry.changed_to(cache.budget(), variants.map(|variant| variant.expired(now)).collect())
            }
        }
    });
    if mode == PurgeMode::Hard {
        cache.invalidations.key_is_removed(key);
    }
    found((responses_purged, fills_doomed), cache)
}

/// Outcome for one key, which counts as matched if it had a stored response or a fetch.
fn found((responses_purged, fills_doomed): (usize, usize), cache: &Cache) -> PurgeOutcome {
    let keyed_uncounted = cache.invalidations.watches_keys();
    let keys_matched = usize::from(responses_purged + fills_doomed > 0);
    PurgeOutcome { keys_matched, responses_purged, fills_doomed, keyed_uncounted, ..PurgeOutcome::default() }
}

/// Invalidates the keys of an unsafe request's URL. The first key is that of the request itself. The invalidation isn't an operator's
/// purge; other instances identify it by its id. The other keys seldom have stored responses, so the removal of a key is written to the
/// tier only if this instance knows the key. Otherwise, each unsafe request would write several times as much.
pub(super) fn invalidate_keys(cache: &Cache, keys: &[&[u8]], id: PurgeId, spared: Option<&Waiter>) {
    let Some((own, others)) = keys.split_first() else { return };
    cache.invalidations.invalidate_key(own, PurgeEffect::Hard, Some(id));
    for key in others {
        cache.invalidate_known(key, spared, |_| Change::Remove);
    }
    // The removal is recorded again, because all keys share one name.
    purge_key(cache, own, PurgeMode::Hard, spared);
}
