//! Back-off of the writers while the tier's circuit breaker is open.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// End of the back-off, if one is running.
#[derive(Default)]
pub(super) struct Backoff {
    until: Mutex<Option<Instant>>,
    over: Notify,
}

/// Shortest back-off. Short enough to notice soon that one of several probes was enough.
const REST_MIN: Duration = Duration::from_millis(20);

impl Backoff {
    /// Begins or extends the back-off to `retry` from now. Returns whether none was running.
    pub(super) fn begin(&self, retry: Duration, now: Instant) -> bool {
        let end = now + retry.max(REST_MIN);
        let mut until = self.until.lock();
        let is_new = until.is_none_or(|until| until <= now);
        *until = Some(until.map_or(end, |until| until.max(end)));
        is_new
    }

    /// Ends the back-off because the tier has answered.
    pub(super) fn end(&self) {
        if self.until.lock().take().is_some() {
            self.over.notify_waiters();
        }
    }

    /// Waits until the back-off is over.
    pub(super) async fn ended(&self) {
        let over = self.over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        let Some(until) = *self.until.lock() else { return };
        tokio::select! {
            () = over => {}
            () = sleep_until(until) => {}
        }
    }

    /// Whether the back-off lasts until `end` or longer.
    pub(super) fn lasts_until(&self, end: Instant) -> bool {
        self.until.lock().is_some_and(|until| until >= end)
    }
}
