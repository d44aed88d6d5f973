//! Compresses bodies on their way out: the encoders, how many there are at a time, and the task that goes from the body as the origin
//! has it to the one that clients read.
//!
//! Encoding is work for the blocking threads of the background runtime, but for pieces so small that the way there would take longer. As
//! many of them encode at a time as there are workers, so that workers always get their half of the processors.

pub(crate) mod encoder;
pub(crate) mod pump;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// What all workers share to compress.
pub(crate) struct Compressor {
    underway: AtomicUsize,
    background: Handle,
    processors: Semaphore,
}

/// The right to compress one response; given back when it is dropped.
pub(crate) struct Place(Arc<Compressor>);

impl Compressor {
    pub(crate) fn new(background: Handle, workers: usize) -> Arc<Self> {
        let processors = Semaphore::new(workers.max(1));
        Arc::new(Self { underway: AtomicUsize::new(0), background, processors })
    }

    /// A place among so many, if one is free.
    pub(crate) fn place(self: &Arc<Self>, places: usize) -> Option<Place> {
        let next = |taken: usize| (taken < places).then_some(taken + 1);
        let taken = self.underway.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(|_| Place(Arc::clone(self)))
    }
}

impl Place {
    /// Does work that takes the processor for long. `None` where the process is at its end.
    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let Compressor { background, processors, .. } = &*self.0;
        let _processor = processors.acquire().await.ok()?;
        background.spawn_blocking(work).await.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.underway.fetch_sub(1, Ordering::Relaxed);
    }
}
