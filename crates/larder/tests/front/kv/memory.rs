//! What `larder kv` takes of the machine: as much as it was given, whatever clients store.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::{Kv, wait};

use crate::LARDER;
use crate::kv::churn;

#[test]
fn memory_stays_at_its_limit() {
    churn::run(Duration::from_secs(15), 192 << 20);
}

/// The memory of one kind fits none of the other, so that the allocator would keep both. Without being told to give it back, it had
/// 150 % of the limit.
#[test]
fn values_of_another_size_take_no_more_memory() {
    const BYTES_MAX: usize = 64 << 20;
    let kv = Kv::start(LARDER, &["--maxmemory", &BYTES_MAX.to_string(), "--workers", "2"]);
    let empty = kv.service.peak_bytes();
    for _ in 0..3 {
        churn::fill(&kv, BYTES_MAX / 20_000, 16_500..24_000);
        churn::fill(&kv, BYTES_MAX / 1_000_000, 900_000..1_100_000);
    }
    let peak = kv.service.peak_bytes();
    assert!(peak - empty < (BYTES_MAX + BYTES_MAX / 10) as u64, "{peak}, {empty} of it without a key");
}

/// Nobody writes, and what they take would be beside the keys until somebody does.
#[test]
fn keys_make_room_for_what_clients_are_sending() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    churn::fill(&kv, 100_000, 800..1000);
    for (clients, value_bytes, sent_bytes) in [(80, 256 << 10, 128 << 10), (800, 60_000, 40_000)] {
        let _clients = sending(&kv, clients, value_bytes, sent_bytes);
        wait::until_true("keys have made room", || memory_fact(&kv, "used_memory") <= 64 << 20);
    }
    assert_eq!(kv.ask(&["SET short 1"]), "+OK\r\n");
}

/// A little for each, and nobody writes.
#[test]
fn keys_make_room_for_what_is_remembered_for_many() {
    const CLIENTS: usize = 200;
    const NAME_BYTES: usize = 100_000;
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    churn::fill(&kv, 100_000, 800..1000);
    let subscribe = |number: usize| {
        let mut client = TcpStream::connect(kv.address()).expect("it listens");
        let name = format!("{number:06}{}", "n".repeat(NAME_BYTES - 6));
        write!(client, "*2\r\n$9\r\nSUBSCRIBE\r\n${NAME_BYTES}\r\n{name}\r\n").expect("it reads");
        client
    };
    let _clients: Vec<_> = (0..CLIENTS).map(subscribe).collect();
    let all_bytes = (CLIENTS * NAME_BYTES) as u64;
    wait::until_true("all have subscribed", || memory_fact(&kv, "mem_clients_normal") >= all_bytes);
    wait::until_true("keys have made room", || memory_fact(&kv, "used_memory") <= 64 << 20);
}

/// As in Redis: CLIENT PAUSE freezes what is stored.
#[test]
fn no_key_goes_during_a_pause() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    churn::fill(&kv, 100_000, 800..1000);
    let before = kv.ask(&["DBSIZE"]);
    assert_eq!(kv.ask(&["CLIENT PAUSE 100000 WRITE"]), "+OK\r\n");
    let _clients = sending(&kv, 80, 256 << 10, 128 << 10);
    assert_eq!(kv.ask(&["DBSIZE"]), before);
    assert_eq!(kv.ask(&["CLIENT UNPAUSE"]), "+OK\r\n");
    wait::until_true("keys have made room", || memory_fact(&kv, "used_memory") <= 64 << 20);
}

/// Clients that have sent a part of a value each, of which the server knows.
fn sending(kv: &Kv, clients: usize, value_bytes: usize, sent_bytes: usize) -> Vec<TcpStream> {
    let part = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${value_bytes}\r\n{}", "v".repeat(sent_bytes));
    let sending = (0..clients).map(|_| {
        let mut client = TcpStream::connect(kv.address()).expect("it listens");
        client.write_all(part.as_bytes()).expect("it reads");
        client
    });
    let sending = sending.collect();
    let all_bytes = (clients * sent_bytes) as u64;
    wait::until_true("there is memory for all", || memory_fact(kv, "mem_clients_normal") >= all_bytes);
    sending
}

fn memory_fact(kv: &Kv, name: &str) -> u64 {
    let text = kv.ask(&["INFO memory"]);
    let number = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number.and_then(|number| number.parse().ok()).expect("it is told")
}

/// Each with as little as it takes, which is one shard of a few segments.
#[test]
fn the_least_memory_works_under_every_policy() {
    for policy in ["allkeys-s3fifo", "allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "2MiB", "--maxmemory-policy", policy, "--workers", "2"]);
        churn::fill(&kv, 20_000, 1..400);
        churn::fill(&kv, 500, 10_000..60_000);
        churn::fill(&kv, 20_000, 1..400);
        assert_eq!(kv.ask(&["SET last word", "GET last"]), "+OK\r\n$4\r\nword\r\n", "{policy}");
    }
}

fn sets(name: &str, keys: usize) -> impl Iterator<Item = String> {
    let value = "v".repeat(1000);
    (0..keys).map(move |number| format!("SET {name}-{number} {value}"))
}

/// A value of the same length as before would need no room.
fn is_written(kv: &Kv) -> bool {
    kv.ask(&["DEL probe", "SET probe word"]).ends_with("+OK\r\n")
}

