//! The environment variables of the predecessor, each by its effect; its metrics; PERF.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use testkit::{Client, KvService, KvSetup, Port};

use super::UNIT_SEPARATOR;
use super::messages::ask;
use crate::LARDER;

/// Its variables are read where this says so.
const ASKED_FOR: (&str, &str) = ("LARDER_KV_ENVIRONMENT", "poor-man-s-cache");

fn start(variables: &[(&str, &str)], options: &str) -> KvService {
    let setup = KvSetup::new(LARDER).environment("SERVER_PORT", "0").environment(ASKED_FOR.0, ASKED_FOR.1);
    variables.iter().fold(setup, |setup, (name, value)| setup.environment(name, value)).start(options)
}

/// What `ss` tells of the listening socket.
fn socket(kv: &KvService) -> String {
    let port = format!("sport = :{}", kv.address().port());
    testkit::run("ss", ["-tlmnH", &port]).succeeded().text()
}

#[test]
fn server_port_chooses_address_and_protocol() {
    let kv = start(&[], "workers = 1");
    assert_eq!(kv.address().ip(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    assert_eq!(ask(&kv, &["SET a 1", "GET a"]), ["OK", "1"]);
    let log = kv.service.stderr();
    assert!(log.contains("SERVER_PORT: warning: kv.protected_mode: off"), "{log}");
    let kv = start(&[], "protected_mode = true");
    assert!(!kv.service.stderr().contains("protected_mode"), "the file has said what is wanted");
}

/// Other programs set these names too: without being asked for they would open the server to everybody.
#[test]
fn nobody_elses_variables_are_read_unasked() {
    let setup = KvSetup::new(LARDER).environment("SERVER_PORT", "0").environment("NUM_SHARDS", "many");
    let kv = setup.environment("METRICS_PORT", "1").start("");
    assert_eq!(kv.address().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(kv.ask("PING\r\n"), "+PONG\r\n");
    assert_eq!(kv.ask("CONFIG GET protected-mode\r\n"), "*2\r\n$14\r\nprotected-mode\r\n$3\r\nyes\r\n");
    assert!(!kv.service.stderr().contains("warning"), "{}", kv.service.stderr());
}

#[test]
fn arguments_go_over_the_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(LARDER);
    command
        .args(["kv", "--environment", "poor-man-s-cache", "--listen", "127.0.0.1:0"])
        .env("SERVER_PORT", "1");
    let mut service = testkit::Service::start(&mut command, folder.path(), "kv");
    let address: SocketAddr = testkit::wait::until("it prints its address", || {
        service.assert_runs();
        service.listening().first().copied()
    });
    assert_eq!(testkit::converse(address, b"SET a 1\x1f", usize::MAX), b"OK\x1f");
}

#[test]
fn conn_queue_limit_is_the_backlog() {
    let kv = start(&[("CONN_QUEUE_LIMIT", "77")], "workers = 1");
    let line = socket(&kv);
    assert_eq!(line.split_whitespace().nth(2), Some("77"), "{line}");
}

#[test]
fn sock_buf_size_is_that_of_the_sockets() {
    let kv = start(&[("SOCK_BUF_SIZE", "65536")], "workers = 1");
    // The kernel takes twice of it, for what it needs itself.
    let line = socket(&kv);
    assert!(line.contains("rb131072") && line.contains("tb131072"), "{line}");
}

#[test]
fn variables_without_effect_are_told_at_the_start() {
    let kv = start(&[("NUM_SHARDS", "24"), ("RESP_INLINE_CAPACITY", "255")], "");
    let log = kv.service.stderr();
    for name in ["NUM_SHARDS", "RESP_INLINE_CAPACITY"] {
        assert!(log.contains(&format!("{name}: warning: has no effect")), "{log}");
    }
}

#[test]
fn a_bad_value_is_an_error() {
    let output = Command::new(LARDER)
        .args(["kv", "--environment", "poor-man-s-cache"])
        .env("SERVER_PORT", "http")
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("SERVER_PORT: error: expected a port"), "{told}");
}

/// The value of a series in the metrics at an address.
fn metric(address: SocketAddr, series: &str) -> f64 {
    let mut client = Client::connect(address);
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let text = client.response_to("GET").text();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in {text}"))
}

#[test]
fn metrics_have_the_names_of_the_predecessor_beside_ours() {
    let port = Port::reserve();
    let (host, number) = ("127.0.0.1", port.address().port().to_string());
    let kv = start(&[("METRICS_HOST", host), ("METRICS_PORT", &number)], "");
    let address = port.address();
    let (requests, errors) =
        (metric(address, "server_num_requests_total"), metric(address, "server_num_errors_total"));
    assert_eq!(ask(&kv, &["SET a 1", "GET a", "GET b", "DEL b"]).len(), 4);
    testkit::converse(kv.address(), b"*1\r\n$6\r\nNOSUCH\r\n", usize::MAX);
    assert!(metric(address, "server_num_requests_total") >= requests + 4.0);
    assert!(metric(address, "server_num_errors_total") >= errors + 1.0);
    assert_eq!(metric(address, "larder_kv_keys").to_string(), "1");
    let client = std::net::TcpStream::connect(kv.address()).expect("it listens");
    testkit::wait::until_true("it is counted", || metric(address, "server_num_active_connections") >= 1.0);
    drop(client);
    testkit::wait::until_true("it is gone", || metric(address, "server_num_active_connections") < 1.0);
    let scrapes = metric(address, "exposer_scrapes_total");
    assert!(metric(address, "exposer_scrapes_total") > scrapes);
    assert!(metric(address, "exposer_transferred_bytes_total") > 0.0);
    assert!(metric(address, "exposer_request_latencies{quantile=\"0.5\"}") > 0.0);
    assert!(metric(address, "exposer_request_latencies_count") > scrapes);
}

/// Metrics were asked for, and nothing that changes anything.
#[test]
fn metrics_bring_no_admin_api_with_them() {
    let port = Port::reserve();
    let (folder, number) = (tempfile::tempdir().expect("a folder"), port.address().port().to_string());
    let mut command = Command::new(LARDER);
    command.args(["kv", "--environment", "poor-man-s-cache"]).env("SERVER_PORT", "0");
    command.env("METRICS_HOST", "127.0.0.1").env("METRICS_PORT", &number);
    let mut service = testkit::Service::start(&mut command, folder.path(), "kv");
    testkit::wait::until_true("it is ready", || {
        service.assert_runs();
        service.stderr().contains("probes and metrics")
    });
    let ask = |line: &str| {
        let mut client = Client::connect(port.address());
        client.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        client.response().status()
    };
    assert_eq!(["GET /live", "GET /ready", "GET /metrics"].map(ask), [200, 200, 200]);
    assert_eq!(["GET /", "POST /reload", "POST /purge"].map(ask), [404, 404, 404]);
    assert!(!service.stderr().contains("admin API"), "{}", service.stderr());
}

#[test]
fn perf_tells_what_commands_cost() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let messages = [["SET a 1"; 3].as_slice(), &["GET a", "DEL a"]].concat();
    assert_eq!(ask(&kv, &messages), ["OK", "OK", "OK", "1", "OK"]);
    let told = ask(&kv, &["PERF", "GET a"]);
    for command in ["cmdstat_set:calls=3,usec=", "cmdstat_get:calls=1,", "cmdstat_del:calls=1,"] {
        assert!(told[0].contains(command), "no {command} in {}", told[0]);
    }
    assert!(told[0].contains("latency_percentiles_usec_set:"), "{}", told[0]);
    assert_eq!(told[1], "(nil)");
}
