//! GETs that run beside another event, and a witness server that shows when the machine stalled.
//!
//! A virtual machine stalls for ten milliseconds now and then, and with it the server under test. A null server on the same core
//! is therefore asked at the same time. A tenth of a second in which it was late as well says nothing about the other server, and
//! is left out. The share that was left out is reported, since a server that blocks all others on its core would hide behind it.

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bench::observe::Observer;
use bench::resp::{self, Pace, RespLoad, Until};
use bench::result::{Interval, Latencies, Run};
use rustix::process::{Pid, setpriority_process};

use super::HOT_KEYS;
use super::store::{Running, Store, Wanted};

/// A quarter of the rate that ten connections could reach while a server is busy with batches of SETs, so that the watch catches
/// up soon after each pause of the machine.
const WATCHED_PER_SECOND: f64 = 5_000.0;
const WATCHING_CONNECTIONS: usize = 10;
const WITNESS_PER_SECOND: f64 = 5_000.0;
const WITNESS_CONNECTIONS: usize = 5;
/// If the witness waits longer than this, the machine stalled.
const CALM_US_MAX: u64 = 1000;
/// The witness has priority on its core, so that it only waits for the machine and for no other process.
const WITNESS_NICENESS: i32 = -20;

/// The server under test, and its witness.
pub(super) struct Watch<'a> {
    pub(super) server: &'a Running,
    witness: Running,
}

/// The latencies that GETs have seen.
pub(super) struct Seen {
    /// Latencies of all tenths of a second in which the machine didn't stall.
    pub(super) latencies: Latencies,
    pub(super) left_out_percent: f64,
    pub(super) errors: u64,
}

impl<'a> Watch<'a> {
    /// Sets the watched keys.
    pub(super) fn new(larder: &Path, server: &'a Running) -> anyhow::Result<Self> {
        let witness = Store::Null.start(larder, &Wanted::default())?;
        let pid = i32::try_from(witness.pid()).ok().and_then(Pid::from_raw);
        // Without the permission, more slices are left out, and none is wrong.
        setpriority_process(pid, WITNESS_NICENESS).ok();
        let watch = Self { server, witness };
        resp::prepare(&watch.load(Duration::from_secs(1)))?;
        Ok(watch)
    }

    /// The watching GETs, for keys that no event touches.
    fn load(&self, duration: Duration) -> RespLoad {
        RespLoad {
            keys: HOT_KEYS,
            connections: WATCHING_CONNECTIONS,
            pace: Pace::Open { per_second: WATCHED_PER_SECOND },
            until: Until::Elapsed(duration),
            ..self.server.load()
        }
    }

    /// Watches for this long, or until the event is over.
    pub(super) fn look(
        &self,
        duration: Duration,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Seen> {
        let load = self.load(duration);
        let witness_load = RespLoad {
            connections: WITNESS_CONNECTIONS,
            pace: Pace::Open { per_second: WITNESS_PER_SECOND },
            ..RespLoad { until: load.until, keys: load.keys, ..self.witness.load() }
        };
        thread::scope(|scope| {
            let beside = scope.spawn(|| slices_of(&witness_load, is_over));
            let (run, slices) = slices_of(&load, is_over)?;
            let (_, of_witness) = beside.join().map_err(|_| anyhow!("the generator panicked"))??;
            Seen::of(run.errors.total(), &slices, &of_witness)
        })
    }
}

impl Seen {
    fn of(errors: u64, slices: &[Latencies], of_witness: &[Latencies]) -> anyhow::Result<Self> {
        let pairs = slices.iter().zip(of_witness);
        let calm: Vec<&Latencies> =
            pairs.filter(|(_, witness)| witness.max_us() <= CALM_US_MAX).map(|(slice, _)| slice).collect();
        let latencies = calm.iter().copied().cloned().reduce(|mut sum, slice| {
            sum.add(&slice);
            sum
        });
        let latencies = latencies.context("the machine stood still in each tenth of a second")?;
        let left_out_percent = 100.0 - calm.len() as f64 / slices.len().min(of_witness.len()) as f64 * 100.0;
        Ok(Self { latencies, left_out_percent, errors })
    }
}

/// The run, and the latencies of each tenth of a second.
fn slices_of(load: &RespLoad, is_over: &(dyn Fn() -> bool + Sync)) -> anyhow::Result<(Run, Vec<Latencies>)> {
    let mut slices = Vec::new();
    let mut observer = |_: &Interval, latencies: &Latencies| {
        slices.push(latencies.clone());
        if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let run = resp::run(load, &mut observer as &mut dyn Observer)?.run;
    Ok((run, slices))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(latencies_us: &[u64]) -> Vec<Latencies> {
        let slice = |latency_us: &u64| {
            let mut slice = Latencies::default();
            slice.record(*latency_us);
            slice
        };
        latencies_us.iter().map(slice).collect()
    }

    #[test]
    fn what_the_witness_waited_for_is_left_out() {
        #[track_caller]
        fn check(server_us: &[u64], witness_us: &[u64], longest_us_and_left_out: Option<(u64, f64)>) {
            let seen = Seen::of(0, &slices(server_us), &slices(witness_us)).ok();
            let figures = seen.map(|seen| (seen.latencies.max_us(), seen.left_out_percent));
            assert_eq!(figures, longest_us_and_left_out);
        }
        check(&[10, 900], &[10, 10], Some((900, 0.0)));
        check(&[10, 900, 10, 10], &[10, 1001, 1000, 10], Some((10, 25.0)));
        // The server is late, and the machine isn't.
        check(&[10, 900], &[1001, 10], Some((900, 50.0)));
        // One of the two may have one more slice.
        check(&[10, 20, 30], &[1001, 10], Some((20, 50.0)));
        check(&[10, 10], &[1001, 1001], None);
        check(&[], &[], None);
    }
}
