//! Pauses that are part of a measurement.

use std::thread;
use std::time::Duration;

/// Sleeps, for example between two samples or before a slow answer.
#[expect(clippy::disallowed_methods, reason = "the pause is the setting, not a condition to wait for")]
pub fn pass(time: Duration) {
    thread::sleep(time);
}
