//! The load on Redis-protocol servers: real ones, the null server, and servers with wrong replies.

mod null;
mod scripted;

use std::net::SocketAddr;
use std::time::Duration;

use bench::null::NullResp;
use bench::resp::{
    Choice, Client, Login, Pace, Preload, Protocol, RespError, RespLoad, RespRun, Reuse, Until, Values,
    Workload, prepare, run,
};
use null::NullThread;
use scripted::{Scripted, Step};
use testkit::Redis;

fn load(address: SocketAddr) -> RespLoad {
    RespLoad {
        workload: Workload::Workflow,
        keys: 100,
        preload: Preload::Nothing,
        connections: 3,
        until: Until::Requests(600),
        timeout: Duration::from_secs(20),
        ..RespLoad::of(address)
    }
}

/// Runs a load that must have no errors, and returns the counts of the replies.
#[track_caller]
fn good(load: &RespLoad) -> Vec<(String, u64)> {
    prepare(load).expect("the keys can be set");
    let RespRun { run, first_problem } = run(load, &mut ()).expect("the server can be reached");
    assert_eq!((run.errors.total(), first_problem), (0, None), "{}", run.load);
    if let Until::Requests(requests) = load.until {
        assert_eq!(run.requests, requests, "{}", run.load);
        assert_eq!(run.outcomes.iter().map(|outcome| outcome.count).sum::<u64>(), requests, "{}", run.load);
    }
    assert_eq!(run.latency.count, run.requests);
    run.outcomes.into_iter().map(|outcome| (outcome.name, outcome.count)).collect()
}

/// Asserts that the three commands are equally frequent, except in the last round of each connection.
#[track_caller]
fn assert_workflow(outcomes: &[(String, u64)], load: &RespLoad) {
    let names: Vec<&str> = outcomes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["nil", "ok", "value"], "{load:?}");
    assert!(outcomes.iter().all(|(_, count)| count.abs_diff(200) <= 5), "{outcomes:?} {load:?}");
}

fn counts(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn redis_answers_every_workload_as_expected() {
    let redis = Redis::start("");
    let base = load(redis.address());
    let cases = [
        base.clone(),
        RespLoad { pipeline: 100, ..base.clone() },
        RespLoad { pipeline: 1000, connections: 1, ..base.clone() },
        RespLoad { protocol: Protocol::Resp3, pipeline: 7, ..base.clone() },
        RespLoad { reuse: Reuse::OnePerRequest, ..base.clone() },
        RespLoad { threads: 2, connections: 5, pipeline: 3, ..base.clone() },
        RespLoad { value_bytes: 0, ..base.clone() },
        RespLoad { value_bytes: 1_000_000, pipeline: 3, keys: 3, ..base.clone() },
        RespLoad { choice: Choice::Zipf(0.99), key_bytes: 40, ..base.clone() },
        RespLoad { pace: Pace::Open { per_second: 20_000.0 }, ..base },
    ];
    for case in cases {
        assert_workflow(&good(&case), &case);
        assert_eq!(redis.command("FLUSHALL"), "+OK");
    }
}

#[test]
fn what_is_loaded_before_has_to_be_there() {
    let redis = Redis::start("");
    let preloaded =
        RespLoad { preload: Preload::AllKeys, until: Until::Requests(100), ..load(redis.address()) };
    let get = RespLoad { workload: Workload::Get, ..preloaded.clone() };
    assert_eq!(good(&get), counts(&[("value", 100)]));
    assert_eq!(redis.command("DBSIZE"), ":100");
    let del = RespLoad { workload: Workload::Del, choice: Choice::InTurn, threads: 3, ..preloaded };
    assert_eq!(good(&del), counts(&[("deleted", 100)]));
    assert_eq!(redis.command("DBSIZE"), ":0");
}

#[test]
fn what_is_not_known_to_be_there_may_be_missing() {
    let redis = Redis::start("");
    let open = RespLoad { until: Until::Requests(50), choice: Choice::InTurn, ..load(redis.address()) };
    good(&RespLoad { workload: Workload::Set, keys: 50, ..open.clone() });
    let get = RespLoad { workload: Workload::Get, until: Until::Requests(100), ..open.clone() };
    assert_eq!(good(&get), counts(&[("nil", 50), ("value", 50)]));
    let del = RespLoad { workload: Workload::Del, until: Until::Requests(100), ..open };
    assert_eq!(good(&del), counts(&[("deleted", 50), ("not deleted", 50)]));
}

#[test]
fn password_is_sent() {
    let redis = Redis::start("requirepass secret");
    let login = Some(Login { user: None, password: "secret".to_owned() });
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        good(&RespLoad { login: login.clone(), protocol, ..load(redis.address()) });
        let login = Some(Login { user: None, password: "guess".to_owned() });
        let error = run(&RespLoad { login, protocol, ..load(redis.address()) }, &mut ())
            .expect_err("a wrong password");
        assert!(matches!(&error, RespError::Refused { reply, .. } if reply.contains("WRONGPASS")), "{error}");
    }
    let RespRun { run, first_problem } = run(&load(redis.address()), &mut ()).expect("it can be reached");
    assert_eq!((run.requests, run.errors.wrong), (0, 600));
    assert!(first_problem.expect("all are wrong").contains("NOAUTH"));
}

