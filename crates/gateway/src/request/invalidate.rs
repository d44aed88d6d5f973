//! Invalidates stored responses after unsafe requests (RFC 9111 section 4.4, RFC 9875).

use std::collections::BTreeSet;
use std::sync::Arc;

use cache::Cache;
use cache::collapse::table::Waiter;
use cache::entry::provenance::Provenance;
use cache::entry::stored::StoredHead;
use caching::groups::Groups;
use caching::invalidation::{SameOrigin, Target, invalidated};
use caching::{FieldLine, GroupsInvalidated, fields, groups, target};
use fleet::tier::load::Asker;
use futures_util::future::join_all;
use message::client::address_of;
use message::head::RequestHead;
use origin::OriginResponse;

use crate::config::{Phase, StoreIndex, path_of};
use crate::purge::{asked_as, heard, invalidate_keys};
use crate::request::plan::Plan;
use crate::rewrite::shape::{self, Shape};
use crate::routing::LiveSite;
use crate::routing::key_of;

/// Invalidates stored responses that an unsafe request may have changed, according to its response. `spared` is the forward of the
/// request itself, whose response is newer than the invalidation.
//= RFC 9111 section 4.4: invalidating stored responses
pub(crate) async fn apply(plan: &Plan, response: &OriginResponse, spared: Option<&Waiter>) {
    let method = plan.facts.method;
    let lines = response.fields.to_lines();
    let status = response.status.as_u16();
    let mut changed = BTreeSet::new();
    for (site, path_and_query) in places(plan, status, &lines) {
        invalidate_place(plan, (&site, &path_and_query), spared, &mut changed).await;
    }
    //= RFC 9875 section 3: invalidation of the listed groups
    let groups_max = plan.live.config.store(&plan.site.config).groups_max;
    let groups = groups::invalidated(method, status, &lines, groups_max);
    invalidate_groups(plan, &groups, &mut changed);
    let named = match &groups {
        Groups::Named(names) => names.len(),
        Groups::TooMany => groups_max,
    };
    (0..named).for_each(|_| plan.worker.recorder.invalidation("group"));
    let changed: Vec<_> = changed.into_iter().map(|index| plan.worker.shared.stores.at(index)).collect();
    heard::tell_briefly(&changed).await;
}

/// Invalidates the responses of groups, on this instance and on others.
fn invalidate_groups(plan: &Plan, groups: &Groups, changed: &mut BTreeSet<StoreIndex>) {
    let tags = match groups {
        Groups::Named(names) if names.is_empty() => return,
        Groups::Named(names) => names.clone(),
        // Without names, the invalidation covers all responses of the host.
        Groups::TooMany => Vec::new(),
    };
    let request = plan.request();
    let record = heard::of_host(tags, &request.authority);
    for index in plan.live.routes.stores_of_host(&request.authority) {
        let store = plan.worker.shared.stores.at(index);
        heard::in_turn(store, &record, || {
            store.cache.invalidations.invalidate(groups, &plan.request.target(), Some(record.id));
        });
        changed.insert(index);
    }
}

/// Returns the sites to which an invalidation applies, each with the path and query of its cache keys.
///
/// The response contains URLs as clients request them, but responses to rewritten URLs are stored under the new URLs. An origin may
/// also write URLs in the rewritten form, so both forms are invalidated.
fn places(plan: &Plan, status: u16, lines: &[FieldLine<'_>]) -> Vec<(Arc<LiveSite>, String)> {
    let mut places = Vec::new();
    let mut add = |(site, place): (&Arc<LiveSite>, String)| {
        let is_known = |(other, known): &(_, String)| Arc::ptr_eq(other, site) && *known == place;
        if !places.iter().any(is_known) {
            places.push((Arc::clone(site), place));
        }
    };
    let site_of = |place: &str| plan.live.routes.site(&plan.request.authority, path_of(place));
    let as_forwarded = named(plan, plan.request.target(), status, lines);
    let as_sent = plan.asked.as_ref().map(|asked| named(plan, asked.target(), status, lines));
    for place in as_sent.as_ref().unwrap_or(&as_forwarded) {
        let site = site_of(place).filter(|site| !site.transforms(Phase::ClientRequest).is_empty());
        site.map(|site| (site, rewritten(plan, site, place))).into_iter().for_each(&mut add);
    }
    // The path after rewriting may belong to another site or to no site, so the site of the request is included, too.
    let own = plan.asked.is_some().then_some(&plan.site);
    for place in as_forwarded {
        site_of(&place).into_iter().chain(own).for_each(|site| add((site, place.clone())));
    }
    places
}

fn named(plan: &Plan, target: Target<'_>, status: u16, lines: &[FieldLine<'_>]) -> Vec<String> {
    let uris = invalidated(plan.facts.method, status, &target, lines).into_iter();
    uris.filter_map(|SameOrigin { path, query }| {
        let query = query.map(|query| [b"?", &query[..]].concat()).unwrap_or_default();
        let named = String::from_utf8([path, query].concat()).ok()?;
        Some(target::normal_form(&named).unwrap_or(named))
    })
    .collect()
}

