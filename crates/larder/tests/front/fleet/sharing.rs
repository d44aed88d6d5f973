//! Several gateways over one server of the Redis protocol, seen from outside: they behave as one cache.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::{
    Client, Fate, FaultProxy, Faults, Larder, Redis, RespProxy, Response, ScriptedOrigin, Seen, Setup,
    Signal, wait,
};

use crate::LARDER;
use crate::fleet::instances::status;
use crate::fleet::purge_waits::purge;
use crate::fleet::store_servers::on_each_store;
use crate::fleet::{instances, purge_waits};

/// One that waits for its store on a busy machine.
fn patient(origin: &ScriptedOrigin, store: SocketAddr) -> String {
    format!(
        "[[site]]\nname = \"default\"\norigin = \"{}\"\n[store.remote]\nurl = \"redis://{store}/0\"\nrecord_timeout = \"5s\"\nconnect_timeout = \"10s\"\n",
        origin.url()
    )
}

/// Gateways that share a store, and an origin that numbers its versions.
struct Fleet {
    gateways: Vec<Larder>,
    origin: ScriptedOrigin,
    version: Arc<AtomicUsize>,
}

impl Fleet {
    fn start(count: usize, store: SocketAddr) -> Self {
        Self::over(&vec![store; count])
    }

    /// One gateway for each way to the store.
    fn over(ways: &[SocketAddr]) -> Self {
        let version = Arc::new(AtomicUsize::new(1));
        let current = Arc::clone(&version);
        let origin = ScriptedOrigin::start(move |exchange| {
            let version = current.load(Ordering::SeqCst);
            let fields = format!("Cache-Control: max-age=3600\r\nETag: \"{version}\"\r\n");
            let has_it = exchange.request.field("if-none-match") == format!("\"{version}\"");
            match has_it {
                true => exchange.respond("304 Not Modified", &fields, ""),
                false => exchange.respond("200 OK", &fields, format!("version {version}")),
            };
        });
        let setup = |index: usize| Setup::config(LARDER, &patient(&origin, ways[index]));
        Self { gateways: instances::start(ways.len(), setup), origin, version }
    }

    /// Stores what the origin has at the first gateway, and in the store.
    fn store_at_first(&self, target: &str) -> Response {
        let response = self.gateways[0].get(target);
        self.is_written(0);
        response
    }

    fn is_written(&self, gateway: usize) {
        instances::is_written(&self.gateways[gateway]);
    }

    /// Waits until a gateway has what the origin has now, without asking it.
    fn has_current(&self, gateway: usize, target: &str) {
        let expected = format!("version {}", self.version.load(Ordering::SeqCst));
        let asked = self.origin.total();
        let mut last = String::new();
        wait::until_true("it has the current version", || {
            let response = self.gateways[gateway].get(target);
            status(&response).clone_into(&mut last);
            response.body == expected.as_bytes()
        });
        assert_eq!(self.origin.total(), asked, "{last}");
    }

    /// Purges by the first gateway, and expects all to have reached it.
    fn purge(&self, query: &str) {
        let purged = purge(&self.gateways[0], query);
        assert!(purged.is_complete, "{query}: {}", purged.text);
    }

    fn doubts(&self, gateway: usize, reason: &str) -> f64 {
        purge_waits::doubts(&self.gateways[gateway], reason)
    }
}

#[test]
fn what_one_has_fetched_all_have() {
    on_each_store(|store| {
        let fleet = Fleet::start(3, store);
        let first = fleet.store_at_first("/page");
        assert!(status(&first).contains("; stored"), "{}", status(&first));
        for gateway in &fleet.gateways {
            let response = gateway.get("/page");
            assert_eq!((response.status(), &response.body[..]), (200, &b"version 1"[..]));
            assert!(status(&response).contains("; hit"), "{}", status(&response));
        }
        assert_eq!(fleet.origin.total(), 1);
    });
}

#[test]
fn a_response_tells_which_tier_it_came_from() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    let is_from_store = |gateway: usize| {
        let response = fleet.gateways[gateway].get("/page");
        assert!(status(&response).contains("; hit"), "{}", status(&response));
        status(&response).contains("; detail=shared-store")
    };
    assert_eq!([0, 1, 1].map(is_from_store), [false, true, false]);

    let explained = |target: &str| {
        let question = format!("{{\"url\":\"http://test.example{target}\"}}");
        let answer = fleet.gateways[1].ask_admin("POST", "/explain", &question);
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    fleet.store_at_first("/explained");
    let found = explained("/explained");
    assert!(found.contains("the shared store has a record for the key"), "{found}");
    let missed = explained("/new");
    assert!(missed.contains("the shared store has nothing under the key"), "{missed}");
}

