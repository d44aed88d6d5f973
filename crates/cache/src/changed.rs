//! Waits for a state that other tasks change.

use tokio::sync::Notify;

/// Calls `look` immediately and after each notification of `changed`, until it returns a result. It misses no notification between two
/// calls.
pub async fn until<T>(changed: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}
