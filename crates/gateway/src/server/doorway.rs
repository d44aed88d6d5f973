//! The client connections that wait for a request, and so can be closed when there is no room for more.
//!
//! A connection that says nothing, or a byte now and then, costs its client nothing. So when all connections are taken, one of
//! those that wait makes room for a new one: the one that has waited longest, of the client with the most of them.
//!
//! Locks: a worker's room, never held while a connection is closed.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::client::Client;

/// All connections, by worker.
pub(crate) struct Doorway {
    rooms: Box<[Mutex<Room>]>,
}

/// The connections of one worker.
#[derive(Default)]
struct Room {
    seats: Vec<Option<Arc<Seat>>>,
    free: Vec<usize>,
    /// Those to be closed next, the first one last. Looking at all is worth it for several at once only.
    chosen: Vec<Arc<Seat>>,
}

/// One connection.
pub(crate) struct Seat {
    client: Client,
    state: AtomicU8,
    /// When it began to wait, in the order of its worker.
    since: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// The right to a seat; given back with [`Doorway::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    worker: usize,
    index: usize,
}

const WAITING: u8 = 0;
const BUSY: u8 = 1;
const CLOSED: u8 = 2;

/// Chosen with one look at all connections.
const CHOSEN_MAX: usize = 64;

thread_local! {
    /// Each worker has a thread.
    static ORDER: Cell<u64> = const { Cell::new(0) };
}

fn next_in_order() -> u64 {
    ORDER.with(|order| {
        order.set(order.get() + 1);
        order.get()
    })
}

impl Doorway {
    pub(crate) fn new(workers: usize) -> Self {
        Self { rooms: (0..workers.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// A seat for a connection that waits for its first request.
    pub(crate) fn enter(&self, worker: usize, client: Client) -> (Arc<Seat>, Place) {
        let seat = Arc::new(Seat {
            client,
            state: AtomicU8::new(WAITING),
            since: AtomicU64::new(next_in_order()),
            task: OnceLock::new(),
        });
        let mut room = self.rooms[worker].lock();
        let index = room.free.pop().unwrap_or(room.seats.len());
        if index == room.seats.len() {
            room.seats.push(None);
        }
        room.seats[index] = Some(Arc::clone(&seat));
        (seat, Place { worker, index })
    }

    pub(crate) fn leave(&self, place: Place) {
        let mut room = self.rooms[place.worker].lock();
        let seat = room.seats[place.index].take();
        room.free.push(place.index);
        drop(room);
        drop(seat);
    }

    /// Closes a connection that waits, one of this worker's if it has any. Whether there was one.
    pub(crate) fn close_one(&self, worker: usize) -> bool {
        let others = (0..self.rooms.len()).filter(|other| *other != worker);
        std::iter::once(worker).chain(others).any(|index| {
            let closed = self.rooms[index].lock().close_one();
            if let Some(task) = closed.as_ref().and_then(|seat| seat.task.get()) {
                task.abort();
            }
            closed.is_some()
        })
    }
}

impl Room {
    fn close_one(&mut self) -> Option<Arc<Seat>> {
        if let Some(seat) = self.close_chosen() {
            return Some(seat);
        }
        self.choose();
        self.close_chosen()
    }

    fn close_chosen(&mut self) -> Option<Arc<Seat>> {
        while let Some(seat) = self.chosen.pop() {
            if seat.close() {
                return Some(seat);
            }
        }
        None
    }

    fn choose(&mut self) {
        let waiting: Vec<_> = self.seats.iter().flatten().filter(|seat| seat.is_waiting()).collect();
        let facts: Vec<_> =
            waiting.iter().map(|seat| (seat.client, seat.since.load(Ordering::Relaxed))).collect();
        let chosen = choose(&facts, CHOSEN_MAX).into_iter().rev();
        self.chosen = chosen.map(|index| Arc::clone(waiting[index])).collect();
    }
}

/// Which of these clients and times make room, the first one first.
fn choose(waiting: &[(Client, u64)], count_max: usize) -> Vec<usize> {
    let mut counts: HashMap<Client, usize> = HashMap::new();
    waiting.iter().for_each(|(client, _)| *counts.entry(*client).or_default() += 1);
    let mut order: Vec<_> = (0..waiting.len()).collect();
    order.sort_by_key(|index| {
        let (client, since) = waiting[*index];
        (Reverse(counts[&client]), since)
    });
    order.truncate(count_max);
    order
}

impl Seat {
    /// Who serves the connection.
    pub(crate) fn is_served_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// The connection waits for a request.
    pub(crate) fn waits(&self) {
        if self.state.load(Ordering::Relaxed) == BUSY {
            self.since.store(next_in_order(), Ordering::Relaxed);
            self.state.store(WAITING, Ordering::Release);
        }
    }

    /// The connection has a request. Whether it may answer it: `false` if it was closed meanwhile.
    pub(crate) fn begins(&self) -> bool {
        let begun = self.state.compare_exchange(WAITING, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        matches!(begun, Ok(_) | Err(BUSY))
    }

    fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WAITING && self.task.get().is_some()
    }

    fn close(&self) -> bool {
        self.task.get().is_some()
            && self.state.compare_exchange(WAITING, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn client(number: u8) -> Client {
        Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
    }

    /// Clients with their times, and the order in which they make room.
    type Case<'a> = (&'a [(u8, u64)], &'a [usize]);

    #[test]
    fn the_client_with_most_makes_room_and_its_oldest_first() {
        let cases: [Case<'_>; 4] = [
            (&[], &[]),
            (&[(1, 3), (2, 1), (3, 2)], &[1, 2, 0]),
            (&[(1, 1), (2, 5), (2, 4), (2, 6)], &[2, 1, 3, 0]),
            (&[(1, 4), (2, 1), (1, 2), (2, 3)], &[1, 2, 3, 0]),
        ];
        for (waiting, expected) in cases {
            let facts: Vec<_> = waiting.iter().map(|(number, since)| (client(*number), *since)).collect();
            assert_eq!(choose(&facts, 64), expected, "{waiting:?}");
            assert_eq!(choose(&facts, 2), expected[..expected.len().min(2)], "{waiting:?}");
        }
    }

    fn task() -> AbortHandle {
        tokio::spawn(std::future::pending::<()>()).abort_handle()
    }

    #[tokio::test]
    async fn only_those_that_wait_are_closed_and_each_once() {
        let doorway = Doorway::new(2);
        let seats: Vec<_> = (0..6)
            .map(|number| {
                let (seat, place) = doorway.enter(number % 2, client(1));
                seat.is_served_by(task());
                (seat, place)
            })
            .collect();
        assert!(seats[0].0.begins() && seats[0].0.begins() && seats[1].0.begins());
        // Busy ones stay, one that waits again has waited for the shortest time.
        seats[1].0.waits();
        let closed = |index: usize| seats[index].0.state.load(Ordering::Relaxed) == CLOSED;
        for (worker, expected) in [(0, 2), (0, 4), (0, 3), (1, 5), (1, 1)] {
            assert!(doorway.close_one(worker) && closed(expected), "{expected} of worker {worker}");
            assert!(!seats[expected].0.begins());
        }
        assert!(!doorway.close_one(0) && !closed(0));
        seats.iter().for_each(|(_, place)| doorway.leave(*place));
        assert!(doorway.rooms.iter().all(|room| room.lock().seats.iter().all(Option::is_none)));
        // A seat that is given back is used again; who has no task yet is not closed.
        let (_, place) = doorway.enter(0, client(1));
        assert!(place.index < 3 && !doorway.close_one(0));
    }
}
