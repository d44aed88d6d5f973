//! Whether this instance knows what becomes of it among those that share the tier.
//!
//! The others wait for it as long as its record lives, which it renews all the time. A process that was stopped for longer than that goes on
//! without knowing: purges were complete without it, and whoever asks it next is not to get what they took. So what it has is used only if it has
//! told the others of itself lately, after it had read the log, or knows that the tier can't be reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// See the module.
pub(super) struct Touch {
    begun: Instant,
    verification: Duration,
    /// In milliseconds after `begun`. Before the first record nobody counts on this instance, and purges are complete without it.
    until_ms: AtomicU64,
    /// The same, as far as the tier has answered: it does not grow while the tier is away.
    told_until_ms: AtomicU64,
    /// The same of the last record that the tier has, whatever this instance had read when it wrote that.
    listed_until_ms: AtomicU64,
    failing: Mutex<Option<Failing>>,
    changed: Notify,
}

/// The tier does not answer.
#[derive(Clone, Copy)]
struct Failing {
    since: Instant,
    last: Instant,
}

/// After so long without an answer the tier is away. A connection that has ended while the process was stopped is another one before.
const AWAY_AFTER: Duration = Duration::from_secs(1);
/// The same for a process that has just begun, and had no connection that could have ended.
const AWAY_AT_START_AFTER: Duration = Duration::from_millis(500);
/// No client waits longer.
const WAIT_MAX: Duration = Duration::from_secs(2);

impl Touch {
    pub(super) fn new(now: Instant, verification: Duration) -> Self {
        Self {
            begun: now,
            verification,
            until_ms: AtomicU64::new(0),
            told_until_ms: AtomicU64::new(0),
            listed_until_ms: AtomicU64::new(0),
            failing: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// For every hit.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.is_before(now, &self.until_ms)
    }

    /// Whether the others wait for this instance, as far as it has heard: what is purged, it learns before a purge is complete.
    pub(super) fn is_told(&self, now: Instant) -> bool {
        self.is_before(now, &self.told_until_ms)
    }

    fn is_before(&self, now: Instant, end_ms: &AtomicU64) -> bool {
        now.saturating_duration_since(self.begun).as_millis() < u128::from(end_ms.load(Ordering::Acquire))
    }

    /// The tier has the record of this instance, which was sent then and lives for `lifetime`. Whether it had one all the time until now: if not,
    /// purges may have been complete that this instance had not read before it wrote the record.
    pub(super) fn listed(&self, (sent, now): (Instant, Instant), lifetime: Duration) -> bool {
        let was_listed = self.is_before(now, &self.listed_until_ms);
        self.listed_until_ms.store(self.ms_at(self.end_of(sent, lifetime)), Ordering::Release);
        was_listed
    }

    /// Before the others stop to wait for it.
    fn end_of(&self, sent: Instant, lifetime: Duration) -> Instant {
        sent + lifetime.saturating_sub(self.verification / 2)
    }

    /// The same of one that was written when this instance had read all that was purged without it.
    pub(super) fn told(&self, sent: Instant, lifetime: Duration) {
        *self.failing.lock() = None;
        let end = self.end_of(sent, lifetime);
        self.told_until_ms.store(self.ms_at(end), Ordering::Release);
        self.holds_until(end);
    }

    /// The tier was asked from `asked` on, and has not answered by now.
    pub(super) fn failed(&self, asked: Instant, now: Instant) {
        let mut failing = self.failing.lock();
        let before =
            failing.filter(|failing| asked.saturating_duration_since(failing.last) < self.verification);
        let since = before.map_or(asked, |failing| failing.since);
        *failing = Some(Failing { since, last: now });
        drop(failing);
        let is_new = self.until_ms.load(Ordering::Acquire) == 0;
        let away_after = if is_new { AWAY_AT_START_AFTER } else { AWAY_AFTER };
        if now.saturating_duration_since(since) >= away_after {
            self.holds_until(now + self.verification);
        }
    }

    /// Waits until it holds, but not for long.
    pub(super) async fn restored(&self) {
        let holds = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.holds(Instant::now()) {
                    return;
                }
                changed.await;
            }
        };
        let _ = timeout(WAIT_MAX, holds).await;
    }

    fn holds_until(&self, end: Instant) {
        self.until_ms.store(self.ms_at(end), Ordering::Release);
        self.changed.notify_waiters();
    }

    fn ms_at(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(2);

    fn after(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_holds_as_long_as_the_others_wait() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        assert!(!touch.holds(begun), "before anybody waits for it");
        touch.told(begun + after(1000), 3 * T);
        assert!(touch.holds(begun + after(5999)) && !touch.holds(begun + after(6000)));
    }

    #[test]
    fn a_record_that_has_ended_is_no_sign_that_all_was_read() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        let listed = |sent, now| touch.listed((begun + after(sent), begun + after(now)), 3 * T);
        assert!(!listed(0, 10), "the first one");
        assert!(listed(1_000, 1_010) && listed(5_000, 5_900));
        assert!(!listed(5_500, 10_000), "it stood still before the answer");
        assert!(!listed(10_500, 10_510), "the one before may have ended before it was written");
        assert!(listed(10_600, 10_610));
    }

    #[test]
    fn a_process_that_begins_without_a_tier_does_not_wait_for_it() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        for (from, to, holds) in [(0, 1, false), (100, 499, false), (450, 500, true), (2_400, 2_499, true)] {
            touch.failed(begun + after(from), begun + after(to));
            assert_eq!(touch.holds(begun + after(to)), holds, "{to} ms");
        }
    }

    #[test]
    fn it_holds_while_the_tier_is_away() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        touch.told(begun, 3 * T);
        for ms in (1000..20_000).step_by(300) {
            assert!(touch.holds(begun + after(ms)), "{ms}");
            assert_eq!(touch.is_told(begun + after(ms)), ms < 5000, "the others stop to wait for it: {ms}");
            touch.failed(begun + after(ms - 100), begun + after(ms));
        }
    }

    #[test]
    fn a_process_that_was_stopped_asks_first() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        touch.told(begun, 3 * T);
        touch.failed(begun + after(100), begun + after(200));
        // It goes on, and the connection is gone.
        touch.failed(begun + after(10_000), begun + after(10_001));
        assert!(!touch.holds(begun + after(10_002)));
        touch.failed(begun + after(10_100), begun + after(10_999));
        assert!(!touch.holds(begun + after(11_000)));
        touch.failed(begun + after(11_000), begun + after(11_001));
        assert!(touch.holds(begun + after(11_002)), "the tier is away");
        touch.told(begun + after(11_500), 3 * T);
        assert!(touch.holds(begun + after(16_000)));
    }
}
