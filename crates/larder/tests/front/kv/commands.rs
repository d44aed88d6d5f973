//! Commands of `larder kv` that Redis 7.0 lacks, or whose replies can't be part of a fixed conversation.

use std::fs;
use std::net::SocketAddr;

use testkit::{Kv, KvService, Redis, RespClient};

use super::sessions::scenario::files;
use super::sessions::{Talker, told};
use crate::LARDER;

fn start(arguments: &[&str]) -> Kv {
    Kv::start(LARDER, arguments)
}

#[test]
fn msetnx_that_must_evict_is_decided_once() {
    let kv = start(&["--maxmemory", "4MiB", "--workers", "1"]);
    let mut client = RespClient::connect(kv.address());
    let value = vec![b'v'; 300 << 10];
    for number in 0..20 {
        let names = [0, 1, 2, 3].map(|part| format!("key-{number}-{part}"));
        let pairs = names.iter().flat_map(|name| [name.as_bytes(), &value]);
        let request: Vec<_> = [&b"MSETNX"[..]].into_iter().chain(pairs).collect();
        assert_eq!(client.ask(&request), b":1\r\n", "none of {names:?} existed");
    }
}

#[test]
fn use_of_a_key_is_told_where_it_counts() {
    let freq = |policy| {
        let kv = start(&["--maxmemory-policy", policy]);
        kv.ask(&["SET a 1", "GET a", "GET a", "OBJECT FREQ a", "OBJECT FREQ none"])
    };
    assert!(freq("allkeys-s3fifo").ends_with("$1\r\n1\r\n:2\r\n$-1\r\n"));
    assert!(freq("allkeys-lru").contains("-ERR An LFU maxmemory policy is not selected"));
    let lfu = freq("allkeys-lfu");
    let count = lfu.split("\r\n:").nth(1).and_then(|end| end.split("\r\n").next()?.parse().ok());
    assert!(count.is_some_and(|count: u32| count >= 5), "{lfu}");
}

/// Clients order events by these times, and several commands fit into a millisecond.
#[test]
fn time_is_in_microseconds() {
    let replies = start(&[]).ask(&["TIME"; 20]);
    let lines: Vec<&str> = replies.lines().collect();
    let micros = lines.chunks_exact(5).map(|reply| reply[4].parse::<u32>().expect("microseconds"));
    assert!(micros.clone().all(|micros| micros < 1_000_000), "{replies}");
    assert!(micros.clone().any(|micros| micros % 1_000 != 0), "{replies}");
}

/// `conformance/resp/*.replies`: conversations that start with an empty server and list a reply to each command.
#[test]
fn commands_beyond_redis_are_answered_as_written() {
    let kv = start(&[]);
    for file in files("replies") {
        let text = fs::read_to_string(&file).expect("the file");
        let mut client = Talker::connect(kv.address());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with("== ") {
                client.expect("RESET\r\nFLUSHALL", "+RESET\r\n+OK\r\n");
                continue;
            }
            let (command, reply) = line.split_once(" => ").unwrap_or_else(|| panic!("no reply: {line}"));
            client.expect(command, &format!("{}\r\n", reply.replace("\\r", "\r").replace("\\n", "\n")));
        }
    }
}

/// The error is final, and has no word that makes a client retry.
#[test]
fn scripts_are_refused_for_good() {
    let kv = start(&[]);
    let refused = "-ERR scripts are not supported: this server has no Lua and no functions\r\n";
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let commands = format!(
        "EVAL \"return 1\" 0|EVAL_RO \"return 1\" 0|EVALSHA {sha} 0|evalsha_ro {sha} 1 k|FCALL f 0|FCALL_RO f 1 k|\
         SCRIPT LOAD \"return 1\"|FUNCTION LOAD REPLACE x|FUNCTION RESTORE x"
    );
    for command in commands.split('|') {
        let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
        let told = kv.ask(&[command, "MULTI", command, "EXEC"]);
        assert_eq!(told, format!("{refused}+OK\r\n{refused}{aborted}"), "{command}");
    }
}

