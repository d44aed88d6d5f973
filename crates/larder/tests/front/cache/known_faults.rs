//! Mistakes of other caches, and Larder's behaviour; `conformance/caching` tests those that need only one client at a time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Exchange, Redis, ScriptedOrigin, Setup, wait};

use super::basics::{bare, filled};
use crate::LARDER;
use crate::fleet::instances;
use crate::tools::mock_origin::MockOrigin;

/// Answers with the target, fresh for a minute.
fn echo(exchange: &mut Exchange<'_>) {
    let target = exchange.request.target().to_owned();
    exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", target);
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
        redis.command("EVAL \"return #redis.call('keys','larder:[rm]:*')\" 0")
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
