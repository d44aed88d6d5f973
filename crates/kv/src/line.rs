//! The queue of clients whose replies wait for memory under `noeviction`. The first client in the queue
//! continues when other clients have read their replies.

use std::collections::VecDeque;

use engine::Policy;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The queue, shared by all clients.
#[derive(Debug, Default)]
pub(crate) struct Line {
    clients: Mutex<VecDeque<u64>>,
    /// Time at which the first client last continued, or at least retried because memory or limits had
    /// changed.
    moved_at_ms: AtomicU64,
}

/// State of a client whose reply did not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) since_ms: u64,
    /// Memory in use at the last attempt. After the first attempt, this is `u64::MAX`, so that the second
    /// attempt is unconditional.
    pub(crate) used_bytes: u64,
    /// The conditions at the last attempt.
    pub(crate) terms: Terms,
    /// Whether the current attempt is the last.
    pub(crate) is_last: bool,
    /// Number of consecutive attempts during which no other client held memory that could soon be freed. A
    /// single such attempt may happen by chance, right after other clients have read.
    pub(crate) alone: usize,
}

/// Conditions, apart from the memory in use, that decide whether a reply fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) bytes_max: u64,
    pub(crate) buffers_bytes_max: usize,
    pub(crate) policy: Policy,
}

/// The next step for a command whose reply did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Try,
    /// Try again, and fail if the reply doesn't fit.
    TryLast,
    Wait,
}

/// Time without progress after which waiting replies are refused.
const PATIENCE_MS: u64 = 5_000;
/// Number of attempts without another client to wait for, after which a reply is refused.
const ALONE_MAX: usize = 2;
/// Memory that has to be freed before a reply is retried.
const FREE_BYTES: u64 = 64 << 10;

impl Line {
    pub(crate) fn join(&self, client: u64) {
        self.clients.lock().push_back(client);
    }

    pub(crate) fn leave(&self, client: u64) {
        self.clients.lock().retain(|other| *other != client);
    }

    /// Records that the reply of the first client was written.
    pub(crate) fn moved(&self, now_ms: u64) {
        self.moved_at_ms.store(now_ms, Relaxed);
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.clients.lock().front().copied()
    }

    pub(crate) fn next(&self, client: u64, waits: Waits, room: (u64, Terms), now_ms: u64) -> Next {
        if self.first() != Some(client) {
            return Next::Wait;
        }
        if waits.may_have_room(room) && waits.used_bytes < u64::MAX {
            self.moved(now_ms);
        }
        waits.next(room, self.moved_at_ms.load(Relaxed), now_ms)
    }
}

impl Waits {
    /// Returns the state after a failed attempt, given the state before it. Returns `None` if waiting is
    /// pointless.
    pub(crate) fn again(
        before: Option<Self>,
        (used_bytes, terms): (u64, Terms),
        is_alone: bool,
        now_ms: u64,
    ) -> Option<Self> {
        if before.is_some_and(|before| before.is_last) {
            return None;
        }
        let alone = if is_alone { before.map_or(0, |before| before.alone + 1) } else { 0 };
        let used_bytes = if before.is_none() || is_alone { u64::MAX } else { used_bytes };
        let since_ms = before.map_or(now_ms, |before| before.since_ms);
        (alone < ALONE_MAX).then_some(Self { since_ms, used_bytes, terms, is_last: false, alone })
    }

    /// Returns whether conditions have improved since the last attempt.
    fn may_have_room(self, (used_bytes, terms): (u64, Terms)) -> bool {
        used_bytes.saturating_add(FREE_BYTES) <= self.used_bytes || terms != self.terms
    }

    fn next(self, room: (u64, Terms), moved_at_ms: u64, now_ms: u64) -> Next {
        match () {
            () if now_ms >= self.since_ms.max(moved_at_ms).saturating_add(PATIENCE_MS) => Next::TryLast,
            () if self.may_have_room(room) => Next::Try,
            () => Next::Wait,
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { bytes_max: 20 << 20, buffers_bytes_max: 5 << 20, policy: Policy::NoEviction };

    fn waits(since_ms: u64, used_bytes: u64, alone: usize) -> Waits {
        Waits { since_ms, used_bytes, terms: TERMS, is_last: false, alone }
    }

    #[test]
    fn a_reply_that_lacks_room_alone_is_refused() {
        let first = Waits::again(None, (5, TERMS), true, 7);
        assert_eq!(first, Some(waits(7, u64::MAX, 0)));
        let alone = Waits::again(first, (5, TERMS), true, 8);
        assert_eq!(alone, Some(waits(7, u64::MAX, 1)));
        assert_eq!(Waits::again(alone, (5, TERMS), true, 9), None);
        let beside = Waits::again(alone, (5, TERMS), false, 9);
        assert_eq!(beside, Some(waits(7, 5, 0)));
    }

    #[test]
    fn the_first_goes_on_when_there_is_more_room_and_not_for_ever() {
        const USED: (u64, Terms) = (10 << 20, TERMS);
        let line = Line::default();
        let first = waits(1_000, USED.0, 0);
        (1..=2).for_each(|client| line.join(client));
        assert_eq!(line.next(2, first, (0, TERMS), 1_000), Next::Wait, "the client is not the first");
        assert_eq!(line.next(1, first, USED, 5_999), Next::Wait);
        assert_eq!(line.next(1, first, (USED.0 - FREE_BYTES, TERMS), 1_000), Next::Try);
        assert_eq!(line.moved_at_ms.load(Relaxed), 1_000, "others have read something");
        assert_eq!(line.next(1, first, USED, 6_000), Next::TryLast);
        line.moved(6_000);
        assert_eq!(line.next(1, first, USED, 10_999), Next::Wait, "others have read something");
        assert_eq!(line.next(1, first, USED, 11_000), Next::TryLast);
        let last = Waits { is_last: true, ..first };
        assert_eq!(Waits::again(Some(last), USED, false, 11_000), None);
        line.leave(1);
        assert_eq!(line.next(2, first, (0, TERMS), 1_000), Next::Try);
        let begins = waits(11_000, u64::MAX, 0);
        assert_eq!(line.next(2, begins, USED, 11_000), Next::Try, "once in any case");
        assert_eq!(
            line.next(2, Waits { since_ms: 1_000, ..begins }, USED, 11_001),
            Next::TryLast,
            "both clients have waited for the same time"
        );
    }

    #[test]
    fn the_first_is_tried_as_soon_as_it_may_have_more() {
        let (line, first) = (Line::default(), waits(1_000, 5, 0));
        line.join(1);
        let others = [
            Terms { bytes_max: 21 << 20, ..TERMS },
            Terms { buffers_bytes_max: 6 << 20, ..TERMS },
            Terms { policy: Policy::VolatileLru, ..TERMS },
        ];
        for (now_ms, terms) in (7_000..).zip(others) {
            assert_eq!(line.next(1, first, (5, terms), now_ms), Next::Try, "{terms:?}");
            assert_eq!(line.moved_at_ms.load(Relaxed), now_ms);
        }
    }
}
