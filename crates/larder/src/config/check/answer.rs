//! Responses that a site generates itself: CORS, maintenance and error pages.

use std::time::Duration;

use bytes::Bytes;
use gateway::config::{ClientRules, Cors, CorsHeaders, CorsOrigins, ErrorPage, Maintenance, MethodSet, Page};
use http::{HeaderValue, Uri};

use super::names::field_name;
use super::rule::methods;
use super::scope::Scope;
use super::server::networks;
use crate::config::status::error_status;
use crate::config::tree::{Node, Table};

pub(super) fn cors(scope: &mut Scope<'_>, site: &Table) -> Option<Cors> {
    let table = site.optional_table("cors")?;
    let origins = match is_any(scope, table.list("origins")) {
        true => CorsOrigins::Any,
        false => CorsOrigins::Only(scope.parsed_list(table, "origins", web_origin)),
    };
    if let ([], Some(node)) = (table.list("origins"), table.given("origins")) {
        scope.error(node, "names no web origin: list some, or leave `site.cors` out");
    }
    let headers = match is_any(scope, table.list("headers")) {
        true => CorsHeaders::Any,
        false => CorsHeaders::Only(scope.parsed_list(table, "headers", lower_case)),
    };
    if let (CorsOrigins::Any, Some(node), true) =
        (&origins, table.given("credentials"), table.flag("credentials"))
    {
        scope.error(
            node,
            "can't be combined with `origins = [\"*\"]`: any page could read its visitors' data; list the origins",
        );
    }
    let methods = match methods(scope, table) {
        MethodSet::Only(methods) => methods.into_iter().collect(),
        MethodSet::Any => Vec::new(),
    };
    Some(Cors {
        origins,
        methods,
        headers,
        credentials: table.get("credentials"),
        max_age_s: table.get::<Option<Duration>>("max_age").map(|age| age.as_secs()),
        exposed: scope.parsed_list(table, "exposed", lower_case),
    })
}

/// Returns whether a list is `*`.
fn is_any(scope: &mut Scope<'_>, nodes: &[Node]) -> bool {
    let any = nodes.iter().find(|node| node.as_text() == "*");
    if let Some(any) = any.filter(|_| nodes.len() > 1) {
        scope.error(any, "`*` stands for all: write it alone");
    }
    any.is_some()
}

/// Parses a web origin in the form that browsers send, because it is compared byte for byte.
fn web_origin(text: &str) -> Result<String, String> {
    let expected = "expected a web origin as browsers write it, such as `https://app.example` or `http://localhost:3000`";
    if text.contains('*') {
        return Err(format!("{expected}: list each, or write `*` alone for all"));
    }
    let uri: Uri = text.parse().map_err(|_| expected.to_owned())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(expected.to_owned());
    };
    let is_usual = matches!((scheme, authority.port_u16()), ("http", Some(80)) | ("https", Some(443)));
    let written = format!("{scheme}://{}", authority.as_str().to_ascii_lowercase());
    match written == text && !is_usual && !text.contains('@') {
        true => Ok(written),
        false => Err(format!("{expected}: in lower case, without path and usual port")),
    }
}

fn lower_case(text: &str) -> Result<String, String> {
    field_name(text).map(|name| name.as_str().to_owned())
}

pub(super) fn maintenance(scope: &mut Scope<'_>, site: &Table) -> Option<Maintenance> {
    let table = site.optional_table("maintenance")?;
    let admitted = ClientRules { allowed: networks(scope, table, "clients_admitted"), denied: Vec::new() };
    let page = table.node("body_file").is_some().then(|| page(scope, table)).flatten();
    let retry_after_s = table.duration("retry_after").as_secs();
    // A missing key has already been reported.
    let is_enabled = table.get::<Option<bool>>("enabled") == Some(true);
    is_enabled.then_some(Maintenance { admitted, retry_after_s, page })
}

pub(super) fn error_pages(scope: &mut Scope<'_>, site: &Table) -> Vec<ErrorPage> {
    let page_of = |table: &Table| {
        let (statuses, page) = (scope.parsed_list(table, "statuses", error_status), page(scope, table));
        Some(ErrorPage { statuses, page: page? })
    };
    site.tables("error_page").filter_map(page_of).collect()
}

fn page(scope: &mut Scope<'_>, table: &Table) -> Option<Page> {
    let node = table.node("body_file")?;
    let body = scope.bytes(node)?;
    if body.len() > PAGE_BYTES_MAX {
        scope.error(node, format!("has {} bytes; at most {PAGE_BYTES_MAX} are allowed", body.len()));
        return None;
    }
    let content_type = scope.parsed(table, "content_type", |text| match text.contains('/') {
        true => HeaderValue::from_str(text).map_err(|_| "not a media type".to_owned()),
        false => Err("expected a media type, such as `text/html`".to_owned()),
    })?;
    Some(Page { content_type, body: Bytes::from(body) })
}

/// The page is kept in memory for all workers.
const PAGE_BYTES_MAX: usize = 1 << 20;
