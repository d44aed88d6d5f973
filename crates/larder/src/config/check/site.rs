//! Sites.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use caching::tags::{TagField, TagRules};
use caching::unkeyed::{FieldClass, class_of};
use caching::{Profile, hop_by_hop, target};
use gateway::config::{ClientRules, Collapse, InterimResponses, PathSpellings, Site, Spelling, TraceFields};
use http::HeaderName;

use super::answer::{cors, error_pages, maintenance};
use super::compression::Offer;
use super::names::{doubled, field_name, host_pattern, name};
use super::origin::Origins;
use super::protection;
use super::rule::{self, check_escapes, rules};
use super::scope::Scope;
use super::server::{has_gateway, networks};
use super::stores::Stores;
use super::transform::transforms;
use crate::config::locate::Place;
use crate::config::tree::{Node, Table};

pub(super) fn sites(
    scope: &mut Scope<'_>,
    (tree, stores): (&Table, &Stores<'_>),
    origins: &Origins,
    log_level: tracing::Level,
) -> Vec<Arc<Site>> {
    if tree.list("site").is_empty() && !tree.is_wrong("site") && has_gateway(tree) {
        scope.problems.error(&tree.place, "site", "missing; expected at least one `[[site]]`, or `[kv]`");
    }
    // Names are part of cache keys: two sites with one name would share stored responses.
    for (node, first) in doubled(tree.nodes("site.name")) {
        let first = scope.sources.describe(first);
        scope.error(node, format!("`{}` is the name of an earlier site: {first}", node.as_text()));
    }
    check_coverage(scope, tree);
    let process = OfProcess {
        log_level,
        stores,
        profile: tree.text("profile").and_then(Profile::from_name).unwrap_or_default(),
        trace_fields: tree.optional_table("tracing").map_or(TraceFields::Forwarded, |_| TraceFields::Written),
    };
    let site = |table| site(scope, table, origins, &process).map(Arc::new);
    tree.tables("site").filter_map(site).collect()
}

/// Settings that sites inherit from the process.
struct OfProcess<'a> {
    log_level: tracing::Level,
    stores: &'a Stores<'a>,
    profile: Profile,
    trace_fields: TraceFields,
}

fn site(scope: &mut Scope<'_>, table: &Table, origins: &Origins, process: &OfProcess<'_>) -> Option<Site> {
    let name = scope.parsed(table, "name", name);
    let path_prefix = scope.parsed(table, "path_prefix", path_prefix);
    table.node("path_prefix").into_iter().for_each(|node| check_escapes(scope, node));
    let origin = origins.resolve(scope, table);
    let (store, store_table) = process.stores.of_site(scope, table);
    let offer = Offer::of_site(scope, table);
    let tags: Vec<_> =
        table.list("tags").iter().filter_map(|node| TagField::from_name(node.as_text())).collect();
    let mut response_fields_hidden = field_names(scope, table, "response_fields_hidden");
    if !table.flag("tags_delivered") {
        response_fields_hidden.extend(tags.iter().map(|field| HeaderName::from_static(field.name())));
    }
    check_fields(scope, table);
    Some(Site {
        hosts: scope.parsed_list(table, "hosts", host_pattern),
        spelling: spelling(table),
        clients: ClientRules {
            allowed: networks(scope, table, "clients_allowed"),
            denied: networks(scope, table, "clients_denied"),
        },
        protection: protection::of_site(scope, table),
        prefix: table.get("strip_prefix"),
        store,
        rules: rules(scope, (table, store_table), process.profile, &offer),
        profile: process.profile,
        collapse: collapse(table),
        timeouts: table.get("timeouts"),
        request_fields_hidden: field_names(scope, table, "request_fields_hidden"),
        request_fields_forwarded: field_names(scope, table, "request_fields_forwarded"),
        request_fields_keyed: field_names(scope, table, "request_fields_keyed"),
        underscore_fields: table.get("underscore_fields"),
        tags: TagRules { fields: tags, tags_max: store_table.get("tags_max") },
        response_fields_hidden,
        expose_errors: table.get("expose_errors"),
        log_level: table.get::<Option<_>>("log_level").unwrap_or(process.log_level),
        x_cache: table.get("x_cache"),
        interim_responses: table
            .written("interim_responses")
            .unwrap_or_else(|| InterimResponses::for_profile(process.profile)),
        server_timing: table.get("server_timing"),
        trace_fields: process.trace_fields,
        transforms: transforms(scope, table),
        cors: cors(scope, table),
        maintenance: maintenance(scope, table),
        error_pages: error_pages(scope, table),
        compression: offer.site(),
        // Last, because nothing is checked after a missing part.
        name: name?,
        path_prefix: path_prefix?,
        origin: origin?,
    })
}

/// Returns the spellings of its prefix that a site matches: a different case must not evade a restriction of the site or of one of its
/// rules.
fn spelling(site: &Table) -> Spelling {
    let has_list = ["clients_allowed", "clients_denied"].iter().any(|key| !site.list(key).is_empty());
    let has_limit = ["rate_limit", "request_body_bytes_max"].iter().any(|key| site.node(key).is_some());
    let has_rule = || site.tables("rule").any(|rule| rule::spelling(rule) == Spelling::Lenient);
    if has_list || has_limit || has_rule() { Spelling::Lenient } else { Spelling::AsWritten }
}

