//! Mistakes of other caches, and Larder's behaviour; `conformance/caching` tests those that need only one client at a time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Exchange, Redis, ScriptedOrigin, Setup, wait};

use super::basics::{asking, bare, filled, gates, wait_for_waiters, with};
use crate::LARDER;
use crate::fleet::instances;
use crate::tools::mock_origin::MockOrigin;

/// Answers with the target, fresh for a minute.
fn echo(exchange: &mut Exchange<'_>) {
    let target = exchange.request.target().to_owned();
    exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", target);
}

/// Mistake: a response is transformed once for each client that waits for it.
#[test]
fn a_response_that_many_wait_for_is_changed_once() {
    let (gate, at_origin) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        at_origin.pass();
        echo(exchange);
    });
    let added = "transform = [{ phase = \"origin_response\", add = { X-Added = \"once\" } }]\n";
    let larder = with(&format!("@site@{added}"), &origin);
    let clients = [(); 3].map(|()| asking(&larder, "/", ""));
    wait_for_waiters(&larder, 2);
    gate.open();
    for mut client in clients {
        let response = client.response();
        assert_eq!((response.text().as_str(), &response.head.fields.joined("x-added")[..]), ("/", "once"));
    }
    assert_eq!(origin.total(), 1);
}

/// Mistake: `Vary` in a request creates a separate entry.
#[test]
fn vary_of_a_request_says_nothing() {
    let origin = ScriptedOrigin::start(echo);
    let larder = bare(&origin);
    larder.ask("GET", "/", "Vary: X-A\r\nX-A: 1\r\n");
    assert!(larder.ask("GET", "/", "Vary: X-A\r\nX-A: 2\r\n").is_hit());
    assert!(larder.ask("GET", "/", "Vary: *\r\n").is_hit());
}

/// Mistake: an open breaker answers 500 if nothing is cached.
#[test]
fn an_open_breaker_says_when_to_come_again() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("500 Internal Server Error", "", "bad");
    });
    let breaker = "{ enabled = true, requests_min = 1, error_percent = 1, reset_time = \"1h\", \
                   reset_time_max = \"1h\", statuses = [\"5xx\"] }";
    let site = "[[site]]\nname = \"a\"\norigin = \"o\"\nrule = [{ cache = false }]\n";
    let larder =
        with(&format!("[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nbreaker = {breaker}\n{site}"), &origin);
    let ask = |method: &str| larder.ask(method, "/", "Content-Length: 0\r\n");
    assert_eq!((ask("POST").status(), origin.total()), (500, 1));
    for refused in [ask("POST"), ask("GET")] {
        assert_eq!((refused.status(), refused.field("retry-after")), (503, "3600"));
    }
    assert_eq!(origin.total(), 1);
}

/// Mistake: a request that arrives between the origin's response and the end of the write is forwarded again.
#[test]
fn each_url_is_fetched_once_whenever_requests_come() {
    let origin = ScriptedOrigin::start(echo);
    let larder = bare(&origin);
    let next = AtomicUsize::new(0);
    let visit = || {
        let mut client = larder.client();
        while let number @ ..400 = next.fetch_add(1, Ordering::Relaxed) {
            let target = format!("/{}", number / 4);
            assert_eq!(client.get(&target).text(), target);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(visit))));
    for url in 0..100 {
        assert_eq!(origin.count(&format!("/{url}")), 1, "/{url}");
    }
}

/// A gateway in front of an origin, with a shared store.
fn sharing(origin: &ScriptedOrigin, store: SocketAddr) -> Setup {
    let passed_on = "rule = [{ path = { prefix = \"/passed\" }, cache = false }]\n";
    let settings = format!("[store.remote]\nurl = \"redis://{store}/0\"\n@site@{passed_on}");
    Setup::config(LARDER, &filled(&settings, origin))
}

/// Mistake: entries without a time to live stay in the store forever, and responses that are only passed on create some.
#[test]
fn what_the_store_has_expires() {
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(echo);
    let larder = instances::start(1, |_| sharing(&origin, redis.address())).remove(0);
    let records = || {
        instances::is_written(&larder);
        redis.command("EVAL \"return #redis.call('keys','larder:r:*')\" 0")
    };
    larder.get("/stored");
    // Two more records belong to the instance itself.
    wait::until_true("it is written", || records() == ":3");
    larder.get("/passed/on");
    assert_eq!(records(), ":3", "a response that is only passed on isn't written");
    let lasting = "EVAL \"local n={} for _,k in ipairs(redis.call('keys','*')) do \
                   if redis.call('ttl',k)<0 then n[#n+1]=k end end return table.concat(n,' ')\" 0";
    assert_eq!(redis.command(lasting), "larder:log", "has no time to live");
}

/// Mistakes: HTTP/2 options have no effect; durations are in milliseconds, but buckets in seconds.
#[test]
fn options_of_http2_count_and_durations_are_seconds() {
    let origin = MockOrigin::start();
    let config = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nprotocol = \"http2\"\nhost = \"set.example\"\n\
                  fields = { X-Set = \"by-the-gateway\" }\n[[site]]\nname = \"a\"\norigin = \"o\"\n\
                  timeouts = { first_byte = \"50ms\" }\n";
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url)).start();
    let echoed = larder.get("/echo/").text();
    assert!(echoed.contains("by-the-gateway") && echoed.contains("set.example"), "{echoed}");
    assert_eq!(origin.count("/echo/"), 1);
    assert_eq!(larder.get("/items/1?delay=60000").status(), 504);
    let of = |name: &str, parts: &[&str]| {
        larder.metric(&format!("larder_response_duration_seconds_{name}"), parts)
    };
    wait::until_true("both are counted", || of("count", &[]) == 2.0);
    let sum = of("sum", &[]);
    assert!(sum > 0.05 && sum < 60.0, "two responses took {sum} s");
    assert!(of("bucket", &["le=\"0.025\""]) < 2.0, "one took at least 50 ms");
}
