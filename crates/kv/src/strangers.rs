//! Clients that have not been let in: where a password is needed and they have not given it, and under TLS until the handshake is done.
//!
//! They may be anybody. What they take is bounded for all of them together, stands beside `maxmemory` so that no key goes for it, and the
//! oldest of them makes way when too many come: who has been let in is never kept out by them. One that makes way is forgotten at once, so that
//! a flood of them costs no more for each than the one before; until its worker has closed it, it counts as ending.

use std::collections::BTreeMap;
use std::sync::Arc;

use resp::Limits;

use crate::clients::Client;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A request of theirs, as Redis has it: enough for HELLO with all of its options.
pub(crate) const ARGUMENTS_MAX: usize = 10;
pub(crate) const ARGUMENT_BYTES_MAX: usize = 16 << 10;
/// What a message of the 0x1F protocol may have until then.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// What is read from one of them at once.
pub(crate) const INPUT_BYTES_MAX: usize = 16 << 10;
/// Replies to one of them that are written at once.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// What the requests and replies of all of them may take: so much, or a part of `maxmemory` where that is less.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
const SHARE: u64 = 32;
/// Room for one request of the largest kind that is permitted.
const BYTES_MIN: u64 = 512 << 10;
/// Those that were ended and are not closed yet: when there are so many, others wait at the door until their workers have come to them. They take
/// descriptors beside the limits, which is why there are few.
const ENDING_MAX: usize = 64;

/// Of all workers.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// By when they came, and their number.
    clients: Mutex<BTreeMap<(u64, u64), Arc<Client>>>,
    /// Of `clients`, to be read without its lock.
    count: AtomicUsize,
    /// Those that were ended, and are not closed yet.
    ending: AtomicUsize,
    /// Of their requests and replies.
    bytes: AtomicUsize,
}

/// What a request of theirs may have.
pub(crate) fn limits() -> Limits {
    Limits { elements_max: ARGUMENTS_MAX, bulk_bytes_max: ARGUMENT_BYTES_MAX, ..Limits::default() }
}

/// What the buffers of all of them may take.
pub(crate) fn bytes_max(maxmemory: u64) -> usize {
    (maxmemory / SHARE).clamp(BYTES_MIN, BYTES_MAX) as usize
}

impl Strangers {
    pub(crate) fn add(&self, client: &Arc<Client>, since_ms: u64) {
        let before = self.clients.lock().insert((since_ms, client.id), Arc::clone(client));
        self.count.fetch_add(usize::from(before.is_none()), Relaxed);
    }

    /// It was let in, or is gone.
    pub(crate) fn remove(&self, client: &Client, since_ms: u64) {
        let removed = self.clients.lock().remove(&(since_ms, client.id));
        // Who was ended was forgotten then.
        let counter = if removed.is_some() { &self.count } else { &self.ending };
        counter.fetch_sub(1, Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Those that were ended, and whose sockets are open nevertheless.
    pub(crate) fn ending(&self) -> usize {
        self.ending.load(Relaxed)
    }

    /// Whether so many are about to be closed that no more are to be ended for others.
    pub(crate) fn are_many_ending(&self) -> bool {
        self.ending() >= ENDING_MAX
    }

    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Ends those that came first, until there are no more than so many; how many it has ended.
    pub(crate) fn end_oldest(&self, count_max: usize) -> usize {
        let mut clients = self.clients.lock();
        let too_many = clients.len().saturating_sub(count_max);
        (0..too_many).filter_map(|_| clients.pop_first()).filter(|(_, client)| self.end(client)).count()
    }

    /// Ends the one that came first; whether there was one.
    pub(crate) fn end_one(&self) -> bool {
        let mut clients = self.clients.lock();
        while let Some((_, oldest)) = clients.pop_first() {
            if self.end(&oldest) {
                return true;
            }
        }
        false
    }

    /// Ends those that came before then; how many.
    pub(crate) fn end_since(&self, before_ms: u64) -> usize {
        let mut clients = self.clients.lock();
        let later = clients.split_off(&(before_ms.saturating_add(1), 0));
        let overdue = std::mem::replace(&mut *clients, later);
        overdue.values().filter(|client| self.end(client)).count()
    }

    /// Ends the one whose buffers take most, if those of all take more than so much; whether it has.
    pub(crate) fn end_largest(&self, bytes_max: usize) -> bool {
        let mut clients = self.clients.lock();
        let is_over = clients.values().map(|client| client.buffers_bytes()).sum::<usize>() > bytes_max;
        let largest = clients.iter().max_by_key(|(_, client)| client.buffers_bytes()).filter(|_| is_over);
        let largest = largest.map(|(place, _)| *place).and_then(|place| clients.remove(&place));
        largest.is_some_and(|client| self.end(&client))
    }

    /// It was taken from those that are known; whether nobody else has ended it. While they are locked, so that it is counted before its worker
    /// asks.
    fn end(&self, client: &Client) -> bool {
        let is_first = !client.is_killed();
        self.count.fetch_sub(1, Relaxed);
        self.ending.fetch_add(1, Relaxed);
        client.kill();
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_may_take_goes_with_the_memory_of_the_server() {
        let check = |maxmemory: u64, expected: usize| assert_eq!(bytes_max(maxmemory), expected);
        check(2 << 20, 512 << 10);
        check(64 << 20, 2 << 20);
        check(1 << 30, 8 << 20);
        check(u64::MAX, 8 << 20);
    }
}
