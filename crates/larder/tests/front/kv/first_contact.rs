//! Values from other servers: DUMP and RESTORE, and RDB files.

use testkit::{Kv, KvService, Redis, RespClient};

use super::sessions::Talker;
use crate::LARDER;

fn bulk(reply: &[u8]) -> &[u8] {
    let begin = reply.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    &reply[begin..reply.len() - 2]
}

fn values() -> Vec<Vec<u8>> {
    let text = "all work and no play makes jack a dull boy. ".repeat(3000).into_bytes();
    let any: Vec<u8> = (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut values: Vec<Vec<u8>> =
        ["", "1", "-129", "70000", "2147483648", "007", "short"].map(Vec::from).into();
    values.extend([any[..63].to_vec(), any[..64].to_vec(), any[..20_000].to_vec(), any.clone()]);
    values.extend([text[..100].to_vec(), vec![b'a'; 300], text]);
    values
}

/// Redis compresses long, repetitive values in dumps, and Larder keeps long values compressed.
#[test]
fn values_are_carried_between_servers() {
    let redis = Redis::start("");
    let kv = KvService::start(LARDER, "workers = 2\ncompression = \"lz4\"\ncompress_from = \"20KiB\"");
    for (from, to) in [(redis.address(), kv.address()), (kv.address(), redis.address())] {
        let [mut from, mut to] = [from, to].map(RespClient::connect);
        for value in values() {
            assert_eq!(from.ask(&[b"SET", b"from", &value]), b"+OK\r\n");
            let dumped = from.ask(&[b"DUMP", b"from"]);
            let restored = to.ask(&[b"RESTORE", b"to", b"0", bulk(&dumped), b"REPLACE"]);
            assert_eq!(String::from_utf8_lossy(&restored), "+OK\r\n", "{} bytes", value.len());
            assert!(to.value(b"to") == Some(value));
        }
    }
}

/// Commands that create a key of each type.
const OF_ALL_TYPES: &str = "SET a 1\r\nSET text word\r\nSETEX ends 1000 v\r\nSELECT 3\r\nSET third 3\r\nSELECT 0\r\n\
    RPUSH l a b c\r\nSADD s a b\r\nSADD ints 1 2\r\nHSET h f v\r\nZADD z 1.5 a\r\n\
    XADD x 1-1 f v\r\nXGROUP CREATE x g 0\r\nXREADGROUP GROUP g c STREAMS x >\r\n";

#[test]
fn the_strings_of_an_rdb_file_are_imported() {
    let redis =
        Redis::start("hash-max-listpack-entries 3\nzset-max-listpack-entries 3\nset-max-intset-entries 1");
    let many: String =
        (0..50).map(|n| format!("HSET hh {n} v\r\nZADD zz {n} {n}\r\nRPUSH ll {n}\r\n")).collect();
    let long = "all work and no play makes jack a dull boy. ".repeat(3000).into_bytes();
    assert_eq!(RespClient::connect(redis.address()).ask(&[b"SET", b"long", &long]), b"+OK\r\n");
    let mut client = Talker::connect(redis.address());
    client.send(format!("{OF_ALL_TYPES}{many}SAVE\r\n"));
    let told = client.finish();
    assert!(told.ends_with("+OK\r\n+PONG\r\n") && !told.contains("-ERR"), "{told}");
    let file = redis.folder().join("dump.rdb");
    let path = file.display().to_string();
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2", "--import", &path]);
    let expected = "$1\r\n1\r\n$4\r\nword\r\n:4\r\n+OK\r\n$1\r\n3\r\n";
    assert_eq!(kv.ask(&["GET a", "GET text", "DBSIZE", "SELECT 3", "GET third"]), expected);
    assert!(RespClient::connect(kv.address()).value(b"long") == Some(long));
    let ttl: u64 = kv.ask(&["TTL ends"])[1..].trim_end().parse().expect("a number");
    assert!((900..=1000).contains(&ttl), "{ttl}");
    let log = kv.service.stderr();
    let types = "2 of type hash|2 of type list|2 of type set|1 of type stream|2 of type zset";
    for part in types.split('|').chain(["imported 5 strings"]) {
        assert!(log.contains(part), "{part}: {log}");
    }
}

/// Builds an RDB file from these parts, without a checksum.
fn rdb_file(parts: &[&[u8]]) -> Vec<u8> {
    [b"REDIS0010", parts.concat().as_slice(), b"\xff", &[0; 8]].concat()
}

/// "foo" is in slot 12182, "bar" in 5061.
const NODES: &str = "[[kv.cluster.nodes]]\nname = \"a\"\naddress = \"10.0.0.1:7001\"\nslots = [\"0-8191\"]
[[kv.cluster.nodes]]\nname = \"b\"\naddress = \"10.0.0.2:7001\"\nslots = [\"8192-16383\"]";

#[test]
fn keys_that_an_import_leaves_out_are_told() {
    let check = |nodes: &str, parts: &[&[u8]], told: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, config] = ["dump.rdb", "kv.toml"].map(|name| folder.path().join(name));
        std::fs::write(&file, rdb_file(parts)).expect("a file");
        std::fs::write(&config, format!("[kv]\n{nodes}\n")).expect("a file");
        let [file, config] = [file, config].map(|path| path.display().to_string());
        let options = ["--maxmemory", "2MiB", "--workers", "1", "--config", &config, "--import", &file];
        let arguments = if nodes.is_empty() { vec![] } else { vec!["--cluster-node", "a"] };
        let kv = Kv::start(LARDER, &[&options[..], &arguments].concat());
        let log = kv.service.stderr();
        assert!(log.contains(told), "{told}: {log}");
        kv.ask(&["DBSIZE", "GET bar"])
    };
    let bar: &[u8] = b"\x00\x03bar\x01v";
    let told = ":1\r\n$1\r\nv\r\n";
    let others = "imported 1 strings, 0 expired before, 0 without room, ";
    let no_database = format!("{others}2 left out from databases that this server doesn't have");
    assert_eq!(check("", &[b"\xfe\x10", b"\x00\x01a\x011", bar, b"\xfe\x00", bar], &no_database), told);
    let no_node = format!("{others}1 left out from slots of other nodes");
    assert_eq!(check(NODES, &[b"\x00\x03foo\x01v", bar], &no_node), told);
    let no_first = format!("{others}1 left out from databases that this server doesn't have");
    assert_eq!(check(NODES, &[bar, b"\xfe\x01", bar], &no_first), told);
    // Valkey 9 writes this: a field that expires, and one that doesn't.
    let hash = [&b"\x16\x01h\x02\x01f\x01v"[..], &[1; 8], b"\x01g\x01w", &[0xff; 8]].concat();
    assert_eq!(check("", &[&hash, bar], &format!("{others}1 of type hash left out")), told);
    let long = |number: u8| [&[0, 1, number, 0x80, 0, 0, 0x3c, 0][..], &[b'x'; 0x3c00]].concat();
    let many: Vec<u8> = (0..=255).flat_map(long).collect();
    let size = check("", &[&many], "imported 256 strings, 0 expired before, 0 without room, ");
    assert!(!size.starts_with(":256\r\n"), "{size}");
    let size = size[1..].lines().next().and_then(|size| size.parse::<u64>().ok()).expect("a size");
    check("", &[&many], &format!("{} keys evicted", 256 - size));
}