#[test]
fn every_way_to_read_finds_what_another_one_has_fetched() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    for (target, method, fields, expected) in [
        ("/head", "HEAD", "", 200),
        ("/conditional", "GET", "If-None-Match: \"1\"\r\n", 304),
        ("/range", "GET", "Range: bytes=0-3\r\n", 206),
        ("/only", "GET", "Cache-Control: only-if-cached\r\n", 200),
        ("/authorized", "GET", "Authorization: Basic eA==\r\nCache-Control: only-if-cached\r\n", 200),
    ] {
        fleet.store_at_first(target);
        let asked = fleet.origin.total();
        let response = fleet.gateways[1].ask(method, target, fields);
        assert_eq!(response.status(), expected, "{target}: {}", status(&response));
        assert!(status(&response).contains("; hit"), "{target}: {}", status(&response));
        assert_eq!(fleet.origin.total(), asked, "{target}");
    }
    let nowhere = fleet.gateways[1].ask("GET", "/nowhere", "Cache-Control: only-if-cached\r\n");
    assert_eq!((nowhere.status(), &nowhere.cache_status()[..]), (504, "larder; detail=only-if-cached"));
}

#[test]
fn hits_ask_nobody() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    let gateway = &fleet.gateways[1];
    assert!(status(&gateway.get("/page")).contains("; hit"));
    let mut client = gateway.client();
    let asked = records_read(&redis, || {
        (0..100).for_each(|_| assert!(status(&client.get("/page")).contains("; hit")));
    });
    assert_eq!(asked, [] as [&str; 0]);
    let asked = records_read(&redis, || assert_eq!(client.get("/other").status(), 200));
    assert!(!asked.is_empty(), "a miss asks");
}

/// The commands that read records while something is done. The purge log is read on its own schedule, by the same command.
fn records_read(redis: &Redis, done: impl FnOnce()) -> Vec<String> {
    let mut monitor = TcpStream::connect(redis.address()).expect("the server listens");
    monitor.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    monitor.write_all(b"MONITOR\r\n").expect("it takes commands");
    let mut seen = BufReader::new(monitor).lines().map(|line| line.expect("it shows what it is asked"));
    assert_eq!(seen.next().as_deref(), Some("+OK"));
    done();
    redis.command("ECHO done");
    let reads_record = |line: &String| line.contains("\"GETRANGE\"") && !line.contains("log\"");
    seen.take_while(|line| !line.contains("\"ECHO\" \"done\"")).filter(reads_record).collect()
}

#[test]
fn a_change_is_seen_by_all() {
    on_each_store(|store| {
        let fleet = Fleet::start(3, store);
        fleet.store_at_first("/page");
        (1..3).for_each(|gateway| fleet.has_current(gateway, "/page"));
        for _ in 0..3 {
            fleet.version.fetch_add(1, Ordering::SeqCst);
            let reload = fleet.gateways[0].ask("GET", "/page", "Cache-Control: no-cache\r\n");
            assert!(status(&reload).contains("fwd=request"), "{}", status(&reload));
            (0..3).for_each(|gateway| fleet.has_current(gateway, "/page"));
        }
        assert_eq!(fleet.origin.total(), 4);
        assert!(fleet.doubts(1, "changed") >= 3.0);
    });
}

#[test]
fn a_store_that_is_away_fails_no_request_and_is_asked_again_when_it_is_back() {
    let mut redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    redis.kill();
    wait::until_true("it is told", || fleet.doubts(1, "all") >= 1.0);
    for gateway in &fleet.gateways {
        assert!(status(&gateway.get("/page")).contains("; hit"), "copies are used while they are fresh");
        let other = gateway.get("/other");
        assert_eq!(other.status(), 200);
    }
    assert!(fleet.doubts(1, "unverified") >= 1.0);
    assert_eq!(fleet.origin.count("/other"), 2, "each is on its own");
    redis.start_again();
    fleet.version.fetch_add(1, Ordering::SeqCst);
    // With its data it has lost the log, so that nobody knows what was purged: what is older is validated.
    wait::until_true("what is older is validated", || fleet.gateways[1].get("/page").body == b"version 2");
    fleet.is_written(1);
    fleet.has_current(0, "/page");
}

