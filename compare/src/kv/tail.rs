//! Latency of GETs while a million keys expire at once, while the table grows, and while the data set is saved.
//!
//! A slow open loop of GETs runs throughout. Each event is compared with a quiet run of the same load without the event, so the
//! difference is due to the event.

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use bench::resp::{self, Choice, Client, Expiry, Preload, RespLoad, Until, Workload};
use rustix::process::nice;

use super::Wish;
use super::store::{Running, Saves, Store, Wanted};
use super::watch::{Seen, Watch};
use crate::Effort;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use bench::pause::pass;

/// An event during the GETs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Expiry,
    Growth,
    Save,
}

const EVENTS: [Event; 3] = [Event::Expiry, Event::Growth, Event::Save];

const KEYS: u64 = 1_000_000;
const GROWN_KEYS: u64 = 20_000_000;
/// Duration of the watch for an event that takes no time of its own.
const WATCH: Duration = Duration::from_secs(4);
const LEAD: Duration = Duration::from_secs(1);
/// Limit of the rounds, since each takes a minute or two.
const ROUNDS_MAX: u32 = 3;

pub(super) fn is_one(title: &str) -> bool {
    EVENTS.iter().any(|event| event.title() == title)
}

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    let events = EVENTS.into_iter().filter(|event| wish.has(event.title()));
    events.map(|event| event.measure(wish.larder, wish.effort)).collect()
}

impl Event {
    fn title(self) -> &'static str {
        match self {
            Self::Expiry => "kv: GETs while 1 M keys expire at once",
            Self::Growth => "kv: GETs while 1 M keys become 20 M",
            Self::Save => "kv: GETs while 5 M keys are saved",
        }
    }

    fn measure(self, larder: &Path, effort: Effort) -> anyhow::Result<Row> {
        let mut row = Row::new(What::KvTail, self.title(), &MEASURES);
        let rounds = effort.rounds.min(ROUNDS_MAX);
        for round in 1..=rounds {
            for store in [Store::Larder, Store::Redis] {
                output::progress(&format!("{}: {}, round {round} of {rounds}", self.title(), store.title()));
                let Some((quiet, seen)) = self.watch(larder, store).with_context(|| store.title())? else {
                    output::progress(&format!("left out: {} does not save", store.title()));
                    continue;
                };
                row.add(Subject::Store(store), figures(&quiet, &seen), quiet.errors + seen.errors);
            }
        }
        Ok(row)
    }

    /// Latencies without the event and with it. `None` if the server has no such event.
    fn watch(self, larder: &Path, store: Store) -> anyhow::Result<Option<(Seen, Seen)>> {
        let saves = if self == Self::Save { Saves::Yes } else { Saves::No };
        let server = store.start(larder, &Wanted { memory_mib: 8192, saves, ..Wanted::default() })?;
        let watch = Watch::new(larder, &server)?;
        match self {
            Self::Expiry => expiry(&watch).map(Some),
            Self::Growth => growth(&watch).map(Some),
            Self::Save => save(&watch),
        }
    }
}

const MEASURES: [(&str, &str); 6] = [
    ("p99.9 added", "µs"),
    ("p99.9", "µs"),
    ("p99.9 without", "µs"),
    ("longest", "µs"),
    ("left out", "% of the time"),
    ("left out without", "% of the time"),
];

fn figures(quiet: &Seen, seen: &Seen) -> Vec<f64> {
    let p999_us = |seen: &Seen| seen.latencies.percentile_us(99.9) as f64;
    let (without, with) = (p999_us(quiet), p999_us(seen));
    let longest_us = seen.latencies.max_us() as f64;
    vec![with - without, with, without, longest_us, seen.left_out_percent, quiet.left_out_percent]
}

/// SETs of keys other than the watched ones, which have a different length.
fn others(server: &Running, keys: u64) -> RespLoad {
    RespLoad {
        workload: Workload::Set,
        key_bytes: 20,
        keys,
        choice: Choice::InTurn,
        connections: 4,
        pipeline: 100,
        preload: Preload::AllKeys,
        until: Until::Requests(keys),
        ..server.load()
    }
}

fn expiry(watch: &Watch<'_>) -> anyhow::Result<(Seen, Seen)> {
    let quiet = watch.look(WATCH, &|| false)?;
    // Late enough that all keys are set by then.
    let at = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(4);
    let at_ms = u64::try_from(at.as_millis())?;
    let expiring = RespLoad { expiry: Expiry::AtUnixMs(at_ms), ..others(watch.server, KEYS) };
    resp::run(&expiring, &mut ())?;
    let left = at.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH)?);
    pass(left.saturating_sub(LEAD));
    Ok((quiet, watch.look(LEAD + WATCH, &|| false)?))
}

fn growth(watch: &Watch<'_>) -> anyhow::Result<(Seen, Seen)> {
    let few = others(watch.server, KEYS);
    resp::run(&few, &mut ())?;
    // The same SETs, but of existing keys.
    let again = RespLoad { until: Until::Elapsed(2 * WATCH), ..few };
    let quiet = look_during(watch, &again)?;
    Ok((quiet, look_during(watch, &others(watch.server, GROWN_KEYS))?))
}

fn save(watch: &Watch<'_>) -> anyhow::Result<Option<(Seen, Seen)>> {
    resp::run(&others(watch.server, SAVED_KEYS), &mut ())?;
    let quiet = watch.look(WATCH, &|| false)?;
    let mut client = Client::connect(watch.server.address)?;
    if client.ask(&[b"BGSAVE"])?.first() == Some(&b'-') {
        return Ok(None);
    }
    let seen = look_while(watch, || wait_for_save(&mut client))?;
    Ok(Some((quiet, seen)))
}

fn wait_for_save(client: &mut Client) -> anyhow::Result<()> {
    // The time-out of the connection limits each question, the watch limits all of them.
    while client.info("persistence", "rdb_bgsave_in_progress")?.as_deref() == Some("1") {
        pass(POLL);
    }
    Ok(())
}

const SAVED_KEYS: u64 = 5_000_000;
const POLL: Duration = Duration::from_millis(20);

fn look_during(watch: &Watch<'_>, load: &RespLoad) -> anyhow::Result<Seen> {
    look_while(watch, || {
        // Both share a core, and the watch goes first. Without the permission, the figures are too high, never too low.
        nice(19).ok();
        resp::run(load, &mut ())?;
        Ok(())
    })
}

/// Watches with GETs as long as another load runs.
fn look_while(
    watch: &Watch<'_>,
    something: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Seen> {
    thread::scope(|scope| {
        let going_on = scope.spawn(something);
        let seen = watch.look(LONGEST, &|| going_on.is_finished())?;
        going_on.join().map_err(|_| anyhow!("the generator panicked"))??;
        Ok(seen)
    })
}

/// Longer than any event.
const LONGEST: Duration = Duration::from_secs(80);
