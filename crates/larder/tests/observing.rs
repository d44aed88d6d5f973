//! What `deploy/` gives those who watch Larder: a real Prometheus finds what dashboards and rules ask for, and alerts
//! fire when what they are for happens.

#[path = "observing/dashboards.rs"]
mod dashboards;
#[path = "observing/load.rs"]
mod load;
#[path = "observing/prometheus.rs"]
mod prometheus;

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use dashboards::{Query, declared, metrics_in};
use load::{Gateway, Load};
use prometheus::{Prometheus, Targets, deploy};
use testkit::{KvService, Larder, Port, Redis, ScriptedOrigin, Setup, run, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Everything that is watched, and clients that keep it busy. Time limits are wide: on a busy machine, a server that is late
/// is no fault.
struct World {
    origin: ScriptedOrigin,
    redis: Redis,
    gateways: Vec<Larder>,
    kv: KvService,
    prometheus: Prometheus,
    _load: Load,
}

impl World {
    #[track_caller]
    fn start() -> Self {
        let (origin, redis) = (load::origin(), Redis::start(""));
        let balanced = [Port::reserve(), Port::reserve()];
        let start = |port: &Port| Setup::config(LARDER, &config(&origin, &redis, port)).start();
        let gateways: Vec<Larder> = balanced.iter().map(start).collect();
        for gateway in &gateways {
            wait::until_true("they know each other", || gateway.metric("larder_tier_instances", &[]) == 2.0);
        }
        let kv = KvService::start(
            LARDER,
            "maxmemory = \"4MiB\"\nmaxmemory_policy = \"noeviction\"\nsave_file = \"saved\"",
        );
        let places: Vec<_> = gateways
            .iter()
            .zip(&balanced)
            .map(|(gateway, balanced)| Gateway {
                clients: gateway.address(),
                of_balancer: balanced.address(),
                admin: gateway.admin(),
            })
            .collect();
        let load = Load::start(&places, kv.address());
        let targets = Targets { gateways: places.iter().map(|place| place.admin).collect(), kv: kv.admin() };
        Self { origin, redis, gateways, kv, prometheus: Prometheus::start(&targets), _load: load }
    }

    /// Faults that pass: they are made again until their alerts fire.
    fn passing_faults(&self) {
        for key in ["a", "b", "c"] {
            self.kv.ask(&format!("SETRANGE {key} 1500000 x\r\n"));
        }
        let answer = self.gateways[0].ask_admin("POST", "/purge?site=shop", "");
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }

    /// Waits until all these alerts fire.
    #[track_caller]
    fn fires(&self, alerts: &[&str]) {
        let mut firing = BTreeSet::new();
        let end = Instant::now() + wait::DEADLINE / 2;
        wait::until_true("alerts fire", || {
            self.passing_faults();
            firing = self.prometheus.alerts("firing");
            Instant::now() > end || alerts.iter().all(|alert| firing.contains(*alert))
        });
        let silent: Vec<_> = alerts.iter().filter(|alert| !firing.contains(**alert)).collect();
        assert!(silent.is_empty(), "silent: {silent:?}; firing: {firing:?}");
    }
}

fn config(origin: &ScriptedOrigin, redis: &Redis, balanced: &Port) -> String {
    format!(
        "listen = [\"@listen@\", {{ address = \"{}\", proxy_protocol = true, proxy_protocol_from = [\"192.0.2.1\"] }}]\n\
         [store.remote]\nurl = \"redis://{}/0\"\nrecord_timeout = \"5s\"\nsegment_timeout = \"5s\"\n\
         log_timeout = \"5s\"\nverification_time = \"10s\"\n\
         [[origin]]\nname = \"pages\"\nurl = \"{}\"\n\
         [[site]]\nname = \"shop\"\nhosts = [\"test.example\"]\norigin = \"pages\"\n\
         [[site.rule]]\nname = \"pages\"\npath = {{ prefix = \"/pages\" }}\n",
        balanced.address(),
        redis.address(),
        origin.url()
    )
}

/// All queries of panels, and the names of all recording rules, each with its place.
fn queries(prometheus: &Prometheus) -> Vec<Query> {
    let panels = dashboards::all().into_iter().flat_map(|dashboard| dashboard.queries());
    let recorded = prometheus.rules().into_iter().filter(|rule| rule.state.is_none());
    let recorded = recorded.map(|rule| Query { place: "a recording rule".to_owned(), text: rule.name });
    panels.chain(recorded).collect()
}

/// Waits until each query has found something.
#[track_caller]
fn find_data(prometheus: &Prometheus) {
    let mut left = queries(prometheus);
    assert!(left.len() > 100, "{}", left.len());
    let rate = "rate(larder_requests_total[4s])";
    wait::until_true("there are rates", || prometheus.series(rate) > 0);
    let end = Instant::now() + wait::DEADLINE / 2;
    wait::until_true("the queries have found something", || {
        left.retain(|query| prometheus.series(&query.text) == 0);
        left.is_empty() || Instant::now() > end
    });
    let left: Vec<_> = left.iter().map(|query| format!("{}: {}", query.place, query.text)).collect();
    assert!(left.is_empty(), "no data: {left:#?}");
}

#[test]
fn prometheus_finds_what_panels_ask_for_and_alerts_fire() {
    let mut world = World::start();
    find_data(&world.prometheus);
    for rule in world.prometheus.rules() {
        assert_eq!(rule.health, "ok", "{}", rule.name);
        for metric in metrics_in(&rule.query) {
            assert_ne!(world.prometheus.series(&metric_or_count(&metric)), 0, "{}: {metric}", rule.name);
        }
    }
    assert_eq!(world.prometheus.alerts("firing"), BTreeSet::new(), "nothing is out of order");

    world.gateways[0].write_config("site = 1");
    assert_eq!(world.gateways[0].ask_admin("POST", "/reload", "").status(), 422);
    fs::create_dir(world.kv.folder().join("saved")).expect("a folder where a file should be");
    world.kv.ask("BGSAVE\r\n");
    world.redis.kill();
    world.origin.stop();
    world.fires(&[
        "LarderReloadRefused",
        "LarderKvSaveFailed",
        "LarderKvNoRoom",
        "LarderStoreAway",
        "LarderPurgePartial",
        "LarderOriginFailing",
        "LarderErrors",
    ]);
    drop(world.gateways.pop());
    world.fires(&["LarderDown"]);
}

/// A histogram has no series of its own name.
fn metric_or_count(metric: &str) -> String {
    let is_histogram = metric.ends_with("_duration_seconds");
    if is_histogram { format!("{metric}_count") } else { metric.to_owned() }
}

#[test]
fn promtool_takes_configuration_rules_and_their_tests() {
    let prometheus = deploy().join("prometheus");
    let path = |name: &str| prometheus.join(name).display().to_string();
    run("promtool", ["check", "config", &path("prometheus.yml")]).succeeded();
    run("promtool", ["check", "rules", &path("rules/recording.yml"), &path("rules/alerts.yml")]).succeeded();
    run("promtool", ["test", "rules", &path("tests/alerts.yml")]).succeeded();
}

/// Metrics that no dashboard shows: those of traces are there where spans are sent, and whoever looks at traces has a collector to look at. Those of
/// several servers of an origin, of limits, of transformation rules and of compression are there where a file has them.
const NOT_SHOWN: [&str; 19] = [
    "larder_compression_input_bytes_total",
    "larder_compression_output_bytes_total",
    "larder_compression_responses_total",
    "larder_compression_skipped_total",
    "larder_log_dropped_total",
    "larder_misses_refused_total",
    "larder_origin_breaker",
    "larder_origin_breaker_opened_total",
    "larder_origin_retries_over_budget_total",
    "larder_origin_server_checks_total",
    "larder_origin_server_ejections_total",
    "larder_origin_server_requests_in_flight",
    "larder_origin_server_requests_total",
    "larder_origin_server_state",
    "larder_rate_limited_total",
    "larder_tier_silence_seconds",
    "larder_trace_exports_total",
    "larder_trace_spans_total",
    "larder_transforms_total",
];

#[test]
fn dashboards_show_every_metric_and_no_other() {
    let queried = |dashboard: dashboards::Dashboard| {
        let of_panels = dashboard.queries().into_iter().flat_map(|query| metrics_in(&query.text));
        of_panels.chain(dashboard.metrics_of_variables()).collect::<BTreeSet<_>>()
    };
    let shown: BTreeSet<String> = dashboards::all().into_iter().flat_map(queried).collect();
    let declared = declared();
    assert!(declared.len() > 60, "{declared:?}");
    let unknown: Vec<_> = shown.difference(&declared).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    let not_shown: Vec<_> = declared.difference(&shown).collect();
    assert_eq!(not_shown, NOT_SHOWN, "show a new metric, or list it");
}

#[test]
fn dashboards_are_whole() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards::all() {
        let name = dashboard.name;
        assert!(uids.insert(dashboard.json["uid"].as_str().expect("a uid").to_owned()), "{name}");
        assert!(dashboard.json["schemaVersion"].as_u64() >= Some(38), "{name}: Grafana 10 or newer");
        let ids: BTreeSet<_> = dashboard.panels().iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), dashboard.panels().len(), "{name}: ids are unique");
        assert!(!ids.contains(&None), "{name}: each panel has an id");
        assert_eq!(dashboard.variables()[0]["type"], "datasource", "{name}");
        for variable in &dashboard.variables()[1..] {
            assert_eq!(variable["datasource"]["uid"], "${datasource}", "{name}: {variable}");
        }
        for panel in dashboard.shown() {
            check_panel(&format!("{name}: {}", panel["title"]), panel);
        }
    }
}

