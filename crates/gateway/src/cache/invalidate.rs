//! Takes stored responses out of use after unsafe requests (RFC 9111 section 4.4, RFC 9875).

use caching::groups::Groups;
use caching::invalidation::{SameOrigin, invalidated};
use caching::{FieldLine, GroupsInvalidated, fields, groups};

use crate::cache::inflight::table::Waiter;
use crate::cache::key::key_of;
use crate::cache::purge::{heard, invalidate_key};
use crate::cache::record::inputs::Inputs;
use crate::cache::record::stored::StoredHead;
use crate::cache::tiers::load::Asker;
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
    for uri in invalidated(method, status, &target, &lines) {
        invalidate_uri(worker, plan, &uri, spared).await;
    }
    //= RFC 9875 section 3: invalidation of the listed groups
    let groups = groups::invalidated(method, status, &lines, plan.live.config.groups_max);
    invalidate_groups(worker, plan, &groups);
    let named = match &groups {
        Groups::Named(names) => names.len(),
        Groups::TooMany => plan.live.config.groups_max,
    };
    (0..named).for_each(|_| worker.recorder.invalidation("group"));
    heard::tell_briefly(&worker.shared).await;
}

/// Takes the responses of groups out of use, here and elsewhere.
fn invalidate_groups(worker: &Worker, plan: &Plan, groups: &Groups) {
    let cache = &worker.shared.cache;
    let tags = match groups {
        Groups::Named(names) if names.is_empty() => return,
        Groups::Named(names) => names.clone(),
        // The whole origin has them.
        Groups::TooMany => Vec::new(),
    };
    let request = plan.request();
    let record = heard::of_origin(tags, request.scheme, &request.authority);
    cache.invalidate_groups(groups, &plan.request.target(), Some(record.id));
    heard::post(&worker.shared, &record);
}

/// Whatever lies under the URI, by the site and the rule that a GET for it would have.
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
async fn invalidate_uri(worker: &Worker, plan: &Plan, uri: &SameOrigin, spared: Option<&Waiter>) {
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
    if plan.site.rule_at(plan.rule).caching.groups_invalidated == GroupsInvalidated::Shared {
        // Who else is in its groups, only what is stored tells.
        let rule = site.rule_at(site.rule("GET", &path_and_query));
        let asker = Asker { rule, groups_max: plan.live.config.groups_max, site_key: None };
        let _loaded = worker.shared.cache.load(&key, asker).await;
        invalidate_shared_groups(worker, plan, &key);
    }
    let record = heard::of_url(request.scheme, &request.authority, &path_and_query);
    invalidate_key(&worker.shared, &key, record.id, spared);
    heard::post(&worker.shared, &record);
    worker.recorder.invalidation("url");
}

//= RFC 9875 section 2.2.1: invalidation of a group
//= RFC 9875 section 2.2.1: no cascade
fn invalidate_shared_groups(worker: &Worker, plan: &Plan, key: &[u8]) {
    let Some(entry) = worker.shared.cache.look_up(key) else { return };
    for head in entry.variants().iter().map(|variant| &variant.head) {
        // One that belongs to too many is in none that could be named.
        if let groups @ Groups::Named(_) = groups_of(head, plan.live.config.groups_max) {
            invalidate_groups(worker, plan, &groups);
        }
    }
}

/// The groups that a stored response says it belongs to, by the lines that others judge it by.
fn groups_of(head: &StoredHead, max: usize) -> Groups {
    let judged: Vec<FieldLine<'_>> = head.inputs().into_iter().flat_map(Inputs::judged).collect();
    match fields::contains(&judged, "cache-groups") {
        true => groups::of_response(&judged, max),
        false => groups::of_response(&head.fields.to_lines(), max),
    }
}