/// Returns the path and query of a GET by this client after the rules of a site.
fn rewritten(plan: &Plan, site: &LiveSite, path_and_query: &str) -> String {
    let lines = plan.asked().fields.to_lines();
    let asked = plan.asked().borrow(&lines);
    let client = address_of(&asked, &plan.live.config.trusted_proxies);
    let request = RequestHead { method: "GET", path_and_query, ..asked };
    let rules = site.transforms(Phase::ClientRequest);
    let matching = shape::matching_client(rules, &request, client);
    match shape::shape(rules, &matching, &request, client) {
        Ok(Shape::Request(shaped)) => shaped.path_and_query,
        _ => path_and_query.to_owned(),
    }
}

/// Invalidates all responses for a path and query of a site, by the rule for a GET.
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
async fn invalidate_place(
    plan: &Plan,
    (site, path_and_query): (&LiveSite, &str),
    spared: Option<&Waiter>,
    changed: &mut BTreeSet<StoreIndex>,
) {
    let request = plan.request();
    let asked = asked_as(request.scheme, &request.authority, &plan.live.config);
    let keys: Vec<_> =
        asked.iter().map(|(scheme, authority)| key_of(site, *scheme, authority, path_and_query)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let store = plan.worker.store(site);
    let cache = &store.cache;
    if plan.rule().caching.groups_invalidated == GroupsInvalidated::Shared {
        // Only a stored response contains the groups to which it belongs.
        let rule = site.rule_at(site.rule("GET", path_and_query));
        let rules = plan.live.config.storage_rules(&site.config, rule);
        let groups_max = rules.groups_max;
        // The loaded entries are held during the look-ups, because memory may not keep them.
        let _loaded = match &store.tier {
            Some(tier) => {
                join_all(keys.iter().map(|key| tier.load(key, Asker { rules, site_key: None }))).await
            }
            None => Vec::new(),
        };
        for groups in keys.iter().flat_map(|key| shared_groups(cache, key, groups_max)) {
            invalidate_groups(plan, &groups, changed);
        }
    }
    let record = heard::of_url(request.scheme, &request.authority, path_and_query);
    heard::in_turn(store, &record, || invalidate_keys(cache, &keys, record.id, spared));
    changed.insert(site.config.store);
    plan.worker.recorder.invalidation("url");
}

//= RFC 9875 section 2.2.1: invalidation of a group
//= RFC 9875 section 2.2.1: no cascade
fn shared_groups(cache: &Cache, key: &[u8], groups_max: usize) -> Vec<Groups> {
    let Some(entry) = cache.look_up(key) else { return Vec::new() };
    let groups = entry.variants().iter().map(|variant| groups_of(&variant.head, groups_max));
    // If a response belongs to too many groups, its list of groups isn't used.
    groups.filter(|groups| matches!(groups, Groups::Named(_))).collect()
}

/// Returns the groups of a stored response, from the same field lines that other instances use.
fn groups_of(head: &StoredHead, max: usize) -> Groups {
    let judged: Vec<FieldLine<'_>> = head.inputs().into_iter().flat_map(Provenance::judged).collect();
    match fields::contains(&judged, "cache-groups") {
        true => groups::of_response(&judged, max),
        false => groups::of_response(&head.fields.to_lines(), max),
    }
}