/// Segments that are not full yet have room for thousands of keys, which count already.
#[test]
fn a_lowered_limit_refuses_writes_where_keys_stay() {
    const KEYS: usize = 20_000;
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--maxmemory-policy", policy, "--workers", "2"]);
        assert!(!ask_all(&kv, sets("old", KEYS)).contains('-'), "{policy}");
        assert_eq!(kv.ask(&["CONFIG SET maxmemory 16mb"]), "+OK\r\n");
        if policy == "noeviction" {
            assert!(!is_written(&kv), "at once");
        }
        // Under the other policies it is the server that finds out that no key expires.
        wait::until_true("writes are refused", || !is_written(&kv));
        let given = ask_all(&kv, sets("new", 2_000));
        assert_eq!(given.matches("-OOM ").count(), 2_000, "{policy}");
        let given =
            kv.ask(&["MSET a 1 b 2", "APPEND old-1 more", "SETRANGE old-1 2000 more", "INCR counter"]);
        assert_eq!(given.matches("-OOM ").count(), 4, "{policy}: {given}");
        assert_eq!(kv.ask(&["STRLEN old-1", "EXPIRE old-2 1000", "PERSIST old-2"]), ":1000\r\n:1\r\n:1\r\n");
        let dels = (0..KEYS).filter(|number| number % 4 > 0).map(|number| format!("DEL old-{number}"));
        assert_eq!(ask_all(&kv, dels).matches(":1\r\n").count(), KEYS / 4 * 3, "{policy}");
        wait::until_true("there is room again", || is_written(&kv));
        assert_eq!(ask_all(&kv, sets("new", 2_000)).matches("+OK").count(), 2_000, "{policy}");
        assert_eq!(kv.ask(&["DBSIZE"]), format!(":{}\r\n", KEYS / 4 + 2_001), "{policy}");
    }
}

/// The index of what was there before alone takes more than the limit.
#[test]
fn a_limit_is_lowered_to_what_works() {
    for policy in ["allkeys-s3fifo", "allkeys-lru", "noeviction"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--maxmemory-policy", policy, "--workers", "2"]);
        let short =
            |command: &'static str| (0..300_000).map(move |number| command.replace('#', &number.to_string()));
        assert_eq!(ask_all(&kv, short("SET key-# 1")).matches("+OK").count(), 300_000, "{policy}");
        assert_eq!(kv.ask(&["CONFIG SET maxmemory 4mb"]), "+OK\r\n");
        if policy == "noeviction" {
            assert!(!is_written(&kv));
            assert_eq!(ask_all(&kv, short("DEL key-#")).matches(":1").count(), 300_000);
        }
        // Until the indexes of empty shards have gone, some writes have no room.
        wait::until_true("the limit is obeyed", || memory_fact(&kv, "used_memory") <= 4 << 20);
        wait::until_true("there is room", || is_written(&kv));
        assert_eq!(ask_all(&kv, sets("new", 1_000)).matches("+OK").count(), 1_000, "{policy}");
        let found = ask_all(&kv, (0..1_000).map(|number| format!("STRLEN new-{number}")));
        assert!(found.matches(":1000").count() > 500, "{policy}: {found}");
        lower_below_what_all_shards_need(&kv, policy);
    }
}

/// Few keys have room then, and at last none.
fn lower_below_what_all_shards_need(kv: &Kv, policy: &str) {
    for limit in [3 << 20, 2 << 20] {
        assert_eq!(kv.ask(&["FLUSHALL", &format!("CONFIG SET maxmemory {limit}")]), "+OK\r\n+OK\r\n");
        wait::until_true("there is room", || is_written(kv));
        assert!(memory_fact(kv, "used_memory") <= limit, "{policy} {limit}");
        assert_eq!(memory_fact(kv, "maxmemory"), limit, "{policy}");
    }
    assert_eq!(kv.ask(&["FLUSHALL", "CONFIG SET maxmemory 1"]), "+OK\r\n+OK\r\n");
    wait::until_true("there is no room", || !is_written(kv));
    assert_eq!(kv.ask(&["CONFIG SET maxmemory 64mb"]), "+OK\r\n");
    wait::until_true("there is room again", || is_written(kv));
}

/// 100 MiB, although nobody asks for the keys. What stays is the index and the segment that each shard is filling.
#[test]
fn expired_memory_is_given_back() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let before = kv.service.resident_bytes();
    churn::fill(&kv, 100_000, 1000..1001);
    assert!(kv.service.resident_bytes() > before + (95 << 20));
    let expire: Vec<String> = (0..100_000).map(|key| format!("PEXPIRE key-{key} 1")).collect();
    for commands in expire.chunks(10_000) {
        kv.ask(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let expired = wait::until("all have expired", || kv.ask(&["DBSIZE"]).eq(":0\r\n").then(Instant::now));
    wait::until_true("their memory is given back", || kv.service.resident_bytes() < before + (24 << 20));
    eprintln!("given back {:?} after the last key was gone", expired.elapsed());
}

#[test]
fn compressed_values_are_the_same_and_take_less() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\ncompress_from = \"32KiB\"\n").expect("a file");
    let kv = Kv::start(LARDER, &["--config", config.to_str().expect("a path in UTF-8")]);
    let commands = [
        "SETRANGE long 99999 z",
        "STRLEN long",
        "APPEND long 0123456789",
        "GETRANGE long -11 -1",
        "SETRANGE long 5 here",
        "GETRANGE long 4 9",
        "EXPIRE long 1000",
        "COPY long copy",
        "STRLEN copy",
        "GETDEL none",
        "SETRANGE short 20000 z",
    ];
    let expected = ":100000\r\n:100000\r\n:100010\r\n$11\r\nz0123456789\r\n:100010\r\n$6\r\n\0here\0\r\n:1\r\n:1\r\n:100010\r\n$-1\r\n:20001\r\n";
    assert_eq!(kv.ask(&commands), expected);
    let usage = |key: &str| -> usize {
        kv.ask(&[&format!("MEMORY USAGE {key}")])[1..].trim_end().parse().expect("a number")
    };
    assert!(usage("long") < 2000 && usage("copy") < 2000, "{} bytes", usage("long"));
    assert!(usage("short") > 20_000, "it is shorter than what is compressed");
    let whole = kv.ask(&["GET long"]);
    assert!(whole.starts_with("$100010\r\n\0\0\0\0\0here\0") && whole.ends_with("z0123456789\r\n"));
}

