//! Client connections, and the choice of connections to close if no room is left for a new one.
//!
//! A client can keep many connections idle, or waiting for slow answers, at no cost. If all connections are in use, a new one therefore
//! replaces a connection of the client with the most connections. First, the connection that has waited longest for a request is
//! closed. If all connections of a client are busy, the one that has been busy longest is closed, but only if the client has more than
//! its share. A new connection of a client with more than its share only replaces a waiting connection of the same client.
//!
//! Lock order: `chosen`, then the counts or the room of one worker. No lock is held while a connection is closed.

mod choice;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use message::client::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use self::choice::{CHOSEN_MAX, Candidate, Standing, choose, choose_own};

/// All connections, by worker.
pub(crate) struct ConnectionTable {
    rooms: Box<[Mutex<Room>]>,
    /// Number of open connections of each holder.
    held: Mutex<HashMap<Holder, usize>>,
    chosen: Mutex<Chosen>,
    /// Notified whenever a connection has closed.
    left: Notify,
    waiting: AtomicUsize,
}

/// Guard for a new connection that waits for a place.
pub(crate) struct WaitingAtDoor<'a>(&'a ConnectionTable);

/// Client or proxy for which a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Client(Client),
    /// A proxy of many clients, which isn't limited to a share.
    Proxy(Client),
}

/// Connections chosen to be closed. One scan chooses several connections, because scanning all connections is expensive.
#[derive(Default)]
struct Chosen {
    /// Connections to close next, in reverse order.
    next: Vec<Choice>,
    /// For each holder with more than its share, the connections to close for new connections of the same holder.
    own: HashMap<Holder, Own>,
}

#[derive(Default)]
struct Own {
    next: Vec<Choice>,
    /// Number of new connections to refuse before the next scan of all connections, because the last scan found none to close.
    turned_away: usize,
}

/// The connections of one worker.
#[derive(Default)]
struct Room {
    seats: Vec<Option<Arc<OpenConnection>>>,
    free: Vec<usize>,
}

/// A connection to close, unless its state has changed since the scan.
struct Choice {
    seat: Arc<OpenConnection>,
    standing: Standing,
    since: u64,
}

/// A connection.
pub(crate) struct OpenConnection {
    peer: Holder,
    /// Holder in the PROXY protocol header of the peer.
    named: OnceLock<Holder>,
    state: AtomicU8,
    /// Sequence number, counted per worker, of the start of its last wait.
    since: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// A position in the table. [`ConnectionTable::leave`] releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotKey {
    worker: usize,
    index: usize,
}

const WAITING: u8 = 0;
const BUSY: u8 = 1;
const CLOSED: u8 = 2;

/// Maximum number of new connections that wait for a place. The sockets of waiting connections are in addition to the limit on
/// connections.
const WAITING_MAX: usize = 64;

thread_local! {
    /// One counter per worker, since each worker has its own thread.
    static ORDER: Cell<u64> = const { Cell::new(0) };
}

fn next_in_order() -> u64 {
    ORDER.with(|order| {
        order.set(order.get() + 1);
        order.get()
    })
}

