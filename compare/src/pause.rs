//! Waiting for something outside of this program that can't notify it.

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Lets `duration` pass.
pub(crate) fn pause(duration: Duration) {
    let (_open, never) = sync_channel::<()>(0);
    // The other end is open and silent, so this always ends by the time limit.
    never.recv_timeout(duration).ok();
}

/// Asks `attempt` until it gives something, or `limit` is over.
pub(crate) fn poll<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = attempt() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        pause(Duration::from_millis(20));
    }
}
