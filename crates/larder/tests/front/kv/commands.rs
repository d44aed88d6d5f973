//! Commands of `larder kv` that Redis 7.0 lacks, or whose replies no conversation can hold.

use testkit::{Kv, KvService, converse};

use crate::LARDER;

fn start(arguments: &[&str]) -> Kv {
    Kv::start(LARDER, arguments)
}

/// A request of binary arguments.
fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn ask(kv: &Kv, arguments: &[&[u8]]) -> String {
    String::from_utf8_lossy(&converse(kv.address(), &request(arguments), 1 << 16)).into_owned()
}

const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// What a client has announced, before it has sent it.
const NO_ROOM_FOR_REQUEST: &str = "-OOM the request needs more memory than maxmemory has for one\r\n";

#[test]
fn what_can_never_fit_evicts_nothing() {
    let kv = start(&["--maxmemory", "16MiB", "--workers", "1"]);
    let kept = format!("SET kept {}", "k".repeat(1000));
    assert_eq!(kv.ask(&[&kept, "SET small 1"]), "+OK\r\n+OK\r\n");
    let large = vec![b'v'; 17 << 20];
    for command in
        [&[&b"SET"[..], b"large", &large][..], &[b"GETSET", b"small", &large], &[b"APPEND", b"kept", &large]]
    {
        assert_eq!(ask(&kv, command), NO_ROOM_FOR_REQUEST);
    }
    let part = vec![b'v'; 6 << 20];
    assert_eq!(ask(&kv, &[b"MSET", b"a", &part, b"b", &part, b"c", &part]), NO_ROOM_FOR_REQUEST);
    assert_eq!(
        kv.ask(&["SETRANGE kept 20000000 x", "DBSIZE", "STRLEN kept"]),
        format!("{OUT_OF_MEMORY}:2\r\n:1000\r\n")
    );
}

#[test]
fn several_keys_are_set_together_or_none_is() {
    // What a client sends counts as well, until it is executed.
    let kv = start(&["--maxmemory", "40MiB", "--maxmemory-policy", "noeviction", "--workers", "1"]);
    let (filling, value) = (vec![b'f'; 1 << 20], vec![b'v'; 3 << 20]);
    let names: Vec<String> = (0..28).map(|number| format!("filling-{number}")).collect();
    for name in &names {
        assert_eq!(ask(&kv, &[b"SET", name.as_bytes(), &filling]), "+OK\r\n");
    }
    for command in [&b"MSET"[..], b"MSETNX"] {
        assert_eq!(ask(&kv, &[command, b"a", &value, b"b", &value, b"c", &value]), OUT_OF_MEMORY);
    }
    let remove = format!("DEL {}", names.join(" "));
    assert_eq!(kv.ask(&["EXISTS a b c", &remove]), ":0\r\n:28\r\n");
    assert_eq!(ask(&kv, &[b"MSETNX", b"a", &value, b"b", &value, b"c", &value]), ":1\r\n");
}

#[test]
fn large_values_are_evicted_for_others() {
    let kv = start(&["--maxmemory", "4MiB", "--workers", "1"]);
    let value = vec![b'v'; 300 << 10];
    for number in 0..50 {
        let name = format!("key-{number}");
        assert_eq!(ask(&kv, &[b"SET", name.as_bytes(), &value]), "+OK\r\n", "{name}");
    }
}

#[test]
fn msetnx_that_must_evict_is_decided_once() {
    let kv = start(&["--maxmemory", "4MiB", "--workers", "1"]);
    let value = vec![b'v'; 300 << 10];
    for number in 0..20 {
        let names = [0, 1, 2, 3].map(|part| format!("key-{number}-{part}"));
        let [a, b, c, d] = names.each_ref().map(|name| name.as_bytes());
        let reply = ask(&kv, &[b"MSETNX", a, &value, b, &value, c, &value, d, &value]);
        assert_eq!(reply, ":1\r\n", "none of {names:?} was there");
    }
}