fn check_panel(place: &str, panel: &serde_json::Value) {
    assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{place} has a unit");
    let targets = panel["targets"].as_array().expect(place);
    let sources = targets.iter().chain([panel]).map(|holder| &holder["datasource"]["uid"]);
    sources.for_each(|uid| assert_eq!(uid, "${datasource}", "{place}"));
    let letters: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str()).collect();
    assert_eq!(letters.len(), targets.len(), "{place}: each query has a letter of its own");
    let at = |side: &str| panel["gridPos"][side].as_u64().expect(place);
    assert!(at("w") > 0 && at("h") > 0 && at("x") + at("w") <= 24, "{place} is on the page");
}

#[test]
fn each_alert_says_what_it_means_and_what_to_do() {
    let text = |path: &str| fs::read_to_string(deploy().join(path)).expect(path);
    let (rules, guide) = (text("prometheus/rules/alerts.yml"), text("../docs/guide/observe.md"));
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 20, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name}: {part}");
        }
        let runbook = format!("runbook: docs/guide/observe.md#{}\n", name.to_lowercase());
        assert!(alert.contains(&runbook), "{name}: {runbook}");
        assert!(guide.contains(&format!("\n### {name}\n")), "{name} has a section in the guide");
    }
    let headings = guide.lines().filter_map(|line| line.strip_prefix("### Larder"));
    assert_eq!(headings.count(), rules.matches("- alert: ").count(), "no section is left over");
}