#[test]
fn what_the_store_forgets_is_still_served() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    let changed = |gateway: usize| fleet.doubts(gateway, "changed");
    let before = [0, 1].map(changed);
    let records = testkit::converse(redis.address(), b"KEYS larder:r:*\r\nQUIT\r\n", usize::MAX);
    let records = String::from_utf8_lossy(&records);
    records.split_whitespace().filter(|word| word.starts_with("larder:r:")).for_each(|name| {
        redis.command(&format!("DEL {name}"));
    });
    wait::until_true("it is told", || {
        [0, 1].map(changed).iter().zip(before).all(|(now, before)| *now > before)
    });
    for gateway in &fleet.gateways {
        assert!(status(&gateway.get("/page")).contains("; hit"));
    }
    assert_eq!(fleet.origin.total(), 1);
    fleet.version.fetch_add(1, Ordering::SeqCst);
    fleet.gateways[0].ask("GET", "/page", "Cache-Control: no-cache\r\n");
    fleet.has_current(1, "/page");
}

#[test]
fn a_purge_is_seen_by_all() {
    on_each_store(|store| {
        let fleet = Fleet::start(3, store);
        let [url, prefix] = ["http%3A%2F%2Ftest.example%2Fpage", "http%3A%2F%2Ftest.example%2Fpa"];
        let ask = |gateway: usize| fleet.gateways[gateway].get("/page");
        for query in [
            format!("url={url}"),
            format!("url={url}&mode=soft"),
            format!("url={url}&mode=refresh"),
            format!("prefix={prefix}"),
            format!("prefix={prefix}&mode=soft"),
            "site=default".to_owned(),
            "everything=true".to_owned(),
            "everything=true&mode=soft".to_owned(),
        ] {
            ask(0);
            fleet.is_written(0);
            (0..3).for_each(|gateway| assert!(status(&ask(gateway)).contains("; hit"), "{query}"));
            let version = fleet.version.fetch_add(1, Ordering::SeqCst) + 1;
            fleet.purge(&query);
            for gateway in [2, 1, 0] {
                let response = ask(gateway);
                assert_eq!(response.body, format!("version {version}").as_bytes(), "{query} at {gateway}");
            }
        }
        assert!(fleet.gateways[1].metric("larder_tier_purges_heard_total", &[]) >= 8.0);
    });
}

/// A server that has no memory takes no purge: nobody is to believe that it did.
#[test]
fn a_purge_that_the_store_does_not_take_is_not_complete() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    redis.command("CONFIG SET maxmemory 1mb");
    fleet.version.fetch_add(1, Ordering::SeqCst);
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(!purged.is_complete, "{}", purged.text);
    redis.command("CONFIG SET maxmemory 0");
    wait::until_true("the other hears it", || {
        fleet.gateways[1].metric("larder_tier_purges_heard_total", &[]) >= 1.0
    });
    assert_eq!(fleet.gateways[1].get("/page").body, b"version 2");
}

/// A full server tells of a change by removing what it has: others that have a copy can't tell that from an eviction.
#[test]
fn a_change_that_a_full_store_does_not_take_is_seen_by_others_when_there_is_room() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    let reload = |expected: &str| {
        fleet.version.fetch_add(1, Ordering::SeqCst);
        let response = fleet.gateways[0].ask("GET", "/page", "Cache-Control: no-cache\r\n");
        assert_eq!(response.text(), expected);
    };
    let before = fleet.doubts(1, "changed");
    redis.command("CONFIG SET maxmemory 1");
    reload("version 2");
    wait::until_true("the other one is told", || fleet.doubts(1, "changed") > before);
    assert_eq!(fleet.gateways[1].get("/page").text(), "version 1");
    redis.command("CONFIG SET maxmemory 0");
    reload("version 3");
    fleet.has_current(1, "/page");
}

/// Instances report positions in the log before it was set back.
#[test]
fn a_log_that_is_shorter_than_before_makes_no_purge_complete() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.purge("everything=true");
    redis.command("COPY larder:log saved");
    (0..4).for_each(|_| fleet.purge("everything=true"));
    fleet.gateways[1].signal(Signal::STOP);
    redis.command("COPY saved larder:log REPLACE");
    let purged = purge(&fleet.gateways[0], "everything=true");
    fleet.gateways[1].signal(Signal::CONT);
    assert!(!purged.is_complete, "{}", purged.text);
}