#[test]
fn commands_and_memory_are_described() {
    let kv = start(&[]);
    kv.ask(&["SET small 1", &format!("SET large {}", "v".repeat(50_000))]);
    for (command, parts) in [
        ("COMMAND INFO msetex", &["+movablekeys\r\n:0\r\n:0\r\n:0\r\n"][..]),
        ("COMMAND DOCS set", &["$7\r\nsummary\r\n", "$5\r\nIFDEQ\r\n", "$10\r\npure-token\r\n"]),
        ("COMMAND DOCS object", &["$11\r\nsubcommands\r\n", "object|encoding"]),
        ("INFO cluster", &["cluster_enabled:0\r\n"]),
        ("MEMORY STATS", &["keys.count\r\n:2\r\n"]),
        ("MEMORY DOCTOR", &["No memory problems"]),
        ("OBJECT HELP", &["+FREQ key\r\n+    Returns"]),
    ] {
        let told = kv.ask(&[command]);
        parts.iter().for_each(|part| assert!(told.contains(part), "{part}: {told}"));
    }
    let number = |reply: String| reply[1..].trim_end().parse::<usize>().expect("a number");
    let [small, large] = ["small", "large"].map(|key| number(kv.ask(&[&format!("MEMORY USAGE {key}")])));
    assert!((10..200).contains(&small) && (50_000..70_000).contains(&large), "{small} {large}");
    assert!(kv.ask(&["COMMAND"]).starts_with(&kv.ask(&["COMMAND COUNT"]).replace(':', "*")));
}

#[test]
fn commands_hits_and_errors_are_counted() {
    let kv = start(&["--workers", "2", "--maxmemory", "64MiB"]);
    kv.ask(&["SET a 1", "GET a", "GET a", "GET none", "MGET a none", "INCR b"]);
    kv.ask(&["OBJECT ENCODING a", "GET", "SET a 1 FOO"]);
    let all = kv.ask(&["INFO everything"]);
    for (name, begin, end) in [
        ("keyspace_hits", "3", ""),
        ("keyspace_misses", "2", ""),
        ("cmdstat_get", "calls=3,usec=", "rejected_calls=1,failed_calls=0"),
        ("cmdstat_set", "calls=2,", "rejected_calls=0,failed_calls=1"),
        ("cmdstat_object|encoding", "calls=1,", ""),
        ("latency_percentiles_usec_incr", "p50=", ""),
        ("errorstat_ERR", "count=2", ""),
        ("db0", "keys=2,expires=0,avg_ttl=0", ""),
    ] {
        let line = told(&all, name);
        assert!(line.starts_with(begin) && line.ends_with(end), "{name}:{line}");
    }
    assert!(told(&all, "total_commands_processed").parse::<u64>().expect("a number") >= 8);
    let reset = kv.ask(&["CONFIG RESETSTAT", "INFO stats", "INFO commandstats"]);
    assert_eq!([told(&reset, "keyspace_hits"), told(&reset, "total_error_replies")], ["0", "0"]);
    assert!(!reset.contains("cmdstat_get"), "{reset}");
}

#[test]
fn sections_are_told_as_they_are_asked_for() {
    let kv = start(&[]);
    let headings = |request: &str| -> Vec<String> {
        let reply = kv.ask(&[request]);
        reply.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
    };
    let default = "Server Clients Memory Persistence Stats Replication CPU Errorstats Cluster Keyspace";
    assert_eq!(headings("INFO").join(" "), default);
    assert_eq!(headings("INFO default").join(" "), default);
    assert_eq!(headings("INFO keyspace MEMORY nothing"), ["Memory", "Keyspace"]);
    assert_eq!(headings("INFO all").len(), 12);
    assert_eq!(headings("INFO everything").len(), 13);
    let clients = "redis_version:7.4.0\r\nserver_name:larder\r\n";
    assert!(kv.ask(&["INFO server"]).contains(clients));
}

#[test]
fn slow_commands_are_events_and_drawn_as_redis_draws_them() {
    let redis = Redis::start("enable-debug-command yes");
    let kv = KvService::start(LARDER, "workers = 1\nenable_debug_command = \"yes\"");
    let drawn = |address: SocketAddr| {
        let mut client = Talker::connect(address);
        client.send(
            "CONFIG SET latency-monitor-threshold 1\r\nDEBUG SLEEP 0.01\r\nLATENCY GRAPH command\r\n\
             LATENCY GRAPH Command\r\nLATENCY HISTORY COMMAND\r\n",
        );
        // The exact durations differ.
        let graph = client.finish();
        let lines = graph.lines().filter(|line| !line.starts_with('$'));
        lines.map(|line| line.replace(|letter: char| letter.is_ascii_digit(), "")).collect::<Vec<_>>()
    };
    let given = drawn(kv.address());
    assert_eq!(given, drawn(redis.address()));
    assert!(given.iter().any(|line| line == "command - high  ms, low  ms (all time high  ms)"), "{given:?}");
    let told = kv.ask("LATENCY LATEST\r\nLATENCY DOCTOR\r\nLATENCY HISTOGRAM debug\r\n");
    for part in ["*4\r\n$7\r\ncommand\r\n", "command: 1 samples", "$11\r\ndebug|sleep\r\n"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
