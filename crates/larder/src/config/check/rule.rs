//! Cache rules.

use std::time::Duration;

use caching::tags::TagRules;
use caching::{Codings, Heuristic, KeyRules, Profile, QueryParameters, Rules, StaleLimit, TtlTable, target};
use gateway::config::{
    CacheRule, CloseDelimited, MethodSet, OverrideFields, PathPattern, PathSpelling, PathSpellings,
    PreconditionMiss, SITE_POLICY, Spelling, codings_of,
};

use super::compression::Offer;
use super::expression::{self, Compared};
use super::names::{self, doubled, name};
use super::protection;
use super::reach::check_rules;
use super::scope::Scope;
use super::server::millis;
use crate::config::glob::{self, Wildcards};
use crate::config::setting::Setting;
use crate::config::status::status_match;
use crate::config::tree::{Node, Table, Value};

pub(super) fn rules(
    scope: &mut Scope<'_>,
    (site, store): (&Table, &Table),
    profile: Profile,
    offer: &Offer,
) -> Vec<CacheRule> {
    check_rules(scope, site);
    for (node, _) in doubled(site.nodes("rule.name")) {
        scope.error(node, format!("`{}` is the name of an earlier rule of this site", node.as_text()));
    }
    let mut rules = Vec::new();
    for (index, table) in site.tables("rule").enumerate() {
        check_policy(scope, site, table);
        check_effect(scope, table, store);
        let rule = rule(scope, (table, index + 1), profile, offer);
        if let Some(rule) = &rule {
            check_ahead(scope, table, &rule.methods);
        }
        rules.extend(rule);
    }
    rules
}

/// Refuses a rule named `default` if both the site and the rule have limits: clients tell limits apart by policy names, and the site's
/// policy is `default`.
fn check_policy(scope: &mut Scope<'_>, site: &Table, rule: &Table) {
    let has_limit = |table: &Table| table.optional_table("rate_limit").is_some();
    if rule.text("name") == Some(SITE_POLICY)
        && has_limit(site)
        && has_limit(rule)
        && let Some(node) = rule.node("name")
    {
        let message = "clients know the `rate_limit` of the site by this name: give the rule another one";
        scope.error(node, message);
    }
}

fn rule(
    scope: &mut Scope<'_>,
    (table, number): (&Table, usize),
    profile: Profile,
    offer: &Offer,
) -> Option<CacheRule> {
    let name = match table.node("name") {
        Some(_) => scope.parsed(table, "name", name),
        None => Some(format!("rule-{number}")),
    };
    let spelling = spelling(table);
    let spellings_allowed = spellings_allowed(table);
    check_spelling(scope, table, spellings_allowed);
    let path = pattern(scope, table, (spelling, Compared::PathAndQuery));
    let methods = methods(scope, table);
    // The number of a rule changes when another rule is inserted before it.
    let counted_as = match (&name, table.node("name")) {
        (Some(name), Some(_)) => name.clone(),
        _ => format!("{path:?} {methods:?}"),
    };
    Some(CacheRule {
        name: name?,
        path: path?,
        spelling,
        spellings_allowed,
        methods,
        query: query(scope, table),
        object_bytes_max: table.get("object_bytes_max"),
        query_content_bytes_max: table.get("query_content_bytes_max"),
        range_miss: table.get("store_parts"),
        precondition_miss: or_profile(table, "precondition_miss", PreconditionMiss::for_profile(profile)),
        override_fields: or_profile(table, "override_fields", OverrideFields::for_profile(profile)),
        close_delimited: or_profile(table, "close_delimited", CloseDelimited::for_profile(profile)),
        codings: codings(scope, table, profile),
        tags: TagRules::default(),
        imprint: None,
        compression: offer.rule(table),
        protection: protection::of_rule(scope, table, counted_as),
        caching: caching_rules(scope, table, profile),
    })
}

/// Returns the path spellings that a rule matches: a restriction must hold for every spelling that the origin may take
/// for the same path.
pub(super) fn spelling(rule: &Table) -> Spelling {
    let has_key = RESTRICTING_KEYS.iter().any(|key| rule.node(key).is_some());
    let tells_users = !rule.list("credential_fields").is_empty();
    let restricts =
        has_key || tells_users || takes_lifetimes(rule) || rule.flag("deny") || !rule.flag("cache");
    if restricts { Spelling::Lenient } else { Spelling::AsWritten }
}

fn spellings_allowed(rule: &Table) -> PathSpellings {
    let named =
        rule.list("spellings_allowed").iter().filter_map(|node| PathSpelling::from_name(node.as_text()));
    named.fold(PathSpellings::default(), PathSpellings::with)
}