/// All of it has to be unpacked for that, which takes a while.
#[test]
fn nobody_waits_while_a_compressed_value_is_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let config = config.to_str().expect("a path in UTF-8");
    let kv = Kv::start(LARDER, &["--config", config, "--maxmemory", "1GiB", "--workers", "4"]);
    assert_eq!(kv.ask(&["SETRANGE long 299999999 z"]), ":300000000\r\n");
    // Among them are keys of all shards.
    let all = (0..200).fold("EXISTS".to_owned(), |all, number| format!("{all} key-{number}"));
    for (command, reply) in
        [("DELEX long IFDEQ 0000000000000000", ":0\r\n"), ("SET long x IFDEQ 0000000000000000", "$-1\r\n")]
    {
        // The machine may be busy, or one worker have both connections.
        let is_short = |_| {
            let (longest, whole) = longest_wait(&kv, command, reply, &all);
            longest < whole / 4
        };
        assert!((0..20).any(is_short), "others wait for {command}");
    }
}

/// How long another client waits for its replies while a command is executed, at most, and how long that takes.
fn longest_wait(kv: &Kv, command: &str, reply: &str, others: &str) -> (Duration, Duration) {
    let connect = || {
        let stream = TcpStream::connect(kv.address()).expect("it listens");
        stream.set_nodelay(true).expect("a socket option");
        stream
    };
    let (mut one, mut other) = (connect(), connect());
    let begin = Instant::now();
    one.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
    one.set_nonblocking(true).expect("a socket option");
    let mut longest = Duration::ZERO;
    while one.peek(&mut [0]).is_err() {
        let begin = Instant::now();
        other.write_all(format!("{others}\r\n").as_bytes()).expect("it reads");
        other.read_exact(&mut [0; 4]).expect("it answers");
        longest = longest.max(begin.elapsed());
    }
    let whole = begin.elapsed();
    one.set_nonblocking(false).expect("a socket option");
    let mut given = vec![0; reply.len()];
    one.read_exact(&mut given).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&given), reply, "{command}");
    (longest, whole)
}

/// Of 8 MiB. A request of more than half of it has no room for its values beside itself.
#[test]
fn nothing_is_evicted_for_a_request_that_has_no_room() {
    for policy in ["allkeys-s3fifo", "allkeys-lru"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "8MiB", "--maxmemory-policy", policy, "--workers", "1"]);
        churn::fill(&kv, 20_000, 100..1000);
        let before = kv.ask(&["DBSIZE"]);
        for (command, count) in [("MSET", 10), ("MSET", 1000), ("MSETNX", 100)] {
            let value = "v".repeat((5 << 20) / count);
            let pairs =
                (0..count).map(|number| format!("$8\r\nkey-{number:04}\r\n${}\r\n{value}\r\n", value.len()));
            let pairs: String = pairs.collect();
            let request = format!("*{}\r\n${}\r\n{command}\r\n{pairs}", 1 + 2 * count, command.len());
            let given = testkit::converse(kv.address(), request.as_bytes(), 1 << 20);
            let given = String::from_utf8_lossy(&given).into_owned();
            assert!(given.starts_with("-OOM "), "{policy} {command} {count}: {given}");
            assert_eq!(kv.ask(&["DBSIZE"]), before, "{policy} {command} {count}");
        }
    }
}

/// What a client has sent becomes the value, so that it needs no room beside itself.
#[test]
fn a_value_of_more_than_half_of_memory_has_room() {
    for (mebibytes, workers) in [(8, "1"), (64, "2")] {
        let (bytes_max, value) = (format!("{mebibytes}MiB"), "v".repeat((mebibytes << 20) * 5 / 8));
        let kv = Kv::start(LARDER, &["--maxmemory", &bytes_max, "--workers", workers]);
        let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{value}\r\n", value.len());
        for _ in 0..2 {
            let given = testkit::converse(kv.address(), set.as_bytes(), 1 << 20);
            assert_eq!(String::from_utf8_lossy(&given), "+OK\r\n", "{bytes_max}");
            assert_eq!(kv.ask(&["STRLEN long"]), format!(":{}\r\n", value.len()));
        }
    }
}

/// The begin of a SET whose value has so many bytes, of which so many follow.
fn begin_set(kv: &Kv, value_bytes: usize, sent_bytes: usize) -> TcpStream {
    let mut client = TcpStream::connect(kv.address()).expect("it listens");
    client.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    let head = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${value_bytes}\r\n");
    client.write_all(head.as_bytes()).expect("it reads");
    // It may be closed for what it sends.
    let _ = client.write_all(&vec![b'v'; sent_bytes]);
    client
}

