//! A failing tier behind memory: operations that wait for it, and their outcome.
#![cfg(feature = "test-store")]

use std::fs;
use std::time::{Duration, Instant};

use testkit::{Larder, ScriptedOrigin, Setup, Signal, wait};

use crate::LARDER;
use crate::admin::operator::site;

/// A gateway with a tier that is unreachable as long as a file exists.
struct Bench {
    larder: Larder,
    _origin: ScriptedOrigin,
}

impl Bench {
    fn start(tier: &str, config: &str) -> Self {
        let origin = ScriptedOrigin::fixed("Cache-Control: max-age=3600\r\n", "hello");
        let setup = Setup::config(LARDER, &format!("{config}{}", site(&origin, ""))).file("dead", "");
        let larder = setup.environment("LARDER_TEST_STORE", tier).start();
        Self { larder, _origin: origin }
    }

    fn get_all(&self, count: usize) {
        let mut client = self.larder.client();
        (0..count).for_each(|number| assert_eq!(client.get(&format!("/fine/{number}")).status(), 200));
    }

    fn pending(&self) -> f64 {
        self.larder.metric("larder_tier_pending_keys", &[])
    }

    fn writes(&self, result: &str) -> f64 {
        self.larder.metric("larder_tier_writes_total", &[&format!("result=\"{result}\"")])
    }
}

#[test]
fn what_waits_is_written_soon_after_the_tier_is_back() {
    let bench = Bench::start("dead_while=@dir@/dead,reset_ms=300", "");
    bench.get_all(1000);
    assert_eq!(bench.larder.ask("DELETE", "/gone", "").status(), 200);
    assert_eq!((bench.pending(), bench.writes("given_up")), (1001.0, 0.0));
    fs::remove_file(bench.larder.folder().join("dead")).expect("it was there");
    wait::until_true("everything is written", || bench.pending() == 0.0);
    assert_eq!((bench.writes("written"), bench.writes("removed")), (1000.0, 1.0));
    assert!(bench.writes("failed") < 60.0, "a known-dead server isn't tried");
    // A record that was just written may be in use for a moment, so that no load is needed.
    wait::until_true("all are loaded", || {
        let loads = || bench.larder.metric("larder_tier_loads_total", &["result=\"hit\""]);
        let before = loads();
        bench.get_all(1000);
        loads() - before == 1000.0
    });
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
        bench.get_all(40);
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
