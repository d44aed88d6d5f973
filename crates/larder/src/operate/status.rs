//! `larder status`: the state of a running server in a few lines.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use http::{Request, StatusCode};
use hyper::body::Bytes;
use serde_json::{Value, json};
use terminal::output;

use super::{Refused, call, recognise_probes, refusal, texts};
use crate::cli::StatusArguments;

/// Requests and prints the state. The exit status differs if the server is not ready.
pub(crate) fn run(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    recognise_probes(&arguments.admin)?;
    let (ready, answer) = call(&arguments.admin, Request::get("/ready"), Bytes::new())?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let (status, metrics) = call(&arguments.admin, Request::get("/metrics"), Bytes::new())?;
    if status != StatusCode::OK {
        bail!(Refused(refusal(status, &answer)));
    }
    let metrics = Metrics::parse(&String::from_utf8_lossy(&metrics));
    let reasons: Vec<_> = texts(&answer, "reasons").collect();
    if arguments.json {
        let shown = object(&metrics, ready == StatusCode::OK, &reasons);
        output::result(&serde_json::to_string_pretty(&shown)?);
    } else {
        let state = if ready == StatusCode::OK { "ready".to_owned() } else { reasons.join(", ") };
        lines(&metrics, &state).iter().for_each(|line| output::result(line));
    }
    Ok(if ready == StatusCode::OK { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn lines(metrics: &Metrics, state: &str) -> Vec<String> {
    let version = metrics.label("larder_build_info", "version").unwrap_or_default();
    let mut lines = vec![format!("larder {version}: {state}")];
    if metrics.has("larder_requests_in_flight") {
        lines.push(requests(metrics));
    }
    for name in metrics.labels("larder_store_max_bytes", "store") {
        lines.push(store(metrics, &name));
        lines.extend(silent_tier(metrics, &name));
    }
    lines.extend(region(metrics));
    lines.extend(origins(metrics).iter().filter_map(Origin::line));
    if metrics.has("larder_kv_keys") {
        lines.push(kv(metrics));
    }
    lines
}

/// Returns the state as JSON. Parts that don't exist on this server are left out.
fn object(metrics: &Metrics, is_ready: bool, reasons: &[&str]) -> Value {
    let whole = |metric: &str| json!(metrics.sum(metric, "") as u64);
    let mut shown = json!({
        "version": metrics.label("larder_build_info", "version"),
        "ready": is_ready,
        "reasons": reasons,
    });
    if metrics.has("larder_requests_in_flight") {
        shown["requests"] = json!({
            "answered": whole("larder_requests_total"),
            "from_cache": from_cache(metrics) as u64,
            "in_flight": whole("larder_requests_in_flight"),
        });
    }
    if let Some(name) = metrics.labels("larder_region_carrier", "region").into_iter().next() {
        let is_carrier = metrics.sum("larder_region_carrier", "") > 0.0;
        shown["region"] = json!({ "name": name, "carrier": is_carrier, "purge_lag_seconds": peers(metrics) });
    }
    let stores = metrics.labels("larder_store_max_bytes", "store");
    shown["stores"] = stores.iter().map(|name| store_object(metrics, name)).collect();
    shown["origins"] = origins(metrics).iter().map(Origin::object).collect();
    if metrics.has("larder_kv_keys") {
        shown["kv"] = json!({
            "keys": whole("larder_kv_keys"),
            "bytes": whole("larder_kv_memory_bytes"),
            "bytes_max": whole("larder_kv_memory_max_bytes"),
            "clients": whole("larder_kv_connections"),
        });
    }
    shown
}

fn store_object(metrics: &Metrics, name: &str) -> Value {
    let of = |metric: &str| json!(metrics.of_store(metric, name) as u64);
    let mut shown = json!({
        "name": if name.is_empty() { "default" } else { name },
        "responses": of("larder_store_entries"),
        "bytes": of("larder_store_bytes"),
        "bytes_max": of("larder_store_max_bytes"),
    });
    if metrics.has_store("larder_tier_verified", name) {
        shown["shared"] = json!({
            "answers": metrics.of_store("larder_tier_verified", name) > 0.0,
            "instances": of("larder_tier_instances"),
        });
    }
    shown
}

fn from_cache(metrics: &Metrics) -> f64 {
    let of = |word: &&str| metrics.sum("larder_requests_total", &format!("cache=\"{word}\""));
    ["hit", "stale", "revalidated", "collapsed"].iter().map(of).sum::<f64>()
}

fn requests(metrics: &Metrics) -> String {
    let answered = metrics.sum("larder_requests_total", "");
    let from_cache = from_cache(metrics);
    let percent = if answered > 0.0 { from_cache / answered * 100.0 } else { 0.0 };
    let in_flight = metrics.sum("larder_requests_in_flight", "");
    format!("requests: {answered} answered, {percent:.1} % of them from the cache; {in_flight} in flight")
}

/// Formats the state of a store. `name` is empty for `[store]`.
fn store(metrics: &Metrics, name: &str) -> String {
    let of = |metric: &str| metrics.of_store(metric, name);
    let shown = if name.is_empty() { "store".to_owned() } else { format!("store {name}") };
    // The number of instances is outdated if the tier doesn't answer.
    let shared = match of("larder_tier_instances") {
        count if count > 0.0 && of("larder_tier_verified") > 0.0 => format!("; instances {count}"),
        _ => String::new(),
    };
    let responses = match of("larder_store_entries") {
        1.0 => "1 response".to_owned(),
        count => format!("{count} responses"),
    };
    format!(
        "{shown}: {responses}, {} of {}{shared}",
        mebibytes(of("larder_store_bytes")),
        mebibytes(of("larder_store_max_bytes"))
    )
}

/// Returns a line about the server behind memory if it is unavailable.
fn silent_tier(metrics: &Metrics, name: &str) -> Option<String> {
    let is_there = metrics.has_store("larder_tier_verified", name);
    if !is_there || metrics.of_store("larder_tier_verified", name) > 0.0 {
        return None;
    }
    let shown = if name.is_empty() { "shared store".to_owned() } else { format!("shared store of {name}") };
    Some(match metrics.of_store("larder_tier_silence_seconds", name) {
        seconds if seconds >= 1.0 => format!("{shown}: no answer for {seconds:.0} s; serving alone"),
        _ => format!("{shown}: connection lost, or not verified yet; serving alone"),
    })
}

/// Returns the time since which purges of each other region may be unknown, in seconds, by the region.
fn peers(metrics: &Metrics) -> BTreeMap<String, f64> {
    let peers = metrics.labels("larder_region_purge_lag_seconds", "peer");
    let lag = |peer: String| {
        let seconds = metrics.sum("larder_region_purge_lag_seconds", &format!("peer=\"{peer}\""));
        (peer, seconds)
    };
    peers.into_iter().map(lag).collect()
}

/// Returns the line about this region; `None` if there is only one.
fn region(metrics: &Metrics) -> Option<String> {
    let name = metrics.labels("larder_region_carrier", "region").into_iter().next()?;
    let peer = |(peer, seconds): (String, f64)| match seconds >= LAG_NOTED_SECONDS {
        true => format!("purges of {peer} unknown for {seconds:.0} s"),
        false => format!("purges of {peer} known"),
    };
    let peers: Vec<_> = peers(metrics).into_iter().map(peer).collect();
    let role = if metrics.sum("larder_region_carrier", "") > 0.0 { ", carrier" } else { "" };
    Some(format!("region {name}{role}: {}", peers.join(", ")))
}

/// Time for which purges of another region may be unknown while all is well: the region's record is read and written every half second.
const LAG_NOTED_SECONDS: f64 = 5.0;

/// The state of an origin's servers.
struct Origin<'a> {
    name: &'a str,
    /// Servers with their states.
    servers: Vec<(&'a str, &'a str)>,
    /// State of the circuit breaker, if there is one.
    breaker: Option<&'a str>,
}

/// Returns the origins by name.
fn origins(metrics: &Metrics) -> Vec<Origin<'_>> {
    let mut origins = BTreeMap::new();
    for labels in metrics.holding("larder_origin_server_state") {
        let of = |label| value_of(labels, label).unwrap_or_default();
        let name = of("origin");
        let origin = origins.entry(name).or_insert(Origin { name, servers: Vec::new(), breaker: None });
        origin.servers.push((of("server"), of("state")));
    }
    for labels in metrics.holding("larder_origin_breaker") {
        let origin = value_of(labels, "origin").and_then(|name| origins.get_mut(name));
        origin.into_iter().for_each(|origin| origin.breaker = value_of(labels, "state"));
    }
    origins.into_values().collect()
}

impl Origin<'_> {
    /// Formats the state, unless the origin has one server and no fault.
    fn line(&self) -> Option<String> {
        let Self { name, servers, breaker } = self;
        let up = servers.iter().filter(|(_, state)| [UP, "slow_start"].contains(state)).count();
        let mut told = vec![format!("{up} of {} servers up", servers.len())];
        let others = servers.iter().filter(|(_, state)| *state != UP);
        told.extend(others.map(|(server, state)| format!("{server} {}", state.replace('_', " "))));
        let breaker = breaker.filter(|state| *state != "closed");
        told.extend(breaker.map(|state| format!("circuit breaker {}", state.replace('_', " "))));
        (servers.len() > 1 || told.len() > 1).then(|| format!("origin {name}: {}", told.join("; ")))
    }

    fn object(&self) -> Value {
        let server = |(url, state): &(&str, &str)| json!({ "url": url, "state": state });
        let servers: Vec<_> = self.servers.iter().map(server).collect();
        json!({ "name": self.name, "servers": servers, "breaker": self.breaker })
    }
}

