//! Several gateways with one Redis-compatible server behave as one cache.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::{
    Fate, FaultProxy, Faults, Larder, Redis, RespClient, Response, ScriptedOrigin, Seen, Setup, Signal, wait,
};

use crate::LARDER;
use crate::fleet::instances::{self, is_written, sharing, status};
use crate::fleet::purge_waits::{self, purge};
use crate::fleet::store_servers::on_each_store;

/// Timeouts for gateways that wait for their store on a busy machine.
const PATIENT: &str = "record_timeout = \"5s\"\nconnect_timeout = \"10s\"";
const FRESH: &str = "Cache-Control: max-age=3600\r\n";
/// The metric that counts purges received from other instances.
const HEARD: &str = "larder_tier_purges_heard_total";

/// Gateways that share a store, and an origin that numbers its versions.
struct Fleet {
    gateways: Vec<Larder>,
    origin: ScriptedOrigin,
    version: Arc<AtomicUsize>,
}

impl Fleet {
    fn start(count: usize, store: SocketAddr) -> Self {
        Self::with(count, store, PATIENT)
    }

    fn with(count: usize, store: SocketAddr, settings: &str) -> Self {
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
        let gateways = sharing(count, store, &origin.url(), settings);
        Self { gateways, origin, version }
    }

    /// Starts another gateway, which the others may not know yet.
    fn newcomer(&self, store: SocketAddr) -> Larder {
        Setup::config(LARDER, &instances::config(store, &self.origin.url(), PATIENT)).start()
    }

    fn change(&self) -> usize {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Stores the origin's response at the first gateway and in the store.
    fn store_at_first(&self, target: &str) -> Response {
        let response = self.gateways[0].get(target);
        is_written(&self.gateways[0]);
        response
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

    fleet.store_at_first("/explained");
    for (target, told) in [("/explained", "a record for the key"), ("/new", "nothing under the key")] {
        let question = format!("{{\"url\":\"http://test.example{target}\"}}");
        let explained = fleet.gateways[1].ask_admin("POST", "/explain", &question).text();
        assert!(explained.contains(&format!("the shared store has {told}")), "{explained}");
    }
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
    store.names("larder:[rm]:*").iter().for_each(|name| drop(store.ask(&[b"DEL", name])));
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
            let purged = purge(&fleet.gateways[0], &query);
            assert!(purged.is_complete, "{query}: {}", purged.text);
            for gateway in [2, 1, 0] {
                let response = ask(gateway);
                assert_eq!(response.body, format!("version {version}").as_bytes(), "{query} at {gateway}");
            }
        }
        assert!(fleet.gateways[1].metric(HEARD, &[]) >= 8.0);
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
    fleet.gateways[1].wait_for(HEARD, &[], |heard| heard >= 1.0);
    assert_eq!(fleet.gateways[1].get("/page").body, b"version 2");
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
    // The URL and the group.
    gateways[0].wait_for(HEARD, &[], |heard| heard >= 2.0);
    assert_eq!(["/changed", "/beside"].map(|target| gateways[0].get(target).text()), ["GET 3", "GET 2"]);
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
    far.wait_for("larder_tier_instances", &[], |known| known >= 2.0);
    proxy.set(Faults { latency_ms: 100, ..Faults::default() });
    let near = &fleet.gateways[0];
    let quickest = (0..3).map(|_| {
        thread::scope(|scope| {
            let (before, begun) = (near.metric(HEARD, &[]), Instant::now());
            scope.spawn(|| purge(&far, "url=http%3A%2F%2Ftest.example%2Fpage"));
            near.wait_for(HEARD, &[], |heard| heard > before);
            begun.elapsed()
        })
    });
    let quickest = quickest.min().expect("there are three");
    assert!(quickest >= 3 * ONE_WAY && quickest < 5 * ONE_WAY, "{quickest:?}");
}

/// A purge that begins while an instance is stopped isn't complete until that instance no longer counts. Its clients send requests before it
/// can receive the purges, and a new instance knows of them.
#[test]
fn an_instance_that_is_new_or_was_stopped_serves_nothing_that_was_purged() {
    let redis = Redis::start("");
    let fleet = Fleet::start(2, redis.address());
    fleet.store_at_first("/page");
    fleet.has_current(1, "/page");
    let stopped = &fleet.gateways[1];
    let mut clients: Vec<_> = (0..8).map(|_| stopped.client()).collect();
    clients.iter_mut().for_each(|client| assert!(status(&client.get("/page")).contains("; hit")));
    stopped.signal(Signal::STOP);
    let purged = purge(&fleet.gateways[0], "everything=true");
    assert!(!purged.is_complete, "a stopped instance hasn't applied it: {}", purged.text);
    fleet.change();
    assert_eq!(fleet.newcomer(redis.address()).get("/page").text(), "version 2");
    wait::until_true("a purge is complete without the stopped one", || {
        purge(&fleet.gateways[0], "everything=true").is_complete
    });
    for client in &mut clients {
        client.send("GET /page HTTP/1.1\r\nHost: test.example\r\n\r\n");
    }
    stopped.signal(Signal::CONT);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "version 2"));
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
    // The unit test of imprints has more cases.
    let cases: [Case<'_>; 5] = [
        (LONG, KEYED, "", false),
        (LONG, KEYED, "request_fields_keyed = [\"X-Group\", \"x-user\"]\n", true),
        (PRIVATE, PUBLIC, PUBLIC, true),
        (PRIVATE, PUBLIC, &longer, false),
        (SECRET, "", HIDDEN, false),
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
    let strict = "verification_time = \"300ms\"\ncoherence = \"strict\"";
    let fleet = Fleet::with(2, redis.address(), strict);
    fleet.store_at_first("/page");
    fleet.gateways[1].get("/page");
    let asks = |gateway: usize| {
        let before = fleet.origin.total();
        let response = fleet.gateways[gateway].get("/page");
        assert_eq!((response.status(), response.text()), (200, "version 1".to_owned()));
        (fleet.origin.total() - before, response.cache_status().contains("fwd=stale"))
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