/// Those of several clients take half of it at most; what could never be stored is refused when it is announced.
#[test]
fn requests_that_are_not_whole_stay_within_the_limit() {
    for (bytes_max, workers) in [(4 << 20, "1"), (32 << 20, "2"), (64 << 20, "4")] {
        let case = format!("{bytes_max} {workers}");
        let kv = Kv::start(LARDER, &["--maxmemory", &bytes_max.to_string(), "--workers", workers]);
        churn::fill(&kv, bytes_max / 700, 800..1000);
        let is_within = || memory_fact(&kv, "used_memory") <= bytes_max as u64;
        let held_bytes = || memory_fact(&kv, "mem_clients_normal");
        let value_bytes = bytes_max * 2 / 5;
        let mut one = begin_set(&kv, value_bytes, value_bytes - 1);
        wait::until_true(&format!("{case}: it is held"), || held_bytes() + 1 >= value_bytes as u64);
        wait::until_true(&format!("{case}: keys make room for it"), is_within);
        one.write_all(b"v\r\n").expect("it reads");
        let mut told = [0; 5];
        one.read_exact(&mut told).expect("it answers");
        assert_eq!(&told, b"+OK\r\n", "{case}");

        let others: Vec<_> = (0..3).map(|_| begin_set(&kv, value_bytes, value_bytes - 1)).collect();
        wait::until_true(&format!("{case}: some are closed"), || {
            held_bytes() <= bytes_max as u64 / 2 && kv.ask(&["CLIENT LIST"]).lines().count() <= 5
        });
        wait::until_true(&format!("{case}: keys make room for the others"), is_within);
        drop(others);
        wait::until_true(&format!("{case}: nothing is held"), || held_bytes() < 1 << 20);

        let keys = kv.ask(&["DBSIZE"]);
        let mut never = begin_set(&kv, bytes_max * 6 / 5, 100);
        let mut told = String::new();
        never.read_to_string(&mut told).expect("it answers, and closes");
        assert_eq!(told, "-OOM the request needs more memory than maxmemory has for one\r\n", "{case}");
        assert_eq!(kv.ask(&["DBSIZE", "SET short 1"]), format!("{keys}+OK\r\n"), "{case}");
    }
}

/// How much memory, how many workers: one shard, two and four.
const SIZES: [(usize, &str); 3] = [(4 << 20, "1"), (16 << 20, "1"), (32 << 20, "2")];

/// Every write ends, and other clients are answered. Then every key gets another expiry, for which there is no room.
#[test]
fn full_memory_refuses_writes_and_changes_expiries() {
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        for (bytes_max, workers) in SIZES {
            let size = bytes_max.to_string();
            let kv = Kv::start(
                LARDER,
                &["--maxmemory", &size, "--maxmemory-policy", policy, "--workers", workers],
            );
            let value = "v".repeat(10_000);
            let sets = (0..bytes_max / 9_000).map(|number| format!("SET key-{number} {value}"));
            let given = ask_all(&kv, sets);
            let refused = given.lines().filter(|line| line.starts_with("-OOM ")).count();
            let keys = given.lines().filter(|line| *line == "+OK").count();
            assert!(refused > 0 && keys > bytes_max / 13_000, "{policy} {size}: {keys}, {refused} refused");
            let all = 0..bytes_max / 9_000;
            let count = |given: String, what: &str| given.lines().filter(|line| *line == what).count();
            let change = |command: &str| {
                ask_all(&kv, all.clone().map(|number| command.replace('#', &number.to_string())))
            };
            let is_evicting = policy != "noeviction";
            for command in ["EXPIRE key-# 1000", "PEXPIRE key-# 2000000", "PERSIST key-#"] {
                let changed = count(change(command), ":1");
                // With an expiry they may be evicted, to make up for the first that were given one.
                assert!(
                    changed == keys || is_evicting && changed * 10 > keys * 8,
                    "{policy} {size} {command}: {changed} of {keys}"
                );
            }
            let found = count(change("GETEX key-# EX 1000"), "$10000");
            assert!(
                found == keys || is_evicting && found * 10 > keys * 8,
                "{policy} {size}: {found} of {keys}"
            );
        }
    }
}

/// As in Redis: what is stored already needs no room under another name, or in another database. Nor does it in a transaction.
#[test]
fn full_memory_lets_keys_have_other_names() {
    for policy in ["noeviction", "volatile-lru"] {
        for (bytes_max, workers) in SIZES {
            for value_bytes in [3_000, 10_000] {
                let case = format!("{policy} {bytes_max} {value_bytes}");
                let size = bytes_max.to_string();
                let kv = Kv::start(
                    LARDER,
                    &["--maxmemory", &size, "--maxmemory-policy", policy, "--workers", workers],
                );
                let all = 0..bytes_max / value_bytes * 11 / 10;
                let value = "v".repeat(value_bytes);
                let given = ask_all(&kv, all.clone().map(|number| format!("SET key-{number} {value}")));
                assert!(given.contains("-OOM "), "{case}");
                let keys: Vec<usize> = all
                    .zip(given.lines())
                    .filter(|(_, line)| *line == "+OK")
                    .map(|(number, _)| number)
                    .collect();
                rename_all(&kv, &keys, &case);
                let lengths =
                    keys.iter().flat_map(|number| ["SELECT 1".to_owned(), format!("STRLEN final-{number}")]);
                let whole =
                    ask_all(&kv, lengths).lines().filter(|line| *line == format!(":{value_bytes}")).count();
                assert_eq!(whole, keys.len(), "{case}");
            }
        }
    }
}