/// The same, told by an instance that has never read the log any further than it is now.
#[test]
fn what_was_read_of_a_log_that_was_set_back_makes_no_purge_of_a_new_instance_complete() {
    let redis = Redis::start("");
    let fleet = Fleet::start(1, redis.address());
    fleet.purge("everything=true");
    redis.command("COPY larder:log saved");
    fleet.purge("everything=true");
    fleet.gateways[0].signal(Signal::STOP);
    redis.command("COPY saved larder:log REPLACE");
    let newcomer = Setup::config(LARDER, &patient(&fleet.origin, redis.address())).start();
    wait::until_true("both are known", || newcomer.metric("larder_tier_instances", &[]) == 2.0);
    let purged = purge(&newcomer, "everything=true");
    fleet.gateways[0].signal(Signal::CONT);
    assert!(!purged.is_complete, "{}", purged.text);
}

#[test]
fn an_unsafe_request_is_seen_by_all() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    let ask = |gateway: usize, method: &str| fleet.gateways[gateway].ask(method, "/page", "");
    ask(0, "GET");
    fleet.is_written(0);
    assert!(status(&ask(1, "GET")).contains("; hit"));
    fleet.version.fetch_add(1, Ordering::SeqCst);
    assert_eq!(ask(1, "DELETE").status(), 200);
    wait::until_true("the other hears it", || {
        fleet.gateways[0].metric("larder_tier_purges_heard_total", &[]) >= 1.0
    });
    assert_eq!(ask(0, "GET").body, b"version 2");
}

/// A rule has stored it under a path that belongs to another site: the others find it by the URL all the same.
#[test]
fn an_unsafe_request_for_what_a_rule_has_moved_is_seen_by_all() {
    let redis = Redis::start("");
    let versions = AtomicUsize::new(0);
    let origin = ScriptedOrigin::start(move |exchange| {
        let version = versions.fetch_add(1, Ordering::SeqCst);
        exchange.respond("200 OK", "Cache-Control: max-age=3600\r\n", version.to_string());
    });
    let other = format!("[[site]]\nname = \"other\"\norigin = \"{}\"\n", origin.url());
    let moved = format!("path_prefix = \"/v1\"\n{MOVED}{other}[store.remote]");
    let config = patient(&origin, redis.address()).replace("[store.remote]", &moved);
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    gateways[0].get("/v1/page");
    instances::is_written(&gateways[0]);
    assert_eq!(gateways[1].get("/v1/page").body, b"0");
    // Each makes two purges: where the rule has stored it, and where the URL would be stored without the rule.
    for (changed, count) in [(1, 2.0), (3, 4.0)] {
        assert_eq!(gateways[0].ask("DELETE", "/v1/page", "").status(), 200);
        wait::until_true("the other hears both", || {
            gateways[1].metric("larder_tier_purges_heard_total", &[]) >= count
        });
        assert_eq!(gateways[1].get("/v1/page").body, (changed + 1).to_string().into_bytes());
    }
}

/// Takes the prefix of a site off.
const MOVED: &str = "[[site.transform]]\nphase = \"client_request\"\nrewrite = { strip_prefix = \"/v1\" }\n";

/// A rule that takes the groups of what a request has changed out of use does so on all instances.
#[test]
fn groups_that_share_what_was_changed_are_invalidated_by_all() {
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(|exchange| {
        let version = exchange.request.earlier + 1;
        let fields = "Cache-Control: max-age=3600\r\nCache-Groups: \"shelf\"\r\n";
        exchange.respond("200 OK", fields, format!("version {version}"));
    });
    let config = format!(
        "[[site]]\nname = \"default\"\norigin = \"{}\"\n[[site.rule]]\ngroups_invalidated = \"shared\"\n\
         [store.remote]\nurl = \"redis://{}/0\"\n",
        origin.url(),
        redis.address()
    );
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    for gateway in &gateways {
        for target in ["/changed", "/beside"] {
            assert_eq!(gateway.get(target).body, b"version 1");
            instances::is_written(gateway);
        }
    }
    assert_eq!(gateways[1].ask("DELETE", "/changed", "").status(), 200);
    wait::until_true("the other hears of URL and group", || {
        gateways[0].metric("larder_tier_purges_heard_total", &[]) >= 2.0
    });
    assert_eq!(gateways[0].get("/beside").body, b"version 2");
}

