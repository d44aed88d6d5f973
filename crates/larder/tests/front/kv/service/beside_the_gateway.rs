//! `larder serve` with `[kv]`: gateway and cache server in one process.

use testkit::{Port, ScriptedOrigin, Setup, converse, wait};

use crate::LARDER;

#[test]
fn one_process_serves_clients_of_both() {
    let origin = ScriptedOrigin::fixed("", "hi");
    let kv = Port::reserve();
    let larder = Setup::config(
        LARDER,
        &format!(
            "[kv]\nlisten = [\"{}\"]\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
            kv.address(),
            origin.url()
        ),
    )
    .start();
    assert_eq!(larder.get("/").text(), "hi");
    assert_eq!(converse(kv.address(), b"SET k v\r\nGET k\r\n", usize::MAX), b"+OK\r\n$1\r\nv\r\n");
    assert_eq!(larder.metric("larder_kv_keys", &[]).to_string(), "1");
    // A request is counted after its response has been sent.
    wait::until_true("it is counted", || larder.metric("larder_requests_total", &["site=\"a\""]) > 0.0);
    assert_eq!(larder.metric("larder_requests_total", &["site=\"a\""]).to_string(), "1");
}

/// Names in the lines of `/metrics`, without process metrics.
fn metrics(answer: &str) -> Vec<String> {
    let lines = answer.lines().filter(|line| line.starts_with("larder_"));
    let names = lines.map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned());
    names.filter(|name| name != "larder_build_info").collect()
}

/// A dashboard shows only the parts that run.
#[test]
fn each_part_has_its_metrics_where_it_runs() {
    let of_kv = |names: &[String]| names.iter().filter(|name| name.starts_with("larder_kv_")).count();
    let larder = Setup::origin(LARDER, "http://127.0.0.1:1").start();
    let gateway = metrics(&larder.ask_admin("GET", "/metrics", "").text());
    assert_eq!(of_kv(&gateway), 0, "{gateway:?}");
    assert!(gateway.len() > 20, "{gateway:?}");
    let kv = testkit::KvService::start(LARDER, "");
    let kv = metrics(&kv.ask_admin("GET", "/metrics").text());
    assert!(of_kv(&kv) > 15, "{kv:?}");
    let others: Vec<_> = kv.iter().filter(|name| !name.starts_with("larder_kv_")).collect();
    let both = [
        &["larder_access_log_dropped_total"][..],
        &["larder_admin_refused_total"; 5],
        &["larder_log_dropped_total", "larder_reloads_total", "larder_reloads_total"],
    ];
    assert_eq!(others, both.concat(), "{kv:?}");
}

/// The time of a command is estimated from samples, and each new sample changes the weights of the others. If the estimate fell, Prometheus
/// would take that for a restart, and count all of it again.
#[test]
fn the_time_of_a_command_never_falls() {
    let kv = testkit::KvService::start(LARDER, "workers = 1");
    let mut told = 0.0;
    for _ in 0..40 {
        kv.ask("STRLEN k\r\n");
        let now = kv.metric("larder_kv_command_seconds_total{command=\"strlen\"}").expect("it was called");
        assert!(now >= told, "{now} after {told}");
        told = now;
    }
    kv.ask("CONFIG RESETSTAT\r\nSTRLEN k\r\n");
    let counted = kv.metric("larder_kv_command_duration_seconds_count{command=\"strlen\"}");
    assert_eq!(counted, Some(1.0), "the first call after a reset is a sample");
}
