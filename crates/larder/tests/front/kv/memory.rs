//! Memory of `larder kv`: one limit for keys, requests and replies.

use std::time::Duration;

use testkit::{Kv, RespClient, wait};

use super::sessions::{COMPRESSED, Talker, ask_all, bulk, configured, fact, request};
use crate::LARDER;
use crate::kv::churn;

const MIB: usize = 1 << 20;

fn start(maxmemory: &str, workers: &str) -> Kv {
    start_with("allkeys-s3fifo", maxmemory, workers)
}

fn start_with(policy: &str, maxmemory: &str, workers: &str) -> Kv {
    Kv::start(LARDER, &["--maxmemory", maxmemory, "--maxmemory-policy", policy, "--workers", workers])
}

/// Number of bytes in a size such as `64MiB`.
fn bytes(mebibytes: &str) -> usize {
    mebibytes.trim_end_matches("MiB").parse::<usize>().expect("a number") * MIB
}

#[track_caller]
fn set_long(kv: &Kv, name: &str, value: &str) {
    let reply = RespClient::connect(kv.address()).ask(&[b"SET", name.as_bytes(), value.as_bytes()]);
    assert_eq!(String::from_utf8_lossy(&reply), "+OK\r\n", "{name} of {} bytes", value.len());
}

fn count(replies: &str, line: &str) -> usize {
    replies.lines().filter(|other| *other == line).count()
}

/// The command once per number, which replaces each `#`.
fn each(numbers: impl Iterator<Item = usize>, command: impl Into<String>) -> impl Iterator<Item = String> {
    let command = command.into();
    numbers.map(move |number| command.replace('#', &number.to_string()))
}

#[test]
fn memory_stays_at_its_limit() {
    churn::run(Duration::from_secs(5), 192 << 20);
}

/// Keys are evicted without a write: otherwise the memory of clients would exceed the limit until the next write.
#[test]
fn keys_make_room_for_clients_but_not_during_a_pause() {
    let kv = start("64MiB", "2");
    churn::fill(&kv, 100_000, 800..1000);
    let wait_for_room = || wait::until_true("keys have made room", || fact(&kv, "used_memory") <= 64 << 20);
    // As in Redis: CLIENT PAUSE freezes the keys.
    let before = kv.ask(&["DBSIZE"]);
    assert_eq!(kv.ask(&["CLIENT PAUSE 100000 WRITE"]), "+OK\r\n");
    let clients = sending(&kv, 80, 256 << 10, 128 << 10);
    assert_eq!(kv.ask(&["DBSIZE"]), before);
    assert_eq!(kv.ask(&["CLIENT UNPAUSE"]), "+OK\r\n");
    wait_for_room();
    drop(clients);
    churn::fill(&kv, 100_000, 800..1000);
    let clients = sending(&kv, 800, 60_000, 40_000);
    wait_for_room();
    assert_eq!(kv.ask(&["SET short 1"]), "+OK\r\n");
    drop(clients);
    churn::fill(&kv, 100_000, 800..1000);
    // Many clients, with a small subscription table each.
    let subscribe = |number: usize| {
        let mut client = Talker::connect(kv.address());
        let name = format!("{number:06}{}", "n".repeat(100_000 - 6));
        client.send(request(&[b"SUBSCRIBE", name.as_bytes()]));
        client
    };
    let _clients: Vec<_> = (0..200).map(subscribe).collect();
    wait::until_true("all have subscribed", || fact(&kv, "mem_clients_normal") >= 200 * 100_000);
    wait_for_room();
}

/// Clients that have each sent part of a value, which the server has received.
fn sending(kv: &Kv, clients: usize, value_bytes: usize, sent_bytes: usize) -> Vec<Talker> {
    let sending = (0..clients).map(|_| begin_set(kv, value_bytes, sent_bytes)).collect();
    wait::until_true("all parts are counted", || fact(kv, "mem_clients_normal") >= clients * sent_bytes);
    sending
}

