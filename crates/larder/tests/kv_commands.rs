//! Commands of `larder kv` that Redis 7.0 lacks, or whose replies no conversation can hold.

use testkit::{Kv, converse};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

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

#[test]
fn what_can_never_fit_evicts_nothing() {
    let kv = start(&["--maxmemory", "16MiB", "--workers", "1"]);
    let kept = format!("SET kept {}", "k".repeat(1000));
    assert_eq!(kv.ask(&[&kept, "SET small 1"]), "+OK\r\n+OK\r\n");
    let large = vec![b'v'; 17 << 20];
    for command in
        [&[&b"SET"[..], b"large", &large][..], &[b"GETSET", b"small", &large], &[b"APPEND", b"kept", &large]]
    {
        assert_eq!(ask(&kv, command), OUT_OF_MEMORY);
    }
    let part = vec![b'v'; 6 << 20];
    assert_eq!(ask(&kv, &[b"MSET", b"a", &part, b"b", &part, b"c", &part]), OUT_OF_MEMORY);
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
        reply.trim().trim_start_matches(':').parse().expect("a number")
    };
    assert!((10..200).contains(&usage("small")) && (50_000..51_000).contains(&usage("large")));
    let stats = kv.ask(&["MEMORY STATS", "MEMORY DOCTOR", "OBJECT HELP"]);
    for part in ["keys.count\r\n:2\r\n", "Nothing is wrong", "+FREQ key\r\n+    Tells"] {
        assert!(stats.contains(part), "{part}: {stats}");
    }
}