fn rename_all(kv: &Kv, keys: &[usize], case: &str) {
    for (command, expected) in
        [("RENAME key-# yek-#", "+OK"), ("RENAMENX yek-# kye-#", ":1"), ("MOVE kye-# 1", ":1")]
    {
        let given = ask_all(kv, keys.iter().map(|number| command.replace('#', &number.to_string())));
        let wrong = given.lines().find(|line| *line != expected);
        assert_eq!(wrong, None, "{case}: {command}");
    }
    for (at, numbers) in keys.chunks(5).enumerate() {
        let renames = numbers.iter().map(|number| format!("RENAME kye-{number} final-{number}"));
        let commands: Vec<_> =
            ["SELECT 1".to_owned(), format!("SET s{at} x")].into_iter().chain(renames).collect();
        let given = transact(kv, &commands);
        if given.contains("EXECABORT") {
            // SET found no room. The others need none.
            let without = [&commands[..1], &commands[2..]].concat();
            assert!(transact(kv, &without).ends_with(&"+OK\r\n".repeat(1 + numbers.len())), "{case}");
        } else {
            assert!(!given.contains("OOM"), "{case}: {given}");
        }
    }
}

fn ask_all(kv: &Kv, commands: impl Iterator<Item = String>) -> String {
    let commands: Vec<String> = commands.collect();
    let parts = commands.chunks(500);
    parts.map(|part| kv.ask(&part.iter().map(String::as_str).collect::<Vec<_>>())).collect()
}

/// The thread that frees what was flushed has the lowest priority: writes do not depend on it.
#[test]
fn there_is_room_straight_after_flushall() {
    for (bytes_max, workers) in SIZES {
        let kv = Kv::start(LARDER, &["--maxmemory", &bytes_max.to_string(), "--workers", workers]);
        let value = "v".repeat(20_000);
        let half = bytes_max / 20_000 / 2;
        for round in 0..3 {
            churn::fill(&kv, half * 3, 15_000..25_000);
            let sets = (0..half).map(|number| format!("SET key-{round}-{number} {value}"));
            let commands: Vec<String> = std::iter::once("FLUSHALL".to_owned()).chain(sets).collect();
            let given = kv.ask(&commands.iter().map(String::as_str).collect::<Vec<_>>());
            let done = given.lines().filter(|line| *line == "+OK").count();
            assert_eq!((done, kv.ask(&["DBSIZE"])), (1 + half, format!(":{half}\r\n")), "{bytes_max}");
        }
    }
}

/// A few bytes of a request are not worth 500 MB, whoever sends them.
#[test]
fn what_has_no_room_is_refused_before_it_takes_any() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    churn::fill(&kv, 2_000, 900..1000);
    assert_eq!(kv.ask(&["SETRANGE there 3000000 x"]), ":3000001\r\n");
    let (before, keys) = (kv.service.peak_bytes(), kv.ask(&["DBSIZE"]));
    for command in ["SETRANGE new 535000000 x", "SETRANGE there 535000000 x", "SETRANGE new 70000000 x"] {
        let given = kv.ask(&[command]);
        assert!(given.starts_with("-OOM "), "{command}: {given}");
    }
    let peak = kv.service.peak_bytes();
    assert!(peak < before + (8 << 20), "{before} bytes became {peak}");
    assert_eq!(kv.ask(&["DBSIZE"]), keys, "nothing was evicted for it");
    assert_eq!(kv.ask(&["INCR there", "INCRBYFLOAT there 1"]).matches("not a").count(), 2);
}

/// A bit far behind counts before a transaction begins.
#[test]
fn transactions_count_what_bits_become() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--maxmemory-policy", "noeviction"]);
    let bits: Vec<_> = (0..12).map(|number| format!("SETBIT bit-{number} 67108864 1")).collect();
    let mut commands: Vec<_> = std::iter::once("MULTI").chain(bits.iter().map(String::as_str)).collect();
    commands.extend(["SET marker after", "EXEC", "EXISTS marker bit-0"]);
    let given = kv.ask(&commands);
    assert!(given.contains("-EXECABORT ") && given.ends_with(":0\r\n"), "{given}");
}

/// Keys that collided whatever the seed was, as long as keys were hashed with a function that has public constants.
#[test]
fn keys_that_are_chosen_to_collide_do_not() {
    const KEYS: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\nworkers = 2\nenable_debug_command = \"local\"\n").expect("a file");
    let kv = Kv::start(LARDER, &["--config", config.to_str().expect("a path in UTF-8")]);
    let constant = 0x3f84_d5b5_b547_0917_u64.to_le_bytes();
    let sets = (0..KEYS).flat_map(|number| {
        [b"*3\r\n$3\r\nSET\r\n$16\r\n", &number.to_be_bytes()[..], &constant, b"\r\n$1\r\nv\r\n"].concat()
    });
    let given = testkit::converse(kv.address(), &sets.collect::<Vec<u8>>(), usize::MAX);
    assert_eq!(given, b"+OK\r\n".repeat(KEYS as usize));
    let told = kv.ask(&["DEBUG HTSTATS 0"]);
    let number = |name: &str| -> u64 {
        let line = told.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} is missing: {told}"))
    };
    assert_eq!(number("number of elements"), KEYS);
    assert!(number("max chain length") <= 4, "{told}");
}

