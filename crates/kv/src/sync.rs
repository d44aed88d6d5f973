//! Locks, atomics, background threads and wakers. With the feature `shuttle`, they are those of a scheduler
//! that chooses the next thread at each operation. Statistics counters, on which nothing depends, are not
//! replaced.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    mio::Waker,
    parking_lot::{Mutex, MutexGuard, RwLock},
    std::{sync::atomic, thread},
};
#[cfg(feature = "shuttle")]
pub(crate) use {
    shuttle::{sync::atomic, thread},
    shuttle_parking_lot::{Mutex, MutexGuard, RwLock},
    waker::Waker,
};

#[cfg(feature = "shuttle")]
mod waker {
    use std::io;
    use std::sync::Arc;

    use mio::{Registry, Token};
    use shuttle::sync::{Condvar, Mutex};

    /// Like the system's waker: a wake-up before a sleep makes the sleep return immediately.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Waker(Arc<(Mutex<bool>, Condvar)>);

    impl Waker {
        pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn wake(&self) -> io::Result<()> {
            let (is_woken, changed) = &*self.0;
            *is_woken.lock().map_err(|_| io::ErrorKind::Other)? = true;
            changed.notify_all();
            Ok(())
        }

        /// Sleeps until woken.
        #[cfg(test)]
        pub(crate) fn sleep(&self) {
            let (is_woken, changed) = &*self.0;
            let mut guard = is_woken.lock().expect("nobody panics meanwhile");
            while !*guard {
                guard = changed.wait(guard).expect("nobody panics meanwhile");
            }
            *guard = false;
        }
    }
}
