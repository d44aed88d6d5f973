//! `ttl_default` and `ttl_max`: a cache whose keys must end.

use testkit::KvService;

use crate::LARDER;

/// Requests, and how many seconds `k` has then, at most.
const CASES: &[(&str, u64)] = &[
    ("SET k v", 100),
    ("SET k v\r\nEXPIRE k 50\r\nSET k w", 100),
    ("SET k v EX 50", 50),
    ("SET k v EX 50\r\nSET k w KEEPTTL", 50),
    ("SET k v KEEPTTL", 100),
    ("SET k v EX 99999", 3_600),
    ("SET k v\r\nEXPIRE k 99999", 3_600),
    ("SET k v EX 50\r\nPERSIST k", 100),
    ("SET k v EX 50\r\nGETEX k PERSIST", 100),
    ("SET k v\r\nGETEX k EX 99999", 3_600),
    ("SETNX k v", 100),
    ("GETSET k v", 100),
    ("MSET k v o w", 100),
    ("MSETNX k v o w", 100),
    ("MSETEX 1 k v EX 99999", 3_600),
    ("PSETEX k 99999000 v", 3_600),
    ("INCR k", 100),
    ("INCRBYFLOAT k 1.5", 100),
    ("INCREX k EX 99999", 3_600),
    ("APPEND k v", 100),
    ("SETRANGE k 30000 v", 100),
    ("SETBIT k 7 1", 100),
    ("SET o v EX 50\r\nRENAME o k", 50),
    ("SET o v EX 50\r\nCOPY o k", 50),
    ("RESTORE k 0 \"\\x00\\x06goobar\\x0a\\x00\\x7f\\x08S?\\xa2\\xeef\\x96\"", 100),
];

#[test]
fn every_key_ends() {
    let kv = KvService::start(LARDER, "workers = 1\nttl_default = \"100s\"\nttl_max = \"1h\"");
    let ttl = || {
        let told = kv.ask("TTL k\r\n");
        told.trim_start_matches(':').trim_end().parse::<i64>().expect("a number")
    };
    for (requests, expected) in CASES {
        let told = kv.ask(&format!("FLUSHALL\r\n{requests}\r\n"));
        let ttl = ttl();
        // Some of it may have passed.
        let expected = *expected as i64;
        assert!((expected - 10..=expected).contains(&ttl), "{requests}: {ttl} and not {expected}, {told}");
    }
    // A reload counts for keys that are written from then on.
    assert_eq!(kv.reload("workers = 1").status(), 200);
    assert_eq!(kv.ask("SET k v\r\nTTL k\r\n"), "+OK\r\n:-1\r\n");
    assert_eq!(kv.reload("workers = 1\nttl_max = \"10s\"").status(), 200);
    assert_eq!(kv.ask("TTL k\r\nSET k w\r\n"), ":-1\r\n+OK\r\n");
    assert!((1..=10).contains(&ttl()));
}

/// Keys that are there before a limit is set, and the command that writes `k`.
const WRITTEN_AGAIN: &[(&str, &str)] = &[
    ("SET o v", "RENAME o k"),
    ("SET o v EX 99999", "RENAME o k"),
    ("SET o v EX 99999", "RENAMENX o k"),
    ("SETRANGE o 30000 v", "RENAME o k"),
    ("SELECT 1\r\nSET k v EX 99999", "SELECT 1\r\nMOVE k 0"),
    ("SET o v EX 99999", "COPY o k"),
    ("SET o v", "COPY o k"),
    ("SET k v EX 99999", "PERSIST k"),
    ("SET k v EX 99999", "GETEX k PERSIST"),
    ("SET k v EX 99999", "EXPIRE k 88888 LT"),
    ("SET k 1", "INCR k"),
    ("SET k v", "APPEND k v"),
    ("SETRANGE k 30000 v", "APPEND k v"),
    ("SETRANGE k 30000 v", "SETRANGE k 1 w"),
    ("SETRANGE k 30000 v", "SETBIT k 7 1"),
    ("SET k v", "SET k w KEEPTTL"),
];

#[test]
fn keys_from_before_end_once_they_are_written() {
    let kv = KvService::start(LARDER, "workers = 1");
    for (before, command) in WRITTEN_AGAIN {
        assert_eq!(kv.reload("workers = 1").status(), 200);
        kv.ask(&format!("FLUSHALL\r\n{before}\r\n"));
        assert_eq!(kv.reload("workers = 1\nttl_max = \"100s\"").status(), 200);
        let told = kv.ask(&format!("{command}\r\nSELECT 0\r\nTTL k\r\n"));
        let ttl = told.trim_end().rsplit(':').next().and_then(|ttl| ttl.parse::<i64>().ok());
        assert!(ttl.is_some_and(|ttl| (90..=100).contains(&ttl)), "{before}, {command}: {told}");
    }
}
