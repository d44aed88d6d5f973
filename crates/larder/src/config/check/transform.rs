//! Transformation rules of sites.

use gateway::config::{Conditions, FieldPattern, Spelling, TransformRule, Transforms};
use gateway::transform::actions::cache_control::{self, CacheControl};
use gateway::transform::actions::cookies::{self, CookieChange};
use gateway::transform::actions::copy::{self, Copy};
use gateway::transform::actions::location::{self, Location};
use gateway::transform::actions::redirect::{self, Redirect};
use gateway::transform::actions::remove::{self, Remove};
use gateway::transform::actions::rewrite::{self, Rewrite};
use gateway::transform::actions::set::{self, Set};
use gateway::transform::actions::{Action, KEYS};
use gateway::transform::{ActionKey, ChosenBy, Phase, Phases, PrefixChange, RuleTerms, field_name};

use super::expression::{self, Compared, regex};
use super::names::{doubled, host_name, host_pattern, name};
use super::reach::check_transforms;
use super::rule::{methods, path, pattern, query};
use super::scope::Scope;
use crate::config::glob::{Wildcards, glob};
use crate::config::status::{status, status_match};
use crate::config::tree::{Node, Table};

pub(super) fn transforms(scope: &mut Scope<'_>, site: &Table) -> Transforms {
    check_transforms(scope, site);
    for (node, _) in doubled(site.nodes("transform.name")) {
        scope.error(
            node,
            format!("`{}` is the name of an earlier transformation rule of this site", node.as_text()),
        );
    }
    let credential_fields: Vec<_> =
        site.nodes("rule.credential_fields").into_iter().map(Node::as_text).collect();
    let mut transforms = Transforms::default();
    for (index, table) in site.tables("transform").enumerate() {
        let Some(phase) = table.get("phase") else { continue };
        check_phase(scope, table, phase);
        if let Some(rule) = rule(scope, (table, index + 1), phase, &credential_fields) {
            transforms.of_mut(phase).push(rule);
            if transforms.of(phase).len() == RULES_MAX + 1 {
                let message = format!("a site may have at most {RULES_MAX} transformation rules of a phase");
                scope.error_in(table, message);
            }
        }
    }
    transforms
}

/// Reports keys that have no meaning in a phase.
fn check_phase(scope: &mut Scope<'_>, table: &Table, phase: Phase) {
    for (key, says) in KEYS.iter().filter_map(|key| Some((key, key.phases.check(phase).err()?))) {
        scope.refuse(table, &[key.name()], says);
    }
    if let Err(says) = Phases::OfResponses.check(phase) {
        scope.refuse(table, &CONDITIONS_OF_RESPONSES, says);
    }
    if phase == Phase::OriginResponse {
        scope.refuse(
            table,
            &["request_fields"],
            "isn't allowed in phase `origin_response`: stored responses also answer clients with other fields; use `client_response`",
        );
        check_head(scope, table.list("methods"));
    }
}

/// Reports HEAD: a response to HEAD updates the stored response for GET.
fn check_head(scope: &mut Scope<'_>, methods: &[Node]) {
    let find = |name: &str| methods.iter().find(|node| node.as_text() == name);
    if let (Some(head), None) = (find("HEAD"), find("GET")) {
        scope.error(head, "matches as `GET` in phase `origin_response`: write `GET`, which stands for both");
    }
}

fn rule(
    scope: &mut Scope<'_>,
    (table, number): (&Table, usize),
    phase: Phase,
    credential_fields: &[&str],
) -> Option<TransformRule> {
    let name = match table.node("name") {
        Some(_) => scope.parsed(table, "name", name),
        None => Some(format!("transform-{number}")),
    };
    let on = conditions(scope, table, phase);
    let fields = name.as_ref().and(on.as_ref()).map(|on| on.request_fields.iter().map(|field| &field.name));
    let terms = RuleTerms { phase, chosen_by: fields.map(ChosenBy::fields), credential_fields };
    let actions = actions(scope, table, &terms);
    let is_there = |key: &ActionKey| table.given(key.name()).is_some() || table.is_wrong(key.name());
    if actions.is_empty() && !KEYS.iter().any(is_there) {
        scope.warning_in(table, "changes nothing: it has no action such as `set`");
    }
    Some(TransformRule { name: name?, on: on?, actions })
}

fn conditions(scope: &mut Scope<'_>, table: &Table, phase: Phase) -> Option<Conditions> {
    let is_stored = phase == Phase::OriginResponse;
    let compared = if is_stored { Compared::Path } else { Compared::PathAndQuery };
    let path = pattern(scope, table, (Spelling::AsWritten, compared));
    Some(Conditions {
        hosts: scope.parsed_list(table, "hosts", host_pattern),
        methods: methods(scope, table),
        scheme: table.text("scheme").map(|scheme| if scheme == "http" { "http" } else { "https" }),
        request_fields: field_patterns(scope, table, "request_fields"),
        statuses: scope.parsed_list(table, "statuses", status),
        response_fields: field_patterns(scope, table, "response_fields"),
        content_types: scope.parsed_list(table, "content_types", |text| {
            glob(&text.to_ascii_lowercase(), Wildcards::Everywhere)
        }),
        path: path?,
    })
}