/// Starts a SET with a value of `value_bytes`, and sends `sent_bytes` of the value. The server may close the connection.
fn begin_set(kv: &Kv, value_bytes: usize, sent_bytes: usize) -> Talker {
    let mut client = Talker::connect(kv.address());
    client.send(format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${value_bytes}\r\n{}", "v".repeat(sent_bytes)));
    client
}

fn sets(name: &str, keys: usize) -> impl Iterator<Item = String> {
    each(0..keys, format!("SET {name}-# {}", "v".repeat(1000)))
}

/// Deletes the key first, since a value of the same length as before would need no room.
fn is_written(kv: &Kv) -> bool {
    kv.ask(&["DEL probe", "SET probe word"]).ends_with("+OK\r\n")
}

/// Segments that aren't full have room for thousands of keys, but count in full.
#[test]
fn a_lowered_limit_refuses_writes_where_keys_stay() {
    const KEYS: usize = 20_000;
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let kv = start_with(policy, "64MiB", "2");
        assert!(!ask_all(&kv, sets("old", KEYS)).contains('-'), "{policy}");
        assert_eq!(kv.ask(&["CONFIG SET maxmemory 16mb"]), "+OK\r\n");
        if policy == "noeviction" {
            assert!(!is_written(&kv), "writes are refused immediately");
        }
        // Under the other policies the server first has to find out that no key expires.
        wait::until_true("writes are refused", || !is_written(&kv));
        let others = ["MSET a 1 b 2", "APPEND old-1 more", "SETRANGE old-1 2000 more", "INCR counter"];
        let given = ask_all(&kv, sets("new", 2_000)) + &kv.ask(&others);
        assert_eq!(given.matches("-OOM ").count(), 2_004, "{policy}");
        assert_eq!(kv.ask(&["STRLEN old-1"]), ":1000\r\n");
        // Under the other policies, a key with an expiry would be evicted immediately.
        if policy == "noeviction" {
            assert_eq!(kv.ask(&["EXPIRE old-2 1000", "PERSIST old-2"]), ":1\r\n:1\r\n");
        }
        let dels = each((0..KEYS).filter(|number| number % 4 > 0), "DEL old-#");
        assert_eq!(count(&ask_all(&kv, dels), ":1"), KEYS / 4 * 3, "{policy}");
        wait::until_true("there is room again", || is_written(&kv));
        assert_eq!(count(&ask_all(&kv, sets("new", 2_000)), "+OK"), 2_000, "{policy}");
        assert_eq!(kv.ask(&["DBSIZE"]), format!(":{}\r\n", KEYS / 4 + 2_001), "{policy}");
    }
}

#[test]
fn compressed_values_are_the_same_and_take_less() {
    let kv = configured(&format!("{COMPRESSED}\ncompress_from = \"32KiB\""), &[]);
    for (command, reply) in [
        ("SETRANGE long 99999 z", ":100000"),
        ("STRLEN long", ":100000"),
        ("APPEND long 0123456789", ":100010"),
        ("GETRANGE long -11 -1", "$11\r\nz0123456789"),
        ("SETRANGE long 5 here", ":100010"),
        ("GETRANGE long 4 9", "$6\r\n\0here\0"),
        ("EXPIRE long 1000", ":1"),
        ("COPY long copy", ":1"),
        ("STRLEN copy", ":100010"),
        ("GETDEL none", "$-1"),
        ("SETRANGE short 20000 z", ":20001"),
    ] {
        assert_eq!(kv.ask(&[command]), format!("{reply}\r\n"), "{command}");
    }
    let usage = ["long", "copy", "short"].map(|key| {
        let told = kv.ask(&[&format!("MEMORY USAGE {key}")]);
        told[1..].trim_end().parse::<usize>().expect("a number")
    });
    assert!(usage[0] < 2000 && usage[1] < 2000, "{usage:?}");
    assert!(usage[2] > 20_000, "it is too short to be compressed");
    let whole = kv.ask(&["GET long"]);
    assert!(whole.starts_with("$100010\r\n\0\0\0\0\0here\0") && whole.ends_with("z0123456789\r\n"));
}

/// The received bytes become the value, so it isn't in memory twice.
#[test]
fn a_value_of_more_than_half_of_memory_has_room() {
    for (size, workers) in [("8MiB", "1"), ("64MiB", "2")] {
        let value = "v".repeat(bytes(size) * 5 / 8);
        let kv = start(size, workers);
        for _ in 0..2 {
            set_long(&kv, "long", &value);
            assert_eq!(kv.ask(&["STRLEN long"]), format!(":{}\r\n", value.len()));
        }
    }
}

