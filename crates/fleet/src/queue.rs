//! Queue of keys with a pending change, in the order in which they are written. Each key is either in the
//! queue once, or being written by one writer.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Next key to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueueTurn {
    /// Write this key, which is no longer in the queue.
    Key(Box<[u8]>),
    /// No key is due before this time.
    At(Instant),
    /// No key.
    Nobody,
}

/// Queue of keys with a pending change.
#[derive(Default)]
pub(super) struct Queue(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    waiting: VecDeque<Box<[u8]>>,
    /// Paused keys, ordered by the end of the pause.
    paused: BTreeSet<(Instant, Box<[u8]>)>,
}

/// Reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The write failed.
    Failed,
    /// The log doesn't contain a purge yet that has to come first.
    Early,
}

impl Pause {
    fn length(self) -> Duration {
        match self {
            Self::Failed => Duration::from_millis(250),
            // Appending a purge to the log takes one round trip.
            Self::Early => Duration::from_millis(2),
        }
    }
}

impl Queue {
    pub(super) fn push(&self, key: Box<[u8]>) {
        self.0.lock().waiting.push_back(key);
    }

    pub(super) fn pause(&self, key: Box<[u8]>, pause: Pause, now: Instant) {
        self.0.lock().paused.insert((now + pause.length(), key));
    }

    /// Removes and returns the next key. A key whose pause has ended moves to the end of the queue.
    pub(super) fn next(&self, now: Instant) -> QueueTurn {
        let mut lists = self.0.lock();
        while lists.paused.first().is_some_and(|(until, _)| *until <= now) {
            let over = lists.paused.pop_first();
            lists.waiting.extend(over.map(|(_, key)| key));
        }
        match (lists.waiting.pop_front(), lists.paused.first()) {
            (Some(key), _) => QueueTurn::Key(key),
            (None, Some((until, _))) => QueueTurn::At(*until),
            (None, None) => QueueTurn::Nobody,
        }
    }

    /// Removes and returns all keys, including paused ones.
    pub(super) fn take(&self) -> Vec<Box<[u8]>> {
        let Lists { waiting, paused } = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().chain(paused.into_iter().map(|(_, key)| key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_early_waits_for_nobody_who_has_failed() {
        let (queue, now) = (Queue::default(), Instant::now());
        queue.pause((*b"failed").into(), Pause::Failed, now);
        queue.pause((*b"early").into(), Pause::Early, now);
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(queue.next(now), QueueTurn::At(after(2)));
        assert_eq!(queue.next(after(2)), QueueTurn::Key((*b"early").into()));
        assert_eq!(queue.next(after(2)), QueueTurn::At(after(250)));
        assert_eq!(queue.next(after(250)), QueueTurn::Key((*b"failed").into()));
        assert_eq!(queue.next(after(250)), QueueTurn::Nobody);
    }
}
