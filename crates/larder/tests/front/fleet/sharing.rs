//! Several gateways with one Redis-compatible server behave as one cache.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::{
    Client, Fate, FaultProxy, Faults, Larder, Redis, RespClient, RespProxy, Response, ScriptedOrigin, Seen,
    Setup, Signal, run, wait,
};

use crate::LARDER;
use crate::fleet::instances::{self, is_written, sharing, status};
use crate::fleet::purge_waits::{self, purge};
use crate::fleet::store_servers::on_each_store;

/// Timeouts for gateways that wait for their store on a busy machine.
const PATIENT: &str = "record_timeout = \"5s\"\nconnect_timeout = \"10s\"";
const FRESH: &str = "Cache-Control: max-age=3600\r\n";

/// Gateways that share a store, and an origin that numbers its versions.
struct Fleet {
    gateways: Vec<Larder>,
    origin: ScriptedOrigin,
    version: Arc<AtomicUsize>,
}

impl Fleet {
    fn start(count: usize, store: SocketAddr) -> Self {
        let version = Arc::new(AtomicUsize::new(1));
        let current = Arc::clone(&version);
        let origin = ScriptedOrigin::start(move |exchange| {
            let version = current.load(Ordering::SeqCst);
            let fields = format!("{FRESH}ETag: \"{version}\"\r\n");
            let has_it = exchange.request.field("if-none-match") == format!("\"{version}\"");
            match has_it {
                true => exchange.respond("304 Not Modified", &fields, ""),
                false => exchange.respond("200 OK", &fields, format!("version {version}")),
            };
        });
        let gateways = sharing(count, store, &origin.url(), PATIENT);
        Self { gateways, origin, version }
    }

    /// Starts another gateway, which the others may not know yet.
    fn newcomer(&self, store: SocketAddr) -> Larder {
        Setup::config(LARDER, &instances::config(store, &self.origin.url(), PATIENT)).start()
    }

    /// Changes the origin's version and returns the new number.
    fn change(&self) -> usize {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Stores the origin's response at the first gateway and in the store.
    fn store_at_first(&self, target: &str) -> Response {
        let response = self.gateways[0].get(target);
        is_written(&self.gateways[0]);
        response
    }

    /// Waits until a gateway has received `purges` purges.
    fn has_heard(&self, gateway: usize, purges: f64) {
        let heard = || self.gateways[gateway].metric("larder_tier_purges_heard_total", &[]);
        wait::until_true("it receives the purge", || heard() >= purges);
    }

    /// Waits until a gateway has the origin's current version without forwarding a request.
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

    /// Purges through the first gateway, and asserts that the purge is complete.
    fn purge(&self, query: &str) {
        let purged = purge(&self.gateways[0], query);
        assert!(purged.is_complete, "{query}: {}", purged.text);
    }

    fn doubts(&self, gateway: usize, reason: &str) -> f64 {
        purge_waits::doubts(&self.gateways[gateway], reason)
    }
}

#[test]
fn a_response_tells_which_tier_it_came_from() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    let first = fleet.store_at_first("/page");
    assert!(status(&first).contains("; stored"), "{}", status(&first));
    let is_from_store = |gateway: usize| {
        let response = fleet.gateways[gateway].get("/page");
        assert!(status(&response).contains("; hit"), "{}", status(&response));
        status(&response).contains("; detail=shared-store")
    };
    assert_eq!([0, 1, 1].map(is_from_store), [false, true, false]);

