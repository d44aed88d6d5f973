//! When the tier is not asked: it has said until when, and whoever writes waits.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// See the module.
#[derive(Default)]
pub(super) struct Rest {
    until: Mutex<Option<Instant>>,
    over: Notify,
}

/// Short enough to notice soon that one of several probes was enough.
const REST_MIN: Duration = Duration::from_millis(20);

impl Rest {
    /// It is worth asking again after `retry`. Whether nobody has said so yet.
    pub(super) fn begin(&self, retry: Duration, now: Instant) -> bool {
        let end = now + retry.max(REST_MIN);
        let mut until = self.until.lock();
        let is_new = until.is_none_or(|until| until <= now);
        *until = Some(until.map_or(end, |until| until.max(end)));
        is_new
    }

    /// It has answered.
    pub(super) fn end(&self) {
        if self.until.lock().take().is_some() {
            self.over.notify_waiters();
        }
    }

    /// Waits until it is over.
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

    /// Whether it lasts until then.
    pub(super) fn lasts_until(&self, end: Instant) -> bool {
        self.until.lock().is_some_and(|until| until >= end)
    }
}
