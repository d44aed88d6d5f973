//! Compression of responses to clients.

use std::sync::Arc;

use caching::compression::{Coding, Compressible, ContentTypes};
use gateway::config::{Compression, Levels};

use super::scope::Scope;
use crate::config::tree::Table;

/// The compression settings of a site and its rules.
pub(super) struct Offer {
    compression: Option<Arc<Compression>>,
    by_site: bool,
}

impl Offer {
    pub(super) fn of_site(scope: &mut Scope<'_>, site: &Table) -> Self {
        let by_site = site.flag("compress");
        let by_rule = site.tables("rule").any(|rule| rule.written("compress") == Some(true));
        if !by_site
            && !by_rule
            && let Some(node) = site.given("compression")
        {
            scope.warning(node, "has no effect without `compress = true` of the site or of a rule");
        }
        let compression =
            (by_site || by_rule).then(|| compression(scope, site.table("compression"))).flatten();
        Self { compression: compression.map(Arc::new), by_site }
    }

    /// Returns the compression of requests for which no rule sets `compress`.
    pub(super) fn site(&self) -> Option<Arc<Compression>> {
        self.compression.clone().filter(|_| self.by_site)
    }

    /// Returns the compression of a rule.
    pub(super) fn rule(&self, rule: &Table) -> Option<Arc<Compression>> {
        let is_on = rule.written("compress").unwrap_or(self.by_site);
        self.compression.clone().filter(|_| is_on)
    }
}

fn compression(scope: &mut Scope<'_>, table: &Table) -> Option<Compression> {
    let codings: Vec<Coding> =
        table.list("codings").iter().filter_map(|node| Coding::from_name(node.as_text())).collect();
    if codings.is_empty()
        && let Some(node) = table.given("codings")
    {
        scope.error(node, "expected at least one coding: `compress = false` switches compression off");
    }
    let content_types = match table.given("content_types") {
        Some(_) => scope.parsed_list(table, "content_types", content_type),
        None => CONTENT_TYPES.map(str::to_owned).to_vec(),
    };
    Some(Compression {
        compressible: Compressible {
            codings,
            content_types: ContentTypes::parse(content_types.iter().map(String::as_str)).ok()?,
            bytes_min: table.get("bytes_min"),
        },
        levels: Levels {
            zstd: table.get("zstd_level"),
            br: table.get("br_level"),
            gzip: table.get("gzip_level"),
        },
        personal: table.get("personal"),
    })
}

fn content_type(text: &str) -> Result<String, String> {
    match ContentTypes::parse([text]) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected a media type, such as `text/css`, `text/*`, `*/*+json` or `*/*`".to_owned()),
    }
}

/// Default of `content_types`. The list isn't in the option table, because it would be copied for each of 10,000 sites.
const CONTENT_TYPES: [&str; 15] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/xml",
    "application/wasm",
    "application/graphql",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "*/*+json",
    "*/*+xml",
];