    let explained = |target: &str| {
        let question = format!("{{\"url\":\"http://test.example{target}\"}}");
        fleet.gateways[1].ask_admin("POST", "/explain", &question).text()
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
fn a_change_is_seen_by_all() {
    on_each_store(|store| {
        let fleet = Fleet::start(3, store);
        fleet.store_at_first("/page");
        (1..3).for_each(|gateway| fleet.has_current(gateway, "/page"));
        for _ in 0..3 {
            fleet.change();
            let reload = fleet.gateways[0].ask("GET", "/page", "Cache-Control: no-cache\r\n");
            assert!(status(&reload).contains("fwd=request"), "{}", status(&reload));
            (0..3).for_each(|gateway| fleet.has_current(gateway, "/page"));
        }
        assert_eq!(fleet.origin.total(), 4);
        assert!(fleet.doubts(1, "changed") >= 3.0);
    });
}

#[test]
fn what_the_store_forgets_is_still_served() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    let changed = || [0, 1].map(|gateway| fleet.doubts(gateway, "changed"));
    let before = changed();
    let mut store = RespClient::connect(redis.address());
    store.names("larder:r:*").iter().for_each(|name| drop(store.ask(&[b"DEL", name])));
    wait::until_true("both are notified", || changed().iter().zip(before).all(|(now, before)| *now > before));
    for gateway in &fleet.gateways {
        assert!(status(&gateway.get("/page")).contains("; hit"));
    }
    assert_eq!(fleet.origin.total(), 1);
    fleet.change();
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
            fleet.store_at_first("/page");
            (0..3).for_each(|gateway| assert!(status(&ask(gateway)).contains("; hit"), "{query}"));
            let version = fleet.change();
            fleet.purge(&query);
            for gateway in [2, 1, 0] {
                let response = ask(gateway);
                assert_eq!(response.body, format!("version {version}").as_bytes(), "{query} at {gateway}");
            }
        }
        assert!(fleet.gateways[1].metric("larder_tier_purges_heard_total", &[]) >= 8.0);
    });
}

/// A server without memory doesn't accept a purge, so the purge must not be reported as complete.
#[test]
fn a_purge_that_the_store_does_not_take_is_not_complete() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    redis.command("CONFIG SET maxmemory 1mb");
    fleet.change();
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(!purged.is_complete, "{}", purged.text);
    redis.command("CONFIG SET maxmemory 0");
    fleet.has_heard(1, 1.0);
    assert_eq!(fleet.gateways[1].get("/page").body, b"version 2");
}

/// A rule has stored the response under a path that belongs to another site. The other instances still find it by its URL.
#[test]
fn an_unsafe_request_for_what_a_rule_has_moved_is_seen_by_all() {
    const MOVED: &str =
        "[[site.transform]]\nphase = \"client_request\"\nrewrite = { strip_prefix = \"/v1\" }\n";
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(|exchange| {
        let version = exchange.request.earlier.to_string();
        exchange.respond("200 OK", FRESH, version);
    });
    let other = format!("[[site]]\nname = \"other\"\norigin = \"{}\"\n", origin.url());
    let moved = format!("path_prefix = \"/v1\"\n{MOVED}{other}[store.remote]");
    let config = instances::config(redis.address(), &origin.url(), PATIENT).replace("[store.remote]", &moved);
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    gateways[0].get("/v1/page");
    is_written(&gateways[0]);
    assert_eq!(gateways[1].get("/v1/page").text(), "0");
    // Each request makes two purges: for the key that the rule produces, and for the key of the URL without the rule.
    for (version, count) in [("2", 2.0), ("4", 4.0)] {
        assert_eq!(gateways[0].ask("DELETE", "/v1/page", "").status(), 200);
        wait::until_true("the other has both", || {
            gateways[1].metric("larder_tier_purges_heard_total", &[]) >= count
        });
        assert_eq!(gateways[1].get("/v1/page").text(), version);
    }
}

/// A rule that invalidates the groups of a changed response does so on all instances, as for the URL itself.
#[test]
fn an_unsafe_request_and_the_groups_that_it_invalidates_are_seen_by_all() {
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(|exchange| {
        let body = format!("{} {}", exchange.request.method(), exchange.request.earlier + 1);
        exchange.respond("200 OK", &format!("{FRESH}Cache-Groups: \"shelf\"\r\n"), body);
    });
    let rule = format!("{PATIENT}\n[[site.rule]]\ngroups_invalidated = \"shared\"");
    let gateways = sharing(2, redis.address(), &origin.url(), &rule);
    for gateway in &gateways {
        for target in ["/changed", "/beside"] {
            assert_eq!(gateway.get(target).text(), "GET 1");
            is_written(gateway);
        }
    }
    assert_eq!(gateways[1].ask("DELETE", "/changed", "").text(), "DELETE 2");
    wait::until_true("the other has URL and group", || {
        gateways[0].metric("larder_tier_purges_heard_total", &[]) >= 2.0
    });
    assert_eq!(["/changed", "/beside"].map(|target| gateways[0].get(target).text()), ["GET 3", "GET 2"]);
}

