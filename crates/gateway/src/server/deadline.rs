//! A timer of a connection, which is moved instead of recreated.
//!
//! A keep-alive connection sets a new deadline for every request. Registering a timer each time would cost more than parsing the request.
//! So the timer stays, and only the deadline moves. A timer that fires early is registered again for the remaining time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A movable point in time.
pub(crate) struct Deadline {
    at: Instant,
    /// Created on the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// Waker registered with the timer.
    told: Option<Waker>,
}

impl Deadline {
    pub(crate) fn new(at: Instant) -> Self {
        Self { at, timer: None, told: None }
    }

    /// Moves the deadline. A later deadline costs nothing. If the new deadline is before the registered time, the timer is registered
    /// again.
    pub(crate) fn set(&mut self, at: Instant) {
        self.at = at;
        if let Some(timer) = self.timer.as_mut().filter(|timer| at < timer.deadline()) {
            timer.as_mut().reset(at);
            self.told = None;
        }
    }

    /// Returns `Ready` once the deadline has passed.
    pub(crate) fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A pending timer that will wake this task isn't polled again, because a poll costs more than this check.
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(self.at)));
        if !timer.is_elapsed() && self.told.as_ref().is_some_and(|told| told.will_wake(context.waker())) {
            return Poll::Pending;
        }
        while timer.as_mut().poll(context).is_ready() {
            self.told = None;
            if timer.deadline() >= self.at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(self.at);
        }
        self.told = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A time limit on pauses between events.
pub(crate) struct PauseLimit {
    limit: Duration,
    deadline: Deadline,
    is_running: bool,
}

impl PauseLimit {
    /// Creates a limit on a pause that begins now.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, deadline: Deadline::new(Instant::now() + limit), is_running: true }
    }

    /// Records an event. The next pause begins with the next poll.
    pub(crate) fn stop(&mut self) {
        self.is_running = false;
    }

    /// Returns `Ready` when the pause has lasted for the limit.
    pub(crate) fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.is_running, true) {
            self.deadline.set(Instant::now() + self.limit);
        }
        self.deadline.poll_passed(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(deadline: &mut Deadline) {
        std::future::poll_fn(|context| deadline.poll_passed(context)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fires_at_the_moved_time() {
        let start = Instant::now();
        let mut deadline = Deadline::new(start + Duration::from_secs(1));
        deadline.set(start + Duration::from_secs(5));
        passed(&mut deadline).await;
        assert_eq!(start.elapsed().as_secs(), 5);
        deadline.set(start + Duration::from_secs(60));
        deadline.set(start + Duration::from_secs(7));
        passed(&mut deadline).await;
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}
