//! Settings of tracing.

use std::sync::Arc;

use gateway::config::TracingConfig;
use http::{HeaderMap, HeaderName, HeaderValue};
use origin::settings::OriginProtocol;
use origin::tls::Verification;
use otlp::Endpoint;
use rustls::ClientConfig;
use telemetry::Redaction;
use telemetry::trace::Sampling;

use super::scope::Scope;
use super::server::LogSettings;
use super::tls;
use crate::config::tree::Table;

/// Returns the settings for recording requests; [`export`] has those of the collector.
pub(super) fn recorded(tree: &Table, log: &LogSettings) -> Option<TracingConfig> {
    let table = tree.optional_table("tracing")?;
    Some(TracingConfig {
        sampling: Sampling { one_in: table.get("sample_one_in") },
        accept_parent: table.get("accept_parent"),
        redaction: Redaction::new(&log.redact),
    })
}

/// Returns the settings of the exporter, or `None` if a key is wrong.
pub(super) fn export(scope: &mut Scope<'_>, tree: &Table) -> Option<otlp::Settings> {
    let table = tree.optional_table("tracing")?;
    let endpoint =
        scope.parsed(table, "endpoint", |url| Endpoint::parse(url).map_err(|error| error.to_string()));
    let fields = fields(scope, table);
    let endpoint = endpoint?;
    let tls = encryption(scope, table, &endpoint)?;
    Some(otlp::Settings {
        endpoint,
        fields,
        tls,
        resource: resource(tree, table),
        version: env!("CARGO_PKG_VERSION"),
        interval: table.get("interval"),
        timeout: table.get("timeout"),
        batch_spans_max: table.get("batch_spans_max"),
        queue_spans_max: table.get("queue_spans_max"),
    })
}

fn fields(scope: &mut Scope<'_>, table: &Table) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, node) in table.map("headers") {
        // A value that isn't a file may be the secret itself, and must not be shown as a file
        // name.
        if !scope.path(node).is_file() {
            scope.error(
                node,
                "the file can't be read; expected the path of a file whose first line is the value",
            );
            continue;
        }
        let Some(secret) = scope.secret(node) else { continue };
        let mut value = HeaderValue::from_str(secret.reveal()).expect("a secret is visible ASCII");
        value.set_sensitive(true);
        let name = HeaderName::from_bytes(name.as_bytes()).expect("the reader has checked the name");
        fields.insert(name, value);
    }
    fields
}

/// Returns `None` if the keys are wrong, and `Some(None)` for an unencrypted endpoint.
fn encryption(
    scope: &mut Scope<'_>,
    table: &Table,
    endpoint: &Endpoint,
) -> Option<Option<Arc<ClientConfig>>> {
    if !endpoint.is_tls() {
        scope.refuse(table, &["ca_file"], "only applies to an `https://` endpoint");
        return Some(None);
    }
    let at = (table, table.node("endpoint")?);
    let (config, _) = tls::client(scope, at, Verification::On, OriginProtocol::Http1)?;
    Some(Some(config))
}

/// Returns the resource attributes; given ones override the defaults.
fn resource(tree: &Table, table: &Table) -> Vec<(String, String)> {
    let given = table.map("resource_attributes").iter();
    let mut resource: Vec<_> = given.map(|(name, node)| (name.clone(), node.as_text().to_owned())).collect();
    let service = table.text("service_name").or_else(|| tree.text("server_name")).unwrap_or("larder");
    let defaults = [
        ("service.name", service.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", crate::tier::of_machine()),
    ];
    for (name, value) in defaults {
        if !resource.iter().any(|(given, _)| given == name) {
            resource.push((name.to_owned(), value));
        }
    }
    resource
}
