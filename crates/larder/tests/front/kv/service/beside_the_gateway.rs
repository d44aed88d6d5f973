//! `larder serve` with `[kv]`: gateway and cache server in one process.

use testkit::{KvService, Port, ScriptedOrigin, Setup, converse};

use crate::LARDER;
use crate::admin::operator::{site, start};

#[test]
fn one_process_serves_clients_of_both() {
    let origin = ScriptedOrigin::fixed("", "hi");
    let kv = Port::reserve();
    let larder = start(&site(&origin, &format!("[kv]\nlisten = [\"{}\"]\n", kv.address())));
    assert_eq!(larder.get("/").text(), "hi");
    assert_eq!(converse(kv.address(), b"SET k v\r\nGET k\r\n", usize::MAX), b"+OK\r\n$1\r\nv\r\n");
    assert_eq!(larder.metric("larder_kv_keys", &[]).to_string(), "1");
    // A request is counted after its response has been sent.
    larder.wait_for("larder_requests_total", &["site=\"a\""], |count| count == 1.0);
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
    let kv = KvService::start(LARDER, "");
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
