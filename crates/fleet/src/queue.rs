//! Keys with a pending change, in the order of their turns. Each is here once, or held by one writer.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Next key to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueueTurn {
    /// This key, which has left the queue.
    Key(Box<[u8]>),
    /// No key before this time.
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
    failed: Paused,
    early: Paused,
}

/// Keys that pause, each with the end of its pause. All pauses of a list have one length, so they end in this order.
#[derive(Default)]
struct Paused(VecDeque<(Instant, Box<[u8]>)>);

/// Reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The write failed.
    Failed,
    /// A purge must reach the log first.
    Early,
}

impl Pause {
    fn length(self) -> Duration {
        match self {
            Self::Failed => Duration::from_millis(250),
            // A purge reaches the log in one round trip.
            Self::Early => Duration::from_millis(2),
        }
    }
}

impl Queue {
    pub(super) fn push(&self, key: Box<[u8]>) {
        self.0.lock().waiting.push_back(key);
    }

    pub(super) fn pause(&self, key: Box<[u8]>, pause: Pause, now: Instant) {
        let mut lists = self.0.lock();
        let paused = match pause {
            Pause::Failed => &mut lists.failed,
            Pause::Early => &mut lists.early,
        };
        paused.0.push_back((now + pause.length(), key));
    }

    /// Takes out the next key. Keys whose pause has ended go behind those that wait.
    pub(super) fn next(&self, now: Instant) -> QueueTurn {
        let mut lists = self.0.lock();
        lists.end_pauses(now);
        let next = [&lists.failed, &lists.early].into_iter().filter_map(Paused::next).min();
        match (lists.waiting.pop_front(), next) {
            (Some(key), _) => QueueTurn::Key(key),
            (None, Some(until)) => QueueTurn::At(until),
            (None, None) => QueueTurn::Nobody,
        }
    }

    /// Takes out all keys, including those that pause.
    pub(super) fn take(&self) -> Vec<Box<[u8]>> {
        let Lists { waiting, failed, early } = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().chain(failed.0.into_iter().chain(early.0).map(|(_, key)| key)).collect()
    }
}

impl Lists {
    fn end_pauses(&mut self, now: Instant) {
        for paused in [&mut self.failed, &mut self.early] {
            let over = paused.0.iter().take_while(|(until, _)| *until <= now).count();
            self.waiting.extend(paused.0.drain(..over).map(|(_, key)| key));
        }
    }
}

impl Paused {
    fn next(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
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
