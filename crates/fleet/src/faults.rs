//! Faults that a test plants.

use std::cell::Cell;

thread_local! {
    /// Copies that the tier has reported as changed are used on this thread.
    pub static TRUSTS_SUSPECTS: Cell<bool> = const { Cell::new(false) };
}
