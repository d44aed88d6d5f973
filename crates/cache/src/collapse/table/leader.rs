//! Handles of a forward: one for the task that leads it, and one for each request that takes part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use origin::Interim;

use super::{FetchTable, InFlight};
use crate::changed::until;
use crate::collapse::answer::{Answer, Filling};

/// Handle of a fetch's leader: however its task ends, the waiters are notified and the table is cleared.
pub struct LeaderGuard {
    pub in_flight: Arc<InFlight>,
    pub(super) fetch_table: Arc<FetchTable>,
}

impl LeaderGuard {
    pub fn new(waiter: &Waiter, fetch_table: &Arc<FetchTable>) -> Self {
        Self { in_flight: Arc::clone(&waiter.in_flight), fetch_table: Arc::clone(fetch_table) }
    }

    /// Lists the forward again before the origin is contacted. Earlier purges don't affect its response, because no request has been sent
    /// yet; later purges do.
    pub fn begins_now(&self) {
        self.fetch_table.list_again(&self.in_flight);
    }

    /// Creates a waiter for the leader itself.
    pub fn waiter(&self) -> Waiter {
        Waiter::new(&self.in_flight)
    }

    /// Announces the answer; the fetch stays open for others to join.
    pub fn announce(&self, answer: Answer) {
        if let Some(crowd) = &self.in_flight.crowd {
            crowd.answered(&self.in_flight, &answer);
        }
        self.in_flight.settle(answer, self.fetch_table.turn());
    }

    /// Records that the body has begun. From now on, no request waits for the body of another forward.
    pub fn begun(&self, filling: &Filling) {
        if let Some(crowd) = &self.in_flight.crowd {
            crowd.begun(&self.in_flight, filling);
        }
    }

    /// Hides the fetch from later requests; its waiters still get the answer.
    pub fn hide(&self) {
        self.fetch_table.hide(&self.in_flight);
    }

    /// Announces the answer and closes the fetch: later requests check the store or start a new forward.
    pub fn land(self, answer: Answer) {
        self.end(answer);
    }

    fn end(&self, answer: Answer) {
        self.fetch_table.ended(&self.in_flight, &answer);
        self.in_flight.settle(answer, self.fetch_table.turn());
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        self.end(Answer::GivenUp);
    }
}

/// A request that takes part in a fetch.
pub struct Waiter {
    pub(super) in_flight: Arc<InFlight>,
    interims_seen: usize,
}

/// An event for a waiter.
pub enum News {
    Interim(Arc<Interim>),
    Answer(Answer),
}

impl Waiter {
    pub(super) fn new(in_flight: &Arc<InFlight>) -> Self {
        if in_flight.waiters.fetch_add(1, Ordering::AcqRel) == 0 {
            in_flight.changed.notify_waiters();
        }
        Self { in_flight: Arc::clone(in_flight), interims_seen: 0 }
    }

    /// Waits for the next interim response, or for the answer. Cancel safe.
    pub async fn news(&mut self) -> News {
        let in_flight = Arc::clone(&self.in_flight);
        until(&in_flight.changed, || self.poll_news()).await
    }

    /// Returns the next event, if it has arrived.
    pub fn poll_news(&mut self) -> Option<News> {
        let progress = self.in_flight.progress.lock();
        if let Some(interim) = progress.interims.get(self.interims_seen) {
            self.interims_seen += 1;
            return Some(News::Interim(Arc::clone(interim)));
        }
        progress.answer.clone().map(News::Answer)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.in_flight.waiters.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.in_flight.changed.notify_waiters();
        }
        if let Some(Answer::Filling(filling)) = &self.in_flight.progress.lock().answer {
            filling.fill.promise_kept();
        }
    }
}