#[test]
fn an_instance_that_is_new_or_comes_back_knows_what_was_purged() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.gateways[0].get("/page");
    fleet.is_written(0);
    fleet.gateways[1].get("/page");
    fleet.gateways[1].signal(Signal::STOP);
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(!purged.is_complete, "who stands still has reached nothing: {}", purged.text);
    fleet.version.fetch_add(1, Ordering::SeqCst);
    let late = Setup::config(LARDER, &patient(&fleet.origin, redis.address())).start();
    assert_eq!(late.get("/page").body, b"version 2");
    fleet.gateways[1].signal(Signal::CONT);
    wait::until_true("it has heard", || {
        fleet.gateways[1].metric("larder_tier_purges_heard_total", &[]) >= 1.0
    });
    assert_eq!(fleet.gateways[1].get("/page").body, b"version 2");
}

/// Others hear of it one way over the network after it was written, and before that nothing waits for an answer that it does not need: who has it,
/// what lies under the URL, and who shares the store are one question.
#[test]
fn a_purge_from_far_away_takes_three_ways_until_others_hear() {
    const ONE_WAY: Duration = Duration::from_millis(100);
    let redis = Redis::start("");
    let fleet = Fleet::start(1, redis.address());
    fleet.store_at_first("/page");
    let proxy = FaultProxy::start(redis.address());
    let config = format!(
        "[[site]]\nname = \"default\"\norigin = \"{}\"\n[store.remote]\nurl = \"redis://{}/0\"\nrecord_timeout = \"5s\"\n",
        fleet.origin.url(),
        proxy.address()
    );
    let far = Setup::config(LARDER, &config).start();
    wait::until_true("it knows the other one", || far.metric("larder_tier_instances", &[]) >= 2.0);
    proxy.set(Faults { latency_ms: 100, ..Faults::default() });
    let heard = || fleet.gateways[0].metric("larder_tier_purges_heard_total", &[]);
    let quickest = (0..3).map(|_| {
        thread::scope(|scope| {
            let (before, begun) = (heard(), Instant::now());
            scope.spawn(|| purge(&far, "url=http%3A%2F%2Ftest.example%2Fpage"));
            wait::until_true("the other one hears", || heard() > before);
            begun.elapsed()
        })
    });
    let quickest = quickest.min().expect("there are some");
    assert!(quickest >= 3 * ONE_WAY && quickest < 5 * ONE_WAY, "{quickest:?}");
}

/// Purges are complete without an instance that nobody knows of yet.
#[test]
fn an_instance_that_starts_uses_nothing_before_purges_wait_for_it() {
    let redis = Redis::start("");
    let fleet = Fleet::start(1, redis.address());
    // From now on it takes the list for complete.
    fleet.purge("everything=true");
    fleet.store_at_first("/page");
    let far = FaultProxy::start(redis.address());
    far.set(Faults { latency_ms: 30, ..Faults::default() });
    let config = patient(&fleet.origin, far.address());
    let mut late = Setup::config(LARDER, &config).start();
    // From the store, or from the origin: from now on it is in memory.
    assert_eq!(late.get("/page").body, b"version 1");
    fleet.version.fetch_add(1, Ordering::SeqCst);
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(purged.is_complete, "{}", purged.text);
    assert_eq!(late.get("/page").body, b"version 2", "{}", purged.text);
    late.signal(Signal::TERM);
    assert!(late.service().end().success());
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(purged.is_complete, "it has said that it ends: {}", purged.text);
}

/// It has not heard of purges that were complete without it, and its clients ask before it can have.
#[test]
fn a_process_that_was_stopped_serves_nothing_that_was_purged_meanwhile() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    let stopped = &fleet.gateways[1];
    let mut clients: Vec<_> = (0..8).map(|_| stopped.client()).collect();
    clients.iter_mut().for_each(|client| assert!(status(&client.get("/page")).contains("; hit")));
    stopped.signal(Signal::STOP);
    fleet.purge_without(stopped, &mut clients);
}

impl Fleet {
    /// Purges until that is complete without an instance that stands still. Its clients ask before it goes on.
    fn purge_without(&self, stopped: &Larder, clients: &mut [Client]) {
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        wait::until_true("the purge is complete without it", || {
            let answer = self.gateways[0].ask_admin("POST", "/purge?everything=true", "");
            String::from_utf8_lossy(&answer.body).contains("\"complete\":true")
        });
        for client in clients.iter_mut() {
            client.send("GET /page HTTP/1.1\r\nHost: test.example\r\n\r\n");
        }
        stopped.signal(Signal::CONT);
        for client in clients {
            assert_eq!(client.response().text(), format!("version {version}"));
        }
    }
}

