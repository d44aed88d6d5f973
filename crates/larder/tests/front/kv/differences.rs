//! Checks `docs/reference/redis-differences.md` against both servers: each listed difference exists, and no command is missing.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::time::SystemTime;

use testkit::{Kv, Redis, say};

use super::sessions::scenario::files;
use super::sessions::told;
use crate::LARDER;

/// Texts in backquotes at the start of the lines that start with `begin`.
fn quoted(begin: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/redis-differences.md");
    let page = fs::read_to_string(page).expect("the page");
    let lines = page.lines().filter_map(|line| line.strip_prefix(begin));
    let quoted: Vec<_> = lines.filter_map(|line| Some(line.split_once('`')?.0.to_owned())).collect();
    assert!(!quoted.is_empty(), "no line begins with {begin}");
    quoted
}

#[test]
fn every_difference_is_one() {
    let (redis, kv) = (Redis::start(""), Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]));
    for row in quoted("| `") {
        let (before, last) = row.rsplit_once(" ; ").unwrap_or(("PING", &row));
        let before = before.replace(" ; ", "\r\n");
        let [given, expected] = [kv.address(), redis.address()].map(|address| {
            let first = say(address, &format!("FLUSHALL\r\n{before}\r\n"));
            (first, say(address, &format!("{last}\r\n")))
        });
        assert_eq!(given.0, expected.0, "{row}: the first commands get the same replies");
        assert_ne!(given.1, expected.1, "{row}: both give the same reply: remove it from the page");
    }
}

/// Names of the fields in every section of INFO. Asserts that no name appears twice.
fn facts(address: SocketAddr) -> BTreeSet<String> {
    // Some sections only list events that have occurred.
    let text = say(address, "SET k v\r\nNOSUCH\r\nINFO everything\r\n");
    let (mut section, mut names, mut facts) = ("", BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            section = name;
        } else if let Some((name, _)) = line.split_once(':').filter(|_| !section.is_empty()) {
            assert!(names.insert(name), "{section} {name} appears twice");
            facts.insert(format!("{section} {name}"));
        }
    }
    facts.retain(|fact| !fact.contains("stats cmdstat") && !fact.contains("latency_percentiles"));
    facts
}

/// Monitoring systems look up INFO fields by name.
#[test]
fn every_fact_of_info_is_there() {
    let redis = Redis::start("");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dump").display().to_string();
    for arguments in [&[][..], &["--save-file", &path]] {
        let kv = Kv::start(LARDER, &[&["--maxmemory", "64MiB"][..], arguments].concat());
        let missing: Vec<_> = facts(redis.address()).difference(&facts(kv.address())).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "{arguments:?}");
    }
}

/// As in Redis: the start counts as a save until something is saved, and the port is the one that a client has connected to.
#[test]
fn the_start_counts_as_a_save_and_the_port_is_told() {
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("it is later").as_secs();
    let before = now();
    let (redis, kv) = (Redis::start(""), Kv::start(LARDER, &[]));
    for address in [redis.address(), kv.address()] {
        let given = say(address, "LASTSAVE\r\n");
        let saved: u64 = given.trim_start_matches(':').trim_end().parse().expect("a number");
        assert!((before..=now()).contains(&saved), "{saved}");
        let port = address.port().to_string();
        let expected = format!("*2\r\n$4\r\nport\r\n${}\r\n{port}\r\n", port.len());
        assert_eq!(say(address, "CONFIG GET port\r\n"), expected);
    }
}

/// Each command sent alone is one read and one write. Pipelined commands share a few of both.
#[test]
fn reads_and_writes_are_counted() {
    let (redis, kv) = (Redis::start(""), Kv::start(LARDER, &["--workers", "2"]));
    for address in [redis.address(), kv.address()] {
        let count = |name| told(&say(address, "INFO stats\r\n"), name).parse::<u64>().expect("a number");
        let more = |conversations: &[&str]| {
            let before = ["total_reads_processed", "total_writes_processed"].map(count);
            conversations.iter().for_each(|lines| drop(say(address, lines)));
            let after = ["total_reads_processed", "total_writes_processed"].map(count);
            [after[0] - before[0], after[1] - before[1]]
        };
        // The INFO commands are counted too.
        let own = more(&[]);
        let [alone, together] = [more(&["PING\r\n"; 50]), more(&["PING\r\n".repeat(50).as_str()])];
        for (own, (alone, together)) in own.into_iter().zip(alone.into_iter().zip(together)) {
            // The end of a connection may count as a read.
            assert!((50..=100).contains(&(alone - own)), "{alone} for 50 sent separately");
            assert!((1..=10).contains(&(together - own)), "{together} for 50 sent together");
        }
    }
}

/// The first word of a request, and the first two in the form of a subcommand's name.
fn names(request: &str) -> [String; 2] {
    let mut words = request.split_whitespace().map(|word| word.trim_matches('"').to_ascii_lowercase());
    let first = words.next().unwrap_or_default();
    let both = format!("{first}|{}", words.next().unwrap_or_default());
    [first, both]
}

/// Names of the commands in all conversations. In scenarios, a client and a colon precede each request.
fn said() -> BTreeSet<String> {
    let texts =
        |extension| files(extension).into_iter().map(|file| fs::read_to_string(file).expect("the file"));
    let scenarios = texts("scenario").collect::<String>();
    let requests = scenarios.lines().filter_map(|line| Some(line.split_once(": ")?.1));
    texts("commands").collect::<String>().lines().chain(requests).flat_map(names).collect()
}

#[test]
fn every_command_is_compared_or_told_of() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let list = say(kv.address(), "COMMAND LIST\r\n");
    let commands: BTreeSet<&str> = list.lines().filter(|line| !line.starts_with(['*', '$', '+'])).collect();
    assert!(commands.contains("get") && commands.contains("client|id"), "{list}");
    let said = said();
    let told: BTreeSet<_> = quoted("| `").iter().flat_map(|row| row.split(" ; ")).flat_map(names).collect();
    let is_known = |name: &str| said.contains(name) || told.contains(name);
    let rest: BTreeSet<_> = commands.into_iter().filter(|name| !is_known(name)).map(str::to_owned).collect();
    let apart = quoted("- `").iter().map(|name| name.to_ascii_lowercase().replace(' ', "|")).collect();
    assert_eq!(rest, apart, "neither in a conversation nor in a difference nor in the list of others");
}
