//! The limit on requests in flight and the bounded queue in front of it. Both are global over the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::error::OriginError;
use super::stats::{Counters, Gauged};
use crate::config::PoolConfig;

#[derive(Debug)]
pub(super) struct Admission {
    places: Arc<Semaphore>,
    queued: AtomicUsize,
    config: PoolConfig,
    counters: Arc<Counters>,
}

/// A place among the requests in flight; given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _gauged: Gauged,
}

impl Admission {
    pub(super) fn new(config: PoolConfig, counters: Arc<Counters>) -> Self {
        let places = config.requests_in_flight_max.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(places)), queued: AtomicUsize::new(0), config, counters }
    }

    /// Takes a place, if there is one.
    pub(super) fn enter_at_once(&self) -> Option<Place> {
        Some(self.place(Arc::clone(&self.places).try_acquire_owned().ok()?))
    }

    /// Waits for a place in the queue. The semaphore is fair: places go to those that wait longest.
    pub(super) async fn queue(&self, total_at: Option<Instant>) -> Result<Place, OriginError> {
        let _ticket = self.queue_up()?;
        let queue_at = Instant::now() + self.config.queue_timeout;
        let (deadline, late) = match total_at {
            Some(total_at) if total_at < queue_at => (total_at, OriginError::TotalTimeout),
            _ => (queue_at, OriginError::QueueTimeout),
        };
        let permit =
            timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await.map_err(|_| late)?;
        Ok(self.place(permit.expect("the semaphore is never closed")))
    }

    fn queue_up(&self) -> Result<Ticket<'_>, OriginError> {
        let taken = self
            .queued
            .fetch_update(Relaxed, Relaxed, |queued| (queued < self.config.queue_max).then_some(queued + 1));
        match taken {
            Ok(_) => {
                let gauged = Gauged::new(&self.counters, |counters| &counters.requests_queued);
                Ok(Ticket { queued: &self.queued, _gauged: gauged })
            }
            Err(_) => Err(OriginError::QueueFull),
        }
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        Place {
            _permit: permit,
            _gauged: Gauged::new(&self.counters, |counters| &counters.requests_in_flight),
        }
    }
}

/// A place in the queue; also given back when the waiting request is given up.
struct Ticket<'a> {
    queued: &'a AtomicUsize,
    _gauged: Gauged,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.queued.fetch_sub(1, Relaxed);
    }
}