#[test]
fn an_instance_that_is_new_or_comes_back_knows_what_was_purged() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.gateways[1].get("/page");
    fleet.gateways[1].signal(Signal::STOP);
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(!purged.is_complete, "a stopped instance hasn't applied it: {}", purged.text);
    fleet.change();
    assert_eq!(fleet.newcomer(redis.address()).get("/page").body, b"version 2");
    fleet.gateways[1].signal(Signal::CONT);
    fleet.has_heard(1, 1.0);
    assert_eq!(fleet.gateways[1].get("/page").body, b"version 2");
}

/// Other instances receive a purge one network delay after it was written. Before that, one round trip answers everything that the purge
/// needs to know: the record, the contents under the URL and the instances that share the store.
#[test]
fn a_purge_from_far_away_takes_three_ways_until_others_hear() {
    const ONE_WAY: Duration = Duration::from_millis(100);
    let redis = Redis::start("");
    let fleet = Fleet::start(1, redis.address());
    fleet.store_at_first("/page");
    let proxy = FaultProxy::start(redis.address());
    let far = fleet.newcomer(proxy.address());
    wait::until_true("it knows the other one", || far.metric("larder_tier_instances", &[]) >= 2.0);
    proxy.set(Faults { latency_ms: 100, ..Faults::default() });
    let heard = || fleet.gateways[0].metric("larder_tier_purges_heard_total", &[]);
    let quickest = (0..3).map(|_| {
        thread::scope(|scope| {
            let (before, begun) = (heard(), Instant::now());
            scope.spawn(|| purge(&far, "url=http%3A%2F%2Ftest.example%2Fpage"));
            wait::until_true("the other one has it", || heard() > before);
            begun.elapsed()
        })
    });
    let quickest = quickest.min().expect("there are three");
    assert!(quickest >= 3 * ONE_WAY && quickest < 5 * ONE_WAY, "{quickest:?}");
}

