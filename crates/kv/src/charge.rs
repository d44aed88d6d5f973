//! Buffer memory charged to one client.
//!
//! Clients are closed when the buffers of all clients exceed their limit. Memory of a closing client is
//! subtracted immediately, so that it causes no further closes.

use std::sync::Arc;

use crate::pins::Buffered;
use crate::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Charge {
    buffered: Arc<Buffered>,
    held: Mutex<Held>,
}

/// State under one lock, because a client's memory may change while another worker closes the client.
#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    is_closing: bool,
}

impl Charge {
    pub(crate) fn new(buffered: &Arc<Buffered>) -> Self {
        Self { buffered: Arc::clone(buffered), held: Mutex::default() }
    }

    /// Records that the client's buffers have grown or shrunk. Buffers are part of the engine's memory
    /// budget: keys are evicted for them.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.change(before_bytes, now_bytes, |buffered| buffered.account(before_bytes, now_bytes));
    }

    /// Like [`Self::account`], for a request that may be refused for its size: no keys are evicted for it.
    pub(crate) fn account_without_room(&self, before_bytes: usize, now_bytes: usize) {
        self.change(before_bytes, now_bytes, |buffered| {
            buffered.account_without_room(before_bytes, now_bytes);
        });
    }

    fn change(&self, before_bytes: usize, now_bytes: usize, account: impl FnOnce(&Buffered)) {
        if before_bytes == now_bytes {
            return;
        }
        let mut held = self.held.lock();
        held.bytes = held.bytes.wrapping_add(now_bytes).wrapping_sub(before_bytes);
        if held.is_closing {
            self.buffered.account_closing(before_bytes, now_bytes);
        } else {
            account(&self.buffered);
        }
    }

    /// Marks the client as closing and subtracts its memory. Returns whether this was the first call.
    pub(crate) fn give_up(&self) -> bool {
        let mut held = self.held.lock();
        let is_first = !std::mem::replace(&mut held.is_closing, true);
        if is_first {
            self.buffered.take_off(held.bytes);
        }
        is_first
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn what_a_closing_client_holds_is_taken_off_once() {
        let buffered = Arc::new(Buffered::of_nothing());
        let (one, other) = (Charge::new(&buffered), Charge::new(&buffered));
        one.account(0, 1000);
        other.account_without_room(0, 100);
        assert_eq!((buffered.bytes(), buffered.staying_bytes()), (1100, 1100));
        assert!(one.give_up() && !one.give_up());
        assert_eq!((buffered.bytes(), buffered.staying_bytes()), (1100, 100));
        one.account(1000, 5000);
        assert_eq!((buffered.bytes(), buffered.staying_bytes()), (5100, 100));
        one.account(5000, 0);
        other.account(100, 0);
        assert_eq!((buffered.bytes(), buffered.staying_bytes()), (0, 0));
    }
}
