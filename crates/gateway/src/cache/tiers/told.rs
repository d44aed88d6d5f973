//! Who wants to hear when the tier tells a change of a record that is no copy of anything: what is on its way.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, Semaphore, watch};

/// What is limited of bodies on their way, and who hears of them.
pub(super) struct OnTheirWay {
    pub(super) told: Told,
    /// For those that this instance gives to others.
    pub(super) room: Semaphore,
    /// Whether those are to end now.
    pub(super) end: watch::Sender<bool>,
}

/// Bodies that one instance gives to others at the same time.
pub(super) const SHARED_MAX: u32 = 256;

impl OnTheirWay {
    pub(super) fn new() -> Self {
        Self {
            told: Told::default(),
            room: Semaphore::new(SHARED_MAX as usize),
            end: watch::Sender::new(false),
        }
    }
}

/// Those who listen, by the name of the record. One place for all who listen to the same.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Places>>);

/// Resolves with a change.
pub(crate) type Change = Pin<Box<OwnedNotified>>;

type Places = HashMap<Box<[u8]>, Arc<Notify>>;

/// Hears of one record as long as it lives.
pub(crate) struct Listening {
    told: Told,
    name: Box<[u8]>,
    notify: Arc<Notify>,
}

impl Told {
    pub(super) fn listen(&self, name: &[u8]) -> Listening {
        let notify = Arc::clone(self.0.lock().entry(name.into()).or_default());
        Listening { told: self.clone(), name: name.into(), notify }
    }

    pub(super) fn tell(&self, name: &[u8]) {
        if let Some(notify) = self.0.lock().get(name) {
            notify.notify_waiters();
        }
    }

    /// Something may have changed everywhere.
    pub(super) fn tell_all(&self) {
        self.0.lock().values().for_each(|notify| notify.notify_waiters());
    }
}

impl Listening {
    /// Resolves with the next change that is told after this call. To be taken before the record is read.
    pub(crate) fn told(&self) -> Change {
        let mut told = Box::pin(Arc::clone(&self.notify).notified_owned());
        told.as_mut().enable();
        told
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listening = self.told.0.lock();
        // Beside the one in the table, this is the last.
        if listening.get(&self.name).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            listening.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_listens_hears_of_its_record_and_leaves_nothing_behind() {
        let told = Told::default();
        let (one, same, other) = (told.listen(b"a"), told.listen(b"a"), told.listen(b"b"));
        let (first, second, third) = (one.told(), same.told(), other.told());
        told.tell(b"a");
        first.await;
        second.await;
        told.tell(b"c");
        told.tell_all();
        third.await;
        drop(one);
        assert_eq!(told.0.lock().len(), 2, "another one still listens");
        drop((same, other));
        assert!(told.0.lock().is_empty());
    }
}
