//! Faults for tests.

use std::cell::Cell;

thread_local! {
    /// Whether this thread uses copies that the tier has reported as changed.
    pub static TRUSTS_SUSPECTS: Cell<bool> = const { Cell::new(false) };
}
