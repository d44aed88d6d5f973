//! `ttl_default` and `ttl_max`: a cache in which every key must expire.

use testkit::KvService;

use crate::LARDER;

/// Maximum TTL of `k` in seconds after each of these conversations.
const CASES: [(i64, &str); 3] = [
    (50, "SET k v EX 50|SET k v EX 50 ; SET k w KEEPTTL|SET o v EX 50 ; RENAME o k|SET o v EX 50 ; COPY o k"),
    (
        100,
        "SET k v|SET k v ; EXPIRE k 50 ; SET k w|SET k v KEEPTTL|SET k v EX 50 ; PERSIST k|\
         SET k v EX 50 ; GETEX k PERSIST|SETNX k v|GETSET k v|MSET k v o w|MSETNX k v o w|INCR k|\
         INCRBYFLOAT k 1.5|APPEND k v|SETRANGE k 30000 v|SETBIT k 7 1|\
         RESTORE k 0 \"\\x00\\x06goobar\\x0a\\x00\\x7f\\x08S?\\xa2\\xeef\\x96\"",
    ),
    (
        3_600,
        "SET k v EX 99999|SET k v ; EXPIRE k 99999|SET k v ; GETEX k EX 99999|MSETEX 1 k v EX 99999|\
         PSETEX k 99999000 v|INCREX k EX 99999",
    ),
];

#[test]
fn every_key_ends() {
    let kv = KvService::start(LARDER, "workers = 1\nttl_default = \"100s\"\nttl_max = \"1h\"");
    let ttl = || kv.ask("TTL k\r\n").trim_start_matches(':').trim_end().parse::<i64>().expect("a number");
    let cases = CASES.iter().flat_map(|(ttl, cases)| cases.split('|').map(move |requests| (requests, *ttl)));
    for (requests, expected) in cases {
        let told = kv.ask(&format!("FLUSHALL\r\n{}\r\n", requests.replace(" ; ", "\r\n")));
        let ttl = ttl();
        // Some seconds may have passed.
        assert!((expected - 10..=expected).contains(&ttl), "{requests}: {ttl} instead of {expected}, {told}");
    }
    // A reload applies to keys written afterwards.
    assert_eq!(kv.reload("workers = 1").status(), 200);
    assert_eq!(kv.ask("SET k v\r\nTTL k\r\n"), "+OK\r\n:-1\r\n");
    assert_eq!(kv.reload("workers = 1\nttl_max = \"10s\"").status(), 200);
    assert_eq!(kv.ask("TTL k\r\nSET k w\r\n"), ":-1\r\n+OK\r\n");
    assert!((1..=10).contains(&ttl()));
}

/// Keys that exist before a limit is set, and the command that then writes `k`.
const WRITTEN_AGAIN: &str = "SET o v => RENAME o k|SET o v EX 99999 => RENAME o k|SET o v EX 99999 => RENAMENX o k|\
    SETRANGE o 30000 v => RENAME o k|SELECT 1 ; SET k v EX 99999 => SELECT 1 ; MOVE k 0|SET o v EX 99999 => COPY o k|\
    SET o v => COPY o k|SET k v EX 99999 => PERSIST k|SET k v EX 99999 => GETEX k PERSIST|\
    SET k v EX 99999 => EXPIRE k 88888 LT|SET k 1 => INCR k|SET k v => APPEND k v|SETRANGE k 30000 v => APPEND k v|\
    SETRANGE k 30000 v => SETRANGE k 1 w|SETRANGE k 30000 v => SETBIT k 7 1|SET k v => SET k w KEEPTTL";

#[test]
fn keys_from_before_end_once_they_are_written() {
    let kv = KvService::start(LARDER, "workers = 1");
    for case in WRITTEN_AGAIN.split('|') {
        let lines = case.replace(" ; ", "\r\n");
        let (before, command) = lines.split_once(" => ").expect("two parts");
        assert_eq!(kv.reload("workers = 1").status(), 200);
        kv.ask(&format!("FLUSHALL\r\n{before}\r\n"));
        assert_eq!(kv.reload("workers = 1\nttl_max = \"100s\"").status(), 200);
        let told = kv.ask(&format!("{command}\r\nSELECT 0\r\nTTL k\r\n"));
        let ttl = told.trim_end().rsplit(':').next().and_then(|ttl| ttl.parse::<i64>().ok());
        assert!(ttl.is_some_and(|ttl| (90..=100).contains(&ttl)), "{before}, {command}: {told}");
    }
}
