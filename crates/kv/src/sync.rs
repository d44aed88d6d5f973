//! Locks, atomics, threads in the background, and what wakes a worker: with the feature `shuttle` those of a scheduler that decides at each of them who goes on.
//! Counters of statistics, on which nothing depends, stay as they are.

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

    /// As that of the system: who is woken before it sleeps does not sleep.
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

        /// Sleeps until it is woken.
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
