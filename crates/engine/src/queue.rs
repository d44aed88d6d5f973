//! The order in which the segments of a shard are evicted.

use std::collections::VecDeque;

/// The queue to which an item belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// New keys.
    Small,
    /// Keys that were accessed again.
    Main,
}

/// A queue: sealed segments, oldest first, and the open segment.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) sealed: VecDeque<u32>,
    pub(crate) open: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) small: Order,
    pub(crate) main: Order,
}

impl Queues {
    pub(crate) fn of(&mut self, queue: Queue) -> &mut Order {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    pub(crate) fn order(&self, queue: Queue) -> &Order {
        match queue {
            Queue::Small => &self.small,
            Queue::Main => &self.main,
        }
    }

    /// The queue of a sealed segment.
    pub(crate) fn queue_of(&self, segment: u32) -> Option<Queue> {
        let is_in = |order: &Order| order.sealed.contains(&segment);
        match () {
            () if is_in(&self.small) => Some(Queue::Small),
            () if is_in(&self.main) => Some(Queue::Main),
            () => None,
        }
    }

    /// The queue of a segment, sealed or open.
    pub(crate) fn queue_of_any(&self, segment: u32) -> Queue {
        let is_main = self.main.open == Some(segment) || self.main.sealed.contains(&segment);
        if is_main { Queue::Main } else { Queue::Small }
    }

    /// Removes a segment if it is sealed. Returns whether the segment was sealed.
    pub(crate) fn remove_sealed(&mut self, segment: u32) -> bool {
        [&mut self.small, &mut self.main].into_iter().any(|order| {
            let at = order.sealed.iter().position(|number| *number == segment);
            at.and_then(|at| order.sealed.remove(at)).is_some()
        })
    }

    /// Removes a segment, sealed or open.
    pub(crate) fn remove(&mut self, segment: u32) {
        if !self.remove_sealed(segment) {
            for order in [&mut self.small, &mut self.main] {
                order.open = order.open.filter(|open| *open != segment);
            }
        }
    }

    /// Sealed segments of both queues.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = u32> {
        self.small.sealed.iter().chain(&self.main.sealed).copied()
    }
}
