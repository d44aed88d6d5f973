//! Dashboards, rules and alerts of `deploy/`: a real Prometheus finds data for each query, and each alert fires for its fault.

mod faults;
mod load;
mod panels;
mod prometheus;
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use faults::{FAULTS, Trouble};
use panels::{Query, declared, metrics_in};
use prometheus::{Prometheus, deploy};
use testkit::{run, wait};
use world::World;

/// Waits until each query has found data.
#[track_caller]
fn find_data(prometheus: &Prometheus) {
    let mut left: Vec<_> = panels::all().iter().flat_map(panels::Dashboard::queries).collect();
    // The recording rules have their names as queries.
    let recorded = prometheus.rules().into_iter().filter(|rule| rule.firing.is_none());
    left.extend(recorded.map(|rule| Query { place: "a recording rule".to_owned(), text: rule.name }));
    assert!(left.len() > 100, "{}", left.len());
    let rate = "rate(larder_requests_total[4s])";
    wait::until_true("there are rates", || prometheus.series(rate) > 0);
    let end = Instant::now() + wait::DEADLINE * 9 / 10;
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
        for mut metric in metrics_in(&rule.query) {
            // A histogram has no series with its own name.
            metric += if metric.ends_with("_duration_seconds") { "_count" } else { "" };
            assert_ne!(world.prometheus.series(&metric), 0, "{}: {metric}", rule.name);
        }
    }
    has_faults_for_all_alerts(&world.prometheus);
    nothing_fires(&world.prometheus);

    let (last, others) = FAULTS.split_last().expect("there are faults");
    let mut trouble = Trouble::make(&mut world);
    trouble.fires(others);
    trouble.halves_are_told();
    trouble.make_last();
    trouble.fires(&[*last]);
}

#[track_caller]
fn nothing_fires(prometheus: &Prometheus) {
    let end = Instant::now() + wait::DEADLINE * 9 / 10;
    // On a busy machine, an alert may fire for a moment.
    let firing = wait::until("no alert fires", || {
        let firing = prometheus.firing();
        (firing.is_empty() || Instant::now() > end).then_some(firing)
    });
    assert!(firing.is_empty(), "{firing:#?}");
}

#[track_caller]
fn has_faults_for_all_alerts(prometheus: &Prometheus) {
    let rules = prometheus.rules().into_iter();
    let alerts = rules.filter(|rule| rule.firing.is_some()).map(|rule| rule.name).collect();
    let made: BTreeSet<String> = FAULTS.iter().map(|fault| fault.0.to_owned()).collect();
    assert_eq!(made, alerts, "each alert has a fault for which it fires here");
    assert_eq!(made.len(), FAULTS.len(), "and each only one");
}

#[test]
fn promtool_takes_configuration_rules_and_their_tests() {
    let prometheus = deploy().join("prometheus");
    let path = |name: &str| prometheus.join(name).display().to_string();
    run("promtool", ["check", "config", &path("prometheus.yml")]).succeeded();
    run("promtool", ["check", "rules", &path("rules/recording.yml"), &path("rules/alerts.yml")]).succeeded();
    run("promtool", ["test", "rules", &path("tests/alerts.yml")]).succeeded();
}

#[test]
fn dashboards_show_every_metric_and_no_other() {
    let queried = |dashboard: panels::Dashboard| {
        let of_panels = dashboard.queries().into_iter().flat_map(|query| metrics_in(&query.text));
        of_panels.chain(dashboard.metrics_of_variables()).collect::<BTreeSet<_>>()
    };
    let shown: BTreeSet<String> = panels::all().into_iter().flat_map(queried).collect();
    let declared = declared();
    assert!(declared.len() > 60, "{declared:?}");
    let unknown: Vec<_> = shown.difference(&declared).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    let not_shown: Vec<_> = declared.difference(&shown).collect();
    assert!(not_shown.is_empty(), "show them: {not_shown:?}");
}

#[test]
fn dashboards_are_whole() {
    let mut uids = BTreeSet::new();
    for dashboard in panels::all() {
        let name = dashboard.name;
        assert!(uids.insert(dashboard.json["uid"].to_string()), "{name}");
        assert!(dashboard.json["schemaVersion"].as_u64() >= Some(38), "{name}: Grafana 10 or newer");
        let ids: BTreeSet<_> = dashboard.panels().iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), dashboard.panels().len(), "{name}: ids are unique");
        assert!(!ids.contains(&None), "{name}: each panel has an id");
        assert_eq!(dashboard.variables()[0]["type"], "datasource", "{name}");
        for variable in &dashboard.variables()[1..] {
            assert_eq!(variable["datasource"]["uid"], "${datasource}", "{name}: {variable}");
        }
        for panel in dashboard.shown() {
            let place = format!("{name}: {}", panel["title"]);
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{place} has a unit");
            let targets = panel["targets"].as_array().expect(&place);
            for holder in targets.iter().chain([panel]) {
                assert_eq!(holder["datasource"]["uid"], "${datasource}", "{place}");
            }
            let letters: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str()).collect();
            assert_eq!(letters.len(), targets.len(), "{place}: each query has a letter of its own");
            let [x, w, h] = ["x", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect(&place));
            assert!(w > 0 && h > 0 && x + w <= 24, "{place} is on the page");
        }
    }
}

#[test]
fn each_alert_says_what_it_means_and_what_to_do() {
    let text = |path: &str| fs::read_to_string(deploy().join(path)).expect(path);
    let (rules, guide) = (text("prometheus/rules/alerts.yml"), text("../docs/operate/observe.md"));
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 30, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name}: {part}");
        }
        let runbook = format!("runbook: docs/operate/observe.md#{}\n", name.to_lowercase());
        assert!(alert.contains(&runbook), "{name}: {runbook}");
        assert!(guide.contains(&format!("\n### {name}\n")), "{name} has a section in the guide");
    }
    let headings = guide.lines().filter_map(|line| line.strip_prefix("### Larder"));
    assert_eq!(headings.count(), rules.matches("- alert: ").count(), "no section is left over");
}