/// Keys that SCAN tells from a cursor on until it ends, in steps of this size.
fn scan_all(kv: &Kv, options: &str, mut between: impl FnMut()) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = kv.ask(&[&format!("SCAN {cursor} {options}")]);
        let mut bulks = reply.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned);
        cursor = bulks.next().expect("a cursor");
        keys.extend(bulks);
        if cursor == "0" {
            return keys;
        }
        between();
    }
}

#[test]
fn a_scan_tells_every_key_that_stays() {
    let kv = start(&["--workers", "2"]);
    let sets: Vec<String> = (0..500).map(|number| format!("SET key:{number} v")).collect();
    kv.ask(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    kv.ask(&["SELECT 5", "SET other v"]);
    let mut next = 500;
    let mut told = scan_all(&kv, "COUNT 7 MATCH key:*", || {
        let more: Vec<String> = (next..next + 100).map(|number| format!("SET key:{number} v")).collect();
        kv.ask(&more.iter().map(String::as_str).collect::<Vec<_>>());
        next = (next + 100).min(20_000);
    });
    told.sort();
    told.dedup();
    let missing: Vec<_> = (0..500)
        .map(|number| format!("key:{number}"))
        .filter(|key| told.binary_search(key).is_err())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(scan_all(&kv, "COUNT 1000 MATCH other", || ()), Vec::<String>::new());
}

#[test]
fn how_often_a_key_is_used_is_told_where_it_counts() {
    let freq = |policy| {
        let kv = start(&["--maxmemory-policy", policy]);
        kv.ask(&["SET a 1", "GET a", "GET a", "OBJECT FREQ a", "OBJECT FREQ none"])
    };
    assert!(freq("allkeys-s3fifo").ends_with("$1\r\n1\r\n:2\r\n$-1\r\n"));
    assert!(freq("allkeys-lru").contains("-ERR An LFU maxmemory policy is not selected"));
    let lfu = freq("allkeys-lfu");
    let count: u32 =
        lfu.rsplit("\r\n:").next().and_then(|end| end.split("\r\n").next()?.parse().ok()).expect("a count");
    assert!(count >= 5, "{lfu}");
}

#[test]
fn memory_of_a_key_is_told() {
    let kv = start(&[]);
    kv.ask(&["SET small 1", &format!("SET large {}", "v".repeat(50_000))]);
    let usage = |key: &str| -> usize {
        let reply = kv.ask(&[&format!("MEMORY USAGE {key}")]);
        reply.trim().trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{key}: {reply:?}"))
    };
    let (small, large) = (usage("small"), usage("large"));
    assert!((10..200).contains(&small) && (50_000..70_000).contains(&large), "{small} {large}");
    let stats = kv.ask(&["MEMORY STATS", "MEMORY DOCTOR", "OBJECT HELP"]);
    for part in ["keys.count\r\n:2\r\n", "No memory problems", "+FREQ key\r\n+    Returns"] {
        assert!(stats.contains(part), "{part}: {stats}");
    }
}

/// Commands on one connection, each with the reply that is expected.
fn converse_in_order(kv: &Kv, steps: &[(&str, &str)]) {
    let commands: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
    let replies = kv.ask(&commands);
    let mut rest = replies.as_str();
    for (command, expected) in steps {
        rest = rest
            .strip_prefix(expected)
            .unwrap_or_else(|| panic!("{command}: {rest:?} instead of {expected:?}"));
    }
    assert_eq!(rest, "");
}

const OK: &str = "+OK\r\n";
const NULL: &str = "$-1\r\n";
const ONE: &str = ":1\r\n";
const ZERO: &str = ":0\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";
const BAD_DIGEST: &str = "-ERR must be exactly 16 hexadecimal characters\r\n";

#[test]
fn a_value_is_set_if_the_old_one_is_as_expected() {
    converse_in_order(
        &start(&[]),
        &[
            ("SET a 1 IFEQ x", NULL),
            ("SET a 1 IFDEQ short", NULL),
            ("SET a 1 IFNE x", OK),
            ("SET a 2 IFEQ x", NULL),
            ("SET a 2 IFEQ 1 GET", "$1\r\n1\r\n"),
            ("SET a 3 IFNE 2 GET", "$1\r\n2\r\n"),
            ("SET a 3 ifeq 2 EX 100", OK),
            ("TTL a", ":100\r\n"),
            ("DIGEST a", "$16\r\n7324dc1e7e9474f0\r\n"),
            ("SET a 4 IFDEQ 7324dc1e7e9474f1", NULL),
            ("SET a 4 IFDNE 7324DC1E7E9474F0", NULL),
            ("SET a 4 IFDEQ 7324DC1e7e9474f0 KEEPTTL", OK),
            ("TTL a", ":100\r\n"),
            ("SET a 5 IFDEQ short", BAD_DIGEST),
            ("SET a 5 IFDNE 7324dc1e7e9474f00 GET", BAD_DIGEST),
            ("SET a 5 IFEQ", SYNTAX),
            ("SET a 5 IFEQ 4 NX", SYNTAX),
            ("SET a 5 XX IFEQ 4", SYNTAX),
            ("SET a 5 IFEQ 4 IFNE 4", SYNTAX),
            ("GET a", "$1\r\n4\r\n"),
            ("DIGEST none", NULL),
            ("SET b 1 IFDNE 7324dc1e7e9474f0 GET", NULL),
            ("GET b", "$1\r\n1\r\n"),
        ],
    );
}

#[test]
fn a_key_is_removed_if_its_value_is_as_expected() {
    let arity = "-ERR wrong number of arguments for 'delex' command\r\n";
    converse_in_order(
        &start(&[]),
        &[
            ("DELIFEQ a 1", ZERO),
            ("SET a 1", OK),
            ("DELIFEQ a 2", ZERO),
            ("DELIFEQ a 1", ONE),
            ("DELIFEQ a", "-ERR wrong number of arguments for 'delifeq' command\r\n"),
            ("DELEX a IFNE x", ZERO),
            ("DELEX a IFDEQ short", ZERO),
            ("SET a 3", OK),
            ("DELEX a IFEQ", arity),
            ("DELEX a IFEQ 3 more", arity),
            ("DELEX a FOO 3", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE\r\n"),
            ("DELEX a IFDEQ short", BAD_DIGEST),
            ("DELEX a IFEQ 4", ZERO),
            ("DELEX a IFDNE 7324dc1e7e9474f0", ZERO),
            ("DELEX a ifdeq 7324DC1E7E9474F0", ONE),
            ("SET a 3", OK),
            ("DELEX a IFNE 4", ONE),
            ("SET a 3", OK),
            ("DELEX a", ONE),
            ("EXISTS a", ZERO),
        ],
    );
}

#[test]
fn several_keys_are_set_with_one_expiry() {
    let (numkeys, pairs) = ("-ERR invalid numkeys value\r\n", "-ERR wrong number of key-value pairs\r\n");
    converse_in_order(
        &start(&[]),
        &[
            ("MSETEX 2 a 1 b 2 EX 100", ONE),
            ("TTL b", ":100\r\n"),
            ("MSETEX 2 a 3 b 4 KEEPTTL XX", ONE),
            ("TTL a", ":100\r\n"),
            ("MSETEX 2 a 5 c 6 NX", ZERO),
            ("MSETEX 2 a 5 c 6 XX", ZERO),
            ("MGET a b c", "*3\r\n$1\r\n3\r\n$1\r\n4\r\n$-1\r\n"),
            ("MSETEX 1 c 7 nx px 100000", ONE),
            ("MSETEX 1 a 8", ONE),
            ("TTL a", ":-1\r\n"),
            ("MSETEX a 1 EX 10", numkeys),
            ("MSETEX 0 a 1", numkeys),
            ("MSETEX -1 a 1", numkeys),
            ("MSETEX 2147483648 a 1", numkeys),
            ("MSETEX 2147483647 a 1", pairs),
            ("MSETEX 2 a 1 b", pairs),
            ("MSETEX 1 a 1 FOO", SYNTAX),
            ("MSETEX 1 a 1 EX 10 PX 10", SYNTAX),
            ("MSETEX 1 a 1 NX XX", SYNTAX),
            ("MSETEX 1 a 1 IFEQ 8", SYNTAX),
            ("MSETEX 1 a 1 GET", SYNTAX),
            ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command\r\n"),
            ("MSETEX 1 a", "-ERR wrong number of arguments for 'msetex' command\r\n"),
        ],
    );
}

#[test]
fn a_swap_is_seen_by_connections_that_are_open() {
    let kv = start(&["--workers", "2"]);
    let mut open: Vec<_> = (0..4).map(|_| Held::open(&kv)).collect();
    for (number, held) in open.iter_mut().enumerate() {
        assert_eq!(held.ask(&format!("SELECT {number}")), OK);
        assert_eq!(held.ask(&format!("SET name in-{number}")), OK);
    }
    assert_eq!(kv.ask(&["SWAPDB 0 3", "SWAPDB 3 1"]), "+OK\r\n+OK\r\n");
    let found = [3, 0, 2, 1];
    for (held, number) in open.iter_mut().zip(found) {
        assert_eq!(held.ask("GET name"), format!("$4\r\nin-{number}\r\n"));
    }
}

/// A connection that stays open.
struct Held(std::io::BufReader<std::net::TcpStream>);

impl Held {
    fn open(kv: &Kv) -> Self {
        let stream = std::net::TcpStream::connect(kv.address()).expect("it listens");
        stream.set_read_timeout(Some(testkit::wait::DEADLINE)).expect("a time limit");
        Self(std::io::BufReader::new(stream))
    }

    /// A reply that is a line, or a bulk string.
    fn ask(&mut self, command: &str) -> String {
        use std::io::{BufRead, Write};
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
        let mut reply = String::new();
        self.0.read_line(&mut reply).expect("it answers");
        if reply.starts_with('$') && reply != NULL {
            self.0.read_line(&mut reply).expect("it answers");
        }
        reply
    }
}

#[test]
fn keys_of_commands_are_found() {
    let kv = start(&[]);
    let keys = kv.ask(&["COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 10"]);
    assert_eq!(keys, "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    let invalid = kv.ask(&["COMMAND GETKEYS MSETEX 3 a 1 b 2"]);
    assert_eq!(invalid, "-ERR Invalid arguments specified for command\r\n");
    assert!(kv.ask(&["COMMAND INFO msetex"]).contains("+movablekeys\r\n:0\r\n:0\r\n:0\r\n"));
}

#[test]
fn commands_are_documented_with_their_arguments() {
    let kv = start(&[]);
    let docs = kv.ask(&["COMMAND DOCS set object"]);
    for part in [
        "$7\r\nsummary\r\n",
        "$5\r\nIFDEQ\r\n",
        "$10\r\npure-token\r\n",
        "$11\r\nsubcommands\r\n",
        "object|encoding",
    ] {
        assert!(docs.contains(part), "{part}: {docs}");
    }
    let numbers = kv.ask(&["COMMAND COUNT", "COMMAND"]);
    let (count, all) = numbers.split_once("\r\n").expect("two replies");
    assert!(all.starts_with(&count.replace(':', "*")), "{count}");
}

/// The value of a line of INFO.
fn told(information: &str, name: &str) -> String {
    let line = information.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {information}")).to_owned()
}

#[test]
fn what_happened_is_counted() {
    let kv = start(&["--workers", "2", "--maxmemory", "64MiB"]);
    kv.ask(&[
        "SET a 1",
        "GET a",
        "GET a",
        "GET none",
        "MGET a none",
        "INCR b",
        "OBJECT ENCODING a",
        "GET",
        "SET a 1 FOO",
    ]);
    let all = kv.ask(&["INFO everything"]);
    assert_eq!([told(&all, "keyspace_hits"), told(&all, "keyspace_misses")], ["3", "2"]);
    assert!(told(&all, "cmdstat_get").starts_with("calls=3,usec="), "{all}");
    assert!(told(&all, "cmdstat_get").ends_with("rejected_calls=1,failed_calls=0"), "{all}");
    assert!(told(&all, "cmdstat_set").starts_with("calls=2,"), "{all}");
    assert!(told(&all, "cmdstat_set").ends_with("rejected_calls=0,failed_calls=1"), "{all}");
    assert!(told(&all, "cmdstat_object|encoding").starts_with("calls=1,"), "{all}");
    assert!(told(&all, "latency_percentiles_usec_incr").starts_with("p50="), "{all}");
    assert_eq!(told(&all, "errorstat_ERR"), "count=2");
    assert_eq!(told(&all, "db0"), "keys=2,expires=0,avg_ttl=0");
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
    let default = [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ];
    assert_eq!(headings("INFO"), default);
    assert_eq!(headings("INFO default"), default);
    assert_eq!(headings("INFO keyspace MEMORY nothing"), ["Memory", "Keyspace"]);
    assert_eq!(headings("INFO all").len(), 12);
    assert_eq!(headings("INFO everything").len(), 13);
    let clients = "redis_version:7.4.0\r\nserver_name:larder\r\n";
    assert!(kv.ask(&["INFO server"]).contains(clients));
}

#[test]
fn what_takes_long_is_logged_without_its_values() {
    let kv = start(&["--workers", "1"]);
    let long = "v".repeat(200);
    let log = kv.ask(&[
        "CONFIG SET slowlog-log-slower-than 0",
        &format!("SET key {long}"),
        "AUTH some secret",
        "CONFIG SET slowlog-log-slower-than -1",
        "GET key",
        "SLOWLOG GET 10",
        "SLOWLOG LEN",
    ]);
    assert!(
        log.contains("... (72 more bytes)") && log.contains("(redacted)") && !log.contains("secret"),
        "{log}"
    );
    assert!(log.ends_with(":3\r\n"), "{log}");
    let reset = kv.ask(&["SLOWLOG RESET", "SLOWLOG LEN"]);
    assert_eq!(reset, "+OK\r\n:0\r\n");
}

#[test]
fn what_takes_long_is_an_event() {
    let kv = KvService::start(LARDER, "workers = 1\nenable_debug_command = \"yes\"");
    let commands = [
        "CONFIG SET latency-monitor-threshold 1",
        "DEBUG SLEEP 0.01",
        "LATENCY LATEST",
        "LATENCY GRAPH command",
        "LATENCY DOCTOR",
        "LATENCY HISTOGRAM debug",
    ];
    let again = kv.ask(&commands.map(|command| format!("{command}\r\n")).concat());
    for part in ["*4\r\n$7\r\ncommand\r\n", "command - high ", "command: 1 samples", "$11\r\ndebug|sleep\r\n"]
    {
        assert!(again.contains(part), "{part}: {again}");
    }
}

#[test]
fn settings_have_effect() {
    let kv = start(&["--workers", "1", "--maxmemory", "16MiB"]);
    let value = "v".repeat(1000);
    let sets: Vec<String> = (0..5000).map(|number| format!("SET key-{number} {value}")).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    assert!(!kv.ask(&sets).contains("OOM"));
    converse_in_order(
        &kv,
        &[
            ("CONFIG SET maxmemory-policy noeviction maxmemory 4mb", OK),
            (
                "CONFIG GET maxmemory maxmemory-p*",
                "*4\r\n$9\r\nmaxmemory\r\n$7\r\n4194304\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n",
            ),
        ],
    );
    let fresh: Vec<String> = (0..1000).map(|number| format!("SET fresh-{number} {value}")).collect();
    let fresh: Vec<&str> = fresh.iter().map(String::as_str).collect();
    assert!(kv.ask(&fresh).contains("OOM"), "nothing may be evicted");
    assert_eq!(
        kv.ask(&["CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory 0"]),
        "+OK\r\n+OK\r\n"
    );
    assert!(!kv.ask(&sets).contains("OOM"));
    assert_eq!(told(&kv.ask(&["INFO memory"]), "maxmemory"), "0");
    assert_eq!(kv.ask(&["CONFIG SET maxclients 1"]), OK);
    let mut first = Held::open(&kv);
    assert_eq!(first.ask("PING"), "+PONG\r\n");
    testkit::wait::until_true("a second client is refused", || !kv.ask(&["PING"]).contains("PONG"));
    assert_eq!(first.ask("CONFIG SET maxclients 100"), OK);
}
