//! Locks and atomics. With the feature `shuttle`, a test scheduler replaces them and chooses the next thread
//! at each operation.

#[cfg(feature = "shuttle")]
pub(crate) use {
    condvar::Condvar,
    shuttle::sync::atomic,
    shuttle_parking_lot::{MappedMutexGuard, Mutex, MutexGuard},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard},
    std::sync::atomic,
};

/// A condition variable with the interface of parking_lot, which `shuttle` doesn't have.
#[cfg(feature = "shuttle")]
mod condvar {
    use shuttle::sync;

    use super::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Condvar {
        calls: sync::Mutex<u64>,
        changed: sync::Condvar,
    }

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            *self.calls.lock().expect("nobody panics meanwhile") += 1;
            self.changed.notify_all();
        }

        /// Releases the lock until the next notification.
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let before = *self.calls.lock().expect("nobody panics meanwhile");
            MutexGuard::unlocked(guard, || {
                let calls = self.calls.lock().expect("nobody panics meanwhile");
                drop(self.changed.wait_while(calls, |calls| *calls == before));
            });
        }
    }
}
