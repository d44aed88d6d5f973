//! Clients whose replies wait for memory, where keys are not evicted for them: the first in line goes on when others have read theirs.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of all clients.
#[derive(Debug, Default)]
pub(crate) struct Line {
    clients: Mutex<VecDeque<u64>>,
    /// When the first in line went on the last time, or could at least try to because others had read something.
    moved_at_ms: AtomicU64,
}

/// Of one client, whose reply had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) since_ms: u64,
    /// What was in use when it was tried the last time; the first time it is tried again whatever there is.
    pub(crate) used_bytes: u64,
    /// How often in a row nobody else had anything that would be free soon. Once may be by chance: it was read just then.
    pub(crate) alone: usize,
}

/// What becomes of a command whose reply had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Try,
    Wait,
    Refuse,
}

/// How long nobody has to read anything until others are refused.
const PATIENCE_MS: u64 = 5_000;
/// As often a reply has to lack room for which nobody else is the cause.
const ALONE_MAX: usize = 2;
/// As much has to be free again before a reply is tried anew.
const FREE_BYTES: u64 = 64 << 10;

impl Line {
    pub(crate) fn join(&self, client: u64) {
        self.clients.lock().push_back(client);
    }

    pub(crate) fn leave(&self, client: u64) {
        self.clients.lock().retain(|other| *other != client);
    }

    /// The reply of the first in line had room.
    pub(crate) fn moved(&self, now_ms: u64) {
        self.moved_at_ms.store(now_ms, Relaxed);
    }

    pub(crate) fn next(&self, client: u64, waits: Waits, used_bytes: u64, now_ms: u64) -> Next {
        if self.clients.lock().front() != Some(&client) {
            return Next::Wait;
        }
        if waits.has_more_room(used_bytes) && waits.used_bytes < u64::MAX {
            self.moved(now_ms);
        }
        waits.next(used_bytes, self.moved_at_ms.load(Relaxed), now_ms)
    }
}

impl Waits {
    /// The reply of a client that is new in line, or as it was before, had no room beside so much. None: nor would it have later.
    pub(crate) fn again(before: Option<Self>, used_bytes: u64, is_alone: bool, now_ms: u64) -> Option<Self> {
        let alone = if is_alone { before.map_or(0, |before| before.alone + 1) } else { 0 };
        let used_bytes = if before.is_none() || is_alone { u64::MAX } else { used_bytes };
        let since_ms = before.map_or(now_ms, |before| before.since_ms);
        (alone < ALONE_MAX).then_some(Self { since_ms, used_bytes, alone })
    }

    fn has_more_room(self, used_bytes: u64) -> bool {
        used_bytes.saturating_add(FREE_BYTES) <= self.used_bytes
    }

    fn next(self, used_bytes: u64, moved_at_ms: u64, now_ms: u64) -> Next {
        match () {
            () if self.has_more_room(used_bytes) => Next::Try,
            () if now_ms >= self.since_ms.max(moved_at_ms).saturating_add(PATIENCE_MS) => Next::Refuse,
            () => Next::Wait,
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_lacks_room_alone_is_refused() {
        let first = Waits::again(None, 5, true, 7);
        assert_eq!(first, Some(Waits { since_ms: 7, used_bytes: u64::MAX, alone: 0 }));
        let alone = Waits::again(first, 5, true, 8);
        assert_eq!(alone, Some(Waits { since_ms: 7, used_bytes: u64::MAX, alone: 1 }));
        assert_eq!(Waits::again(alone, 5, true, 9), None);
        let beside = Waits::again(alone, 5, false, 9);
        assert_eq!(beside, Some(Waits { since_ms: 7, used_bytes: 5, alone: 0 }));
    }

    #[test]
    fn the_first_goes_on_when_there_is_more_room_and_not_for_ever() {
        let line = Line::default();
        let waits = Waits { since_ms: 1_000, used_bytes: 10 << 20, alone: 0 };
        (1..=2).for_each(|client| line.join(client));
        assert_eq!(line.next(2, waits, 0, 1_000), Next::Wait, "it is not the first");
        assert_eq!(line.next(1, waits, 10 << 20, 5_999), Next::Wait);
        assert_eq!(line.next(1, waits, (10 << 20) - FREE_BYTES, 1_000), Next::Try);
        assert_eq!(line.moved_at_ms.load(Relaxed), 1_000, "others have read something");
        assert_eq!(line.next(1, waits, 10 << 20, 6_000), Next::Refuse);
        line.moved(6_000);
        assert_eq!(line.next(1, waits, 10 << 20, 10_999), Next::Wait, "others have read something");
        assert_eq!(line.next(1, waits, 10 << 20, 11_000), Next::Refuse);
        line.leave(1);
        assert_eq!(line.next(2, waits, 0, 1_000), Next::Try);
        let begins = Waits { used_bytes: u64::MAX, ..waits };
        assert_eq!(line.next(2, begins, 10 << 20, 11_000), Next::Try, "once in any case");
        let Some(again) = Waits::again(Some(begins), 10 << 20, false, 11_000) else { panic!("it waits") };
        assert_eq!(line.next(2, again, 10 << 20, 11_001), Next::Refuse, "it has waited beside the first");
    }
}
