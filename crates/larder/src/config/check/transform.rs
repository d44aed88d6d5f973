//! Transformation rules of sites.

use caching::unkeyed::{self, FieldClass, class_of};
use caching::{StatusMatch, hop_by_hop, sharing};
use gateway::config::{
    Action, Conditions, CookieChange, FieldPattern, Phase, PrefixChange, Redirect, Rewrite, Spelling,
    Template, TransformRule, Transforms, Variable,
};
use http::{HeaderName, HeaderValue};

use super::expression::{Compared, regex};
use super::names::{doubled, host_pattern, name};
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
    let mut transforms = Transforms::default();
    for (index, table) in site.tables("transform").enumerate() {
        let Some(phase) = table.get("phase") else { continue };
        check_phase(scope, table, phase);
        if let Some(rule) = rule(scope, table, phase, index + 1) {
            check_credentials(scope, (site, table), phase, &rule);
            transforms.of_mut(phase).push(rule);
            if transforms.of(phase).len() == RULES_MAX + 1 {
                let message = format!("a site may have {RULES_MAX} transformation rules of a phase");
                scope.error_in(table, message);
            }
        }
    }
    transforms
}

/// Keys that mean nothing in a phase.
fn check_phase(scope: &mut Scope<'_>, table: &Table, phase: Phase) {
    let mut refuse = |keys: &[&str], says| scope.refuse(table, keys, says);
    if !phase.is_of_responses() {
        refuse(&OF_RESPONSES, "only for responses: phase `origin_response` or `client_response`");
    }
    if phase != Phase::ClientRequest {
        refuse(&["rewrite", "redirect"], "only in phase `client_request`");
    }
    if phase != Phase::OriginResponse {
        refuse(&["cache_control"], "only in phase `origin_response`: it decides what is stored");
    } else {
        refuse(
            &["request_fields"],
            "not in phase `origin_response`: what is stored is for clients with other fields as well; use `client_response`",
        );
        check_head(scope, table.list("methods"));
    }
}

/// What an answer to HEAD says goes into what is stored for GET.
fn check_head(scope: &mut Scope<'_>, methods: &[Node]) {
    let find = |name: &str| methods.iter().find(|node| node.as_text() == name);
    if let (Some(head), None) = (find("HEAD"), find("GET")) {
        scope.error(head, "matches as `GET` in phase `origin_response`: write `GET`, which stands for both");
    }
}

fn rule(scope: &mut Scope<'_>, table: &Table, phase: Phase, number: usize) -> Option<TransformRule> {
    let name = match table.node("name") {
        Some(_) => scope.parsed(table, "name", name),
        None => Some(format!("transform-{number}")),
    };
    let on = conditions(scope, table, phase);
    let actions = actions(scope, table, phase);
    if actions.is_empty() && !ACTIONS.iter().any(|key| table.given(key).is_some() || table.is_wrong(key)) {
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

/// In the order in which they are carried out.
fn actions(scope: &mut Scope<'_>, table: &Table, phase: Phase) -> Vec<Action> {
    let mut actions = scope.parsed_map(table, "copy", |to, from| {
        Ok(Action::Copy { from: readable(from)?, to: writable(to, phase)? })
    });
    actions.extend(scope.parsed_list(table, "remove", |name| deletable(name, phase).map(Action::Remove)));
    let field = |name: &str, value: &str| Ok::<_, String>((writable(name, phase)?, template(value, phase)?));
    let (set, added) = (scope.parsed_map(table, "set", field), scope.parsed_map(table, "add", field));
    actions.extend(set.into_iter().map(|(name, value)| Action::Set(name, value)));
    actions.extend(added.into_iter().map(|(name, value)| Action::Add(name, value)));
    actions.extend(cache_control(scope, table));
    let location = prefix_changes(scope, table, "location");
    actions.extend((!location.is_empty()).then_some(Action::Location(location)));
    actions.extend(cookies(scope, table).map(Action::Cookies));
    actions
        .extend(table.optional_table("rewrite").and_then(|table| rewrite(scope, table)).map(Action::Rewrite));
    actions.extend(
        table.optional_table("redirect").and_then(|to| redirect(scope, to, table)).map(Action::Redirect),
    );
    actions
}

fn template(text: &str, phase: Phase) -> Result<Template, String> {
    let unknown = |says| format!("{says}; this phase has the variables {}", phase.variables().join(", "));
    let template = Template::parse(text).map_err(unknown)?;
    for variable in template.variables() {
        if !phase.has(variable) {
            return Err(format!(
                "`{{{variable}}}` can't be used in this phase, which has {}",
                phase.variables().join(", ")
            ));
        }
        if let Variable::Field(name) | Variable::RequestField(name) = variable {
            readable(name.as_str())?;
        }
    }
    Ok(template)
}

/// Whose request it is, is read before the phase of the origin: what a client says must be a credential by then.
fn check_credentials(
    scope: &mut Scope<'_>,
    (site, table): (&Table, &Table),
    phase: Phase,
    rule: &TransformRule,
) {
    if phase != Phase::OriginRequest {
        return;
    }
    // A request that a rule knows by a credential is one with credentials already.
    let conditions = &rule.on.request_fields;
    let is_chosen =
        !conditions.is_empty() && !conditions.iter().any(|field| sharing::is_credential(field.name.as_str()));
    let is_client_s = |variable: &Variable| {
        matches!(variable, Variable::Field(_) | Variable::ClientAddress | Variable::Query)
    };
    for action in &rule.actions {
        let (key, name, is_said) = match action {
            Action::Copy { to, .. } => ("copy", to, true),
            Action::Set(name, value) => ("set", name, value.variables().any(is_client_s)),
            Action::Add(name, value) => ("add", name, value.variables().any(is_client_s)),
            _ => continue,
        };
        let written = table.map(key).iter().find(|(other, _)| name.as_str().eq_ignore_ascii_case(other));
        if (is_said || is_chosen)
            && is_credential(site, name)
            && let Some((_, node)) = written
        {
            let message = format!(
                "`{name}` tells whose request it is: make it of what the client says in phase `client_request`"
            );
            scope.error(node, message);
        }
    }
}

/// Whether a field is a credential to any rule of the site.
fn is_credential(site: &Table, name: &HeaderName) -> bool {
    let is_name = |node: &&Node| node.as_text().eq_ignore_ascii_case(name.as_str());
    sharing::is_credential(name.as_str()) || site.nodes("rule.credential_fields").iter().any(is_name)
}

fn field_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a header field name"))
}

/// The name of a field whose value may go elsewhere.
fn readable(text: &str) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    match hop_by_hop::ends_here(name.as_str()) {
        true => Err(format!("`{name}` ends at this side of the connection")),
        false => Ok(name),
    }
}

