//! Clients that leave large responses unread, and the memory that they hold.
//!
//! An evicted response stays in memory until its readers finish. A reader at the lowest permitted rate takes hours, and a few such readers
//! can occupy the whole memory. Readers that make the gateway wait are therefore listed here with the memory that they hold. If there is no
//! memory for a new response, the client that holds the most unstored memory loses its longest-waiting reader, provided that the client
//! exceeds its share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use message::client::Client;
use parking_lot::Mutex;
use store::Slice;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fill::Fill;

/// All readers that wait for their clients.
#[derive(Default)]
pub struct Readers {
    waiting: Mutex<HashMap<u64, ReaderEntry>>,
    next: AtomicU64,
    /// Time of the last search for a reader to dismiss.
    searched: Mutex<Option<Instant>>,
}

struct ReaderEntry {
    client: Client,
    body: HeldBody,
    since: Instant,
    leave: Arc<Notify>,
}

/// Memory that a reader holds.
pub enum HeldBody {
    /// Stored segments: the last one stands for all, because eviction takes either most of a body or nothing; and their total size.
    Segments { last: Slice, bytes: u64 },
    /// All bytes that a fill keeps.
    Fill(Arc<Fill>),
}

/// Registration of a waiting reader, until dropped.
pub struct WaitingReader<'a> {
    readers: &'a Readers,
    number: u64,
    leave: Arc<Notify>,
}

impl HeldBody {
    /// Returns the number of bytes that would be free without the readers. Stored bytes don't count, because they can be evicted anyway.
    fn unstored_bytes(&self) -> u64 {
        match self {
            Self::Segments { last, .. } if last.is_stored() => 0,
            Self::Segments { bytes, .. } => *bytes,
            Self::Fill(fill) => fill.unstored_bytes(),
        }
    }

    /// Returns the identity of the body, because several readers of one body hold the same memory.
    fn identity(&self) -> usize {
        match self {
            Self::Segments { last, .. } => last.identity(),
            Self::Fill(fill) => Arc::as_ptr(fill) as usize,
        }
    }
}

impl Readers {
    /// Registers a client that keeps the gateway waiting.
    pub fn wait(&self, client: Client, body: HeldBody) -> WaitingReader<'_> {
        let (number, leave) = (self.next.fetch_add(1, Relaxed), Arc::new(Notify::new()));
        let waiting = ReaderEntry { client, body, since: Instant::now(), leave: Arc::clone(&leave) };
        self.waiting.lock().insert(number, waiting);
        WaitingReader { readers: self, number, leave }
    }

    /// Dismisses one reader, and all others of the same client and body, if a client holds more than `share_bytes`.
    pub fn make_room(&self, share_bytes: u64) {
        if !self.may_search() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let mut bodies: HashMap<(Client, usize), (u64, Instant)> = HashMap::new();
        for reader in waiting.values() {
            let bytes = reader.body.unstored_bytes();
            let body = bodies.entry((reader.client, reader.body.identity())).or_insert((bytes, reader.since));
            *body = (body.0.max(bytes), body.1.min(reader.since));
        }
        let mut held: HashMap<Client, u64> = HashMap::new();
        bodies.iter().for_each(|((client, _), (bytes, _))| *held.entry(*client).or_default() += bytes);
        let Some((client, bytes)) = held.into_iter().max_by_key(|(_, bytes)| *bytes) else { return };
        if bytes <= share_bytes {
            return;
        }
        let of_client = bodies.iter().filter(|((whose, _), (bytes, _))| *whose == client && *bytes > 0);
        let Some(((_, body), _)) = of_client.min_by_key(|(_, (_, since))| *since) else { return };
        let is_chosen = |reader: &ReaderEntry| reader.client == client && reader.body.identity() == *body;
        waiting.extract_if(|_, reader| is_chosen(reader)).for_each(|(_, reader)| reader.leave.notify_one());
    }

    fn may_search(&self) -> bool {
        let now = Instant::now();
        let mut searched = self.searched.lock();
        let is_due = searched.is_none_or(|searched| now - searched >= SEARCH_INTERVAL);
        if is_due {
            *searched = Some(now);
        }
        is_due
    }
}

/// Minimum time between searches: each checks all waiting readers, and dismissed readers need a moment to leave.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

impl WaitingReader<'_> {
    /// Resolves when the memory is needed for other responses.
    pub async fn dismissed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.readers.waiting.lock().remove(&self.number);
    }
}