/// Keys that do not expire stay, however many others come; without others, writes are refused.
#[test]
fn volatile_policies_evict_what_expires_alone() {
    let value = "v".repeat(10_000);
    let sets = |name: &str, count: usize, options: &str| -> Vec<String> {
        (0..count).map(|number| format!("SET {name}-{number} {value} {options}")).collect()
    };
    let ask =
        |kv: &Kv, commands: Vec<String>| kv.ask(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    let names: Vec<String> = (0..100).map(|number| format!("staying-{number}")).collect();
    let count = [format!("EXISTS {}", names.join(" "))];
    for policy in ["volatile-lru", "volatile-ttl"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "4MiB", "--maxmemory-policy", policy, "--workers", "1"]);
        assert!(!ask(&kv, sets("staying", 100, "")).contains("OOM"), "{policy}");
        for round in 0..5 {
            let sets = sets(&format!("expiring-{round}"), 100, "EX 10000");
            assert!(!ask(&kv, sets).contains("OOM"), "{policy}");
        }
        assert_eq!(ask(&kv, count.to_vec()), ":100\r\n", "{policy}");
        let is_refused = |round: usize| ask(&kv, sets(&format!("more-{round}"), 100, "")).contains("OOM");
        assert!((0..10).any(is_refused), "{policy}: nothing else may be evicted");
        assert_eq!(ask(&kv, count.to_vec()), ":100\r\n", "{policy}");
    }
}

/// Many times the same large value, to a client that does not read: it is not copied.
#[test]
fn replies_share_what_is_stored() {
    const BYTES_MAX: u64 = 64 << 20;
    const TIMES: usize = 800;
    let value = "v".repeat(1 << 20);
    let bulk = format!("${}\r\n{value}\r\n", value.len());
    for workers in ["1", "2", "8"] {
        let mget = format!("MGET{}", " big".repeat(TIMES));
        let getranges = format!("MULTI\r\n{}EXEC", "GETRANGE big 0 -1\r\n".repeat(TIMES));
        let heads = [
            (mget, format!("*{TIMES}\r\n")),
            (getranges, format!("+OK\r\n{}*{TIMES}\r\n", "+QUEUED\r\n".repeat(TIMES))),
        ];
        for (commands, head) in heads {
            let kv = Kv::start(LARDER, &["--maxmemory", &BYTES_MAX.to_string(), "--workers", workers]);
            churn::fill(&kv, 60_000, 800..1000);
            let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n{bulk}");
            assert_eq!(testkit::converse(kv.address(), set.as_bytes(), usize::MAX), b"+OK\r\n");
            let before = kv.service.peak_bytes();
            let mut client = TcpStream::connect(kv.address()).expect("it listens");
            client.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
            client.write_all(format!("{commands}\r\n").as_bytes()).expect("it reads");
            // It has begun to reply; the value goes meanwhile, and another takes its place.
            let mut told = vec![0; head.len()];
            client.read_exact(&mut told).expect("it answers");
            assert_eq!(String::from_utf8_lossy(&told), head);
            wait::until_true("the value is gone", || kv.ask(&["DEL big"]) == ":0\r\n");
            wait::until_true("what is still to be sent counts once", || {
                (1 << 20..3 << 20).contains(&memory_fact(&kv, "mem_clients_normal"))
            });
            let mut told = vec![0; bulk.len()];
            for _ in 0..TIMES {
                client.read_exact(&mut told).expect("it answers");
                assert!(told == bulk.as_bytes());
            }
            wait::until_true("nothing is left", || memory_fact(&kv, "mem_clients_normal") == 0);
            // The kernel counts in lots, so that a peak may seem to fall.
            let grown = kv.service.peak_bytes().saturating_sub(before);
            assert!(grown < 12 << 20, "{workers} workers: {grown} bytes for a reply");
        }
    }
}

/// Keys make room for what has to be copied; what has no room is refused, together with the transaction that it is a part of.
#[test]
fn replies_that_are_copied_have_room_within_the_limit() {
    const BYTES_MAX: u64 = 64 << 20;
    for workers in ["1", "4"] {
        let kv = Kv::start(LARDER, &["--maxmemory", &BYTES_MAX.to_string(), "--workers", workers]);
        let empty = kv.service.resident_bytes();
        churn::fill(&kv, 60_000, 800..1000);
        let value = "v".repeat(10_000);
        assert_eq!(kv.ask(&[&format!("SET value {value}")]), "+OK\r\n");
        let mget = |times: usize| {
            let keys = "$5\r\nvalue\r\n".repeat(times);
            format!("*{}\r\n$4\r\nMGET\r\n{}", times + 1, keys.trim_end())
        };
        let whole = kv.ask(&[&mget(2_000), "PING"]);
        assert_eq!(whole.len(), "*2000\r\n".len() + 2_000 * (value.len() + 10) + 7, "{workers} workers");
        let told = kv.ask(&[&mget(50_000), "PING"]);
        assert!(
            told.starts_with("-OOM the reply needs more memory") && told.ends_with("+PONG\r\n"),
            "{told}"
        );
        let queued = kv.ask(&["MULTI", "GET value\r\n".repeat(20_000).trim_end(), "EXEC", "PING"]);
        let end = &queued[queued.len() - 200..];
        assert!(end.contains("-EXECABORT ") && end.ends_with("+PONG\r\n"), "it has only read: {end}");
        let peak = kv.service.peak_bytes() - empty;
        // The list of replies of EXEC grows as they come.
        assert!(peak < BYTES_MAX + BYTES_MAX / 2, "{workers} workers: {peak} bytes");
        assert_eq!(kv.ask(&["SET last word", "GET last"]), "+OK\r\n$4\r\nword\r\n");
    }
}

