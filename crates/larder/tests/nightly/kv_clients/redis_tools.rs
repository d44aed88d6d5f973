//! redis-cli and redis-benchmark of Redis 7.0.

use testkit::run;

use super::server::{Entrance, Kind, PASSWORD, Server};

fn cli(server: &Server, arguments: &[&str]) -> String {
    let port = server.address().port().to_string();
    run("redis-cli", [&["-p", &port], arguments].concat()).succeeded().text()
}

/// Checks that redis-cli writes the same for Redis and Larder with each of these lines of arguments.
fn check_same(entrance: Entrance, lines: &str) {
    let servers = [Kind::Redis, Kind::Larder].map(|kind| Server::start(kind, entrance));
    for line in lines.lines() {
        let [redis, larder] =
            servers.each_ref().map(|server| cli(server, &line.split(' ').collect::<Vec<_>>()));
        assert_eq!(larder, redis, "{line}");
    }
}

#[test]
fn redis_cli_is_answered_as_by_redis() {
    check_same(Entrance::Open, OPEN);
    let locked = format!("PING\n--no-auth-warning -a {PASSWORD} PING\nAUTH wrong\n-3 PING");
    check_same(Entrance::Locked, &locked);
}

const OPEN: &str = r#"PING
SET key value EX 100
GET key
TTL key
GET missing
INCR key
NOPE x
MGET key missing
-3 MGET key missing
-3 GET missing
-n 3 SET other database
-n 3 --quoted-input SET "\x00\xff" "a\r\nb"
--no-raw -n 3 --quoted-input GET "\x00\xff"
--csv MGET key missing
--json MGET key missing
-r 3 INCR counter
DBSIZE
FLUSHALL
MSET a:1 x b:1 y
--scan --pattern a:*
--scan --pattern c:*"#;

/// Mass insertion: ends only when the server has answered all commands.
#[test]
fn redis_cli_pipes() {
    for kind in [Kind::Redis, Kind::Larder] {
        let server = Server::start(kind, Entrance::Open);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("commands");
        let commands: String = (0..10_000).map(|number| format!("SET piped-{number} {number}\r\n")).collect();
        std::fs::write(&file, commands).expect("a file in the folder");
        let line = format!("redis-cli -p {} --pipe < {}", server.address().port(), file.display());
        let told = run("sh", ["-c", &line]).succeeded().text();
        assert!(told.contains("errors: 0, replies: 10000"), "{kind:?}: {told}");
        assert_eq!(cli(&server, &["GET", "piped-9999"]), "9999\n", "{kind:?}");
    }
}

/// The string tests of redis-benchmark: with defaults, and with RESP3, pipelines, threads and random keys.
#[test]
fn redis_benchmark_ends() {
    let tests = ["-t", "ping_inline,ping_mbulk,set,get,incr,mset", "-n", "2000", "--csv"];
    for kind in [Kind::Redis, Kind::Larder] {
        let server = Server::start(kind, Entrance::Open);
        let port = server.address().port().to_string();
        for options in [&[][..], &["-3"], &["-P", "100"], &["--threads", "2"], &["-r", "1000", "-d", "1000"]]
        {
            let output = run("redis-benchmark", [&["-p", &port], &tests[..], options].concat()).succeeded();
            assert_eq!(output.text().lines().count(), 7, "{kind:?} {options:?}: {}", output.text());
            assert!(!output.stderr.contains("ERR"), "{kind:?} {options:?}: {}", output.stderr);
        }
    }
}
