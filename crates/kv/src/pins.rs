//! Values that clients have not read yet. A value counts as memory of the engine while it is stored under its
//! key. After that, it counts once as a buffer of the clients that still have to read it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use engine::{Engine, Packed, Stored};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of all clients' buffers, which count against the engine's memory budget.
#[derive(Debug)]
pub(crate) struct Buffered {
    engine: Option<Arc<Engine>>,
    bytes: AtomicUsize,
    /// Excludes clients that are closing.
    staying_bytes: AtomicUsize,
    /// Growth since keys were last evicted for buffers.
    owed_bytes: AtomicUsize,
}

impl Buffered {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self::of(Some(engine))
    }

    /// Creates counters without an engine.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        Self::of(None)
    }

    fn of(engine: Option<Arc<Engine>>) -> Self {
        Self {
            engine,
            bytes: AtomicUsize::new(0),
            staying_bytes: AtomicUsize::new(0),
            owed_bytes: AtomicUsize::new(0),
        }
    }

    /// Records that a buffer has grown or shrunk. Keys are evicted for it.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        if now_bytes > before_bytes {
            self.owed_bytes.fetch_add(now_bytes - before_bytes, Relaxed);
        }
        self.account_without_room(before_bytes, now_bytes);
    }

    /// Records that a buffer has grown or shrunk, without evicting keys for it.
    pub(crate) fn account_without_room(&self, before_bytes: usize, now_bytes: usize) {
        if before_bytes == now_bytes {
            return;
        }
        self.staying_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
        self.account_closing(before_bytes, now_bytes);
    }

    /// Records that a buffer of a closing client has grown or shrunk.
    pub(crate) fn account_closing(&self, before_bytes: usize, now_bytes: usize) {
        if let Some(engine) = &self.engine {
            engine.lend(before_bytes, now_bytes);
        }
        self.bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    /// Subtracts the bytes of a client that begins to close.
    pub(crate) fn take_off(&self, bytes: usize) {
        self.staying_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Bytes of clients that aren't closing. If this exceeds the limit, another client has to be closed.
    pub(crate) fn staying_bytes(&self) -> usize {
        self.staying_bytes.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    #[inline]
    pub(crate) fn owed_bytes(&self) -> usize {
        self.owed_bytes.load(Relaxed)
    }

    /// Resets the growth since the last eviction, because keys are evicted for all buffers now.
    pub(crate) fn settle(&self) {
        self.owed_bytes.store(0, Relaxed);
    }
}

/// Pinned values of all clients.
#[derive(Debug)]
pub(crate) struct Pins {
    buffered: Arc<Buffered>,
    /// Keyed by address.
    values: Mutex<BTreeMap<usize, Pinned>>,
}

#[derive(Debug)]
struct Pinned {
    value: Value,
    /// Memory of the value.
    bytes: usize,
    /// Number of pending sends.
    holders: usize,
    /// Number of references per pending send.
    each: usize,
    /// Bytes counted as a buffer, because the engine no longer has the value.
    counted_bytes: usize,
}

/// A weak reference, to count the other owners without keeping the value alive.
#[derive(Debug)]
enum Value {
    Plain(Weak<Vec<u8>>),
    Packed(Weak<Packed>),
}

/// An output holds an uncompressed value twice: as stored, and as sent.
const HOLDS_OF_PLAIN: usize = 2;

/// A pending send of a value. It has to be dropped before the value.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    place: usize,
}

impl Pins {
    pub(crate) fn new(buffered: Arc<Buffered>) -> Self {
        Self { buffered, values: Mutex::default() }
    }

    /// Creates pins without an engine.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn of_nothing() -> Self {
        Self::new(Arc::new(Buffered::of_nothing()))
    }

    pub(crate) fn hold(pins: &Arc<Self>, stored: &Stored) -> Pin {
        let (place, each) = match stored {
            Stored::Plain(value) => (Arc::as_ptr(value).addr(), HOLDS_OF_PLAIN),
            Stored::Packed(value) => (Arc::as_ptr(value).addr(), 1),
        };
        let mut values = pins.values.lock();
        let new = || {
            let value = match stored {
                Stored::Plain(value) => Value::Plain(Arc::downgrade(value)),
                Stored::Packed(value) => Value::Packed(Arc::downgrade(value)),
            };
            Pinned { value, bytes: stored.bytes(), each, holders: 0, counted_bytes: 0 }
        };
        let pinned = values.entry(place).or_insert_with(new);
        pinned.holders += 1;
        pinned.look(&pins.buffered);
        Pin { pins: Arc::clone(pins), place }
    }

    /// Counts values that were removed or replaced in the engine.
    pub(crate) fn look(&self) {
        let mut values = self.values.lock();
        values.values_mut().for_each(|pinned| pinned.look(&self.buffered));
    }

    /// Number of pinned values.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn count(&self) -> usize {
        self.values.lock().len()
    }
}

impl Pinned {
    fn look(&mut self, buffered: &Buffered) {
        let owners = match &self.value {
            Value::Plain(value) => value.strong_count(),
            Value::Packed(value) => value.strong_count(),
        };
        let bytes = if owners <= self.holders * self.each { self.bytes } else { 0 };
        buffered.account(self.counted_bytes, bytes);
        self.counted_bytes = bytes;
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut values = self.pins.values.lock();
        let Some(pinned) = values.get_mut(&self.place) else { return };
        pinned.holders -= 1;
        if pinned.holders == 0 {
            self.pins.buffered.account(pinned.counted_bytes, 0);
            values.remove(&self.place);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_once_when_nobody_else_has_it() {
        let pins = Arc::new(Pins::of_nothing());
        let stored = Stored::Plain(Arc::new(vec![7; 1000]));
        let sent: Vec<_> = (0..3).map(|_| (stored.clone(), stored.plain())).collect();
        let held: Vec<_> = sent.iter().map(|(stored, _)| Pins::hold(&pins, stored)).collect();
        pins.look();
        assert_eq!((pins.buffered.bytes(), pins.count()), (0, 1), "it is stored");
        drop(stored);
        pins.look();
        assert_eq!(pins.buffered.bytes(), 1000);
        drop((held, sent));
        assert_eq!((pins.buffered.bytes(), pins.count()), (0, 0));
    }
}