/// Its question was on the way when it was stopped, and is answered meanwhile: that the answer is late says nothing of the store.
#[test]
fn a_process_that_was_stopped_while_it_asked_serves_nothing_that_was_purged_meanwhile() {
    let redis = Redis::start("");
    let proxy = RespProxy::start(redis.address());
    let fleet = Fleet::over(&[redis.address(), proxy.address()]);
    let stopped = &fleet.gateways[1];
    for _ in 0..3 {
        fleet.store_at_first("/page");
        fleet.has_current(1, "/page");
        let mut clients: Vec<_> = (0..32).map(|_| stopped.client()).collect();
        clients.iter_mut().for_each(|client| assert!(status(&client.get("/page")).contains("; hit")));
        let has_begun = AtomicBool::new(false);
        proxy.decide(move |seen| match seen.key() == b"larder:log" || has_begun.load(Ordering::SeqCst) {
            true => {
                has_begun.store(true, Ordering::SeqCst);
                Fate::Hold
            }
            false => Fate::Pass,
        });
        wait::until_true("it asks for the log", || proxy.held() > 0);
        stopped.signal(Signal::STOP);
        proxy.decide(|_| Fate::Pass);
        proxy.release();
        fleet.purge_without(stopped, &mut clients);
    }
}

/// Two that have read the log further stand still while it is set back, and another one writes a record of the same length in the place of the one that
/// they have read.
#[test]
fn a_log_that_is_set_back_and_grows_as_long_again_loses_no_purge() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.purge("site=default");
    redis.command("COPY larder:log saved");
    fleet.purge("url=http://test.example/past");
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    fleet.gateways.iter().for_each(|gateway| gateway.signal(Signal::STOP));
    redis.command("COPY saved larder:log REPLACE");
    let length = redis.command("STRLEN larder:log");
    let newcomer = Setup::config(LARDER, &patient(&fleet.origin, redis.address())).start();
    wait::until_true("all are known", || newcomer.metric("larder_tier_instances", &[]) == 3.0);
    fleet.version.fetch_add(1, Ordering::SeqCst);
    let purged = purge(&newcomer, "url=http://test.example/page");
    assert!(!purged.is_complete, "{}", purged.text);
    assert_ne!(redis.command("STRLEN larder:log"), length);
    for gateway in &fleet.gateways {
        gateway.signal(Signal::CONT);
        wait::until_true("it hears of the purge", || gateway.get("/page").text() == "version 2");
    }
}

