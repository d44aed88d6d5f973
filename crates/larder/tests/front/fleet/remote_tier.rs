//! A failing tier behind memory: operations that wait for it, and their outcome.
#![cfg(feature = "test-store")]

use std::fs;
use std::time::{Duration, Instant};

use testkit::{Larder, ScriptedOrigin, Setup, Signal, wait};

use crate::LARDER;

/// A gateway with a tier that is unreachable as long as a file exists.
struct Bench {
    larder: Larder,
    origin: ScriptedOrigin,
}

impl Bench {
    fn start(tier: &str, config: &str) -> Self {
        let origin = ScriptedOrigin::start(|exchange| {
            let is_private = exchange.request.target().starts_with("/private");
            let lifetime = if is_private { "no-store" } else { "max-age=3600" };
            exchange.respond("200 OK", &format!("Cache-Control: {lifetime}\r\n"), "hello");
        });
        let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
        let setup = Setup::config(LARDER, &format!("{config}{site}")).file("dead", "");
        let larder = setup.environment("LARDER_TEST_STORE", tier).start();
        Self { larder, origin }
    }

    fn revive(&self) {
        fs::remove_file(self.larder.folder().join("dead")).expect("it was there");
    }

    fn get_all(&self, prefix: &str, count: usize) {
        let mut client = self.larder.client();
        for number in 0..count {
            assert_eq!(client.get(&format!("{prefix}/{number}")).status(), 200);
        }
    }

    fn pending(&self) -> f64 {
        self.larder.metric("larder_tier_pending_keys", &[])
    }

    fn writes(&self, result: &str) -> f64 {
        self.larder.metric("larder_tier_writes_total", &[&format!("result=\"{result}\"")])
    }
}

/// The tier can't write these keys, and there are more of them than writers.
#[test]
fn keys_that_fail_keep_no_others_waiting() {
    let bench = Bench::start("contended_keys=stuck", "");
    for number in 0..20 {
        assert_eq!(bench.larder.ask("DELETE", &format!("/stuck/{number}"), "").status(), 200);
    }
    bench.get_all("/fine", 20);
    wait::until_true("the others are written", || bench.writes("written") == 20.0);
    assert_eq!(bench.pending(), 20.0, "failed writes are retried");
}

/// A note that a response isn't stored doesn't affect the stored response, and isn't queued.
#[test]
fn notes_never_wait_for_the_tier() {
    let bench = Bench::start("dead_while=@dir@/dead,memory=kept", "");
    bench.get_all("/private", 100);
    assert_eq!((bench.pending(), bench.writes("refused")), (0.0, 0.0));
    assert_eq!(bench.larder.metric("larder_store_notes", &[]), 100.0, "memory holds them");
    let seen = bench.origin.total();
    bench.get_all("/private", 100);
    assert_eq!(bench.origin.total(), seen + 100);
}

#[test]
fn what_waits_is_written_soon_after_the_tier_is_back() {
    let bench = Bench::start("dead_while=@dir@/dead,reset_ms=300", "");
    bench.get_all("/fine", 1000);
    assert_eq!(bench.larder.ask("DELETE", "/gone", "").status(), 200);
    assert_eq!((bench.pending(), bench.writes("given_up")), (1001.0, 0.0));
    bench.revive();
    wait::until_true("everything is written", || bench.pending() == 0.0);
    assert_eq!((bench.writes("written"), bench.writes("removed")), (1000.0, 1.0));
    assert!(bench.writes("failed") < 60.0, "a known-dead server isn't tried");
    bench.get_all("/fine", 1000);
    assert_eq!(bench.larder.metric("larder_tier_loads_total", &["result=\"hit\""]), 1000.0);
}

/// A stop waits until the tier has all changes. If the tier accepts none, the stop waits up to `drain_limit` for removals, and doesn't wait
/// for other changes.
#[test]
fn a_stop_says_what_the_tier_will_never_know() {
    const LOST: &str = "stopped before all changes reached the shared store";
    for (tier, drain_limit, removals, says) in [
        ("latency_ms=100", "30s", 1, &["write-behind queue flushed"][..]),
        ("dead_while=@dir@/dead", "2s", 1, &[LOST, "removals=1", "keys=41"]),
        ("dead_while=@dir@/dead", "50s", 0, &[LOST]),
        ("dead_while=@dir@/dead,reset_ms=300", "50s", 0, &[LOST]),
    ] {
        let mut bench = Bench::start(tier, &format!("drain_limit = \"{drain_limit}\"\n"));
        bench.get_all("/fine", 40);
        for number in 0..removals {
            assert_eq!(bench.larder.ask("DELETE", &format!("/gone/{number}"), "").status(), 200);
        }
        let begun = Instant::now();
        bench.larder.signal(Signal::TERM);
        assert!(bench.larder.service().end().success());
        assert!(begun.elapsed() < Duration::from_secs(10), "{tier}: {:?}", begun.elapsed());
        let log = bench.larder.stderr();
        let has_all = |line: &str| says.iter().all(|part| line.contains(part));
        assert!(log.lines().any(has_all), "{tier}: {log}");
    }
}
