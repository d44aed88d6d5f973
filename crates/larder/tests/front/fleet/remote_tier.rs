//! The tier behind memory in trouble, seen from outside: what waits for it, and what comes of it.
#![cfg(feature = "test-store")]

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::{Larder, ScriptedOrigin, Setup, Signal, wait};

use crate::LARDER;

const STORED: &str = "Cache-Control: max-age=3600\r\n";

/// A gateway over a tier that cannot be reached as long as a file exists.
struct Bench {
    larder: Larder,
    origin: ScriptedOrigin,
    folder: TempDir,
}

impl Bench {
    /// `@dead@` is the file, in the settings of the tier and in the configuration.
    fn start(tier: &str, config: &str, is_dead: Tier) -> Self {
        let origin = ScriptedOrigin::start(|exchange| {
            let fields = if exchange.request.target().starts_with("/private") {
                "Cache-Control: no-store\r\n"
            } else {
                STORED
            };
            exchange.respond("200 OK", fields, "hello");
        });
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dead");
        if is_dead == Tier::Dead {
            fs::write(&file, "").expect("a file in the folder");
        }
        let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
        let tier = tier.replace("@dead@", &file.display().to_string());
        let setup = Setup::config(LARDER, &format!("{config}{site}"));
        let larder = setup.environment("LARDER_TEST_STORE", &tier).start();
        Self { larder, origin, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("dead")
    }

    fn revive(&self) {
        fs::remove_file(self.file()).expect("it was there");
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Alive,
    Dead,
}

/// More keys than writers, which the tier can't change now.
#[test]
fn keys_that_fail_keep_no_others_waiting() {
    let bench = Bench::start("contended_keys=stuck", "", Tier::Alive);
    for number in 0..20 {
        assert_eq!(bench.larder.ask("DELETE", &format!("/stuck/{number}"), "").status(), 200);
    }
    bench.get_all("/fine", 20);
    wait::until_true("the others are written", || bench.writes("written") == 20.0);
    assert_eq!(bench.pending(), 20.0, "what fails is tried again");
}

/// A refusal says nothing about the stored response, and takes no place in the queue.
#[test]
fn notes_never_wait_for_the_tier() {
    let bench = Bench::start("dead_while=@dead@,memory=kept", "", Tier::Dead);
    bench.get_all("/private", 100);
    assert_eq!((bench.pending(), bench.writes("refused")), (0.0, 0.0));
    assert_eq!(bench.larder.metric("larder_store_notes", &[]), 100.0, "memory has them");
    let seen = bench.origin.total();
    bench.get_all("/private", 100);
    assert_eq!(bench.origin.total(), seen + 100);
}

#[test]
fn what_waits_is_written_soon_after_the_tier_is_back() {
    let bench = Bench::start("dead_while=@dead@,reset_ms=300", "", Tier::Dead);
    bench.get_all("/fine", 1000);
    assert_eq!(bench.larder.ask("DELETE", "/gone", "").status(), 200);
    assert_eq!((bench.pending(), bench.writes("given_up")), (1001.0, 0.0));
    bench.revive();
    let begun = Instant::now();
    wait::until_true("all is written", || bench.pending() == 0.0);
    eprintln!("drained in {:?}, {} failures", begun.elapsed(), bench.writes("failed"));
    assert_eq!((bench.writes("written"), bench.writes("removed")), (1000.0, 1.0));
    assert!(bench.writes("failed") < 60.0, "who knows that it is dead does not ask");
    bench.get_all("/fine", 1000);
    assert_eq!(bench.larder.metric("larder_tier_loads_total", &["result=\"hit\""]), 1000.0);
}

/// Enough for a stop that waits for nothing.
const STOP_MAX: Duration = Duration::from_secs(10);

#[test]
fn a_stop_waits_until_the_tier_knows() {
    let mut bench = Bench::start("latency_ms=100", "", Tier::Alive);
    bench.get_all("/fine", 40);
    assert_eq!(bench.larder.ask("DELETE", "/gone", "").status(), 200);
    bench.larder.signal(Signal::TERM);
    assert!(bench.larder.service().end().success());
    let log = bench.larder.stderr();
    assert!(log.contains("write-behind queue flushed"), "{log}");
}

#[test]
fn a_stop_says_what_the_tier_will_never_know() {
    let config = "drain_limit = \"2s\"\n";
    let mut bench = Bench::start("dead_while=@dead@", config, Tier::Dead);
    bench.get_all("/fine", 40);
    assert_eq!(bench.larder.ask("DELETE", "/gone", "").status(), 200);
    let begun = Instant::now();
    bench.larder.signal(Signal::TERM);
    assert!(bench.larder.service().end().success());
    assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
    let log = bench.larder.stderr();
    let line = log
        .lines()
        .find(|line| line.contains("stopped before all changes reached the shared store"))
        .unwrap_or(&log);
    assert!(line.contains("removals=1") && line.contains("keys=41"), "{line}");
}

/// However long requests would get to finish: nothing is written any more.
#[test]
fn a_stop_waits_for_no_tier_that_takes_nothing() {
    for tier in ["dead_while=@dead@", "dead_while=@dead@,reset_ms=300"] {
        let mut bench = Bench::start(tier, "drain_limit = \"50s\"\n", Tier::Dead);
        bench.get_all("/fine", 3);
        let begun = Instant::now();
        bench.larder.signal(Signal::TERM);
        assert!(bench.larder.service().end().success());
        assert!(begun.elapsed() < STOP_MAX, "{tier}: {:?}", begun.elapsed());
        let log = bench.larder.stderr();
        assert!(log.contains("stopped before all changes reached the shared store"), "{tier}: {log}");
    }
}

/// Responses stored while the tier is dead wait in an eighth of memory at most, and the rest serves as if there were no tier.
#[test]
fn a_dead_tier_costs_memory_a_part_and_no_hits() {
    let without = Flood::often(None);
    let with = Flood::often(Some("dead_while=@dead@,memory=kept"));
    eprintln!("without a tier {without:?}, with a dead one {with:?}");
    assert!(with.hits * 100 >= without.hits * 95, "{with:?}, without a tier {without:?}");
    let more = with.grown_bytes.saturating_sub(without.grown_bytes);
    assert!(more < FLOOD_MEMORY_BYTES / 4, "{more} bytes more are resident");
}

const FLOOD_MEMORY_BYTES: u64 = 32 << 20;
const FLOOD_RESPONSES: usize = 1000;
const FLOOD_BODY_BYTES: usize = 64 << 10;
const FLOOD_CLIENTS: usize = 4;
/// Each client asks for one of these after each response that is asked for once.
const HOT: usize = 20;

/// Outcome of a flood of large responses that are requested once, beside some that are asked for again and again.
#[derive(Debug)]
struct Flood {
    hits: usize,
    grown_bytes: u64,
}

impl Flood {
    /// The median of several in both respects: four clients race, and one flood in a hundred has a twentieth fewer hits by chance.
    fn often(tier: Option<&str>) -> Self {
        let floods: [Self; 5] = std::array::from_fn(|_| Self::through(tier));
        let mut hits = floods.each_ref().map(|flood| flood.hits);
        let mut grown_bytes = floods.map(|flood| flood.grown_bytes);
        hits.sort_unstable();
        grown_bytes.sort_unstable();
        Self { hits: hits[2], grown_bytes: grown_bytes[2] }
    }

    fn through(tier: Option<&str>) -> Self {
        let body = vec![b'x'; FLOOD_BODY_BYTES];
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.respond("200 OK", STORED, &body);
        });
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dead");
        fs::write(&file, "").expect("a file in the folder");
        let config = format!(
            "workers = 4\n[store]\nmemory = \"{FLOOD_MEMORY_BYTES}B\"\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
            origin.url()
        );
        let mut setup = Setup::config(LARDER, &config);
        if let Some(tier) = tier {
            let tier = tier.replace("@dead@", &file.display().to_string());
            setup = setup.environment("LARDER_TEST_STORE", &tier);
        }
        let larder = setup.start();
        let before = larder.resident_bytes();
        let ask = |client: usize| {
            let mut connection = larder.client();
            let of_client = (client..FLOOD_RESPONSES).step_by(FLOOD_CLIENTS);
            let hits = of_client.filter(|number| {
                assert_eq!(connection.get(&format!("/cold/{number}")).status(), 200);
                connection.get(&format!("/hot/{}", number / FLOOD_CLIENTS % HOT)).is_hit()
            });
            hits.count()
        };
        let hits = thread::scope(|scope| {
            let clients: Vec<_> = (0..FLOOD_CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
            clients.into_iter().map(|client| client.join().expect("a client")).sum()
        });
        let grown_bytes = larder.resident_bytes().saturating_sub(before);
        Self { hits, grown_bytes }
    }
}
