//! Request collapsing for look-ups: callers that need the same answer at the same time share one query to the
//! tier.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Queries in progress, each with the cell for its answer.
pub(super) struct SingleFlight<K: Eq + Hash, V> {
    by_key: Mutex<HashMap<K, Weak<OnceCell<V>>>>,
}

/// A caller that waits for an answer. Dropping the last caller of a query removes the query, however the wait
/// ended.
struct Waiting<'a, K: Eq + Hash, V> {
    together: &'a SingleFlight<K, V>,
    key: K,
    answer: Option<Arc<OnceCell<V>>>,
}

impl<K: Eq + Hash, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { by_key: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// Returns the answer to the query in progress, or starts the query. If the caller that runs the query is
    /// dropped before the answer arrives, the next caller starts the query again. Poll the future without
    /// long pauses, because other callers may wait for it.
    pub(super) async fn get(&self, key: K, ask: impl Future<Output = V>) -> V {
        let waiting = self.join(key);
        let answer = waiting.answer.as_ref().expect("it is taken on the way out alone");
        answer.get_or_init(|| ask).await.clone()
    }

    fn join(&self, key: K) -> Waiting<'_, K, V> {
        let mut by_key = self.by_key.lock();
        let answer = by_key.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let answer = Arc::new(OnceCell::new());
            by_key.insert(key.clone(), Arc::downgrade(&answer));
            answer
        });
        Waiting { together: self, key, answer: Some(answer) }
    }
}

impl<K: Eq + Hash, V> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        self.answer = None;
        let mut by_key = self.together.by_key.lock();
        if by_key.get(&self.key).is_some_and(|answer| answer.strong_count() == 0) {
            by_key.remove(&self.key);
        }
    }
}