/// Incomplete requests of several clients use at most half of the limit. A value that can never be stored is refused as soon as its length
/// arrives.
#[test]
fn requests_that_are_not_whole_stay_within_the_limit() {
    for (size, workers) in [("4MiB", "1"), ("32MiB", "2"), ("64MiB", "4")] {
        let bytes_max = bytes(size);
        let kv = start(size, workers);
        churn::fill(&kv, bytes_max / 700, 800..1000);
        let is_within = || fact(&kv, "used_memory") <= bytes_max;
        let held_bytes = || fact(&kv, "mem_clients_normal");
        let value_bytes = bytes_max * 2 / 5;
        let mut one = begin_set(&kv, value_bytes, value_bytes - 1);
        wait::until_true(&format!("{size}: it is held"), || held_bytes() + 1 >= value_bytes);
        wait::until_true(&format!("{size}: keys make room for it"), is_within);
        one.expect("v", "+OK\r\n");

        let others: Vec<_> = (0..3).map(|_| begin_set(&kv, value_bytes, value_bytes - 1)).collect();
        wait::until_true(&format!("{size}: some are closed"), || {
            held_bytes() <= bytes_max / 2 && kv.ask(&["CLIENT LIST"]).lines().count() <= 5
        });
        wait::until_true(&format!("{size}: keys make room for the others"), is_within);
        drop(others);
        wait::until_true(&format!("{size}: nothing is held"), || held_bytes() < 1 << 20);

        let keys = kv.ask(&["DBSIZE"]);
        let mut never = begin_set(&kv, bytes_max * 6 / 5, 100);
        let told = "-OOM the request is too large for maxmemory\r\n";
        assert_eq!(never.rest(), told, "{size}");
        assert_eq!(kv.ask(&["DBSIZE", "SET short 1"]), format!("{keys}+OK\r\n"), "{size}");
    }
}

/// As in Redis, a change to the expiry, name or database of a stored value needs no room, even in a transaction.
#[test]
fn full_memory_refuses_writes_and_changes_names_and_expiries() {
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let kv = start_with(policy, "4MiB", "1");
        let given = ask_all(&kv, each(0..1_000, format!("SET key-# {}", "v".repeat(5_000))));
        let set = given.lines().enumerate().filter(|(_, line)| *line == "+OK");
        let keys: Vec<usize> = set.map(|(number, _)| number).collect();
        assert!(given.contains("-OOM ") && keys.len() > 500, "{policy}: {} keys", keys.len());
        let of_all = |command: &str| ask_all(&kv, each(keys.iter().copied(), command));
        let given = of_all("RENAME key-# yek-#\r\nRENAMENX yek-# kye-#\r\nMOVE kye-# 1");
        assert!(given == "+OK\r\n:1\r\n:1\r\n".repeat(keys.len()), "{policy}: {given}");
        for numbers in keys.chunks(5) {
            let renames = each(numbers.iter().copied(), "RENAME kye-# final-#");
            let given = transact(&kv, ["SELECT 1".to_owned()].into_iter().chain(renames));
            assert!(given.ends_with(&"+OK\r\n".repeat(1 + numbers.len())), "{policy}: {given}");
        }
        for (command, reply) in [
            ("STRLEN final-#", ":5000"),
            ("EXPIRE final-# 1000", ":1"),
            ("PEXPIRE final-# 2000000", ":1"),
            ("PERSIST final-#", ":1"),
            ("GETEX final-# EX 1000", "$5000"),
        ] {
            let changed = count(&of_all(&format!("SELECT 1\r\n{command}")), reply);
            // Keys with an expiry may be evicted, to make room for the first expiries.
            let is_enough = changed == keys.len() || policy != "noeviction" && changed * 10 > keys.len() * 8;
            assert!(is_enough, "{policy} {command}: {changed} of {}", keys.len());
        }
    }
}

/// A short request must not cost 500 MB.
#[test]
fn writes_without_room_are_refused_before_they_take_any() {
    let kv = start("64MiB", "2");
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
    // Large bit offsets are counted before a transaction begins.
    let kv = start_with("noeviction", "64MiB", "2");
    let bits = each(0..12, "SETBIT bit-# 67108864 1").chain(["SET marker after".to_owned()]);
    let given = transact(&kv, bits);
    assert!(given.contains("-EXECABORT "), "{given}");
    assert_eq!(kv.ask(&["EXISTS marker bit-0"]), ":0\r\n");
}