/// Compressed values are unpacked one after the other, as the client reads them.
#[test]
fn replies_are_unpacked_as_they_are_read() {
    const TIMES: usize = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let arguments = ["--config", config.to_str().expect("a path in UTF-8"), "--maxmemory", "64MiB"];
    let kv = Kv::start(LARDER, &arguments);
    assert_eq!(kv.ask(&["SETRANGE zeros 1000000 x"]), ":1000001\r\n");
    let before = kv.service.peak_bytes();
    let mut client = TcpStream::connect(kv.address()).expect("it listens");
    client.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    client.write_all(format!("MGET{}\r\n", " zeros".repeat(TIMES)).as_bytes()).expect("it reads");
    client.read_exact(&mut [0; 6]).expect("it answers");
    let mut bulk = vec![0; "$1000001\r\n\r\n".len() + 1_000_001];
    for _ in 0..TIMES {
        client.read_exact(&mut bulk).expect("it answers");
        assert!(bulk.starts_with(b"$1000001\r\n\0") && bulk.ends_with(b"\0x\r\n"));
    }
    // The kernel counts in lots, so that a peak may seem to fall.
    let grown = kv.service.peak_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for a reply");
}

/// What a worker needs for one large reply goes with it.
#[test]
fn no_worker_keeps_what_a_large_reply_took() {
    const VALUE: usize = 8 << 20;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "8"]);
    let before = kv.service.resident_bytes();
    let value = "v".repeat(VALUE);
    let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${VALUE}\r\n{value}\r\n");
    assert_eq!(testkit::converse(kv.address(), set.as_bytes(), usize::MAX), b"+OK\r\n");
    let sets: Vec<String> = (0..500).map(|key| format!("SET key-{key} {}", &value[..15_000])).collect();
    kv.ask(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let mget = format!("MGET{}", (0..500).map(|key| format!(" key-{key}")).collect::<String>());
    // Each on a connection of its own, so that every worker has some.
    for _ in 0..40 {
        let replies =
            [kv.ask(&["GET big"]), kv.ask(&["GETRANGE big 1 -1"]), kv.ask(&["MULTI", "GET big", "EXEC"])];
        assert!(replies.iter().all(|reply| reply.len() >= VALUE));
        assert!(kv.ask(&[&mget]).len() > 500 * 15_000);
        // A request of many arguments leaves nothing either.
        assert!(kv.ask(&[&format!("EXISTS{}", " x".repeat(30_000))]).starts_with(':'));
    }
    assert_eq!(kv.ask(&["FLUSHALL", "MEMORY PURGE"]), "+OK\r\n+OK\r\n");
    wait::until_true("it is given back", || kv.service.resident_bytes() < before + (12 << 20));
    assert_eq!(memory_fact(&kv, "mem_clients_normal"), 0);
}