/// Reports a rule for paths that are refused before rules are matched.
fn check_spelling(scope: &mut Scope<'_>, rule: &Table, allowed: PathSpellings) {
    let Some(table) = rule.optional_table("path") else { return };
    let texts = ["exact", "prefix"].into_iter().filter_map(|key| table.node(key));
    for node in texts.filter(|node| node.as_text().starts_with('/')) {
        let text = node.as_text();
        let spellings = gateway::path_spellings(target::normal_form(text).as_deref().unwrap_or(text));
        if !allowed.permit(spellings) {
            let names: Vec<_> = spellings.names().collect();
            let message = match names[..] {
                [name] => format!("such paths get 400: allow them with `spellings_allowed = [\"{name}\"]`"),
                _ => "such paths get 400: origins read them in several ways".to_owned(),
            };
            scope.warning(node, message);
        }
    }
}

/// Reports patterns that aren't in the normal form in which paths are compared.
fn check_form(scope: &mut Scope<'_>, table: &Table, spelling: Spelling) {
    for node in ["exact", "prefix", "glob", "regex"].into_iter().filter_map(|key| table.node(key)) {
        check_escapes(scope, node);
    }
    for node in ["glob", "regex"].into_iter().filter_map(|key| table.node(key)) {
        let text = node.as_text();
        let Some(normal) = target::normal_form(text) else { continue };
        if spelling == Spelling::AsWritten || !normal.eq_ignore_ascii_case(text) {
            let message =
                format!("paths are compared in normal form, which this may never match: write `{normal}`");
            scope.warning(node, message);
        }
    }
}

/// Reports escapes of characters that clients may also send literally: origins treat both alike, but the pattern
/// matches only one of them.
pub(super) fn check_escapes(scope: &mut Scope<'_>, node: &Node) {
    let text = node.as_text();
    let mut escapes =
        text.match_indices('%').filter_map(|(at, _)| Some((at, target::escape(text.as_bytes(), at)?)));
    let Some((at, byte)) = escapes.find(|(_, byte)| WRITTEN_BOTH_WAYS.contains(byte)) else { return };
    let (escape, character) = (&text[at..at + 3], char::from(byte));
    let message = format!(
        "paths with `{character}` in place of `{escape}` don't match: write `{character}`, which also matches `{escape}`"
    );
    scope.warning(node, message);
}

/// Characters that a path may contain literally, in addition to letters, digits and those that the normal form
/// decodes. Without `;`, which is refused in either form.
//= RFC 3986 section 3.3: characters of a path
const WRITTEN_BOTH_WAYS: &[u8] = b"!$&'()*+,=:@";

/// Returns whether the rule sets all lifetimes that it overrides to zero.
fn takes_lifetimes(rule: &Table) -> bool {
    let overrides = rule.map("ttl_override");
    let is_zero = |(_, node): &(String, Node)| matches!(node.value, Value::Duration(Duration::ZERO));
    !overrides.is_empty() && overrides.iter().all(is_zero)
}

/// Reads the pattern of a rule. Returns `None` if the pattern is wrong, and `Some(None)` if there is none.
pub(super) fn pattern(
    scope: &mut Scope<'_>,
    rule: &Table,
    (spelling, compared): (Spelling, Compared),
) -> Option<Option<PathPattern>> {
    let Some(table) = rule.optional_table("path") else { return Some(None) };
    let given: Vec<_> = table.section.options().filter_map(|option| table.node(option.key)).collect();
    if given.len() != 1 {
        let keys: Vec<_> = table.section.options().map(|option| format!("`{}`", option.key)).collect();
        let message = format!("expected exactly one of {}; found {} of them", keys.join(", "), given.len());
        scope.error_in(table, message);
        return None;
    }
    check_form(scope, table, spelling);
    let exact = scope.parsed(table, "exact", path).map(PathPattern::Exact);
    let prefix = scope.parsed(table, "prefix", path).map(PathPattern::Prefix);
    let glob = scope.parsed(table, "glob", |text| glob(text, spelling)).map(PathPattern::Glob);
    exact.or(prefix).or(glob).or_else(|| expression::pattern(scope, table, (spelling, compared))).map(Some)
}

/// Returns the path in normal form, as paths are compared.
pub(super) fn path(text: &str) -> Result<String, String> {
    match text {
        _ if !text.starts_with('/') => Err("must start with `/`".to_owned()),
        _ if text.contains(['?', '#']) => {
            Err("a path can't contain `?` or `#`; use `regex` to match the query".to_owned())
        }
        _ => Ok(target::normal_form_of_text(text)),
    }
}

