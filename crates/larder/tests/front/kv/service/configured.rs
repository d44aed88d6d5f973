//! The configuration file of `larder kv`, reloads, metrics and shutdown.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use testkit::{KvService, Redis, say, wait};

use crate::LARDER;

/// Value of a parameter from CONFIG GET.
fn parameter(kv: &KvService, name: &str) -> String {
    let reply = kv.ask(&format!("CONFIG GET {name}\r\n"));
    reply.lines().nth(4).unwrap_or_else(|| panic!("no {name} in {reply:?}")).to_owned()
}

#[test]
fn a_reload_changes_what_can_change_and_names_the_rest() {
    let kv = KvService::start(LARDER, "maxmemory = \"8MiB\"\nmaxmemory_policy = \"noeviction\"\nworkers = 1");
    assert_eq!(parameter(&kv, "maxmemory"), (8 << 20).to_string());
    assert_eq!(parameter(&kv, "maxmemory-policy"), "noeviction");
    assert_eq!(kv.reload("maxmemory = \"64MiB\"\nworkers = 2").status(), 200);
    assert_eq!(parameter(&kv, "maxmemory"), (64 << 20).to_string());
    let log = kv.service.stderr();
    assert!(log.contains("kv.workers: changed, but takes effect only after a restart"), "{log}");
    let refused = kv.reload("maxmemory = \"1KiB\"");
    assert!(refused.status() != 200 && refused.text().contains("kv.maxmemory"), "{}", refused.text());
    assert_eq!(parameter(&kv, "maxmemory"), (64 << 20).to_string());
    // With the shards from its start, the server then has room for few keys.
    assert_eq!(kv.reload("maxmemory = \"2MiB\"\nworkers = 2").status(), 200);
    assert_eq!(parameter(&kv, "maxmemory"), (2 << 20).to_string());
    assert_eq!(kv.ask("SET k v\r\nGET k\r\n"), "+OK\r\n$1\r\nv\r\n");
}

/// All settings that a reload changes according to the reference, except passwords and certificates.
#[test]
fn a_reload_changes_policy_limits_and_access() {
    let kv = KvService::start(LARDER, "enable_debug_command = \"local\"");
    let redis = Redis::start("enable-debug-command local");
    let debug = "DEBUG SLEEP 0\r\nDEBUG ERROR x\r\nDEBUG SET-ACTIVE-EXPIRE 1\r\n";
    assert_eq!(kv.ask(debug), say(redis.address(), debug));
    // A reload reverts changes by CONFIG SET, even if the file is unchanged.
    assert_eq!(kv.ask("CONFIG SET timeout 77 maxmemory-policy allkeys-random\r\n"), "+OK\r\n");
    assert_eq!(kv.reload("enable_debug_command = \"local\"").status(), 200);
    assert_eq!([parameter(&kv, "timeout"), parameter(&kv, "maxmemory-policy")], ["0", "allkeys-s3fifo"]);
    let changed = "maxmemory_policy = \"volatile-ttl\"\nprotected_mode = false\n[kv.limits]\nclients_max = 77
        idle_timeout = \"11s\"\nkeepalive = \"12s\"\nrequest_bytes_max = \"2MiB\"
        messages_bytes_max = \"1MiB\"\nbuffers_bytes_max = \"3MiB\"";
    assert_eq!(kv.reload(changed).status(), 200);
    for (name, value) in [
        ("maxmemory-policy", "volatile-ttl"),
        ("protected-mode", "no"),
        ("enable-debug-command", "no"),
        ("maxclients", "77"),
        ("timeout", "11"),
        ("tcp-keepalive", "12"),
        ("client-query-buffer-limit", "2097152"),
        ("client-output-buffer-limit", "normal 0 0 0 slave 0 0 0 pubsub 1048576 8388608 60"),
        ("maxmemory-clients", "3145728"),
    ] {
        assert_eq!(parameter(&kv, name), value, "{name}");
    }
    assert!(kv.ask(debug).starts_with("-ERR DEBUG command not allowed."));
    let log = kv.service.stderr();
    assert!(!log.contains("a reload can't change it"), "{log}");
}

/// Far below its limit, the server keeps freed memory for new values for 0.1 s. On a busy machine, one round may take that long.
#[test]
fn memory_purge_gives_back_what_was_freed() {
    let kv = KvService::start(LARDER, "maxmemory = \"1GiB\"\nworkers = 1");
    let trimmed = || kv.metric("larder_kv_memory_trimmed_bytes_total").expect("it is there");
    let fill_and_remove = |last: &str| kv.ask(&format!("SETRANGE key 4000000 z\r\nDEL key\r\n{last}\r\n"));
    fill_and_remove("PING");
    assert!(trimmed() < 1.0, "no command requested it");
    wait::until_true("it is returned immediately", || {
        let before = trimmed();
        assert_eq!(fill_and_remove("MEMORY PURGE"), ":4000001\r\n:1\r\n+OK\r\n");
        trimmed() > before + 1e6
    });
}

#[test]
fn metrics_tell_of_keys_and_clients() {
    let kv = KvService::start(LARDER, "workers = 2\nmaxmemory = \"8MiB\"\n[kv.limits]\nclients_max = 1");
    kv.ask("SET a 1\r\nSETEX b 100 2\r\nGET a\r\nGET a\r\nGET none\r\nNOSUCH\r\nINCR a b\r\n");
    let count = |series: &str| kv.metric(&format!("larder_kv_{series}")).unwrap_or_default();
    // A batch is counted after it has been answered.
    let expect = |series: &str, value: &str| wait::until_true(series, || count(series).to_string() == value);
    for (series, value) in [
        ("keys", "2"),
        ("keys_expiring", "1"),
        ("memory_max_bytes", "8388608"),
        ("commands_total{command=\"get\"}", "3"),
        ("commands_total{command=\"set\"}", "1"),
        ("hits_total", "2"),
        ("misses_total", "1"),
        ("errors_total{code=\"ERR\"}", "2"),
        ("connections_total", "1"),
        ("connections", "0"),
    ] {
        expect(series, value);
    }
    wait::until_true("bytes are counted", || {
        ["memory_bytes", "received_bytes_total", "sent_bytes_total"].iter().all(|name| count(name) > 0.0)
    });
    let _open = TcpStream::connect(kv.address()).expect("it listens");
    expect("connections", "1");
    kv.ask("PING\r\n");
    expect("connections_refused_total", "1");
}

/// No client is served while it saves, which takes seconds for large data sets.
#[test]
fn it_is_not_ready_during_a_shutdown_but_after_one_that_has_failed() {
    let mut kv = KvService::start(LARDER, "maxmemory = \"1GiB\"\nsave_file = \"saved\"");
    let [saved, part] = ["saved", "saved.part"].map(|name| kv.folder().join(name));
    fs::write(&saved, "notes").expect("a file");
    assert_eq!(kv.ask("SHUTDOWN\r\n"), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    assert_eq!(kv.ask_admin("GET", "/ready").status(), 200);
    fs::remove_file(saved).expect("it is there");
    let sets = (0..200).map(|number| format!("SETRANGE long-{number} 500000 z\r\n"));
    kv.ask(&sets.collect::<String>());
    let mut client = TcpStream::connect(kv.address()).expect("it listens");
    client.write_all(b"SHUTDOWN\r\n").expect("sent");
    wait::until_true("it saves", || part.exists());
    let answer = kv.ask_admin("GET", "/ready");
    assert!(answer.status() == 503 && answer.text().contains("draining"), "{}", answer.text());
    assert!(kv.service.end().success());
}