const UP: &str = "up";

fn kv(metrics: &Metrics) -> String {
    let of = |metric: &str| metrics.sum(metric, "");
    format!(
        "kv: {} keys, {} of {}; {} clients",
        of("larder_kv_keys"),
        mebibytes(of("larder_kv_memory_bytes")),
        mebibytes(of("larder_kv_memory_max_bytes")),
        of("larder_kv_connections")
    )
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

/// Series of the Prometheus text format: labels as written, and values.
struct Metrics(BTreeMap<String, Vec<(String, f64)>>);

impl Metrics {
    fn parse(text: &str) -> Self {
        let mut series = BTreeMap::<String, Vec<(String, f64)>>::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let Ok(value) = value.parse() else { continue };
            series.entry(name.to_owned()).or_default().push((labels.to_owned(), value));
        }
        Self(series)
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &(String, f64)> {
        self.0.get(name).into_iter().flatten()
    }

    /// Returns the labels of series whose value isn't 0.
    fn holding(&self, name: &str) -> impl Iterator<Item = &str> {
        self.of(name).filter(|(_, value)| *value > 0.0).map(|(labels, _)| labels.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds up the series whose labels contain `part`.
    fn sum(&self, name: &str, part: &str) -> f64 {
        total(self.of(name).filter(|(labels, _)| labels.contains(part)))
    }

    /// Returns a value of a store. `store` is empty for `[store]`.
    fn of_store(&self, name: &str, store: &str) -> f64 {
        total(self.of(name).filter(|(labels, _)| value_of(labels, "store").unwrap_or_default() == store))
    }

    fn has_store(&self, name: &str, store: &str) -> bool {
        self.of(name).any(|(labels, _)| value_of(labels, "store").unwrap_or_default() == store)
    }

    fn label(&self, name: &str, label: &str) -> Option<String> {
        self.of(name).find_map(|(labels, _)| value_of(labels, label)).map(str::to_owned)
    }

    /// Returns all values of a label, with an empty one for a series that lacks it.
    fn labels(&self, name: &str, label: &str) -> Vec<String> {
        self.of(name).map(|(labels, _)| value_of(labels, label).unwrap_or_default().to_owned()).collect()
    }
}

/// Adds up values. The last term turns the empty sum of floating point numbers, which
/// is -0, into 0.
fn total<'a>(series: impl Iterator<Item = &'a (String, f64)>) -> f64 {
    series.map(|(_, value)| value).sum::<f64>() + 0.0
}

fn value_of<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let (_, rest) = labels.split_once(&format!("{label}=\""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_become_lines() {
        let text = "# TYPE larder_build_info gauge\n\
                    larder_build_info{version=\"1.2\",commit=\"abc\"} 1\n\
                    larder_requests_total{site=\"a\",cache=\"hit\"} 3\n\
                    larder_requests_total{site=\"a\",cache=\"miss\"} 1\n\
                    larder_requests_in_flight 2\n\
                    larder_store_max_bytes 2097152\nlarder_store_max_bytes{store=\"images\"} 4194304\n\
                    larder_store_bytes{class=\"stored\"} 1048576\nlarder_store_bytes{class=\"filling\"} 524288\n\
                    larder_store_bytes{store=\"images\",class=\"stored\"} 1048576\n\
                    larder_store_entries 7\nlarder_store_entries{store=\"images\"} 1\n\
                    larder_tier_instances{store=\"images\"} 3\nlarder_tier_verified{store=\"images\"} 1\n\
                    larder_region_carrier{region=\"eu\"} 1\nlarder_region_purge_lag_seconds{peer=\"asia\"} 61.2\n\
                    larder_region_purge_lag_seconds{peer=\"us\"} 0.4\n\
                    larder_tier_instances 2\nlarder_tier_verified 0\nlarder_tier_silence_seconds 12.3\n\
                    larder_origin_server_state{origin=\"shop\",server=\"http://a\",state=\"up\"} 1\n\
                    larder_origin_server_state{origin=\"shop\",server=\"http://a\",state=\"ejected\"} 0\n\
                    larder_origin_server_state{origin=\"shop\",server=\"http://b\",state=\"slow_start\"} 1\n\
                    larder_origin_server_state{origin=\"one\",server=\"http://c\",state=\"up\"} 1\n\
                    larder_origin_breaker{origin=\"shop\",state=\"closed\"} 0\nlarder_origin_breaker{origin=\"shop\",state=\"half_open\"} 1\n\
                    larder_origin_breaker{origin=\"one\",state=\"closed\"} 1\n";
        let told = [
            "larder 1.2: draining",
            "requests: 4 answered, 75.0 % of them from the cache; 2 in flight",
            "store: 7 responses, 1.5 MiB of 2.0 MiB",
            "shared store: no answer for 12 s; serving alone",
            "store images: 1 response, 1.0 MiB of 4.0 MiB; instances 3",
            "region eu, carrier: purges of asia unknown for 61 s, purges of us known",
            "origin shop: 2 of 2 servers up; http://b slow start; circuit breaker half open",
        ];
        assert_eq!(lines(&Metrics::parse(text), "draining"), told);
        let shown = object(&Metrics::parse(text), false, &["draining"]);
        let expected = json!({
            "version": "1.2",
            "ready": false,
            "reasons": ["draining"],
            "requests": { "answered": 4, "from_cache": 3, "in_flight": 2 },
            "region": { "name": "eu", "carrier": true, "purge_lag_seconds": { "asia": 61.2, "us": 0.4 } },
            "stores": [
                { "name": "default", "responses": 7, "bytes": 1_572_864, "bytes_max": 2_097_152,
                  "shared": { "answers": false, "instances": 2 } },
                { "name": "images", "responses": 1, "bytes": 1_048_576, "bytes_max": 4_194_304,
                  "shared": { "answers": true, "instances": 3 } },
            ],
            "origins": [
                { "name": "one", "servers": [{ "url": "http://c", "state": "up" }], "breaker": "closed" },
                { "name": "shop", "breaker": "half_open", "servers": [
                    { "url": "http://a", "state": "up" }, { "url": "http://b", "state": "slow_start" },
                ] },
            ],
        });
        assert_eq!(shown, expected);
        let kv = "larder_kv_keys 5\nlarder_kv_memory_bytes 1048576\nlarder_kv_memory_max_bytes 2097152\n";
        assert_eq!(lines(&Metrics::parse(kv), "ready")[1], "kv: 5 keys, 1.0 MiB of 2.0 MiB; 0 clients");
    }
}