/// A reply that contains one large value many times doesn't copy the value, even if the client doesn't read.
#[test]
fn replies_share_what_is_stored() {
    const TIMES: usize = 800;
    let value = "v".repeat(1 << 20);
    let mut reply = Vec::new();
    bulk(&mut reply, value.as_bytes());
    for workers in ["1", "2", "8"] {
        let mget = format!("MGET{}", " big".repeat(TIMES));
        let getranges = format!("MULTI\r\n{}EXEC", "GETRANGE big 0 -1\r\n".repeat(TIMES));
        let heads = [
            (mget, format!("*{TIMES}\r\n")),
            (getranges, format!("+OK\r\n{}*{TIMES}\r\n", "+QUEUED\r\n".repeat(TIMES))),
        ];
        for (commands, head) in heads {
            let kv = start("64MiB", workers);
            churn::fill(&kv, 60_000, 800..1000);
            set_long(&kv, "big", &value);
            let before = kv.service.peak_bytes();
            let mut client = Talker::connect(kv.address());
            // The reply has begun, and the value is deleted meanwhile.
            client.expect(&commands, &head);
            wait::until_true("the value is gone", || kv.ask(&["DEL big"]) == ":0\r\n");
            wait::until_true("the unsent value counts once", || {
                (1 << 20..3 << 20).contains(&fact(&kv, "mem_clients_normal"))
            });
            (0..TIMES).for_each(|_| client.receive(&reply));
            wait::until_true("nothing is left", || fact(&kv, "mem_clients_normal") == 0);
            // The kernel counts in batches, so a peak may appear to fall.
            let grown = kv.service.peak_bytes().saturating_sub(before);
            assert!(grown < 12 << 20, "{workers} workers: {grown} bytes for a reply");
        }
    }
}

/// A worker frees the buffers of a large reply once it is sent.
#[test]
fn no_worker_keeps_what_a_large_reply_took() {
    const VALUE: usize = 4 << 20;
    let kv = start("256MiB", "8");
    let before = kv.service.resident_bytes();
    let value = "v".repeat(VALUE);
    set_long(&kv, "big", &value);
    ask_all(&kv, each(0..500, format!("SET key-# {}", &value[..15_000])));
    let mget = format!("MGET{}", each(0..500, " key-#").collect::<String>());
    // Each uses its own connection, so that every worker serves some.
    for _ in 0..40 {
        let replies =
            [kv.ask(&["GET big"]), kv.ask(&["GETRANGE big 1 -1"]), kv.ask(&["MULTI", "GET big", "EXEC"])];
        assert!(replies.iter().all(|reply| reply.len() >= VALUE));
        assert!(kv.ask(&[&mget]).len() > 500 * 15_000);
        // A request with many arguments leaves no buffers either.
        assert!(kv.ask(&[&format!("EXISTS{}", " x".repeat(30_000))]).starts_with(':'));
    }
    assert_eq!(kv.ask(&["FLUSHALL", "MEMORY PURGE"]), "+OK\r\n+OK\r\n");
    wait::until_true("the memory is returned", || kv.service.resident_bytes() < before + (12 << 20));
    assert_eq!(fact(&kv, "mem_clients_normal"), 0);
}

/// Replies to a transaction: to MULTI, the queued commands and EXEC.
fn transact<S: AsRef<str>>(kv: &Kv, commands: impl IntoIterator<Item = S>) -> String {
    let queued = commands.into_iter().map(|command| format!("{}\r\n", command.as_ref()));
    testkit::say(kv.address(), &format!("MULTI\r\n{}EXEC\r\n", queued.collect::<String>()))
}

/// Transactions run until memory is full and beyond: each is executed as a whole or not at all.
#[test]
fn a_transaction_without_room_is_not_executed_at_all() {
    for (policy, size, workers) in [
        ("noeviction", "4MiB", "1"),
        ("noeviction", "16MiB", "2"),
        ("noeviction", "64MiB", "2"),
        ("volatile-lru", "4MiB", "1"),
        ("volatile-lru", "64MiB", "2"),
        ("volatile-ttl", "16MiB", "2"),
        ("allkeys-lru", "4MiB", "1"),
        ("allkeys-lru", "16MiB", "2"),
        ("allkeys-s3fifo", "4MiB", "1"),
        ("allkeys-s3fifo", "64MiB", "2"),
    ] {
        let (kv, case) = (start_with(policy, size, workers), format!("{size}, {policy}"));
        let value = "v".repeat(10_000);
        let (mut executed, mut refused) = (0, 0);
        while refused < 20 && executed * 60_000 < bytes(size) {
            let number = executed + refused;
            let more = [
                format!("APPEND key-{number}-0 {value}"),
                format!("SETRANGE range-{number} 9999 v"),
                format!("COPY key-{number}-0 copy-{number}"),
            ];
            let sets = each(0..5, format!("SET key-{number}-# {value}")).chain(more);
            let given = transact(&kv, sets);
            let names: String = each(0..5, format!(" key-{number}-#")).collect();
            let there = kv.ask(&[&format!("EXISTS{names} range-{number} copy-{number}")]);
            if given.contains("OOM ") {
                assert!(given.contains("-EXECABORT Transaction discarded because of"), "{case}: {given}");
                assert_eq!(there, ":0\r\n", "{case}: {given}");
                refused += 1;
            } else {
                let is_whole = given.ends_with(":20000\r\n:10000\r\n:1\r\n") && !given.contains('-');
                assert!(is_whole, "{case}: {given}");
                // A new key may be evicted immediately.
                assert!(there == ":7\r\n" || policy.starts_with("allkeys"), "{case}: {there}");
                executed += 1;
            }
        }
        assert_eq!(refused > 0, !policy.starts_with("allkeys"), "{case}: {executed} executed");
    }
}