fn glob(text: &str, spelling: Spelling) -> Result<globset::GlobMatcher, String> {
    if !text.starts_with(['/', '*', '{', '[', '?']) {
        return Err("can't match any path: every path starts with `/`".to_owned());
    }
    if text.starts_with(['*', '?']) && !text.starts_with("**") {
        let rest = text.trim_start_matches(['*', '?']);
        return Err(format!(
            "can't match any path: every path starts with `/`, which `*` and `?` don't match; did you mean `**/*{rest}`?"
        ));
    }
    if let Some(character) = text.chars().find(|character| !character.is_ascii_graphic()) {
        let written = target::normal_form_of_text(&character.to_string());
        return Err(format!("can't match: paths have `{written}` in place of {character:?}"));
    }
    let wildcards = match spelling {
        Spelling::AsWritten => Wildcards::InSegments,
        Spelling::Lenient => Wildcards::InSegmentsOfAnyCase,
    };
    glob::glob(text, wildcards)
}

pub(super) fn methods(scope: &mut Scope<'_>, table: &Table) -> MethodSet {
    let methods = scope.parsed_list(table, "methods", |text| {
        let known = http::Method::from_bytes(text.as_bytes())
            .map_err(|_| "expected a method, such as `GET`".to_owned())?;
        let upper = text.to_ascii_uppercase();
        match KNOWN_METHODS.contains(&upper.as_str()) && text != upper {
            true => Err(format!("methods are case-sensitive; did you mean `{upper}`?")),
            false => Ok(known.as_str().to_owned()),
        }
    });
    if methods.is_empty() { MethodSet::Any } else { MethodSet::Only(methods.into_iter().collect()) }
}

/// Reads the query parameters. Their names are compared in normal form, so they are written as they appear in URLs.
pub(super) fn query(scope: &mut Scope<'_>, table: &Table) -> KeyRules {
    let parameters = match (table.list("query_ignore"), table.node("query_keep")) {
        ([], None) => QueryParameters::All,
        ([], Some(_)) => QueryParameters::Keep(parameters(scope, table, "query_keep")),
        (_, None) => QueryParameters::Ignore(parameters(scope, table, "query_ignore")),
        (_, Some(keep)) => {
            scope.error(
                keep,
                "can't be combined with `query_ignore`: `query_keep` already drops all other parameters",
            );
            QueryParameters::All
        }
    };
    KeyRules { parameters, order: table.get("query_sort") }
}

