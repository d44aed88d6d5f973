//! The dashboards of `deploy/grafana`: their panels, queries and metrics.

use std::collections::BTreeSet;
use std::fs;

use regex::Regex;
use serde_json::Value;

use super::prometheus::deploy;

pub(crate) struct Dashboard {
    pub(crate) name: &'static str,
    pub(crate) json: Value,
}

/// A query of a panel, with values for the variables.
pub(crate) struct Query {
    pub(crate) place: String,
    pub(crate) text: String,
}

#[track_caller]
pub(crate) fn all() -> Vec<Dashboard> {
    let read = |name| {
        let path = deploy().join("grafana/dashboards").join(name);
        let text = fs::read_to_string(path).expect("a dashboard");
        Dashboard { name, json: serde_json::from_str(&text).expect("JSON") }
    };
    ["gateway.json", "kv.json"].map(read).into()
}

impl Dashboard {
    pub(crate) fn panels(&self) -> &[Value] {
        self.json["panels"].as_array().expect("panels")
    }

    /// Returns the panels that show data.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Value> {
        self.panels().iter().filter(|panel| panel["type"] != "row")
    }

    pub(crate) fn variables(&self) -> &[Value] {
        self.json["templating"]["list"].as_array().expect("variables")
    }

    /// Returns the queries of all panels, as Grafana sends them with `All` for each variable.
    pub(crate) fn queries(&self) -> Vec<Query> {
        let of_panel = |panel: &Value| -> Vec<Query> {
            let place = format!("{}: {}", self.name, panel["title"]);
            let targets = panel["targets"].as_array().expect("a panel has queries");
            let texts = targets.iter().map(|target| target["expr"].as_str().expect("a query"));
            texts.map(|text| Query { place: place.clone(), text: self.filled(text) }).collect()
        };
        self.shown().flat_map(of_panel).collect()
    }

    pub(crate) fn metrics_of_variables(&self) -> BTreeSet<String> {
        let queries = self.variables().iter().filter_map(|variable| variable["definition"].as_str());
        queries.flat_map(metrics_in).collect()
    }

    fn filled(&self, query: &str) -> String {
        let mut text = query.replace("$__rate_interval", "4s").replace("$__range", "10s");
        for variable in self.variables() {
            let name = variable["name"].as_str().expect("a name");
            text = text.replace(&format!("${name}"), ".*");
        }
        assert!(!text.contains("\"$") && !text.contains("[$"), "an unknown variable: {text}");
        text
    }
}

/// Returns the metrics that a query names, without histogram suffixes.
pub(crate) fn metrics_in(query: &str) -> BTreeSet<String> {
    // Names of recording rules have colons.
    let name = Regex::new(r"(^|[^:a-z_])((larder|process)_[a-z_]+)($|[^:a-z_])").expect("a pattern");
    // One character may separate two names, so separators are doubled.
    let doubled = query.replace(['(', '{', ' ', '['], "  ");
    let endings = ["_bucket", "_sum", "_count"];
    let found = name.captures_iter(&doubled).map(|found| found[2].to_owned());
    let base = |name: String| match endings.iter().find_map(|ending| name.strip_suffix(ending)) {
        Some(base) if base.ends_with("_seconds") => base.to_owned(),
        _ => name,
    };
    found.map(base).collect()
}

/// Returns all metrics of the reference page, which is generated from the table.
#[track_caller]
pub(crate) fn declared() -> BTreeSet<String> {
    let page = deploy().join("../docs/reference/metrics.md");
    let text = fs::read_to_string(page).expect("the page on metrics");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows = rows.filter(|name| name.starts_with("larder_") || name.starts_with("process_"));
    rows.map(str::to_owned).collect()
}
