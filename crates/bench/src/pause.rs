//! Pauses that a measurement asks for.

use std::thread;
use std::time::Duration;

/// Lets time pass, as between two looks or before a slow answer.
#[expect(clippy::disallowed_methods, reason = "the pause is the setting, not a condition to wait for")]
pub fn pass(time: Duration) {
    thread::sleep(time);
}
