//! Limit on the requests that a client may cancel.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that the client cancelled before their responses began, less those answered since. `h2` counts only streams that were
/// reset before they were accepted; here they are accepted at once, and each may have cost a forward.
pub(super) struct Resets {
    balance: AtomicUsize,
    balance_max: usize,
}

impl Resets {
    pub(super) fn new(balance_max: usize) -> Self {
        Self { balance: AtomicUsize::new(0), balance_max }
    }

    pub(super) fn given_up(&self) {
        self.balance.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        let less_one = |balance: usize| Some(balance.saturating_sub(1));
        let _ = self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one);
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.balance.load(Ordering::Relaxed) > self.balance_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_everything_once_is_no_attack() {
        let resets = Resets::new(3);
        (0..3).for_each(|_| resets.given_up());
        assert!(!resets.are_too_many());
        resets.given_up();
        assert!(resets.are_too_many());
        resets.answered();
        assert!(!resets.are_too_many());
        (0..9).for_each(|_| resets.answered());
        assert_eq!(resets.balance.load(Ordering::Relaxed), 0);
    }
}