/// Sets the clock of a server.
pub(crate) fn clock_ahead(ahead_s: i64) -> impl Fn(&Seen<'_>) -> Fate {
    move |seen| {
        if seen.name() != "TIME" {
            return Fate::Pass;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let time = now.checked_add_signed(ahead_s).unwrap().to_string();
        Fate::Replace(format!("*2\r\n${}\r\n{time}\r\n$1\r\n0\r\n", time.len()).into_bytes())
    }
}

/// Errors of a server without HELLO repeat the password, and any text may be meant for the terminal.
#[test]
fn words_of_a_server_put_no_secret_and_no_control_character_into_logs() {
    let redis = Redis::start("");
    let proxy = RespProxy::start(redis.address());
    proxy.decide(|seen| {
        let arguments: Vec<_> =
            seen.command.iter().skip(1).map(|word| format!("'{}'", String::from_utf8_lossy(word))).collect();
        let said = format!(
            "-ERR unknown command 'HELLO', with args beginning with: {} \x1b[31m\r\n",
            arguments.join(" ")
        );
        if seen.name() == "HELLO" { Fate::Replace(said.into_bytes()) } else { Fate::Pass }
    });
    let store = format!("redis://somebody:s3cr3t@{}/0", proxy.address());
    let gateway = Setup::origin(LARDER, "http://127.0.0.1:1").arguments(&["--store", &store]).start();
    wait::until_true("it says why", || gateway.stderr().contains("refused to begin"));
    let doctor = Command::new(LARDER).args(["doctor", "--store", &store]).output().expect("the binary runs");
    let doctor =
        format!("{}{}", String::from_utf8_lossy(&doctor.stdout), String::from_utf8_lossy(&doctor.stderr));
    for told in [gateway.stderr(), doctor] {
        assert!(told.contains("unknown command 'HELLO'"), "{told}");
        assert!(!told.contains("s3cr3t") && !told.contains("\x1b[31m"), "{told}");
    }
}

/// Ages count by the clock of each instance, whatever the server says of the time.
#[test]
fn a_store_whose_clock_is_wrong_makes_nothing_older() {
    for ahead_s in [3600, -3600] {
        let redis = Redis::start("");
        let proxy = RespProxy::start(redis.address());
        proxy.decide(clock_ahead(ahead_s));
        let origin = ScriptedOrigin::start(|exchange| {
            let date = httpdate::fmt_http_date(SystemTime::now());
            exchange.respond("200 OK", &format!("Cache-Control: max-age=600\r\nDate: {date}\r\n"), "page");
        });
        let config = patient(&origin, proxy.address());
        let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
        let missed = gateways[0].get("/page");
        instances::is_written(&gateways[0]);
        for response in [missed, gateways[0].get("/page"), gateways[1].get("/page")] {
            let age: u64 = response.field("age").parse().unwrap_or(0);
            assert!(age < 60, "{ahead_s}: {age} s, {}", status(&response));
        }
        assert_eq!(origin.total(), 1, "{ahead_s}: it is fresh");
        for gateway in &gateways {
            let ahead = gateway.metric("larder_tier_clock_ahead_seconds", &[]);
            assert!((ahead - ahead_s as f64).abs() < 60.0, "{ahead}");
        }
    }
}

/// A stored response depends on the configuration of its site, so another configuration can't use it. `fields` are those of the response.
#[test]
fn what_another_configuration_has_stored_is_a_miss() {
    const RULE: &str = "[[site.transform]]\nname = \"NAME\"\nphase = \"origin_response\"\n";
    struct Case {
        fields: &'static str,
        one: String,
        other: String,
        is_shared: bool,
    }
    let case = |fields, one: &str, other: &str, is_shared| {
        let (one, other) = (one.replace("RULE", RULE), other.replace("RULE", RULE));
        Case { fields, one, other, is_shared }
    };
    const FRESH: &str = "Cache-Control: max-age=600\r\n";
    const PRIVATE: &str = "Cache-Control: private\r\n";
    const KEYED: &str = "request_fields_keyed = [\"x-user\", \"x-group\"]\n";
    const PUBLIC: &str = "RULEcache_control = { 200 = \"public, max-age=600\" }\n";
    const HIDDEN: &str = "response_fields_hidden = [\"x-secret\"]\n";
    let cases = [
        case(FRESH, "", "", true),
        case(FRESH, KEYED, "", false),
        case(FRESH, "", KEYED, false),
        case(FRESH, KEYED, "request_fields_keyed = [\"X-Group\", \"x-user\"]\n", true),
        case(FRESH, KEYED, "request_fields_keyed = [\"x-user\"]\n", false),
        case(PRIVATE, PUBLIC, "", false),
        case(PRIVATE, PUBLIC, PUBLIC, true),
        case(PRIVATE, PUBLIC, &PUBLIC.replace("600", "601"), false),
        case("Cache-Control: max-age=600\r\nX-Secret: 1\r\n", "", HIDDEN, false),
        case("Cache-Control: max-age=600\r\nX-Secret: 1\r\n", HIDDEN, HIDDEN, true),
    ];
    let redis = Redis::start("");
    for (number, Case { fields, one, other, is_shared }) in cases.into_iter().enumerate() {
        let origin = ScriptedOrigin::start(move |exchange| _ = exchange.respond("200 OK", fields, "page"));
        let [one, other] = [(one, "one"), (other, "other")].map(|(site, name)| {
            let (url, store) = (origin.url(), redis.address());
            let site = site.replace("NAME", name);
            format!(
                "[[site]]\nname = \"default\"\norigin = \"{url}\"\n{site}[store.remote]\n\
                 url = \"redis://{store}/0\"\nprefix = \"case{number}:\"\nrecord_timeout = \"5s\"\n"
            )
        });
        let gateways = instances::start(2, |index| Setup::config(LARDER, [&one, &other][index]));
        gateways[0].get("/page");
        instances::is_written(&gateways[0]);
        let response = gateways[1].get("/page");
        assert_eq!(response.is_hit(), is_shared, "{one}{other}{}", status(&response));
        assert_eq!(origin.total(), 2 - usize::from(is_shared), "{one}{other}");
        assert!(!other.contains("x-secret") || response.field("x-secret").is_empty(), "{other}");
    }
}

/// A header section that no record can hold is not said to be stored, and nobody waits for it.
#[test]
fn a_header_section_that_is_too_large_for_a_record_is_not_stored() {
    let redis = Redis::start("");
    for (field_bytes, is_stored) in [(5_000, true), (6_250, true), (6_400, true), (6_600, false)] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields: Vec<_> =
                (0..10).map(|at| format!("X-{at}: {}\r\n", "x".repeat(field_bytes))).collect();
            let fields = format!("Cache-Control: max-age=600\r\n{}", fields.concat());
            exchange.respond("200 OK", &fields, "page");
        });
        let config = format!("{}prefix = \"fields{field_bytes}:\"\n", patient(&origin, redis.address()));
        let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
        for (at, gateway) in [&gateways[0], &gateways[0], &gateways[1]].into_iter().enumerate() {
            let response = gateway.get("/page");
            instances::is_written(gateway);
            let status = status(&response);
            assert_eq!((response.status(), response.is_hit()), (200, is_stored && at > 0), "{status}");
            assert_eq!(status.contains("stored"), is_stored && at == 0, "{status}");
            assert!(is_stored || status.contains("detail=head-too-large"), "{status}");
        }
        let refused = gateways[0].metric("larder_not_stored_total", &["reason=\"head-too-large\""]);
        assert_eq!(refused > 0.0, !is_stored);
    }
}

