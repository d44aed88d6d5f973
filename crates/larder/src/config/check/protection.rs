//! Limits that protect a site.

use gateway::config::{
    ClientPrefixes, CountedRequests, Enforcement, QuotaFields, Rate, RateLimit, RuleProtection,
    SiteProtection,
};

use super::scope::Scope;
use super::server::networks;
use crate::config::tree::Table;

pub(super) fn of_site(scope: &mut Scope<'_>, site: &Table) -> SiteProtection {
    SiteProtection {
        rate_limit: rate_limit(scope, site),
        request_body_bytes_max: optional_size(site, "request_body_bytes_max"),
    }
}

pub(super) fn of_rule(scope: &mut Scope<'_>, rule: &Table) -> RuleProtection {
    RuleProtection {
        rate_limit: rate_limit(scope, rule),
        request_body_bytes_max: optional_size(rule, "request_body_bytes_max"),
        miss_budget: rule.optional_table("miss_budget").and_then(rate),
        response_body_bytes_max: optional_size(rule, "response_body_bytes_max"),
    }
}

fn rate_limit(scope: &mut Scope<'_>, owner: &Table) -> Option<RateLimit> {
    let table = owner.optional_table("rate_limit")?;
    let rate = rate(table)?;
    Some(RateLimit {
        rate,
        count: match table.text("count") {
            Some("forwarded") => CountedRequests::Forwarded,
            _ => CountedRequests::All,
        },
        clients: ClientPrefixes {
            ipv4_bits: table.number("ipv4_prefix"),
            ipv6_bits: table.number("ipv6_prefix"),
        },
        clients_max: table.number("clients_max"),
        exempt: networks(scope, table, "clients_exempt"),
        enforcement: if table.flag("dry_run") { Enforcement::DryRun } else { Enforcement::Refuse },
        fields: match table.text("fields") {
            Some("always") => QuotaFields::Always,
            _ => QuotaFields::Refused,
        },
    })
}

/// `requests`, `window` and `burst`; nothing where the first is missing, which is noted already.
fn rate(table: &Table) -> Option<Rate> {
    table.node("requests")?;
    let requests = table.number("requests");
    let burst = if table.node("burst").is_some() { table.number("burst") } else { requests };
    Some(Rate { requests, window: table.duration("window"), burst })
}

fn optional_size(table: &Table, key: &str) -> Option<u64> {
    table.node(key).map(|_| table.number(key))
}
