//! An instance as a process with its own clock. A process can be stopped and continued.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use caching::Timestamp;
use fleet::leases::LeaseLimits;
use fleet::regions::{StartPeer, StartRegion};
use fleet::{Coherence, MemoryUse, StartTier, TIER_WRITERS};
use message::clock::test::{WALL, Wall};
use parking_lot::Mutex;
use store::backing::{Backing, BreakerOptions, BreakerSettings, Deadlines, Guarded};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::link::{FarStore, Link};
use super::wire::{Line, Wire};
use super::{Rule, VERIFICATION};
use crate::config::{CacheRule, StoreIndex, sample};
use crate::in_step;
use crate::worker::{self, Worker};

/// An instance with its connection, clock and tasks.
pub(super) struct Process {
    pub(super) worker: Arc<Worker>,
    pub(super) wire: Arc<Wire>,
    wall: Wall,
    stop: Stop,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Default)]
struct Stop {
    is_stopped: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

/// Links of an instance to the stores of the other regions.
pub(super) struct Links {
    /// Name of the own region.
    pub(super) name: String,
    /// Name of each other region, and the link to its store.
    pub(super) peers: Vec<(String, Arc<Link>)>,
}

impl Links {
    fn start(&self) -> Option<StartRegion> {
        let peer = |(name, link): &(String, Arc<Link>)| StartPeer {
            name: name.clone(),
            backing: guarded(Box::new(FarStore::of(link))),
        };
        let peers: Vec<_> = self.peers.iter().map(peer).collect();
        (!peers.is_empty()).then(|| StartRegion {
            name: self.name.clone(),
            purge_lag_max: Duration::from_secs(30),
            peers,
        })
    }
}

fn guarded(backing: Box<dyn Backing>) -> Arc<dyn Backing> {
    let breaker = BreakerOptions { requests_min: 1000, ..BreakerOptions::default() };
    let settings = BreakerSettings::new(breaker).expect("the default settings with one different number");
    Arc::new(Guarded::new(backing, Deadlines::default(), settings))
}

/// Initial time of a wall clock without an error.
const NOON: Timestamp = Timestamp::from_ms(1_800_000_000_000);

impl Process {
    /// Starts an instance whose clock is ahead of the store's by `ahead_ms`.
    pub(super) fn start(
        (wire, links): (&Arc<Wire>, &Links),
        ahead_ms: i64,
        planted: Option<Rule>,
    ) -> Arc<Self> {
        let tier = StartTier {
            backing: guarded(Box::new(Line::of(wire))),
            memory_use: MemoryUse::Kept,
            coherence: Coherence::Available,
            name: format!("cache-{}", wire.index),
            verification: VERIFICATION,
            leases: LeaseLimits { time: Duration::from_secs(3), wait_max: Duration::from_secs(5) },
            region: links.start(),
        };
        let worker = worker(tier);
        if let (Some(Rule::LogIsReadFirst), Some(log)) =
            (planted, worker.shared.stores.first().tier.as_ref().map(|tier| &tier.log))
        {
            log.pretend_to_be_in_step();
        }
        let process = Arc::new(Self {
            worker,
            wire: Arc::clone(wire),
            wall: Wall { begun: Instant::now(), began_at: NOON.plus_ms(ahead_ms) },
            stop: Stop::default(),
            tasks: Mutex::default(),
        });
        process.spawn(in_step::keep_in_step(Arc::clone(&process.worker.shared), StoreIndex::default()));
        let tier = process.worker.shared.stores.first().tier.clone().expect("all instances share one");
        in_step::region_tasks(&tier).into_iter().for_each(|task| _ = process.spawn(task));
        for _ in 0..TIER_WRITERS {
            let tier = process.worker.shared.stores.first().tier.clone().expect("all instances share one");
            process.spawn(async move { tier.write_behind().await });
        }
        process
    }

    /// Spawns a task of this process.
    pub(super) fn spawn<F: Future<Output: Send> + Send + 'static>(
        self: &Arc<Self>,
        future: F,
    ) -> JoinHandle<F::Output> {
        let running = Running { process: Arc::clone(self), inner: Box::pin(future) };
        let task = tokio::spawn(WALL.scope(self.wall, running));
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
        task
    }

    pub(super) fn stop(&self) {
        self.stop.is_stopped.store(true, Ordering::Relaxed);
        self.wire.stops();
    }

    pub(super) fn go_on(&self) {
        self.stop.is_stopped.store(false, Ordering::Relaxed);
        self.stop.waiting.lock().drain(..).for_each(Waker::wake);
        self.wire.goes_on();
    }

    /// Kills the process with all its tasks.
    pub(super) fn kill(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// A task of a process, which pauses while the process is stopped.
struct Running<F> {
    process: Arc<Process>,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for Running<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let stop = &self.process.stop;
        if stop.is_stopped.load(Ordering::Relaxed) {
            stop.waiting.lock().push(context.waker().clone());
            return Poll::Pending;
        }
        self.inner.as_mut().poll(context)
    }
}

fn worker(tier: StartTier) -> Arc<Worker> {
    let mut site = sample::site(SocketAddr::from(([127, 0, 0, 1], 1)));
    site.rules = vec![CacheRule::built_in(site.profile)];
    worker::sample::of_site(site, sample::limits(), Some(tier))
}