#[test]
fn null_server_can_be_verified() {
    for workload in [Workload::Set, Workload::Get, Workload::Del] {
        for (value_bytes, pipeline) in [(12, 1), (12, 100), (100_000, 100)] {
            let null = NullThread::start(|address| NullResp { value_bytes }.bind(address));
            let base = load(null.address);
            good(&RespLoad { workload, value_bytes, pipeline, values: Values::Fixed, ..base });
        }
    }
}

#[test]
fn wrong_replies_are_found() {
    let set = b"+OK\r\n";
    let cases: [(&str, Workload, &[u8], &str); 6] = [
        ("a wrong value", Workload::Get, b"$12\r\nxxxxxxxxxxxx\r\n", "value"),
        ("a shorter value", Workload::Get, b"$1\r\nx\r\n", "value"),
        ("an error", Workload::Set, b"-OOM command not allowed\r\n", "-OOM"),
        ("another simple string", Workload::Set, b"+QUEUED\r\n", "other"),
        ("a number for a value", Workload::Get, b":12\r\n", "other"),
        ("a redirection without a cluster", Workload::Set, b"-MOVED 1 127.0.0.1:1\r\n", "-MOVED"),
    ];
    for (what, workload, reply, outcome) in cases {
        let server = Scripted::start(vec![Step::Reply(reply.to_vec()), Step::Reply(set.to_vec())]);
        let load = RespLoad { workload, connections: 1, until: Until::Requests(1), ..load(server.address()) };
        let RespRun { run, first_problem } = run(&load, &mut ()).expect("it can be reached");
        assert_eq!((run.requests, run.errors.wrong, run.errors.total()), (0, 1, 1), "{what}");
        let outcomes: Vec<_> = run.outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
        assert_eq!(outcomes, [outcome], "{what}");
        let shown = reply.escape_ascii().to_string();
        assert!(
            first_problem.as_deref().is_some_and(|text| text.contains(&shown)),
            "{what}: {first_problem:?}"
        );
    }
}

#[test]
fn broken_conversations_are_told_by_cause() {
    let ok = || Step::Reply(b"+OK\r\n".to_vec());
    let half = || Step::Reply(b"+O".to_vec());
    let cases: [(&str, Vec<Step>, [u64; 4]); 5] = [
        ("half a reply, then the end", vec![Step::Reply(b"+OK\r\n+O".to_vec()), Step::Close], [1, 1, 0, 0]),
        (
            "no protocol at all",
            vec![Step::Reply(b"+OK\r\nHTTP/1.1 400 Bad Request\r\n".to_vec())],
            [1, 0, 1, 0],
        ),
        ("no reply", vec![ok(), Step::Silence], [1, 0, 0, 1]),
        ("the end instead of a reply", vec![ok(), Step::Close], [1, 1, 0, 0]),
        (
            "a reply in pieces",
            vec![half(), Step::Reply(b"K\r".to_vec()), Step::Reply(b"\n+OK\r\n".to_vec())],
            [2, 0, 0, 0],
        ),
    ];
    for (what, steps, expected) in cases {
        let server = Scripted::start(steps);
        let load = RespLoad {
            workload: Workload::Set,
            connections: 1,
            until: Until::Requests(2),
            pipeline: 2,
            timeout: Duration::from_millis(500),
            ..load(server.address())
        };
        let run = run(&load, &mut ()).expect("it can be reached").run;
        let errors = run.errors;
        let seen = [run.requests, errors.broken, errors.malformed, errors.timeout];
        assert_eq!((seen, errors.total() + run.requests), (expected, 2), "{what}");
    }
}

#[test]
fn unit_separator_replies_are_verified() {
    let cases: [ReplyCase<'_>; 9] = [
        (Workload::Set, b"OK\x1f", [1, 0], "ok"),
        (Workload::Set, b"ERROR: Internal error\x1f", [0, 1], "ERROR: Internal error"),
        (Workload::Set, b"(nil)\x1f", [0, 1], "other"),
        (Workload::Get, b"(nil)\x1f", [1, 0], "nil"),
        (Workload::Get, b"some other value\x1f", [0, 1], "value"),
        (Workload::Get, b"\x1f", [0, 1], "value"),
        (Workload::Del, b"OK\x1f", [1, 0], "deleted"),
        (Workload::Del, b"ERROR: Key does not exist\x1f", [1, 0], "not deleted"),
        (Workload::Del, b"ERROR: Unknown command\x1f", [0, 1], "ERROR: Unknown command"),
    ];
    for case in cases {
        let asked = check_reply(Protocol::UnitSeparator, case);
        let verb = &asked[..4];
        assert!(
            asked.ends_with(b"\x1f") && [b"SET ", b"GET ", b"DEL "].contains(&verb.try_into().expect("four"))
        );
    }
}