#[test]
fn a_file_that_is_no_whole_rdb_file_stops_the_start() {
    let redis = Redis::start("");
    Talker::connect(redis.address()).expect("SET a 1\r\nSET b 2\r\nSAVE", &"+OK\r\n".repeat(3));
    let whole = std::fs::read(redis.folder().join("dump.rdb")).expect("it was saved");
    let mut changed = whole.clone();
    changed[whole.len() - 1] ^= 1;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dump.rdb");
    let odd = rdb_file(&[b"\x00\x01a\x01v", b"\x63\x01h"]);
    for (bytes, expected) in [
        (&whole[..whole.len() - 9], "the file is truncated"),
        (&changed, "the checksum is wrong"),
        (&[&whole[..], b"*1"].concat(), "data follows the end"),
        (b"something else", "not an RDB file"),
        (b"", "the file is truncated"),
        (&odd, "the value of the key `h`, at byte 14, has an unknown type: 99"),
    ] {
        std::fs::write(&file, bytes).expect("a file");
        let path = file.display().to_string();
        let words = ["kv", "--listen", "127.0.0.1:0", "--save-file", "off", "--import", &path];
        let output = testkit::run(LARDER, words);
        assert!(output.status != 0 && output.stderr.contains(expected), "{}", output.stderr);
    }
}