impl ConnectionTable {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            rooms: (0..workers.max(1)).map(|_| Mutex::default()).collect(),
            held: Mutex::default(),
            chosen: Mutex::default(),
            left: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Lets a new connection wait for a place, unless too many are already waiting.
    pub(crate) fn wait(&self) -> Option<WaitingAtDoor<'_>> {
        let waiting_before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingAtDoor(self);
        (waiting_before < WAITING_MAX).then_some(waiting)
    }

    /// Wakes the waiting new connections, because a place is free.
    pub(crate) fn mark_left(&self) {
        self.left.notify_waiters();
    }

    /// Adds a connection that waits for its first request.
    pub(crate) fn enter(&self, worker: usize, peer: Holder) -> (Arc<OpenConnection>, SlotKey) {
        let seat = Arc::new(OpenConnection {
            peer,
            named: OnceLock::new(),
            state: AtomicU8::new(WAITING),
            since: AtomicU64::new(next_in_order()),
            task: OnceLock::new(),
        });
        *self.held.lock().entry(peer).or_default() += 1;
        let mut room = self.rooms[worker].lock();
        let index = room.free.pop().unwrap_or(room.seats.len());
        if index == room.seats.len() {
            room.seats.push(None);
        }
        room.seats[index] = Some(Arc::clone(&seat));
        (seat, SlotKey { worker, index })
    }

    pub(crate) fn leave(&self, place: SlotKey) {
        let mut room = self.rooms[place.worker].lock();
        let seat = room.seats[place.index].take();
        room.free.push(place.index);
        drop(room);
        if let Some(seat) = seat
            && seat.state.swap(CLOSED, Ordering::AcqRel) != CLOSED
        {
            self.count_out(&seat);
        }
    }

    /// Counts a connection for the holder that its peer has named.
    pub(crate) fn name(&self, seat: &OpenConnection, holder: Holder) {
        // Closing a connection decrements its count under the same lock.
        let mut held = self.held.lock();
        if seat.state.load(Ordering::Acquire) != CLOSED && seat.named.set(holder).is_ok() {
            count_out(&mut held, seat.peer);
            *held.entry(holder).or_default() += 1;
        }
    }

    /// Closes a connection to make room for the new connection `newcomer`. `share_max` is the share of a client. Returns whether a
    /// connection was closed.
    pub(crate) fn make_room(&self, newcomer: &OpenConnection, share_max: usize) -> bool {
        let holder = newcomer.holder();
        let closed = match self.has_more(holder, share_max) {
            true => self.close_own(holder),
            false => self.close_any(share_max),
        };
        if let Some(task) = closed.as_ref().and_then(|seat| seat.task.get()) {
            task.abort();
        }
        closed.is_some()
    }

    fn has_more(&self, holder: Holder, share_max: usize) -> bool {
        matches!(holder, Holder::Client(_))
            && self.held.lock().get(&holder).is_some_and(|count| *count > share_max)
    }

    fn close_any(&self, share_max: usize) -> Option<Arc<OpenConnection>> {
        let mut chosen = self.chosen.lock();
        if let Some(closed) = self.close_first(&mut chosen.next, share_max) {
            return Some(closed);
        }
        chosen.next = self.choose(|candidates| choose(candidates, share_max));
        self.close_first(&mut chosen.next, share_max)
    }

    fn close_own(&self, holder: Holder) -> Option<Arc<OpenConnection>> {
        let mut chosen = self.chosen.lock();
        // The map has an entry for each holder that exceeds its share, and for holders that exceeded it earlier.
        if chosen.own.len() > CHOSEN_MAX && !chosen.own.contains_key(&holder) {
            chosen.own.clear();
        }
        let own = chosen.own.entry(holder).or_default();
        if let Some(closed) = self.close_first(&mut own.next, usize::MAX) {
            return Some(closed);
        }
        if own.turned_away > 0 {
            own.turned_away -= 1;
            return None;
        }
        own.next = self.choose(|candidates| choose_own(candidates, holder));
        let closed = self.close_first(&mut own.next, usize::MAX);
        if closed.is_none() {
            let seats: usize = self.rooms.iter().map(|room| room.lock().seats.len()).sum();
            own.turned_away = seats / CHOSEN_MAX;
        }
        closed
    }

    fn close_first(&self, chosen: &mut Vec<Choice>, share_max: usize) -> Option<Arc<OpenConnection>> {
        while let Some(Choice { seat, standing, since }) = chosen.pop() {
            let may_close = seat.since.load(Ordering::Relaxed) == since
                && (standing == Standing::Waiting || self.has_more(seat.holder(), share_max));
            if may_close && seat.close(standing) {
                self.count_out(&seat);
                return Some(seat);
            }
        }
        None
    }

    /// Chooses among the connections of all workers, because the only connections of a worker may belong to a client with few
    /// connections.
    fn choose(&self, choose: impl FnOnce(&[Candidate]) -> Vec<usize>) -> Vec<Choice> {
        let rooms: Vec<Vec<Choice>> = self.rooms.iter().map(|room| room.lock().choices()).collect();
        let order = choose(&rooms.iter().flat_map(|room| candidates(room)).collect::<Vec<_>>());
        let mut choices: Vec<_> = rooms.into_iter().flatten().map(Some).collect();
        order.into_iter().rev().filter_map(|index| choices[index].take()).collect()
    }

    fn count_out(&self, seat: &OpenConnection) {
        let mut held = self.held.lock();
        count_out(&mut held, seat.holder());
    }
}

fn count_out(held: &mut HashMap<Holder, usize>, holder: Holder) {
    if let Some(count) = held.get_mut(&holder) {
        *count -= 1;
        if *count == 0 {
            held.remove(&holder);
        }
    }
}

