//! What GETs notice when a million keys expire at once, when the table grows, and when the data set is saved.
//!
//! A slow open loop of GETs looks on. Each event has its own quiet time beside it: the same load without the event,
//! so that what is added is the event's.

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use bench::resp::{self, Choice, Client, Expiry, Pace, Preload, RespLoad, Until, Workload};
use bench::result::{Interval, Run};
use rustix::process::nice;

use super::store::{Running, Saves, Store, Wanted};
use super::{HOT_KEYS, Wish};
use crate::Effort;
use crate::origin::pause;
use crate::output;
use crate::plan::{Budget, Limit, What};
use crate::row::{Row, Subject};

/// What happens while GETs look on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Expiry,
    Growth,
    Save,
}

const EVENTS: [Event; 3] = [Event::Expiry, Event::Growth, Event::Save];

const WATCHED_PER_SECOND: f64 = 20_000.0;
const WATCHING_CONNECTIONS: usize = 10;
const KEYS: u64 = 1_000_000;
const GROWN_KEYS: u64 = 20_000_000;
/// Of the watch over an event that takes no time of its own.
const WATCH: Duration = Duration::from_secs(4);
const LEAD: Duration = Duration::from_secs(1);
/// Added by the event, in microseconds.
const ADDED_US_MAX: f64 = 1000.0;

pub(super) fn budgets(title: &str) -> Vec<Budget> {
    let is_one = EVENTS.iter().any(|event| event.title() == title);
    let budget = Budget { measure: 0, limit: Limit::AtMost(ADDED_US_MAX) };
    if is_one { vec![budget] } else { Vec::new() }
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
        let measures = [("p99.9 added", "µs"), ("p99.9", "µs"), ("p99.9 without", "µs"), ("longest", "µs")];
        let mut row = Row::new(What::KvTail, self.title(), &measures);
        // Growth takes long, and looks at its own rounds: the table doubles several times.
        let rounds = if self == Self::Growth { 1 } else { effort.rounds.min(3) };
        for round in 1..=rounds {
            for store in [Store::Larder, Store::Redis] {
                output::progress(&format!("{}: {}, round {round} of {rounds}", self.title(), store.title()));
                let saves = if self == Self::Save { Saves::Yes } else { Saves::No };
                let server = store.start(larder, &Wanted { memory_mib: 8192, saves, ..Wanted::default() })?;
                let Some((quiet, run)) = self.watch(&server).with_context(|| store.title())? else {
                    output::progress(&format!("left out: {} does not save", store.title()));
                    continue;
                };
                let us = |run: &Run| run.latency.p999_us as f64;
                let figures = vec![us(&run) - us(&quiet), us(&run), us(&quiet), run.latency.max_us as f64];
                row.add(Subject::Store(store), figures, quiet.errors.total() + run.errors.total());
            }
        }
        Ok(row)
    }

    /// The watch without the event and the one with it; nothing when the server knows no such event.
    fn watch(self, server: &Running) -> anyhow::Result<Option<(Run, Run)>> {
        resp::prepare(&watched(server, WATCH))?;
        match self {
            Self::Expiry => expiry(server).map(Some),
            Self::Growth => growth(server).map(Some),
            Self::Save => save(server),
        }
    }
}

/// The GETs that look on: of keys that no event touches.
fn watched(server: &Running, duration: Duration) -> RespLoad {
    RespLoad {
        keys: HOT_KEYS,
        connections: WATCHING_CONNECTIONS,
        pace: Pace::Open { per_second: WATCHED_PER_SECOND },
        until: Until::Elapsed(duration),
        ..server.load()
    }
}

/// SETs of other keys than the watched ones, by their length.
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

fn expiry(server: &Running) -> anyhow::Result<(Run, Run)> {
    let quiet = resp::run(&watched(server, WATCH), &mut ())?.run;
    // Late enough that all are set by then.
    let at = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(4);
    let at_ms = u64::try_from(at.as_millis())?;
    resp::run(&RespLoad { expiry: Expiry::AtUnixMs(at_ms), ..others(server, KEYS) }, &mut ())?;
    let left = at.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH)?);
    pause(left.saturating_sub(LEAD));
    let run = resp::run(&watched(server, LEAD + WATCH), &mut ())?.run;
    Ok((quiet, run))
}

fn growth(server: &Running) -> anyhow::Result<(Run, Run)> {
    let few = others(server, KEYS);
    resp::run(&few, &mut ())?;
    // The same SETs, but of keys that are there.
    let again = RespLoad { until: Until::Elapsed(2 * WATCH), ..few };
    let quiet = watched_during(server, &again)?;
    let run = watched_during(server, &others(server, GROWN_KEYS))?;
    Ok((quiet, run))
}

fn save(server: &Running) -> anyhow::Result<Option<(Run, Run)>> {
    resp::run(&others(server, SAVED_KEYS), &mut ())?;
    let quiet = resp::run(&watched(server, WATCH), &mut ())?.run;
    let mut client = Client::connect(server.address)?;
    if client.ask(&[b"BGSAVE"])?.first() == Some(&b'-') {
        return Ok(None);
    }
    let run = watched_while(server, || wait_for_save(&mut client))?;
    Ok(Some((quiet, run)))
}

fn wait_for_save(client: &mut Client) -> anyhow::Result<()> {
    // The time-out of the connection bounds each question, the watch bounds them all.
    while client.info("persistence", "rdb_bgsave_in_progress")?.as_deref() == Some("1") {
        pause(POLL);
    }
    Ok(())
}

const SAVED_KEYS: u64 = 5_000_000;
const POLL: Duration = Duration::from_millis(20);

fn watched_during(server: &Running, load: &RespLoad) -> anyhow::Result<Run> {
    watched_while(server, || {
        // Both share a core: who looks on comes first. Where it may not be, the figures are too high, not too low.
        nice(19).ok();
        resp::run(load, &mut ())?;
        Ok(())
    })
}

/// What GETs notice as long as something else goes on.
fn watched_while(
    server: &Running,
    something: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Run> {
    thread::scope(|scope| {
        let going_on = scope.spawn(something);
        let mut watch = |_: &Interval| {
            if going_on.is_finished() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let run = resp::run(&watched(server, LONGEST), &mut watch)?.run;
        going_on.join().map_err(|_| anyhow!("the generator panicked"))??;
        Ok(run)
    })
}

/// No event takes longer.
const LONGEST: Duration = Duration::from_secs(80);
