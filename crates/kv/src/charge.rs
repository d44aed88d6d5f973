//! What counts of the memory for buffers on behalf of one client.
//!
//! While clients are closed because all of them take too much, what those that are being closed will give back is taken off already: it is no
//! reason to close others.

use std::sync::Arc;

use crate::pins::Buffered;
use crate::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Charge {
    buffered: Arc<Buffered>,
    held: Mutex<Held>,
}

/// One lock for both: what a client takes may change at the moment at which another worker closes it.
#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    is_closing: bool,
}

impl Charge {
    pub(crate) fn new(buffered: &Arc<Buffered>) -> Self {
        Self { buffered: Arc::clone(buffered), held: Mutex::default() }
    }

    /// Buffers of the client have grown or shrunk. They are part of what the engine may take: keys make room for them.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.change(before_bytes, now_bytes, |buffered| buffered.account(before_bytes, now_bytes));
    }

    /// As [`Self::account`], of a request that may be refused for its size: no key goes for it.
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

    /// The client is to be closed: what it holds will be free. Whether nobody has said so before.
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