/// What a transaction was answered: its queueing, and EXEC.
fn transact(kv: &Kv, commands: &[String]) -> String {
    let all = [&["MULTI".to_owned()][..], commands, &["EXEC".to_owned()]].concat();
    kv.ask(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Until memory is full, and beyond: whatever the policy and the number of shards, a transaction is executed as a whole or not at all.
#[test]
fn a_transaction_without_room_is_not_executed_at_all() {
    const SETS: usize = 5;
    for (mebibytes, workers) in [(4, "1"), (16, "2"), (64, "2")] {
        for policy in ["noeviction", "volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-s3fifo"] {
            let (bytes_max, case) = (format!("{mebibytes}MiB"), format!("{mebibytes} MiB, {policy}"));
            let kv = Kv::start(
                LARDER,
                &["--maxmemory", &bytes_max, "--maxmemory-policy", policy, "--workers", workers],
            );
            let value = "v".repeat(10_000);
            let (mut executed, mut refused) = (0, 0);
            while refused < 20 && executed * 60_000 < mebibytes << 20 {
                let number = executed + refused;
                let sets = (0..SETS).map(|at| format!("SET key-{number}-{at} {value}"));
                let more = [
                    format!("APPEND key-{number}-0 {value}"),
                    format!("SETRANGE range-{number} 9999 v"),
                    format!("COPY key-{number}-0 copy-{number}"),
                ];
                let given = transact(&kv, &sets.chain(more).collect::<Vec<_>>());
                let names: String = (0..SETS).map(|at| format!(" key-{number}-{at}")).collect();
                let there = kv.ask(&[&format!("EXISTS{names} range-{number} copy-{number}")]);
                if given.contains("OOM ") {
                    assert!(given.contains("-EXECABORT Transaction discarded because of"), "{case}: {given}");
                    assert_eq!(there, ":0\r\n", "{case}: {given}");
                    refused += 1;
                } else {
                    assert!(
                        given.ends_with(":20000\r\n:10000\r\n:1\r\n") && !given.contains('-'),
                        "{case}: {given}"
                    );
                    // What was written just now may be evicted at once.
                    assert!(there == ":7\r\n" || policy.starts_with("allkeys"), "{case}: {there}");
                    executed += 1;
                }
            }
            assert_eq!(refused > 0, !policy.starts_with("allkeys"), "{case}: {executed} executed");
        }
    }
}

/// Each time it takes the place of what it was.
#[test]
fn a_large_value_is_appended_to_in_a_transaction_as_often_as_it_likes() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    let large = 4_000_000;
    let appends: Vec<String> =
        (0..30).map(|number| format!("APPEND {} y", ["old", "new"][number % 2])).collect();
    assert_eq!(kv.ask(&[&format!("SETRANGE old {large} x")]), format!(":{}\r\n", large + 1));
    let all = [&[format!("SETRANGE new {large} x")][..], &appends].concat();
    let given = transact(&kv, &all);
    assert!(given.ends_with(&format!(":{0}\r\n:{0}\r\n", large + 16)), "{given}");
    assert!(memory_fact(&kv, "used_memory") < 64 << 20);
}

/// Of 5 MB, of which two have no room.
#[test]
fn a_large_value_is_found_wherever_a_transaction_puts_it() {
    for before in [
        &["MOVE long 1", "SELECT 1"][..],
        &["SWAPDB 0 1", "SELECT 1"],
        &["SELECT 1", "SWAPDB 0 1"],
        &["SWAPDB 0 2", "SWAPDB 1 2", "SELECT 1"],
        &["RENAME long other", "MOVE other 3", "SELECT 3", "RENAME other long"],
    ] {
        for growth in ["APPEND long x", "SETRANGE long 5000001 x", "COPY long copy", "COPY long long DB 5"] {
            let kv = Kv::start(
                LARDER,
                &["--maxmemory", "8MiB", "--maxmemory-policy", "noeviction", "--workers", "2"],
            );
            let value = "v".repeat(5_000_000);
            let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{value}\r\n", value.len());
            assert_eq!(testkit::converse(kv.address(), set.as_bytes(), 1 << 20), b"+OK\r\n");
            let commands: Vec<String> = before.iter().chain(&[growth]).map(|&word| word.to_owned()).collect();
            let given = transact(&kv, &commands);
            // COPY shares what it copies, but that is not counted on.
            assert!(given.contains("-EXECABORT"), "{commands:?}: {given}");
            assert_eq!(
                kv.ask(&["STRLEN long"]),
                ":5000000\r\n",
                "{commands:?}: all of it was executed or nothing"
            );
        }
    }
}

/// What was queued while there was room.
#[test]
fn exec_is_refused_when_memory_has_filled_up_meanwhile() {
    let kv =
        Kv::start(LARDER, &["--maxmemory", "4MiB", "--maxmemory-policy", "noeviction", "--workers", "2"]);
    let value = "v".repeat(10_000);
    let mut client = TcpStream::connect(kv.address()).expect("it listens");
    let long = "v".repeat(60_000);
    let sets: String =
        ["one", "two", "three", "four", "five"].map(|name| format!("SET {name} {long}\r\n")).concat();
    let queued = format!("MULTI\r\n{sets}");
    let receive = |client: &mut TcpStream, expected: &str| {
        let mut given = vec![0; expected.len()];
        client.read_exact(&mut given).expect("it answers");
        assert_eq!(String::from_utf8_lossy(&given), expected);
    };
    client.write_all(queued.as_bytes()).expect("it reads");
    receive(&mut client, &format!("+OK\r\n{}", "+QUEUED\r\n".repeat(5)));
    let fill = |number: usize| kv.ask(&[&format!("SET other-{number} {value}")]);
    assert!((0..1000).any(|number| fill(number).contains("OOM")));
    client.write_all(b"EXEC\r\nEXISTS one two three four five\r\n").expect("it reads");
    let refused = "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.\r\n:0\r\n";
    receive(&mut client, refused);
    // Reading and removing need no memory.
    client.write_all(b"MULTI\r\nDEL other-0\r\nGET other-0\r\nEXEC\r\n").expect("it reads");
    receive(&mut client, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$-1\r\n");
    assert!(kv.ask(&["INFO errorstats"]).contains("errorstat_EXECABORT:count=1\r\n"));
}

/// What was compressed was unpacked for it, and tables were made, without asking whether there was room.
#[test]
fn values_are_compared_within_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let config = config.to_str().expect("a path in UTF-8");
    let kv = Kv::start(LARDER, &["--config", config, "--maxmemory", "64MiB", "--workers", "1"]);
    assert_eq!(kv.ask(&["SETRANGE long 15000000 z", "SET short z"]), ":15000001\r\n+OK\r\n");
    let told = kv.ask(&["LCS short long LEN"]);
    assert!(told.starts_with("-OOM the reply needs more memory"), "{told}");
    let told =
        kv.ask(&["SETRANGE a 4095 x", "SETRANGE b 4096 x", "LCS a a LEN", "LCS a b LEN", "LCS short b"]);
    let limit = "-ERR the product of both lengths may be at most 16777216\r\n";
    assert_eq!(told, format!(":4096\r\n:4097\r\n:4096\r\n{limit}$0\r\n\r\n"));
    // Everybody would wait for all of them.
    let told = transact(&kv, &["LCS a a LEN", "LCS a a LEN", "GET short"].map(str::to_owned));
    let refused = "-ERR the products of the lengths may be at most 16777216 in total for the LCS commands of a transaction";
    assert!(told.ends_with(&format!("*3\r\n:4096\r\n{refused}\r\n$1\r\nz\r\n")), "{told}");
}