fn writable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = removable(text, phase)?;
    match phase.is_of_responses() && ["etag", "last-modified"].contains(&name.as_str()) {
        true => Err(format!("`{name}` is the origin's to say: requests are validated by it")),
        false => Ok(name),
    }
}

/// The name of a field that rules may take away.
fn deletable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = removable(text, phase)?;
    match phase.is_of_responses() && name == http::header::CONTENT_ENCODING {
        true => Err(format!(
            "`{name}` says how to decode the body, which stays as it is: remove `accept-encoding` in phase `origin_request` instead"
        )),
        false => Ok(name),
    }
}

/// The name of a field that rules may touch.
fn removable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    let own = name.as_str();
    if hop_by_hop::ends_here(own) || hop_by_hop::is_written_by_sender(own) || FRAMING.contains(&own) {
        return Err(format!("`{name}` belongs to the connection or to the framing of the message"));
    }
    let is_larder_s = match phase {
        Phase::ClientRequest | Phase::OriginRequest => WRITTEN_IN_REQUESTS.contains(&own),
        Phase::OriginResponse | Phase::ClientResponse => WRITTEN_IN_RESPONSES.contains(&own),
    };
    if is_larder_s || phase == Phase::OriginRequest && class_of(own) == FieldClass::Never {
        return Err(format!("`{name}` is written by Larder itself"));
    }
    if phase == Phase::ClientRequest && unkeyed::is_written_or_dropped(own) {
        return Err(format!("`{name}` is not forwarded as a client sends it: use phase `origin_request`"));
    }
    Ok(name)
}

/// The most specific entry first.
fn cache_control(scope: &mut Scope<'_>, table: &Table) -> Option<Action> {
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| "expected directives, such as `max-age=60`".to_owned())
    };
    let mut entries: Vec<(StatusMatch, HeaderValue)> = table
        .map("cache_control")
        .iter()
        .filter_map(|(key, node)| Some((status_match(key)?, scope.take(node, value(node.as_text()))?)))
        .collect();
    entries.sort_by_key(|(status, _)| match status {
        StatusMatch::Exact(_) => 0,
        StatusMatch::Class(_) => 1,
        StatusMatch::Any => 2,
    });
    (!entries.is_empty()).then_some(Action::CacheControl(entries))
}

fn prefix_changes(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<PrefixChange> {
    let text = |text: &str| match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("expected visible ASCII".to_owned()),
    };
    let begin = |from: &str| match from {
        "" => Err("expected the beginning of a value".to_owned()),
        from => text(from),
    };
    table
        .tables(key)
        .filter_map(|change| {
            let (from, to) = (scope.parsed(change, "from", begin), scope.parsed(change, "to", text));
            Some(PrefixChange { from: from?, to: to? })
        })
        .collect()
}