/// A case: the command, the reply, the numbers of correct and wrong answers, and the name of the outcome.
type ReplyCase<'a> = (Workload, &'a [u8], [u64; 2], &'a str);

/// Runs a load of one request on a server that sends this reply, checks the result, and returns the request.
#[track_caller]
fn check_reply(protocol: Protocol, (workload, reply, expected, outcome): ReplyCase<'_>) -> Vec<u8> {
    let server = Scripted::start(vec![Step::Reply(reply.to_vec())]);
    let load =
        RespLoad { protocol, workload, connections: 1, until: Until::Requests(1), ..load(server.address()) };
    let run = run(&load, &mut ()).expect("it can be reached").run;
    let shown = reply.escape_ascii();
    assert_eq!([run.requests, run.errors.wrong], expected, "{shown}");
    let outcomes: Vec<_> = run.outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
    assert_eq!(outcomes, [outcome], "{shown}");
    server.received()
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    let base = load("127.0.0.1:1".parse().expect("an address"));
    let cases = [
        (
            RespLoad { keys: 101, key_bytes: 3, ..base.clone() },
            "101 keys: expected 1 to 100 with 3 bytes per key",
        ),
        (RespLoad { pipeline: 1001, ..base.clone() }, "expected a pipeline of 1 to 1000 commands"),
        (
            RespLoad { protocol: Protocol::UnitSeparator, ttl_s: Some(1), ..base.clone() },
            "keys of the 0x1F text protocol don't expire",
        ),
        (RespLoad { threads: 4, ..base.clone() }, "expected at least as many connections as threads"),
        (base, "127.0.0.1:1 can't be reached"),
    ];
    for (load, expected) in cases {
        let error = run(&load, &mut ()).expect_err("it can't be followed");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn memcached_replies_are_verified() {
    let cases: [ReplyCase<'_>; 9] = [
        (Workload::Set, b"HD\r\n", [1, 0], "ok"),
        (Workload::Set, b"NS\r\n", [0, 1], "NS"),
        (Workload::Set, b"SERVER_ERROR out of memory\r\n", [0, 1], "SERVER_ERROR"),
        (Workload::Get, b"EN\r\n", [1, 0], "nil"),
        (Workload::Get, b"VA 3\r\nxyz\r\n", [0, 1], "value"),
        (Workload::Get, b"VA 12 k1\r\nxyzxyzxyzxyz\r\n", [0, 1], "value"),
        (Workload::Get, b"HD\r\n", [0, 1], "ok"),
        (Workload::Del, b"HD\r\n", [1, 0], "deleted"),
        (Workload::Del, b"NF\r\n", [1, 0], "not deleted"),
    ];
    for case in cases {
        check_reply(Protocol::Memcached, case);
    }
}

#[test]
fn commands_say_when_keys_expire() {
    /// A case: protocol and TTL; then the reply, and the beginning and the end of the expected command.
    type Case = (Protocol, Option<u32>, [&'static [u8]; 3]);
    let cases: [Case; 3] = [
        (Protocol::Resp2, None, [b"+OK\r\n", b"*3\r\n$3\r\nSET\r\n", b"\r\n"]),
        (Protocol::Resp2, Some(60), [b"+OK\r\n", b"*5\r\n$3\r\nSET\r\n", b"\r\n$2\r\nEX\r\n$2\r\n60\r\n"]),
        (Protocol::Memcached, Some(60), [b"HD\r\n", b" 12 T60\r\n", b"\r\n"]),
    ];
    for (protocol, ttl_s, [reply, head, tail]) in cases {
        let server = Scripted::start(vec![Step::Reply(reply.to_vec())]);
        let load = RespLoad {
            protocol,
            ttl_s,
            workload: Workload::Set,
            connections: 1,
            until: Until::Requests(1),
            ..load(server.address())
        };
        good(&load);
        let sent = server.received();
        assert!(sent.ends_with(tail), "{}", sent.escape_ascii());
        assert!(sent.windows(head.len()).any(|window| window == head), "{}", sent.escape_ascii());
    }
}

#[test]
fn a_client_asks_and_reads_whole_replies() {
    let redis = Redis::start("");
    let mut client = Client::connect(redis.address()).expect("it listens");
    assert_eq!(client.ask(&[b"SET", b"a", b"1"]).expect("a reply"), b"+OK\r\n");
    let long = vec![b'x'; 100_000];
    client.ask(&[b"SET", b"long", &long]).expect("a reply");
    let refused = client.ask(&[b"NOSUCH"]).expect("a reply");
    assert!(refused.starts_with(b"-ERR unknown command"), "{}", refused.escape_ascii());
    assert_eq!(client.ask(&[b"GET", b"long"]).expect("a reply").len(), 100_011);
    assert_eq!(
        client.info("keyspace", "db0").expect("a reply").as_deref(),
        Some("keys=2,expires=0,avg_ttl=0")
    );
}
