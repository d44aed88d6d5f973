//! What tools send first, and what carries values from one server to another.

use std::net::SocketAddr;

use testkit::{Kv, KvService, Redis, converse};

use crate::LARDER;

fn start() -> Kv {
    Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"])
}

fn ask(address: SocketAddr, lines: &str) -> String {
    String::from_utf8_lossy(&converse(address, lines.as_bytes(), usize::MAX)).into_owned()
}

/// The reply to a request with any bytes.
fn request(address: SocketAddr, arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        request.extend(format!("${}\r\n", argument.len()).bytes());
        request.extend_from_slice(argument);
        request.extend(b"\r\n");
    }
    converse(address, &request, usize::MAX)
}

fn bulk(reply: &[u8]) -> &[u8] {
    let begin = reply.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    &reply[begin..reply.len() - 2]
}

/// The error is final and has no word that a client takes for a reason to try again.
#[test]
fn scripts_are_refused_for_good() {
    let kv = start();
    let refused = "-ERR scripts are not supported: this server has no Lua and no functions\r\n";
    let commands = [
        "EVAL \"return 1\" 0",
        "EVAL_RO \"return 1\" 0",
        "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        "evalsha_ro e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 k",
        "FCALL f 0",
        "FCALL_RO f 1 k",
        "SCRIPT LOAD \"return 1\"",
        "FUNCTION LOAD REPLACE x",
        "FUNCTION RESTORE x",
    ];
    for command in commands {
        assert_eq!(ask(kv.address(), &format!("{command}\r\n")), refused, "{command}");
        let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
        let expected = format!("+OK\r\n+QUEUED\r\n{refused}{aborted}$-1\r\n");
        let transaction = format!("MULTI\r\nSET k 1\r\n{command}\r\nEXEC\r\nGET k\r\n");
        assert_eq!(ask(kv.address(), &transaction), expected, "{command}: nothing of it is done");
    }
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

/// Long and repetitive values are compressed by Redis, and kept compressed here.
#[test]
fn values_are_carried_between_servers() {
    let redis = Redis::start("");
    let kv = KvService::start(LARDER, "workers = 2\ncompression = \"lz4\"\ncompress_from = \"20KiB\"");
    for (from, to) in [(redis.address(), kv.address()), (kv.address(), redis.address())] {
        for value in values() {
            assert_eq!(request(from, &[b"SET", b"from", &value]), b"+OK\r\n");
            let dumped = request(from, &[b"DUMP", b"from"]);
            let restored = request(to, &[b"RESTORE", b"to", b"0", bulk(&dumped), b"REPLACE"]);
            assert_eq!(String::from_utf8_lossy(&restored), "+OK\r\n", "{} bytes", value.len());
            assert!(bulk(&request(to, &[b"GET", b"to"])) == value, "{} bytes", value.len());
        }
    }
}

#[test]
fn what_took_long_is_drawn_as_redis_draws_it() {
    let redis = Redis::start("enable-debug-command yes");
    let kv = KvService::start(LARDER, "workers = 1\nenable_debug_command = \"yes\"");
    let drawn = [redis.address(), kv.address()].map(|address| {
        let graph = ask(
            address,
            "CONFIG SET latency-monitor-threshold 1\r\nDEBUG SLEEP 0.01\r\nLATENCY GRAPH command\r\n\
             LATENCY GRAPH Command\r\nLATENCY HISTORY COMMAND\r\n",
        );
        // How long it took exactly differs.
        let lines = graph.lines().filter(|line| !line.starts_with('$'));
        lines.map(|line| line.replace(|letter: char| letter.is_ascii_digit(), "")).collect::<Vec<_>>()
    });
    assert_eq!(drawn[0], drawn[1]);
    assert!(
        drawn[1].iter().any(|line| line == "command - high  ms, low  ms (all time high  ms)"),
        "{drawn:?}"
    );
}

/// Within bounds, with an expiry from its first step on: what rate limiters ask for.
#[test]
fn a_number_is_counted_within_bounds() {
    let kv = start();
    let conversation = [
        ("INCREX hits UBOUND 2 EX 100 ENX", "*2 :1 :1 "),
        ("TTL hits", ":100 "),
        ("INCREX hits UBOUND 2 EX 500 ENX", "*2 :2 :1 "),
        ("TTL hits", ":100 "),
        ("INCREX hits UBOUND 2 EX 500", "*2 :2 :0 "),
        ("TTL hits", ":100 "),
        ("INCREX hits BYINT 10 UBOUND 5 SATURATE PERSIST", "*2 :5 :3 "),
        ("TTL hits", ":-1 "),
        ("INCREX none UBOUND -5", "*2 :0 :0 "),
        ("EXISTS none", ":0 "),
        ("INCREX none BYFLOAT 1.5", "*2 $3 1.5 $3 1.5 "),
        ("INCREX none BYFLOAT -3 LBOUND -1", "*2 $3 1.5 $1 0 "),
        ("INCREX none BYFLOAT -3 LBOUND -1 SATURATE", "*2 $2 -1 $4 -2.5 "),
        ("SET text abc", "+OK "),
        ("INCREX text", "-ERR value is not an integer or out of range "),
        ("INCREX text BYFLOAT 1", "-ERR value is not a valid float "),
        ("INCREX hits BYINT 1 BYINT 1", "-ERR syntax error "),
        ("INCREX hits BYINT 1 BYFLOAT 1", "-ERR syntax error "),
        ("INCREX hits ENX", "-ERR syntax error "),
        ("INCREX hits ENX PERSIST", "-ERR syntax error "),
        ("INCREX hits EX 1 EX 1", "-ERR syntax error "),
        ("INCREX hits EX 0", "-ERR invalid expire time in 'increx' command "),
        ("INCREX hits LBOUND 2 UBOUND 1", "-ERR LBOUND can't be greater than UBOUND "),
        ("INCREX hits UBOUND", "-ERR syntax error "),
        ("INCREX", "-ERR wrong number of arguments for 'increx' command "),
    ];
    for (request, expected) in conversation {
        assert_eq!(ask(kv.address(), &format!("{request}\r\n")).replace("\r\n", " "), expected, "{request}");
    }
}

/// One of each type, and those long enough that Redis keeps them in another way.
const OF_ALL_TYPES: &str = "SET a 1\r\nSET text word\r\nSETEX ends 1000 v\r\nSELECT 3\r\nSET third 3\r\nSELECT 0\r\n\
    RPUSH l a b c\r\nSADD s a b\r\nSADD ints 1 2\r\nHSET h f v\r\nZADD z 1.5 a\r\n\
    XADD x 1-1 f v\r\nXGROUP CREATE x g 0\r\nXREADGROUP GROUP g c STREAMS x >\r\n";

#[test]
fn the_strings_of_an_rdb_file_are_imported() {
    let redis =
        Redis::start("hash-max-listpack-entries 3\nzset-max-listpack-entries 3\nset-max-intset-entries 1");
    let many: String =
        (0..50).map(|n| format!("HSET hh {n} v\r\nZADD zz {n} {n}\r\nRPUSH ll {n}\r\n")).collect();
    let long = "all work and no play makes jack a dull boy. ".repeat(3000);
    assert_eq!(request(redis.address(), &[b"SET", b"long", long.as_bytes()]), b"+OK\r\n");
    let told = ask(redis.address(), &format!("{OF_ALL_TYPES}{many}SAVE\r\n"));
    assert!(told.ends_with("+OK\r\n") && !told.contains("-ERR"), "{told}");
    let file = redis.folder().join("dump.rdb");
    let path = file.display().to_string();
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2", "--import", &path]);
    let expected = "$1\r\n1\r\n$4\r\nword\r\n:5\r\n+OK\r\n$1\r\n3\r\n".replace(":5", ":4");
    assert_eq!(ask(kv.address(), "GET a\r\nGET text\r\nDBSIZE\r\nSELECT 3\r\nGET third\r\n"), expected);
    assert!(bulk(&request(kv.address(), &[b"GET", b"long"])) == long.as_bytes());
    let ttl = ask(kv.address(), "TTL ends\r\n");
    assert!((":900\r\n"..=":999\r\n").contains(&ttl.as_str()) || ttl == ":1000\r\n", "{ttl}");
    let log = kv.service.stderr();
    for part in [
        "imported 5 strings",
        "2 of type hash",
        "2 of type list",
        "2 of type set",
        "1 of type stream",
        "2 of type zset",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

/// An RDB file of these parts, without a checksum.
fn rdb_file(parts: &[&[u8]]) -> Vec<u8> {
    [b"REDIS0010", parts.concat().as_slice(), b"\xff", &[0; 8]].concat()
}

/// "foo" is in slot 12182, "bar" in 5061.
const NODES: &str = "[[kv.cluster.nodes]]\nname = \"a\"\naddress = \"10.0.0.1:7001\"\nslots = [\"0-8191\"]
[[kv.cluster.nodes]]\nname = \"b\"\naddress = \"10.0.0.2:7001\"\nslots = [\"8192-16383\"]";

#[test]
fn what_an_import_leaves_out_is_told() {
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
    let no_database = format!("{others}2 in databases that this server doesn't have left out");
    assert_eq!(check("", &[b"\xfe\x10", b"\x00\x01a\x011", bar, b"\xfe\x00", bar], &no_database), told);
    let no_node = format!("{others}1 in slots of other nodes left out");
    assert_eq!(check(NODES, &[b"\x00\x03foo\x01v", bar], &no_node), told);
    let no_first = format!("{others}1 in databases that this server doesn't have left out");
    assert_eq!(check(NODES, &[bar, b"\xfe\x01", bar], &no_first), told);
    // Of Valkey 9: a field that expires, and one that doesn't.
    let hash = [&b"\x16\x01h\x02\x01f\x01v"[..], &[1; 8], b"\x01g\x01w", &[0xff; 8]].concat();
    assert_eq!(check("", &[&hash, bar], &format!("{others}1 of type hash left out")), told);
    let long = |number: u8| [&[0, 1, number, 0x80, 0, 0, 0x3c, 0][..], &[b'x'; 0x3c00]].concat();
    let many: Vec<u8> = (0..=255).flat_map(long).collect();
    let size = check("", &[&many], "imported 256 strings, 0 expired before, 0 without room, ");
    assert!(!size.starts_with(":256\r\n"), "{size}");
    let evicted = format!(
        "{} keys evicted",
        256 - size[1..].lines().next().expect("a size").parse::<u64>().expect("a number")
    );
    check("", &[&many], &evicted);
}

#[test]
fn what_is_no_whole_rdb_file_stops_the_start() {
    let redis = Redis::start("");
    ask(redis.address(), "SET a 1\r\nSET b 2\r\nSAVE\r\n");
    let whole = std::fs::read(redis.folder().join("dump.rdb")).expect("it was saved");
    let mut changed = whole.clone();
    changed[whole.len() - 1] ^= 1;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dump.rdb");
    for (bytes, expected) in [
        (&whole[..whole.len() - 9], "the file is truncated"),
        (&changed, "the checksum is wrong"),
        (&[&whole[..], b"*1"].concat(), "data follows the end"),
        (b"something else", "not an RDB file"),
        (b"", "the file is truncated"),
        (
            &rdb_file(&[b"\x00\x01a\x01v", b"\x63\x01h"]),
            "the value of the key `h`, at byte 14, has an unknown type: 99",
        ),
    ] {
        std::fs::write(&file, bytes).expect("a file");
        let output = std::process::Command::new(LARDER)
            .args(["kv", "--listen", "127.0.0.1:0", "--save-file", "off", "--import"])
            .arg(&file)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{told}");
    }
}