fn cookies(scope: &mut Scope<'_>, table: &Table) -> Option<CookieChange> {
    let domain = scope.parsed(table, "cookie_domain", |text| match text {
        "none" => Ok(String::new()),
        host => super::names::host_name(host.trim_start_matches('.')),
    });
    let paths = prefix_changes(scope, table, "cookie_paths");
    for node in table.nodes("cookie_paths.to") {
        if node.as_text().contains(';') {
            scope.error(node, "`;` would begin another attribute of the cookie");
        }
    }
    (domain.is_some() || !paths.is_empty()).then_some(CookieChange { domain, paths })
}

fn rewrite(scope: &mut Scope<'_>, table: &Table) -> Option<Rewrite> {
    let pattern = match (table.node("regex"), table.node("to")) {
        (Some(_), Some(to)) => {
            let expression = scope.parsed(table, "regex", |text| regex(text, Spelling::AsWritten))?;
            let text = scope.take(to, replacement(to.as_text(), &expression))?;
            Some((expression, text))
        }
        (Some(node), None) => {
            scope.error(node, "needs `to` beside it");
            None
        }
        (None, Some(node)) => {
            scope.error(node, "needs `regex` beside it");
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

/// Text that takes the place of a match, its captures known.
fn replacement(text: &str, expression: &::regex::Regex) -> Result<String, String> {
    if text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("expected a path in visible ASCII without `#`".to_owned());
    }
    check_captures(text, expression).map(|()| text.to_owned())
}

fn check_captures(text: &str, expression: &::regex::Regex) -> Result<(), String> {
    let is_known = |name: &str| match name.parse::<usize>() {
        Ok(number) => number < expression.captures_len(),
        Err(_) => expression.capture_names().flatten().any(|known| known == name),
    };
    match captures(text).find(|name| !is_known(name)) {
        Some(unknown) => {
            Err(format!("`regex` has no capture `{unknown}`; write `${{1}}` where a letter follows"))
        }
        None => Ok(()),
    }
}

/// The captures that a text names, as the regex crate reads them.
fn captures(text: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.match_indices('$').filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map(|(name, _)| name),
            None => Some(rest.split(|character| !is_of_name(character)).next().unwrap_or_default()),
        }
        .filter(|name| !name.is_empty())
    })
}

fn redirect(scope: &mut Scope<'_>, table: &Table, rule: &Table) -> Option<Redirect> {
    let captured = table.node("to").and_then(|to| scope.take(to, captured(to.as_text(), rule)));
    let to = scope.parsed(table, "to", |text| {
        if !["http://", "https://", "/", "{path}"].iter().any(|begin| text.starts_with(begin)) {
            return Err("must start with `http://`, `https://`, `/` or `{path}`".to_owned());
        }
        if text.starts_with("//") {
            return Err("`//` names another server: write its scheme".to_owned());
        }
        let to = template(&with_captures_kept(text), Phase::ClientRequest)?;
        to.check_server().map(|()| to)
    });
    let status = table.text("status").and_then(|status| status.parse().ok());
    Some(Redirect { status: status?, to: to?, captured: captured? })
}

/// The same with doubled braces around the names of captures, which are no variables.
fn with_captures_kept(text: &str) -> String {
    let mut parts = text.split("${");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) => kept.extend(["${{", name, "}}", rest]),
            None => kept.extend(["${", part]),
        }
    }
    kept
}

/// The expression whose captures the target of a redirect names, if it names any.
fn captured(to: &str, rule: &Table) -> Result<Option<::regex::Regex>, String> {
    let Some(first) = captures(to).next() else { return Ok(None) };
    let authority = to.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|authority| authority.contains('$')) {
        return Err("a capture can't be part of the host, because clients could then choose the server: write `/` before it".to_owned());
    }
    let Some(text) = rule.optional_table("path").and_then(|path| path.text("regex")) else {
        return Err(format!(
            "`${first}` needs `path = {{ regex = ... }}` with that capture in the same rule; write `%24` for a dollar sign"
        ));
    };
    // One that can't be compiled is reported where it stands.
    let Ok(expression) = regex(text, Spelling::AsWritten) else { return Ok(None) };
    check_captures(to, &expression)?;
    Ok(Some(expression))
}

/// Each is compared with every message of its phase, one after the other.
const RULES_MAX: usize = 10_000;
const OF_RESPONSES: [&str; 6] =
    ["statuses", "response_fields", "content_types", "location", "cookie_domain", "cookie_paths"];
const ACTIONS: [&str; 10] = [
    "copy",
    "remove",
    "set",
    "add",
    "cache_control",
    "location",
    "cookie_domain",
    "cookie_paths",
    "rewrite",
    "redirect",
];
const FRAMING: [&str; 2] = ["content-range", "trailer"];
const WRITTEN_IN_REQUESTS: [&str; 18] = [
    "cdn-loop",
    "expect",
    "forwarded",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "larder-timing",
    "max-forwards",
    "range",
    "traceparent",
    "tracestate",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
];
const WRITTEN_IN_RESPONSES: [&str; 5] = ["age", "cache-status", "date", "via", "x-cache"];