/// The stopped process hasn't received the purges that completed without it, and its clients send requests before it can.
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
    /// Purges until a purge is complete without the stopped instance. Its clients send requests before it continues.
    fn purge_without(&self, stopped: &Larder, clients: &mut [Client]) {
        let version = self.change();
        wait::until_true("the purge is complete without it", || {
            purge(&self.gateways[0], "everything=true").is_complete
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

/// Shifts the clock that a server reports by `ahead_s` seconds.
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

/// Errors of a server without HELLO repeat the password, and any text may contain terminal escape sequences.
#[test]
fn words_of_a_server_put_no_secret_and_no_control_character_into_logs() {
    let redis = Redis::start("");
    let proxy = RespProxy::start(redis.address());
    proxy.decide(|seen| {
        let arguments = String::from_utf8_lossy(&seen.command[1..].join(&b"' '"[..])).into_owned();
        let said =
            format!("-ERR unknown command 'HELLO', with args beginning with: '{arguments}' \x1b[31m\r\n");
        if seen.name() == "HELLO" { Fate::Replace(said.into_bytes()) } else { Fate::Pass }
    });
    let store = format!("redis://somebody:s3cr3t@{}/0", proxy.address());
    let gateway = Setup::origin(LARDER, "http://127.0.0.1:1").arguments(&["--store", &store]).start();
    wait::until_true("it logs the reason", || gateway.stderr().contains("refused the handshake"));
    let doctor = run(LARDER, ["doctor", "--store", &store]);
    for told in [gateway.stderr(), doctor.text() + &doctor.stderr] {
        assert!(told.contains("unknown command 'HELLO'"), "{told}");
        assert!(!told.contains("s3cr3t") && !told.contains("\x1b[31m"), "{told}");
    }
}

/// Each instance computes ages by its own clock, whatever time the server reports.
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
        let gateways = sharing(2, proxy.address(), &origin.url(), PATIENT);
        let missed = gateways[0].get("/page");
        is_written(&gateways[0]);
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

/// A stored response depends on the configuration of its site, so a different configuration can't use it. `fields` are the response fields.
#[test]
fn what_another_configuration_has_stored_is_a_miss() {
    const LONG: &str = "Cache-Control: max-age=600\r\n";
    const SECRET: &str = "Cache-Control: max-age=600\r\nX-Secret: 1\r\n";
    const PRIVATE: &str = "Cache-Control: private\r\n";
    const KEYED: &str = "request_fields_keyed = [\"x-user\", \"x-group\"]\n";
    const PUBLIC: &str = "[[site.transform]]\nname = \"NAME\"\nphase = \"origin_response\"\n\
        cache_control = { 200 = \"public, max-age=600\" }\n";
    const HIDDEN: &str = "response_fields_hidden = [\"x-secret\"]\n";
    let (redis, longer) = (Redis::start(""), PUBLIC.replace("600", "601"));
    type Case<'a> = (&'static str, &'a str, &'a str, bool);
    let cases: [Case<'_>; 10] = [
        (LONG, "", "", true),
        (LONG, KEYED, "", false),
        (LONG, "", KEYED, false),
        (LONG, KEYED, "request_fields_keyed = [\"X-Group\", \"x-user\"]\n", true),
        (LONG, KEYED, "request_fields_keyed = [\"x-user\"]\n", false),
        (PRIVATE, PUBLIC, "", false),
        (PRIVATE, PUBLIC, PUBLIC, true),
        (PRIVATE, PUBLIC, &longer, false),
        (SECRET, "", HIDDEN, false),
        (SECRET, HIDDEN, HIDDEN, true),
    ];
    for (number, (fields, one, other, is_shared)) in cases.into_iter().enumerate() {
        let origin = ScriptedOrigin::start(move |exchange| _ = exchange.respond("200 OK", fields, "page"));
        let config = |index: usize| {
            let site = [one, other][index].replace("NAME", ["one", "other"][index]);
            let settings = format!("{PATIENT}\nprefix = \"case{number}:\"");
            instances::config(redis.address(), &origin.url(), &settings)
                .replace("[store.remote]", &format!("{site}[store.remote]"))
        };
        let gateways = instances::start(2, |index| Setup::config(LARDER, &config(index)));
        gateways[0].get("/page");
        is_written(&gateways[0]);
        let response = gateways[1].get("/page");
        assert_eq!(response.is_hit(), is_shared, "{one}{other}{}", status(&response));
        assert_eq!(origin.total(), 2 - usize::from(is_shared), "{one}{other}");
        assert!(!other.contains("x-secret") || response.field("x-secret").is_empty(), "{other}");
    }
}

/// A response whose header section is too large for a record isn't reported as stored, and no instance waits for it.
#[test]
fn a_header_section_that_is_too_large_for_a_record_is_not_stored() {
    let redis = Redis::start("");
    for (field_bytes, is_stored) in [(5_000, true), (6_250, true), (6_400, true), (6_600, false)] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = (0..10).map(|at| format!("X-{at}: {}\r\n", "x".repeat(field_bytes)));
            exchange.respond("200 OK", &format!("{FRESH}{}", fields.collect::<String>()), "page");
        });
        let settings = format!("{PATIENT}\nprefix = \"fields{field_bytes}:\"");
        let gateways = sharing(2, redis.address(), &origin.url(), &settings);
        for (at, gateway) in [&gateways[0], &gateways[0], &gateways[1]].into_iter().enumerate() {
            let response = gateway.get("/page");
            is_written(gateway);
            let status = status(&response);
            assert_eq!((response.status(), response.is_hit()), (200, is_stored && at > 0), "{status}");
            assert_eq!(status.contains("stored"), is_stored && at == 0, "{status}");
            assert!(is_stored || status.contains("detail=head-too-large"), "{status}");
        }
        let refused = gateways[0].metric("larder_not_stored_total", &["reason=\"head-too-large\""]);
        assert_eq!(refused > 0.0, !is_stored);
    }
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
    let strict = "verification_time = \"300ms\"\ncoherence = \"strict\"";
    let gateways = sharing(2, redis.address(), &origin.url(), strict);
    gateways[0].get("/page");
    is_written(&gateways[0]);
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
