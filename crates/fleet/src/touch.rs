//! Contact between this instance and the others that share the tier.
//!
//! An instance has a record in the tier, which it keeps renewing; other instances wait for it until this record expires. If the process is
//! suspended for longer, purges complete without it, and it doesn't notice the pause. After the pause, no client may get a purged response.
//! So the instance uses stored responses only if it has recently renewed its record after reading the log, or knows that the tier is
//! unreachable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cache::changed::until;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Time up to which stored responses may be used without an answer from the tier.
pub(super) struct Touch {
    begun: Instant,
    verification: Duration,
    /// End of the time, in milliseconds after `begun`. The value is 0 before the first record, because no instance waits for this one yet.
    until_ms: AtomicU64,
    /// End of the time for which the tier's answers alone permit use, in milliseconds after `begun`. This time doesn't advance while the
    /// tier is unreachable.
    renewed_until_ms: AtomicU64,
    /// End of the time that the latest record of this instance permits, in milliseconds after `begun`, however much of the log this
    /// instance had read when it wrote the record.
    listed_until_ms: AtomicU64,
    failing: Mutex<Option<Failing>>,
    changed: Notify,
}

/// A series of failures without an answer.
#[derive(Clone, Copy)]
struct Failing {
    since: Instant,
    last: Instant,
}

/// Time without an answer after which the tier counts as unreachable. A connection that was lost while the process was suspended is
/// replaced within this time.
const AWAY_AFTER: Duration = Duration::from_secs(1);
/// Time without an answer after which the tier counts as unreachable for a process that has just started. A process that has just started
/// can't have lost a connection.
const AWAY_AT_START_AFTER: Duration = Duration::from_millis(500);
/// Maximum time for which a client waits until stored responses may be used.
const WAIT_MAX: Duration = Duration::from_secs(2);

impl Touch {
    pub(super) fn new(now: Instant, verification: Duration) -> Self {
        Self {
            begun: now,
            verification,
            until_ms: AtomicU64::new(0),
            renewed_until_ms: AtomicU64::new(0),
            listed_until_ms: AtomicU64::new(0),
            failing: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Returns whether stored responses may be used now. This function is called for every hit.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.is_before(now, &self.until_ms)
    }

    /// Returns whether other instances wait for this one, as far as it knows, so that it learns of a purge before the purge is complete.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.is_before(now, &self.renewed_until_ms)
    }

    fn is_before(&self, now: Instant, end_ms: &AtomicU64) -> bool {
        now.saturating_duration_since(self.begun).as_millis() < u128::from(end_ms.load(Ordering::Acquire))
    }

    /// Registers a record of this instance in the tier, sent at `sent`, with this `lifetime`. Returns whether the tier had a record of this
    /// instance without interruption until now. If the result is false, purges may have completed that this instance had not read.
    pub(super) fn listed(&self, (sent, now): (Instant, Instant), lifetime: Duration) -> bool {
        let was_listed = self.is_before(now, &self.listed_until_ms);
        self.listed_until_ms.store(self.ms_at(self.end_of(sent, lifetime)), Ordering::Release);
        was_listed
    }

    /// Returns the time until which a record permits the use of stored responses. The use ends at least half the verification time before
    /// other instances stop waiting for this one.
    fn end_of(&self, sent: Instant, lifetime: Duration) -> Instant {
        sent + lifetime.saturating_sub(self.verification / 2)
    }

    /// Registers a record that this instance wrote after it had read all purges.
    pub(super) fn renewed(&self, sent: Instant, lifetime: Duration) {
        *self.failing.lock() = None;
        let end = self.end_of(sent, lifetime);
        self.renewed_until_ms.store(self.ms_at(end), Ordering::Release);
        self.holds_until(end);
    }

    /// Registers that a request sent at `asked` has failed.
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

    /// Waits until stored responses may be used, for at most `WAIT_MAX`.
    pub(super) async fn restored(&self) {
        let holds = until(&self.changed, || self.holds(Instant::now()).then_some(()));
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
        assert!(!touch.holds(begun), "before any instance waits for it");
        touch.renewed(begun + after(1000), 3 * T);
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
        touch.renewed(begun, 3 * T);
        for ms in (1000..20_000).step_by(300) {
            assert!(touch.holds(begun + after(ms)), "{ms}");
            assert_eq!(
                touch.is_awaited(begun + after(ms)),
                ms < 5000,
                "the others stop waiting for it: {ms}"
            );
            touch.failed(begun + after(ms - 100), begun + after(ms));
        }
    }

    #[test]
    fn a_process_that_was_stopped_asks_first() {
        let begun = Instant::now();
        let touch = Touch::new(begun, T);
        touch.renewed(begun, 3 * T);
        touch.failed(begun + after(100), begun + after(200));
        // The process resumes, and its connection is lost.
        touch.failed(begun + after(10_000), begun + after(10_001));
        assert!(!touch.holds(begun + after(10_002)));
        touch.failed(begun + after(10_100), begun + after(10_999));
        assert!(!touch.holds(begun + after(11_000)));
        touch.failed(begun + after(11_000), begun + after(11_001));
        assert!(touch.holds(begun + after(11_002)), "the tier is away");
        touch.renewed(begun + after(11_500), 3 * T);
        assert!(touch.holds(begun + after(16_000)));
    }
}