impl WaitingAtDoor<'_> {
    pub(crate) fn somebody_leaves(&self) -> Notified<'_> {
        self.0.left.notified()
    }
}

impl Drop for WaitingAtDoor<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    /// Returns the connections that may be closed, the oldest first.
    fn choices(&self) -> Vec<Choice> {
        let choice = |seat: &Arc<OpenConnection>| {
            let since = seat.since.load(Ordering::Relaxed);
            seat.standing().map(|standing| Choice { seat: Arc::clone(seat), standing, since })
        };
        let mut choices: Vec<_> = self.seats.iter().flatten().filter_map(choice).collect();
        choices.sort_by_key(|choice| choice.since);
        choices
    }
}

fn candidates(choices: &[Choice]) -> impl Iterator<Item = Candidate> {
    let mut ranks = [0; 2];
    choices.iter().map(move |choice| {
        let rank = &mut ranks[choice.standing as usize];
        *rank += 1;
        Candidate { holder: choice.seat.holder(), standing: choice.standing, rank: *rank }
    })
}

impl OpenConnection {
    /// Sets the task that serves the connection.
    pub(crate) fn set_server(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Marks the connection as waiting for a request.
    pub(crate) fn waits(&self) {
        if self.state.load(Ordering::Relaxed) == BUSY {
            self.since.store(next_in_order(), Ordering::Relaxed);
            // Fails if the connection is being closed.
            let _ = self.state.compare_exchange(BUSY, WAITING, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Marks the connection as busy with a request. Returns whether the request may be answered; false if the connection was closed in
    /// the meantime.
    pub(crate) fn begins(&self) -> bool {
        let begun = self.state.compare_exchange(WAITING, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        matches!(begun, Ok(_) | Err(BUSY))
    }

    fn holder(&self) -> Holder {
        *self.named.get().unwrap_or(&self.peer)
    }

    /// Activity of the connection; `None` if it can't be closed.
    fn standing(&self) -> Option<Standing> {
        self.task.get()?;
        match self.state.load(Ordering::Relaxed) {
            WAITING => Some(Standing::Waiting),
            BUSY => Some(Standing::Busy),
            _ => None,
        }
    }

    fn close(&self, standing: Standing) -> bool {
        let state = match standing {
            Standing::Waiting => WAITING,
            Standing::Busy => BUSY,
        };
        self.state.compare_exchange(state, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::Standing::{Busy, Waiting};
    use super::*;

    fn client(number: u8) -> Client {
        Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
    }

    fn holder(number: u8) -> Holder {
        Holder::Client(client(number))
    }

    fn facts(connections: &[(u8, Standing, usize)]) -> Vec<Candidate> {
        let fact = |(number, standing, rank): &(u8, Standing, usize)| Candidate {
            holder: if *number == 0 { Holder::Proxy(client(0)) } else { holder(*number) },
            standing: *standing,
            rank: *rank,
        };
        connections.iter().map(fact).collect()
    }

    /// A case: connections as client, standing and rank (client 0 is a proxy), and the connections that are closed if the share is 2.
    type Case<'a> = (&'a [(u8, Standing, usize)], &'a [usize]);

    #[test]
    fn the_client_with_most_makes_room_and_its_oldest_first() {
        let cases: [Case<'_>; 9] = [
            (&[], &[]),
            (&[(1, Waiting, 0)], &[0]),
            (&[(1, Waiting, 2), (2, Waiting, 0), (3, Waiting, 1)], &[1, 2]),
            (&[(1, Waiting, 0), (2, Waiting, 2), (2, Waiting, 1), (2, Waiting, 3)], &[2, 1]),
            (
                &[(1, Waiting, 1), (2, Waiting, 0), (1, Waiting, 0), (2, Waiting, 2), (3, Waiting, 0)],
                &[1, 2, 0],
            ),
            // Waiting connections are closed before busy ones. A busy connection is closed only if its client exceeds its share.
            (&[(1, Busy, 0), (1, Busy, 1), (1, Waiting, 2), (2, Waiting, 0)], &[2, 0]),
            (&[(1, Busy, 0), (1, Busy, 1), (2, Waiting, 0)], &[2]),
            (&[(1, Busy, 0), (1, Busy, 1)], &[]),
            (&[(0, Busy, 0), (0, Busy, 1), (0, Busy, 2), (0, Waiting, 3)], &[3]),
        ];
        for (connections, expected) in cases {
            assert_eq!(choose(&facts(connections), 2), expected, "{connections:?}");
        }
        let many = facts(&[(1, Waiting, 0); 4 * CHOSEN_MAX]);
        assert_eq!(choose(&many, 2).len(), CHOSEN_MAX);
    }

    #[test]
    fn who_has_more_than_a_share_gives_up_what_is_its_own() {
        let connections = facts(&[(1, Busy, 0), (1, Waiting, 2), (2, Waiting, 0), (1, Waiting, 1)]);
        assert_eq!(choose_own(&connections, holder(1)), [3]);
        assert_eq!(choose_own(&connections, holder(3)), [0; 0]);
    }

    fn enter(doorway: &ConnectionTable, worker: usize, number: u8) -> (Arc<OpenConnection>, SlotKey) {
        let (seat, place) = doorway.enter(worker, holder(number));
        seat.set_server(tokio::spawn(std::future::pending::<()>()).abort_handle());
        (seat, place)
    }

    fn is_closed(seat: &OpenConnection) -> bool {
        seat.state.load(Ordering::Relaxed) == CLOSED
    }

    /// Returns whether a new connection of this client is admitted.
    fn gets_in(doorway: &ConnectionTable, number: u8, share_max: usize) -> bool {
        let (seat, place) = doorway.enter(0, holder(number));
        let gets_in = doorway.make_room(&seat, share_max);
        doorway.leave(place);
        gets_in
    }

    /// One client has a single connection, which is the only connection of its worker.
    #[tokio::test]
    async fn a_client_with_few_connections_keeps_them_whoever_serves_them() {
        let doorway = ConnectionTable::new(2);
        let (rare, _) = enter(&doorway, 1, 2);
        for _ in 0..10 {
            let many: Vec<_> = (0..7).map(|_| enter(&doorway, 0, 1).0).collect();
            (0..7).for_each(|_| assert!(gets_in(&doorway, 3, usize::MAX)));
            assert!(many.iter().all(|seat| is_closed(seat)));
        }
        assert!(!is_closed(&rare));
    }

    #[tokio::test]
    async fn those_that_wait_are_closed_and_each_once() {
        let doorway = ConnectionTable::new(2);
        let seats: Vec<_> = (0..6).map(|number| enter(&doorway, number % 2, 1)).collect();
        assert!(seats[0].0.begins() && seats[0].0.begins() && seats[1].0.begins());
        // Busy connections stay open. The connection that was busy before has waited for the shortest time.
        seats[1].0.waits();
        for expected in [2, 3, 4, 5, 1] {
            assert!(gets_in(&doorway, 2, 9) && is_closed(&seats[expected].0), "{expected}");
            assert!(!seats[expected].0.begins());
        }
        assert!(!gets_in(&doorway, 2, 9) && !is_closed(&seats[0].0));
        seats.iter().for_each(|(_, place)| doorway.leave(*place));
        assert!(doorway.rooms.iter().all(|room| room.lock().seats.iter().all(Option::is_none)));
        assert!(doorway.held.lock().is_empty());
        // A released position is reused. A connection without a task isn't closed.
        let (_, place) = doorway.enter(0, holder(1));
        assert!(place.index < 4 && !gets_in(&doorway, 2, 9));
    }

    #[tokio::test]
    async fn who_uses_more_than_a_share_makes_room_for_others_only() {
        let doorway = ConnectionTable::new(1);
        let busy: Vec<_> = (0..4).map(|_| enter(&doorway, 0, 1)).collect();
        busy.iter().for_each(|(seat, _)| assert!(seat.begins()));
        assert!(!gets_in(&doorway, 1, 2));
        assert!(gets_in(&doorway, 2, 2) && is_closed(&busy[0].0));
        assert!(gets_in(&doorway, 2, 2) && is_closed(&busy[1].0));
        // Client 2 now has its share of two connections.
        assert!(!gets_in(&doorway, 2, 2));
        let (named, place) = enter(&doorway, 0, 3);
        doorway.name(&named, holder(1));
        assert_eq!(doorway.held.lock().len(), 1);
        assert!(doorway.has_more(holder(1), 2));
        // The connection of `named` waits, so it is closed before busy ones.
        assert!(gets_in(&doorway, 1, 2) && is_closed(&named));
        doorway.leave(place);
        busy.iter().for_each(|(_, place)| doorway.leave(*place));
        assert!(doorway.held.lock().is_empty());
    }
}