fn parameters(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<Box<[u8]>> {
    scope.parsed_list(table, key, |text| match text.strip_suffix('*').unwrap_or(text) {
        name if name.contains(['*', '&', '=', '?', '#', ' ']) => {
            Err("expected a parameter name as written in URLs, with an optional `*` at the end".to_owned())
        }
        _ => Ok(target::normal_form(text).unwrap_or_else(|| text.to_owned()).into_bytes().into()),
    })
}

/// Returns the value of a key if it is given, else that of the profile.
fn or_profile<T: Setting>(table: &Table, key: &str, of_profile: T) -> T {
    table.written(key).unwrap_or(of_profile)
}

fn or_profile_ms(table: &Table, key: &str, of_profile_ms: u64) -> u64 {
    table.written(key).map_or(of_profile_ms, millis)
}

fn caching_rules(scope: &mut Scope<'_>, table: &Table, profile: Profile) -> Rules {
    let stale = |default: &str, max: &str, base: StaleLimit| StaleLimit {
        default_ms: millis(table.get(default)),
        max_ms: or_profile_ms(table, max, base.max_ms),
    };
    let base = Rules::for_profile(profile);
    Rules {
        enabled: table.get("cache"),
        override_ttl: ttl_table(table.map("ttl_override")),
        default_ttl: ttl_table(table.map("ttl_default")),
        heuristic: heuristic(table, base.heuristic.unwrap_or_default()),
        targeted_fields: field_names(scope, table, "targeted_fields"),
        store_only_with: scope.parsed(table, "store_only_with", field_name),
        errors: or_profile(table, "errors_stored", base.errors),
        credentialed: or_profile(table, "credentials_stored", base.credentialed),
        credential_fields: field_names(scope, table, "credential_fields"),
        judged_since: base.judged_since,
        store_set_cookie: or_profile(table, "store_set_cookie", base.store_set_cookie),
        store_expired: or_profile(table, "store_expired", base.store_expired),
        type_mismatch: or_profile(table, "type_mismatch", base.type_mismatch),
        store_post: or_profile(table, "store_post", base.store_post),
        groups_invalidated: or_profile(table, "groups_invalidated", base.groups_invalidated),
        honour_request_directives: table.get("honour_request_directives"),
        negotiation: or_profile(table, "negotiation", base.negotiation),
        refresh_ahead_percent: table.get("refresh_ahead_percent"),
        stale_while_revalidate: stale(
            "stale_while_revalidate_default",
            "stale_while_revalidate_max",
            base.stale_while_revalidate,
        ),
        stale_if_error: stale("stale_if_error_default", "stale_if_error_max", base.stale_if_error),
        stale_if_unreachable_ms: millis(table.get("stale_if_unreachable")),
        max_stale_max_ms: or_profile_ms(table, "max_stale_max", base.max_stale_max_ms),
    }
}

fn heuristic(table: &Table, base: Heuristic) -> Option<Heuristic> {
    let percent = table.get("heuristic_percent");
    let requests = or_profile(table, "heuristic_requests", base.requests);
    let max_ms = or_profile_ms(table, "heuristic_max", base.max_ms);
    (percent > 0).then_some(Heuristic { percent, max_ms, requests })
}

fn field_names(scope: &mut Scope<'_>, table: &Table, key: &'static str) -> Box<[Box<str>]> {
    scope.parsed_list(table, key, field_name).into()
}

fn field_name(text: &str) -> Result<Box<str>, String> {
    names::field_name(text).map(|_| text.into())
}

fn codings(scope: &mut Scope<'_>, table: &Table, profile: Profile) -> Codings {
    let Some(node) = table.given("codings") else { return codings_of(profile) };
    if table.list("codings").len() > Codings::COUNT_MAX {
        scope.error(node, format!("expected at most {} codings", Codings::COUNT_MAX));
    }
    let is_alone = table.list("codings").len() == 1;
    let names: Vec<String> = scope.parsed_list(table, "codings", |text| match text {
        "identity" if !is_alone => Err("`identity` means no coding: write it alone".to_owned()),
        text if caching::fields::is_token(text.as_bytes()) && text != "*" => Ok(text.to_owned()),
        _ => Err("not a content coding, such as `gzip`".to_owned()),
    });
    Codings::new(names.iter().map(String::as_str))
}

fn ttl_table(entries: &[(String, Node)]) -> TtlTable {
    TtlTable::new(entries.iter().filter_map(|(key, node)| match node.value {
        Value::Duration(ttl) => Some((status_match(key)?, millis(ttl))),
        _ => None,
    }))
}

/// Reports `refresh_ahead_percent` for methods that stored responses never answer.
fn check_ahead(scope: &mut Scope<'_>, table: &Table, methods: &MethodSet) {
    if let Some(node) = table.given("refresh_ahead_percent")
        && !ANSWERED_METHODS.iter().any(|method| methods.contains(method))
    {
        scope.warning(node, "has no effect for these `methods`: they are never answered from the cache");
    }
}

/// Reports keys that are given and can't have an effect.
fn check_effect(scope: &mut Scope<'_>, table: &Table, store: &Table) {
    let without_effect = match (table.flag("deny"), table.flag("cache")) {
        (true, _) => Some("has no effect with `deny = true`"),
        (false, false) => Some("has no effect with `cache = false`"),
        (false, true) => None,
    };
    for node in STORING_KEYS.iter().filter_map(|key| table.given(key)) {
        without_effect.iter().for_each(|message| scope.warning(node, *message));
    }
    if let Some(node) = table.given("object_bytes_max")
        && table.get::<u64>("object_bytes_max") > store.get::<u64>("memory") / 2
    {
        let message =
            format!("is more than half of `{}.memory`, the most that one body may take", store.path);
        scope.warning(node, message);
    }
    for (status, node) in table.map("ttl_default") {
        if is_overridden(status, table.map("ttl_override")) {
            scope.warning(node, "has no effect: `ttl_override` applies to the same status");
        }
    }
    if table.get::<u8>("heuristic_percent") == 0 {
        for key in ["heuristic_max", "heuristic_requests"] {
            if let Some(node) = table.given(key) {
                scope.warning(node, "has no effect with `heuristic_percent = 0`");
            }
        }
    }
}

/// Returns whether an override applies to a status or to its whole class.
fn is_overridden(status: &str, overrides: &[(String, Node)]) -> bool {
    let class = format!("{}xx", &status[..1]);
    let is_for = |key: &str| key == status || key == "default" || key == class;
    overrides.iter().any(|(key, _)| is_for(key))
}

const KNOWN_METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
/// Methods that stored responses can answer.
const ANSWERED_METHODS: [&str; 3] = ["GET", "HEAD", "QUERY"];
/// Keys that restrict requests or storing with any value.
const RESTRICTING_KEYS: [&str; 5] =
    ["rate_limit", "miss_budget", "request_body_bytes_max", "response_body_bytes_max", "store_only_with"];
const STORING_KEYS: [&str; 10] = [
    "ttl_override",
    "ttl_default",
    "query_ignore",
    "query_keep",
    "query_sort",
    "object_bytes_max",
    "store_parts",
    "store_set_cookie",
    "heuristic_percent",
    "refresh_ahead_percent",
];
