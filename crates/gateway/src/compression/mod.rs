//! Compression of bodies for clients: the encoders, limits on their number, and the task that encodes a body.
//!
//! Encoding runs on blocking threads of the background runtime, except for pieces so small that the hand-over would take longer. The
//! number of threads that encode concurrently is at most the number of workers, so workers always get half of the processors.

pub(crate) mod encoder;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use message::client::Client;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::config::ClientLimits;

/// Compression limits and threads that all workers share.
pub(crate) struct Compressor {
    taken: Mutex<Taken>,
    background: Handle,
    processors: Semaphore,
}

/// Permits in use: in total, and by client.
#[derive(Default)]
struct Taken {
    all: usize,
    by_client: HashMap<Client, usize>,
}

/// Permit to compress one response. Dropping it releases the permit.
pub(crate) struct EncoderPermit {
    compressor: Arc<Compressor>,
    client: Option<Client>,
}

impl Compressor {
    pub(crate) fn new(background: Handle, workers: usize) -> Arc<Self> {
        let processors = Semaphore::new(workers.max(1));
        Arc::new(Self { taken: Mutex::default(), background, processors })
    }

    /// Returns a permit if one is free and the client hasn't used up its share. The share applies to known clients only.
    pub(crate) fn place(
        self: &Arc<Self>,
        limits: &ClientLimits,
        client: Option<Client>,
    ) -> Option<EncoderPermit> {
        let is_free = self.taken.lock().take(limits, client);
        is_free.then(|| EncoderPermit { compressor: Arc::clone(self), client })
    }
}

impl Taken {
    fn take(&mut self, limits: &ClientLimits, client: Option<Client>) -> bool {
        if self.all >= limits.compressions_max {
            return false;
        }
        if let Some(client) = client {
            let of_client = self.by_client.entry(client).or_default();
            if *of_client >= limits.compressions_of_client_max() {
                return false;
            }
            *of_client += 1;
        }
        self.all += 1;
        true
    }

    fn give_back(&mut self, client: Option<Client>) {
        self.all -= 1;
        let Some(Entry::Occupied(mut of_client)) = client.map(|client| self.by_client.entry(client)) else {
            return;
        };
        *of_client.get_mut() -= 1;
        if *of_client.get() == 0 {
            of_client.remove();
        }
    }
}

impl EncoderPermit {
    /// Runs CPU-bound work on a background thread. Returns `None` if the process is ending.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let Compressor { background, processors, .. } = &*self.compressor;
        let _processor = processors.acquire().await.ok()?;
        background.spawn_blocking(work).await.ok()
    }
}

impl Drop for EncoderPermit {
    fn drop(&mut self) {
        self.compressor.taken.lock().give_back(self.client);
    }
}
