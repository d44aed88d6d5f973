//! Takes stored responses out of use after unsafe requests (RFC 9111 section 4.4, RFC 9875).

use std::collections::BTreeSet;

use caching::groups::Groups;
use caching::invalidation::{SameOrigin, invalidated};
use caching::{FieldLine, GroupsInvalidated, fields, groups};

use crate::cache::Cache;
use crate::cache::inflight::table::Waiter;
use crate::cache::key::key_of;
use crate::cache::purge::{heard, invalidate_key};
use crate::cache::record::inputs::Inputs;
use crate::cache::record::stored::StoredHead;
use crate::cache::tiers::load::Asker;
use crate::config::StoreIndex;
use crate::plan::Plan;
use crate::upstream::OriginResponse;
use crate::worker::Worker;

/// Invalidates what an unsafe request has changed, as far as its response tells. `spared` is the forward of the request itself,
/// whose response is newer than what it invalidates.
//= RFC 9111 section 4.4: invalidating stored responses
pub(crate) async fn apply(worker: &Worker, plan: &Plan, response: &OriginResponse, spared: Option<&Waiter>) {
    let method = plan.facts.method;
    let lines = response.fields.to_lines();
    let (status, target) = (response.status.as_u16(), plan.request.target());
    let mut changed = BTreeSet::new();
    for uri in invalidated(method, status, &target, &lines) {
        invalidate_uri((worker, plan), &uri, spared, &mut changed).await;
    }
    //= RFC 9875 section 3: invalidation of the listed groups
    let groups_max = plan.live.config.store(&plan.site.config).groups_max;
    let groups = groups::invalidated(method, status, &lines, groups_max);
    invalidate_groups(worker, plan, &groups, &mut changed);
    let named = match &groups {
        Groups::Named(names) => names.len(),
        Groups::TooMany => groups_max,
    };
    (0..named).for_each(|_| worker.recorder.invalidation("group"));
    let changed: Vec<_> = changed.into_iter().map(|index| worker.shared.stores.at(index)).collect();
    heard::tell_briefly(&changed).await;
}

/// Takes the responses of groups out of use, here and elsewhere.
fn invalidate_groups(worker: &Worker, plan: &Plan, groups: &Groups, changed: &mut BTreeSet<StoreIndex>) {
    let tags = match groups {
        Groups::Named(names) if names.is_empty() => return,
        Groups::Named(names) => names.clone(),
        // The whole origin has them.
        Groups::TooMany => Vec::new(),
    };
    let request = plan.request();
    let record = heard::of_origin(tags, request.scheme, &request.authority);
    for index in plan.live.routes.stores_of_host(&request.authority) {
        let cache = &worker.shared.stores.at(index).cache;
        cache.invalidate_groups(groups, &plan.request.target(), Some(record.id));
        heard::post(cache, &record);
        changed.insert(index);
    }
}

/// Whatever lies under the URI, by the site and the rule that a GET for it would have.
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
async fn invalidate_uri(
    (worker, plan): (&Worker, &Plan),
    uri: &SameOrigin,
    spared: Option<&Waiter>,
    changed: &mut BTreeSet<StoreIndex>,
) {
    let request = plan.request();
    let mut path_and_query = uri.path.clone();
    if let Some(query) = &uri.query {
        path_and_query.push(b'?');
        path_and_query.extend_from_slice(query);
    }
    let Ok(path_and_query) = String::from_utf8(path_and_query) else { return };
    let path = path_and_query.split_once('?').map_or(path_and_query.as_str(), |(path, _)| path);
    let Some(site) = plan.live.routes.site(&request.authority, path) else { return };
    let key = key_of(site, request.scheme, &request.authority, &path_and_query);
    let cache = worker.cache(site);
    if plan.site.rule_at(plan.rule).caching.groups_invalidated == GroupsInvalidated::Shared {
        // Who else is in its groups, only what is stored tells.
        let rule = site.rule_at(site.rule("GET", &path_and_query));
        let groups_max = plan.live.config.store(&site.config).groups_max;
        let _loaded = cache.load(&key, Asker { rule, groups_max, site_key: None }).await;
        for groups in shared_groups(cache, &key, groups_max) {
            invalidate_groups(worker, plan, &groups, changed);
        }
    }
    let record = heard::of_url(request.scheme, &request.authority, &path_and_query);
    invalidate_key(cache, &key, record.id, spared);
    heard::post(cache, &record);
    changed.insert(site.config.store);
    worker.recorder.invalidation("url");
}

//= RFC 9875 section 2.2.1: invalidation of a group
//= RFC 9875 section 2.2.1: no cascade
fn shared_groups(cache: &Cache, key: &[u8], groups_max: usize) -> Vec<Groups> {
    let Some(entry) = cache.look_up(key) else { return Vec::new() };
    let groups = entry.variants().iter().map(|variant| groups_of(&variant.head, groups_max));
    // One that belongs to too many is in none that could be named.
    groups.filter(|groups| matches!(groups, Groups::Named(_))).collect()
}

/// The groups that a stored response says it belongs to, by the lines that others judge it by.
fn groups_of(head: &StoredHead, max: usize) -> Groups {
    let judged: Vec<FieldLine<'_>> = head.inputs().into_iter().flat_map(Inputs::judged).collect();
    match fields::contains(&judged, "cache-groups") {
        true => groups::of_response(&judged, max),
        false => groups::of_response(&head.fields.to_lines(), max),
    }
}
