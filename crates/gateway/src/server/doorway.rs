//! The client connections that wait for a request, and so can be closed when there is no room for more.
//!
//! A connection that says nothing, or a byte now and then, costs its client nothing. So when all connections are taken, one of
//! those that wait makes room for a new one: the one that has waited longest, of the client with the most of them.
//!
//! Locks: those chosen, then one worker's room at a time; neither is held while a connection is closed.

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
    /// Those to be closed next, the first one last. Looking at all is worth it for several at once only.
    chosen: Mutex<Vec<Chosen>>,
}

/// The connections of one worker.
#[derive(Default)]
struct Room {
    seats: Vec<Option<Arc<Seat>>>,
    free: Vec<usize>,
}

/// A connection that is to be closed, unless it has had a request since.
struct Chosen {
    seat: Arc<Seat>,
    since: u64,
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
        Self { rooms: (0..workers.max(1)).map(|_| Mutex::default()).collect(), chosen: Mutex::default() }
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

    /// Closes a connection that waits. Whether there was one.
    pub(crate) fn close_one(&self) -> bool {
        let mut chosen = self.chosen.lock();
        let mut closed = close_first(&mut chosen);
        if closed.is_none() {
            *chosen = self.choose();
            closed = close_first(&mut chosen);
        }
        drop(chosen);
        if let Some(task) = closed.as_ref().and_then(|seat| seat.task.get()) {
            task.abort();
        }
        closed.is_some()
    }

    /// Of all workers: a client with few connections may have the only ones of its worker.
    fn choose(&self) -> Vec<Chosen> {
        let rooms: Vec<Vec<Chosen>> = self.rooms.iter().map(|room| room.lock().waiting()).collect();
        let ranked = |room: &Vec<Chosen>| {
            room.iter().enumerate().map(|(rank, chosen)| (chosen.seat.client, rank)).collect::<Vec<_>>()
        };
        let order = choose(&rooms.iter().flat_map(ranked).collect::<Vec<_>>());
        let mut waiting: Vec<_> = rooms.into_iter().flatten().map(Some).collect();
        order.into_iter().rev().filter_map(|index| waiting[index].take()).collect()
    }
}

fn close_first(chosen: &mut Vec<Chosen>) -> Option<Arc<Seat>> {
    while let Some(Chosen { seat, since }) = chosen.pop() {
        if seat.since.load(Ordering::Relaxed) == since && seat.close() {
            return Some(seat);
        }
    }
    None
}

impl Room {
    /// Those that wait, the longest first.
    fn waiting(&self) -> Vec<Chosen> {
        let seats = self.seats.iter().flatten().filter(|seat| seat.is_waiting());
        let mut waiting: Vec<_> = seats
            .map(|seat| Chosen { seat: Arc::clone(seat), since: seat.since.load(Ordering::Relaxed) })
            .collect();
        waiting.sort_by_key(|chosen| chosen.since);
        waiting
    }
}

/// Which of these clients and ranks (by how long they wait, at their worker) make room, the first one first. Never more than half: who comes
/// meanwhile may be a better choice than the rest.
fn choose(waiting: &[(Client, usize)]) -> Vec<usize> {
    let mut counts: HashMap<Client, usize> = HashMap::new();
    waiting.iter().for_each(|(client, _)| *counts.entry(*client).or_default() += 1);
    let mut order: Vec<_> = (0..waiting.len()).collect();
    order.sort_by_key(|index| {
        let (client, rank) = waiting[*index];
        (Reverse(counts[&client]), rank)
    });
    order.truncate(waiting.len().div_ceil(2).min(CHOSEN_MAX));
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

    /// Clients with their ranks, and who makes room.
    type Case<'a> = (&'a [(u8, usize)], &'a [usize]);

    #[test]
    fn the_client_with_most_makes_room_and_its_oldest_first() {
        let cases: [Case<'_>; 5] = [
            (&[], &[]),
            (&[(1, 0)], &[0]),
            (&[(1, 2), (2, 0), (3, 1)], &[1, 2]),
            (&[(1, 0), (2, 2), (2, 1), (2, 3)], &[2, 1]),
            (&[(1, 1), (2, 0), (1, 0), (2, 2), (3, 0)], &[1, 2, 0]),
        ];
        for (waiting, expected) in cases {
            let facts: Vec<_> = waiting.iter().map(|(number, rank)| (client(*number), *rank)).collect();
            assert_eq!(choose(&facts), expected, "{waiting:?}");
        }
        assert_eq!(choose(&[(client(1), 0); 4 * CHOSEN_MAX]).len(), CHOSEN_MAX);
    }

    /// The only connection of its worker belongs to a client that has no other.
    #[tokio::test]
    async fn a_client_with_few_connections_keeps_them_whoever_serves_them() {
        let doorway = Doorway::new(2);
        let enter = |worker: usize, number: u8| {
            let (seat, _) = doorway.enter(worker, client(number));
            seat.is_served_by(task());
            seat
        };
        let rare = enter(1, 2);
        for _ in 0..10 {
            let many: Vec<_> = (0..7).map(|_| enter(0, 1)).collect();
            (0..7).for_each(|_| assert!(doorway.close_one()));
            assert!(many.iter().all(|seat| seat.state.load(Ordering::Relaxed) == CLOSED));
        }
        assert!(rare.is_waiting());
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
        for expected in [2, 3, 4, 5, 1] {
            assert!(doorway.close_one() && closed(expected), "{expected}");
            assert!(!seats[expected].0.begins());
        }
        assert!(!doorway.close_one() && !closed(0));
        seats.iter().for_each(|(_, place)| doorway.leave(*place));
        assert!(doorway.rooms.iter().all(|room| room.lock().seats.iter().all(Option::is_none)));
        // A seat that is given back is used again; who has no task yet is not closed.
        let (_, place) = doorway.enter(0, client(1));
        assert!(place.index < 3 && !doorway.close_one());
    }
}
