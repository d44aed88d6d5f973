//! CLIENT PAUSE: commands that are delayed.

use crate::sync::Mutex;

/// The commands that are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paused {
    /// Commands that write.
    Writes,
    All,
}

/// The pause for all clients.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    current: Mutex<Option<(Paused, u64)>>,
}

impl Pauses {
    /// Pauses until `until_ms`. A longer or stricter pause stays in force.
    pub(crate) fn pause(&self, paused: Paused, until_ms: u64, now_ms: u64) {
        let mut current = self.current.lock();
        let old = current.filter(|(_, until_ms)| *until_ms > now_ms);
        *current = Some(match old {
            Some((old, old_ms)) => (old.max(paused), old_ms.max(until_ms)),
            None => (paused, until_ms),
        });
    }

    pub(crate) fn end(&self) {
        *self.current.lock() = None;
    }

    /// The commands paused at this time.
    pub(crate) fn now(&self, now_ms: u64) -> Option<Paused> {
        self.current.lock().filter(|(_, until_ms)| *until_ms > now_ms).map(|(paused, _)| paused)
    }

    /// Returns whether a pause is set, even if it has expired.
    pub(crate) fn is_any(&self) -> bool {
        self.current.lock().is_some()
    }

    /// Removes a pause that has expired, and returns whether it did.
    pub(crate) fn end_if_over(&self, now_ms: u64) -> bool {
        let mut current = self.current.lock();
        let is_over = current.is_some_and(|(_, until_ms)| until_ms <= now_ms);
        if is_over {
            *current = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_strictest_counts() {
        let pauses = Pauses::default();
        assert_eq!(pauses.now(0), None);
        pauses.pause(Paused::Writes, 100, 0);
        assert_eq!((pauses.now(99), pauses.now(100)), (Some(Paused::Writes), None));
        pauses.pause(Paused::All, 50, 10);
        assert_eq!((pauses.now(99), pauses.now(100)), (Some(Paused::All), None));
        pauses.pause(Paused::Writes, 60, 20);
        assert_eq!(pauses.now(99), Some(Paused::All));
        pauses.pause(Paused::Writes, 200, 150);
        assert_eq!(pauses.now(199), Some(Paused::Writes), "the other one was over");
        assert!(!pauses.end_if_over(199) && pauses.is_any());
        assert!(pauses.end_if_over(200) && !pauses.is_any());
        pauses.pause(Paused::All, 300, 200);
        pauses.end();
        assert_eq!(pauses.now(201), None);
    }
}
