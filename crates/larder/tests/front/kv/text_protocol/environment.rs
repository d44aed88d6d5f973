//! The environment variables of poor-man-s-cache, tested by their effects, its metrics, and PERF.

use std::net::{IpAddr, Ipv4Addr};

use testkit::{Client, Kv, KvService, KvSetup, Port, wait};

use super::UNIT_SEPARATOR;
use super::messages::ask;
use crate::LARDER;

/// Variable that makes the server read the predecessor's variables.
const ASKED_FOR: (&str, &str) = ("LARDER_KV_ENVIRONMENT", "poor-man-s-cache");

fn start(variables: &[(&str, &str)], options: &str) -> KvService {
    let setup = KvSetup::new(LARDER).environment("SERVER_PORT", "0").environment(ASKED_FOR.0, ASKED_FOR.1);
    variables.iter().fold(setup, |setup, (name, value)| setup.environment(name, value)).start(options)
}

#[test]
fn server_port_chooses_address_and_protocol() {
    let kv = start(&[], "workers = 1");
    assert_eq!(kv.address().ip(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    assert_eq!(ask(&kv, &["SET a 1", "GET a"]), ["OK", "1"]);
    let log = kv.service.stderr();
    assert!(log.contains("SERVER_PORT: warning: kv.protected_mode: off"), "{log}");
    let kv = start(&[], "protected_mode = true");
    assert!(!kv.service.stderr().contains("protected_mode"), "the file sets it explicitly");
}

/// Other programs use these names too: read without opt-in, they would expose the server to all hosts.
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
fn variables_set_the_backlog_and_the_sizes_of_sockets() {
    let kv = start(&[("CONN_QUEUE_LIMIT", "77"), ("SOCK_BUF_SIZE", "65536")], "workers = 1");
    let port = format!("sport = :{}", kv.address().port());
    let line = testkit::run("ss", ["-tlmnH", &port]).succeeded().text();
    assert_eq!(line.split_whitespace().nth(2), Some("77"), "{line}");
    // The kernel doubles the size, for its own overhead.
    assert!(line.contains("rb131072") && line.contains("tb131072"), "{line}");
}

/// The metrics port has no admin API, because only metrics were requested. Arguments take precedence over the environment.
#[test]
fn metrics_have_the_names_of_the_predecessor_beside_ours() {
    let port = Port::reserve();
    let number = format!("METRICS_PORT={}", port.address().port());
    let tool = ["env", "SERVER_PORT=1", "METRICS_HOST=127.0.0.1", &number];
    let kv = Kv::start_under(&tool, LARDER, &["--environment", "poor-man-s-cache"]);
    wait::until_true("it is ready", || kv.service.stderr().contains("probes and metrics"));
    let ask = |method: &str, target: &str| {
        let mut client = Client::connect(port.address());
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        client.response()
    };
    let metric = |series: &str| {
        let text = ask("GET", "/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {series} in {text}"))
    };
    let before = ["server_num_requests_total", "server_num_errors_total"].map(metric);
    let requests = b"SET a 1\x1fGET a\x1fGET b\x1fDEL b\x1f*1\r\n$6\r\nNOSUCH\r\n";
    assert!(testkit::converse(kv.address(), requests, usize::MAX).starts_with(b"OK\x1f1\x1f(nil)\x1f"));
    let after = ["server_num_requests_total", "server_num_errors_total"].map(metric);
    assert!(after[0] >= before[0] + 4.0 && after[1] > before[1], "{before:?} {after:?}");
    assert_eq!(metric("larder_kv_keys").to_string(), "1");
    let client = std::net::TcpStream::connect(kv.address()).expect("it listens");
    wait::until_true("it is counted", || metric("server_num_active_connections") >= 1.0);
    drop(client);
    wait::until_true("it is gone", || metric("server_num_active_connections") < 1.0);
    let scrapes = metric("exposer_scrapes_total");
    assert!(metric("exposer_scrapes_total") > scrapes);
    assert!(metric("exposer_transferred_bytes_total") > 0.0);
    assert!(metric("exposer_request_latencies{quantile=\"0.5\"}") > 0.0);
    assert!(metric("exposer_request_latencies_count") > scrapes);
    for (method, target, status) in [
        ("GET", "/live", 200),
        ("GET", "/ready", 200),
        ("GET", "/", 404),
        ("POST", "/reload", 404),
        ("POST", "/purge", 404),
    ] {
        assert_eq!(ask(method, target).status(), status, "{target}");
    }
    assert!(!kv.service.stderr().contains("admin API"), "{}", kv.service.stderr());
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
