//! Limits that protect a site.

use std::sync::Arc;

use bytes::Bytes;
use caching::hop_by_hop;
use gateway::config::{ClientPrefixes, DefaultResponse, Rate, RateLimit, RuleProtection, SiteProtection};
use http::{HeaderName, HeaderValue};

use super::names::field_name;
use super::scope::Scope;
use super::server::networks;
use crate::config::status::error_status;
use crate::config::tree::Table;

pub(super) fn of_site(scope: &mut Scope<'_>, site: &Table) -> SiteProtection {
    SiteProtection {
        rate_limit: rate_limit(scope, site),
        request_body_bytes_max: site.get("request_body_bytes_max"),
    }
}

pub(super) fn of_rule(scope: &mut Scope<'_>, rule: &Table, counted_as: String) -> RuleProtection {
    RuleProtection {
        counted_as,
        is_denied: rule.get("deny"),
        rate_limit: rate_limit(scope, rule),
        request_body_bytes_max: rule.get("request_body_bytes_max"),
        body_read_timeout: rule.get("body_read_timeout"),
        body_rate_min: rule.get("body_rate_min"),
        miss_budget: rule.optional_table("miss_budget").and_then(|table| rate(scope, table)),
        default_response: rule.optional_table("default_response").map(|table| default_response(scope, table)),
        response_body_bytes_max: rule.get("response_body_bytes_max"),
    }
}

fn rate_limit(scope: &mut Scope<'_>, owner: &Table) -> Option<RateLimit> {
    let table = owner.optional_table("rate_limit")?;
    let rate = rate(scope, table)?;
    Some(RateLimit {
        rate,
        count: table.get("count"),
        clients: ClientPrefixes { ipv4_bits: table.get("ipv4_prefix"), ipv6_bits: table.get("ipv6_prefix") },
        clients_max: table.get("clients_max"),
        exempt: networks(scope, table, "clients_exempt"),
        enforcement: table.get("dry_run"),
        fields: table.get("fields"),
    })
}

/// Reads `requests`, `window` and `burst`. Returns `None` if `requests` is missing, which has already been reported.
fn rate(scope: &mut Scope<'_>, table: &Table) -> Option<Rate> {
    let requests = table.get::<Option<_>>("requests")?;
    let burst = table.get::<Option<_>>("burst").unwrap_or(requests);
    let rate = Rate { requests, window: table.get("window"), burst };
    if let (true, Some(node)) = (u64::from(burst) > rate.burst_max(), table.node("burst")) {
        let message = format!("expected at most {} at this rate", rate.burst_max());
        scope.error(node, message);
    }
    Some(rate)
}

fn default_response(scope: &mut Scope<'_>, table: &Table) -> Arc<DefaultResponse> {
    let status = table.get("status");
    let mut fields = scope.parsed_map(table, "fields", field);
    let retry_after = (status == 503).then_some(("retry-after", "1"));
    let presets = [("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store")];
    for (name, value) in presets.into_iter().chain(retry_after) {
        if fields.iter().all(|(given, _)| given != name) {
            fields.push((HeaderName::from_static(name), HeaderValue::from_static(value)));
        }
    }
    let statuses = scope.parsed_list(table, "statuses", error_status);
    Arc::new(DefaultResponse { status, fields, body: body(scope, table), statuses })
}

fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = field_name(name)?;
    let own = name.as_str();
    if hop_by_hop::ends_here(own) || hop_by_hop::is_written_by_sender(own) || name == "date" {
        return Err("Larder writes this field itself".to_owned());
    }
    let value = HeaderValue::from_str(value).map_err(|_| "not a value of a header field".to_owned())?;
    Ok((name, value))
}

fn body(scope: &mut Scope<'_>, table: &Table) -> Bytes {
    let text = table.text("body").map(|text| Bytes::from(text.to_owned()));
    let Some(node) = table.node("file") else { return text.unwrap_or_default() };
    if text.is_some() {
        scope.error(node, "can't be combined with `body`");
    }
    let bytes = scope.bytes(node).unwrap_or_default();
    if bytes.len() > DEFAULT_RESPONSE_BYTES_MAX {
        scope.error(node, "the file is larger than 1 MiB");
    }
    bytes.into()
}

const DEFAULT_RESPONSE_BYTES_MAX: usize = 1 << 20;
