//! Keys that something is to happen to in the tier, in the order of their turns. Each is here once, or in the hands of one
//! writer.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This key's, and it is out of the queue now.
    Key(Box<[u8]>),
    /// Nobody's before this time.
    At(Instant),
    /// Nobody's.
    Nobody,
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    waiting: VecDeque<Box<[u8]>>,
    /// Those that failed, each with the time from which on it waits again. All pauses have one length, so they end in this order.
    paused: VecDeque<(Instant, Box<[u8]>)>,
}

impl Queue {
    pub(super) fn push(&self, key: Box<[u8]>) {
        self.0.lock().waiting.push_back(key);
    }

    pub(super) fn pause(&self, key: Box<[u8]>, until: Instant) {
        self.0.lock().paused.push_back((until, key));
    }

    /// Whoever has paused comes behind all who wait.
    pub(super) fn next(&self, now: Instant) -> Turn {
        let mut lists = self.0.lock();
        lists.end_pauses(now);
        match (lists.waiting.pop_front(), lists.paused.front()) {
            (Some(key), _) => Turn::Key(key),
            (None, Some((until, _))) => Turn::At(*until),
            (None, None) => Turn::Nobody,
        }
    }

    /// Takes all out, whether they pause or not.
    pub(super) fn take(&self) -> Vec<Box<[u8]>> {
        let Lists { waiting, paused } = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().chain(paused.into_iter().map(|(_, key)| key)).collect()
    }
}

impl Lists {
    fn end_pauses(&mut self, now: Instant) {
        let over = self.paused.iter().take_while(|(until, _)| *until <= now).count();
        self.waiting.extend(self.paused.drain(..over).map(|(_, key)| key));
    }
}