/// A log that was set back has other purges at positions that some have read, and lacks the lost ones.
#[test]
fn a_log_that_is_set_back_leaves_nothing_unvalidated() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.purge("site=default");
    redis.command("COPY larder:log saved");
    fleet.store_at_first("/page");
    let records = testkit::converse(redis.address(), b"KEYS larder:r:*\r\nQUIT\r\n", usize::MAX);
    let records = String::from_utf8_lossy(&records);
    let record = records.split_whitespace().find(|word| word.starts_with("larder:r:")).expect("a record");
    redis.command(&format!("COPY {record} record"));
    fleet.purge("everything=true");
    fleet.version.fetch_add(1, Ordering::SeqCst);
    redis.command("COPY saved larder:log REPLACE");
    redis.command(&format!("COPY record {record} REPLACE"));
    for gateway in [1, 0] {
        wait::until_true("it is validated", || fleet.gateways[gateway].get("/page").body == b"version 2");
        let response = fleet.gateways[gateway].get("/page");
        assert_eq!(response.body, b"version 2", "{}", status(&response));
    }
}

#[test]
fn a_log_that_is_lost_leaves_nothing_unvalidated() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.gateways[0].get("/page");
    fleet.is_written(0);
    assert!(status(&fleet.gateways[1].get("/page")).contains("; hit"));
    redis.command("DEL larder:log");
    wait::until_true("what is older is validated", || {
        let response = fleet.gateways[1].get("/page");
        status(&response).contains("fwd-status=304")
    });
}

#[test]
fn a_strict_instance_asks_the_origin_while_nobody_can_vouch_for_its_copies() {
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.field("if-none-match") {
            "" => exchange.respond("200 OK", "Cache-Control: max-age=3600\r\nETag: \"1\"\r\n", "page"),
            _ => exchange.respond("304 Not Modified", "ETag: \"1\"\r\n", ""),
        };
    });
    let (site, store) = (origin.url(), redis.address());
    let config = format!(
        "[[site]]\nname = \"default\"\norigin = \"{site}\"\n\
         [store.remote]\nurl = \"redis://{store}/0\"\nverification_time = \"300ms\"\ncoherence = \"strict\"\n"
    );
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    gateways[0].get("/page");
    instances::is_written(&gateways[0]);
    gateways[1].get("/page");
    let asks = |gateway: usize| {
        let before = origin.total();
        let response = gateways[gateway].get("/page");
        assert_eq!((response.status(), &response.body[..]), (200, &b"page"[..]));
        (origin.total() - before, response.cache_status().contains("fwd=stale"))
    };
    assert_eq!([asks(0), asks(1)], [(0, false), (0, false)]);
    redis.signal(Signal::STOP);
    for gateway in [0, 1] {
        wait::until_true("it no longer trusts its copy", || asks(gateway) == (1, true));
        assert_eq!([asks(gateway), asks(gateway)], [(1, true), (1, true)], "each use is validated");
    }
    redis.signal(Signal::CONT);
    for gateway in [0, 1] {
        wait::until_true("it trusts its copy again", || asks(gateway).0 == 0);
    }
}