fn collapse(table: &Table) -> Collapse {
    let limits = table.get("collapse_limits");
    match table.text("collapse") {
        Some("off") => Collapse::Off,
        Some("process") => Collapse::Process(limits),
        _ => Collapse::Fleet(limits),
    }
}

fn field_names(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<HeaderName> {
    scope.parsed_list(table, key, field_name)
}

/// Reports contradictions.
fn check_fields(scope: &mut Scope<'_>, table: &Table) {
    let forwarded = table.list("request_fields_forwarded");
    let hidden = table.list("request_fields_hidden");
    let has = |list: &[Node], node: &Node| {
        list.iter().any(|other| other.as_text().eq_ignore_ascii_case(node.as_text()))
    };
    for node in hidden.iter().filter(|node| has(forwarded, node)) {
        scope.error(node, "also listed in `request_fields_forwarded`");
    }
    warn_of_written(scope, hidden);
    for node in forwarded.iter().filter(|node| ends_here(node.as_text())) {
        scope.warning(node, "is never forwarded: it ends at Larder");
    }
    let unseen = table.list("response_fields_hidden");
    for node in table.nodes("rule.store_only_with") {
        if has(unseen, node) {
            scope.error(node, "also listed in `response_fields_hidden`, so that no 304 would have it: remove it in a transformation rule of the phase `client_response`");
        }
    }
    for node in table.list("request_fields_keyed") {
        if has(hidden, node) {
            scope.error(node, "also listed in `request_fields_hidden`: a field that the origin does not get can't be part of the key");
        }
        let is_client_s = matches!(
            class_of(node.as_text()),
            FieldClass::Ordinary | FieldClass::Override | FieldClass::Method
        );
        if !is_client_s || is_own(node.as_text()) {
            scope.error(node, "is not forwarded as the client sent it, so it can't be part of the key");
        }
    }
}

/// Warns if the origin still gets a hidden field, or the client's address in another field.
fn warn_of_written(scope: &mut Scope<'_>, hidden: &[Node]) {
    const HOPS: [&str; 2] = ["Forwarded", "X-Forwarded-For"];
    let is = |node: &Node, name: &str| node.as_text().eq_ignore_ascii_case(name);
    for node in hidden {
        if ["via", "cdn-loop"].iter().any(|own| is(node, own))
            || hop_by_hop::is_written_by_sender(node.as_text())
        {
            scope.warning(
                node,
                "only removes the field that clients send: Larder writes this field in each request to the origin",
            );
        }
        for (name, other) in [(HOPS[0], HOPS[1]), (HOPS[1], HOPS[0])] {
            if is(node, name) && !hidden.iter().any(|node| is(node, other)) {
                scope.warning(
                    node,
                    format!("the origin still gets the client's address in `{other}`: list it too"),
                );
            }
        }
    }
}

/// Returns whether no part of a field from a client or trusted proxy reaches the origin.
fn ends_here(name: &str) -> bool {
    hop_by_hop::ends_here(name) || class_of(name) == FieldClass::Never
}

/// Returns whether a field belongs to the connection or to framing, and therefore ends at the gateway.
fn is_own(name: &str) -> bool {
    hop_by_hop::ends_here(name)
        || hop_by_hop::is_written_by_sender(name)
        || ["expect", "via"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Reports two sites with the same host and prefix: the second would never get a request.
fn check_coverage(scope: &mut Scope<'_>, tree: &Table) {
    let mut seen: HashMap<(String, String), &Place> = HashMap::new();
    for table in tree.tables("site") {
        let Some(prefix) = table.text("path_prefix").and_then(|text| path_prefix(text).ok()) else {
            continue;
        };
        let any_host = table.list("hosts").is_empty().then_some((ANY_HOST, &table.place));
        let hosts = table.list("hosts").iter().map(|node| (node.as_text(), &node.place));
        for (host, place) in hosts.chain(any_host) {
            match seen.entry((host.to_ascii_lowercase(), prefix.clone())) {
                Entry::Occupied(earlier) => {
                    let (host, prefix) = earlier.key();
                    let first = scope.sources.describe(earlier.get());
                    let message = match (host.as_str(), prefix.as_str()) {
                        (ANY_HOST, "/") => format!(
                            "the site at {first} matches every host and path: give this one `hosts` or a `path_prefix`"
                        ),
                        _ => format!("{host} with prefix `{prefix}` belongs to an earlier site: {first}"),
                    };
                    scope.problems.error(place, &format!("{}.hosts", table.path), message);
                }
                Entry::Vacant(free) => _ = free.insert(place),
            }
        }
    }
}

/// Returns a path prefix without its final `/`.
fn path_prefix(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("must start with `/`".to_owned());
    }
    if text.contains(['?', '#', '*']) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("expected a path in visible ASCII without `?`, `#` and `*`".to_owned());
    }
    let prefix = text.trim_end_matches('/');
    let prefix = target::normal_form(prefix).unwrap_or_else(|| prefix.to_owned());
    if gateway::path_spellings(&prefix) != PathSpellings::default() {
        return Err("origins read such paths in several ways, so requests for them get 400".to_owned());
    }
    Ok(if prefix.is_empty() { "/".to_owned() } else { prefix })
}

const ANY_HOST: &str = "every host";