/// Each version replaces the one before.
#[test]
fn a_large_value_is_appended_to_in_a_transaction_as_often_as_it_likes() {
    let kv = start("64MiB", "2");
    assert_eq!(kv.ask(&["SETRANGE old 4000000 x"]), ":4000001\r\n");
    let appends = (0..30).map(|number| ["APPEND old y", "APPEND new y"][number % 2]);
    let given = transact(&kv, ["SETRANGE new 4000000 x"].into_iter().chain(appends));
    assert!(given.ends_with(":4000016\r\n:4000016\r\n"), "{given}");
    assert!(fact(&kv, "used_memory") < 64 << 20);
}

/// The value has 5 MB, and two copies don't fit.
#[test]
fn a_large_value_is_found_wherever_a_transaction_puts_it() {
    let value = "v".repeat(5_000_000);
    for before in [
        &["MOVE long 1", "SELECT 1"][..],
        &["SWAPDB 0 1", "SELECT 1"],
        &["SELECT 1", "SWAPDB 0 1"],
        &["SWAPDB 0 2", "SWAPDB 1 2", "SELECT 1"],
        &["RENAME long other", "MOVE other 3", "SELECT 3", "RENAME other long"],
    ] {
        for growth in ["APPEND long x", "SETRANGE long 5000001 x", "COPY long copy", "COPY long long DB 5"] {
            let kv = start_with("noeviction", "8MiB", "2");
            set_long(&kv, "long", &value);
            let given = transact(&kv, before.iter().chain(&[growth]));
            // COPY shares the value, but the check doesn't rely on that.
            assert!(given.contains("-EXECABORT"), "{before:?} {growth}: {given}");
            assert_eq!(kv.ask(&["STRLEN long"]), ":5000000\r\n", "{before:?} {growth}: nothing was executed");
        }
    }
}

/// The commands were queued while there was room.
#[test]
fn exec_is_refused_when_memory_has_filled_up_meanwhile() {
    let kv = start_with("noeviction", "4MiB", "2");
    let mut client = Talker::connect(kv.address());
    let long = "v".repeat(60_000);
    let sets = ["one", "two", "three", "four", "five"].map(|name| format!("\r\nSET {name} {long}")).concat();
    client.expect(&format!("MULTI{sets}"), &format!("+OK\r\n{}", "+QUEUED\r\n".repeat(5)));
    let fill = |number: usize| kv.ask(&[&format!("SET other-{number} {}", &long[..10_000])]);
    assert!((0..1000).any(|number| fill(number).contains("OOM")));
    let refused = "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.\r\n:0\r\n";
    client.expect("EXEC\r\nEXISTS one two three four five", refused);
    // Reading and removing need no memory.
    let replies = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$-1\r\n";
    assert_eq!(transact(&kv, ["DEL other-0", "GET other-0"]), replies);
    assert!(kv.ask(&["INFO errorstats"]).contains("errorstat_EXECABORT:count=1\r\n"));
}

/// Comparisons once decompressed values and built tables without checking for room.
#[test]
fn values_are_compared_within_limits() {
    let kv = configured(COMPRESSED, &["--maxmemory", "64MiB", "--workers", "1"]);
    assert_eq!(kv.ask(&["SETRANGE long 15000000 z", "SET short z"]), ":15000001\r\n+OK\r\n");
    let told = kv.ask(&["LCS short long LEN"]);
    assert!(told.starts_with("-OOM the reply needs more memory"), "{told}");
    let told =
        kv.ask(&["SETRANGE a 4095 x", "SETRANGE b 4096 x", "LCS a a LEN", "LCS a b LEN", "LCS short b"]);
    let limit = "-ERR the product of both lengths may be at most 16777216\r\n";
    assert_eq!(told, format!(":4096\r\n:4097\r\n:4096\r\n{limit}$0\r\n\r\n"));
    // All other clients would wait for the whole transaction.
    let digests = transact(&kv, ["DIGEST long"; 30]);
    assert!(digests.contains("may process at most 134217728 bytes of values together"), "{digests}");
}
