//! Faults for tests.

use std::cell::Cell;

thread_local! {
    /// Whether this thread still uses copies in memory after the tier has reported that their records
    /// changed.
    pub static TRUSTS_SUSPECTS: Cell<bool> = const { Cell::new(false) };
}