fn field_patterns(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<FieldPattern> {
    scope.parsed_map(table, key, |name, value| {
        Ok(FieldPattern { name: field_name(name)?, value: glob(value, Wildcards::Everywhere)? })
    })
}

/// Returns the actions in the order in which they are applied.
fn actions(scope: &mut Scope<'_>, table: &Table, terms: &RuleTerms<'_>) -> Vec<Action> {
    let mut actions =
        scope.parsed_map(table, copy::KEY.name(), |to, from| Copy::new(to, from, terms).map(Action::Copy));
    actions.extend(
        scope.parsed_list(table, remove::KEY.name(), |name| Remove::new(name, terms).map(Action::Remove)),
    );
    actions.extend(
        scope.parsed_map(table, set::KEY.name(), |name, value| Set::new(name, value, terms).map(Action::Set)),
    );
    actions.extend(scope.parsed_map(table, set::ADD_KEY.name(), |name, value| {
        Set::adding(name, value, terms).map(Action::Set)
    }));
    actions.extend(cache_control(scope, table).map(Action::CacheControl));
    let location = prefix_changes(scope, table, location::KEY.name());
    actions.extend(Location::new(location).map(Action::Location));
    actions.extend(cookies(scope, table).map(Action::Cookies));
    let rewrite = table.optional_table(rewrite::KEY.name()).and_then(|table| rewrite(scope, table));
    actions.extend(rewrite.map(Action::Rewrite));
    let target = table.optional_table(redirect::KEY.name());
    actions.extend(target.and_then(|target| redirect(scope, target, table)).map(Action::Redirect));
    actions
}

fn cache_control(scope: &mut Scope<'_>, table: &Table) -> Option<CacheControl> {
    let entries = table.map(cache_control::KEY.name()).iter();
    let entries = entries.filter_map(|(key, node)| {
        Some((status_match(key)?, scope.take(node, CacheControl::value(node.as_text()))?))
    });
    CacheControl::new(entries.collect())
}

fn prefix_changes(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<PrefixChange> {
    let change = |change: &Table| {
        let from = scope.parsed(change, "from", PrefixChange::beginning);
        let to = scope.parsed(change, "to", PrefixChange::replacement);
        Some(PrefixChange::new(from?, to?))
    };
    table.tables(key).filter_map(change).collect()
}

fn cookies(scope: &mut Scope<'_>, table: &Table) -> Option<CookieChange> {
    let domain = scope.parsed(table, cookies::DOMAIN_KEY.name(), |text| match text {
        "none" => Ok(String::new()),
        host => host_name(host.trim_start_matches('.')),
    });
    let paths = prefix_changes(scope, table, cookies::PATHS_KEY.name());
    for change in table.tables(cookies::PATHS_KEY.name()) {
        change.node("to").and_then(|to| scope.take(to, CookieChange::check_path(to.as_text())));
    }
    CookieChange::new(domain, paths)
}

fn rewrite(scope: &mut Scope<'_>, table: &Table) -> Option<Rewrite> {
    let pattern = match (table.node("regex"), table.node("to")) {
        (Some(_), Some(to)) => {
            let expression = scope.parsed(table, "regex", |text| regex(text, Spelling::AsWritten))?;
            let text = scope.take(to, Rewrite::replacement(to.as_text(), &expression))?;
            Some((expression, text))
        }
        (Some(node), None) => {
            scope.error(node, "needs `to` as well");
            None
        }
        (None, Some(node)) => {
            scope.error(node, "needs `regex` as well");
            None
        }
        (None, None) => None,
    };
    let has_query = ["query_ignore", "query_keep", "query_sort"].iter().any(|key| table.given(key).is_some());
    Some(Rewrite {
        strip_prefix: scope.parsed(table, "strip_prefix", path),
        add_prefix: scope.parsed(table, "add_prefix", path),
        pattern,
        query: has_query.then(|| query(scope, table)),
    })
}

fn redirect(scope: &mut Scope<'_>, table: &Table, rule: &Table) -> Option<Redirect> {
    let expression = || {
        let text = rule.optional_table("path").and_then(|path| path.text("regex"))?;
        Some(expression::captured(text))
    };
    let captured =
        table.node("to").and_then(|to| scope.take(to, Redirect::captured(to.as_text(), expression)));
    let to = scope.parsed(table, "to", Redirect::target);
    let status = table.text("status").and_then(|status| status.parse().ok());
    Some(Redirect { status: status?, to: to?, captured: captured? })
}

/// Maximum number of rules per phase, which is limited because every message of a phase is matched against each rule in turn.
const RULES_MAX: usize = 10_000;
const CONDITIONS_OF_RESPONSES: [&str; 3] = ["statuses", "response_fields", "content_types"];
