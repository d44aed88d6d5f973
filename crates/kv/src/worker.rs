//! The event loop of a worker: its listeners and accepted connections.

use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::accept::{self, Door, Owner, Refused};
use crate::clients::{Calls, Ends, Place};
use crate::command::Isolation;
use crate::connection::{Buffers, Connection, INPUT_BYTES, OUTPUT_BYTES, Then};
use crate::conversation::Context;
use crate::endings::Ending;
use crate::leaving::{self, Leaving};
use crate::limits::Limits;
use crate::pass::Pass;
use crate::session::Session;
use crate::shared::Shared;
use crate::transport::Transport;

const EVENTS: usize = 1024;
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Sizes of the buffers while the buffers of all clients exceed half of their limit, so that each client uses
/// little additional memory.
const INPUT_BYTES_SCARCE: usize = 4 << 10;
const OUTPUT_BYTES_SCARCE: usize = 1;
/// Connections accepted per listener in one iteration, which takes about 0.3 ms. Established connections get
/// their turns in between.
const ACCEPTED_AT_ONCE: usize = 16;
/// Unauthenticated clients that get a turn in one iteration. A TLS handshake takes about 1 ms.
const STRANGERS_AT_ONCE: usize = 16;
/// Interval of checks whether ended connections are closed, while new connections wait for that.
const CROWD_STEP: Duration = Duration::from_millis(1);
/// Maximum number of rounds of accepting when the server stops, so that it stops even if clients keep
/// connecting. More than the queue of a listener needs.
const ACCEPTED_LAST: usize = 512;
/// Interval of work without events: expired keys, idle clients, and listeners that ran out of file
/// descriptors.
const TICK: Duration = Duration::from_millis(100);
/// Interval of log messages about failed accepts, which each tick retries.
const NOT_ACCEPTED_TOLD_EVERY_MS: u64 = 1_000;
/// Items checked for expiry in one iteration: about 50 µs.
const EXPIRED_AT_ONCE: usize = 500;
/// Connections with more to do that continue before new events are handled.
const AGAIN_AT_ONCE: usize = 16;
/// Interval of checks for the end of CLIENT PAUSE.
const PAUSE_STEP: Duration = Duration::from_millis(5);
/// Time limit for slow clients when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Worker {
    number: usize,
    poll: Poll,
    doors: Vec<Door>,
    connections: Slab<Connection>,
    /// Lingering closes: ended connections whose clients have not read the last reply yet.
    leaving: Slab<Leaving>,
    /// Unauthenticated connections with input.
    line: VecDeque<usize>,
    /// Connections with more to do.
    again: Vec<usize>,
    /// Connections with more of a long reply to send.
    sending: VecDeque<usize>,
    /// Connections whose next command needs all turns.
    alone: Vec<usize>,
    /// Connections that wait for the end of CLIENT PAUSE, or for memory for a reply.
    later: Vec<usize>,
    /// Time at which `later` is checked next.
    later_at_ms: u64,
    /// The number of waiting connections as published to other workers.
    postponed: usize,
    buffers: Buffers,
    limits: Limits,
    shared: Arc<Shared>,
    calls: Arc<Calls>,
    ticked_at_ms: u64,
    /// Time at which a failure to accept was last logged.
    not_accepted_told_ms: u64,
    pass: Pass,
    chores: Option<Chores>,
}

/// Work done in parts, one per iteration of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chores {
    /// The shard at which to continue removing expired items.
    expire_from: Option<usize>,
    /// Whether usage may still be above a lowered limit.
    is_lowering: bool,
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        poll: Poll,
        calls: Arc<Calls>,
        mut doors: Vec<Door>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        for (number, door) in doors.iter_mut().enumerate() {
            poll.registry().register(door.source(), Token(FIRST_DOOR - number), Interest::READABLE)?;
        }
        let limits = shared.limits();
        let (again, alone, later) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self {
            number,
            poll,
            doors,
            connections: Slab::new(),
            leaving: Slab::new(),
            line: VecDeque::new(),
            again,
            sending: VecDeque::new(),
            alone,
            later,
            later_at_ms: 0,
            postponed: 0,
            buffers: Buffers::new(&shared),
            limits,
            shared,
            calls,
            ticked_at_ms: 0,
            not_accepted_told_ms: 0,
            pass: Pass::default(),
            chores: None,
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let shared = Arc::clone(&self.shared);
        while !shared.is_stopping() {
            self.wait(&mut events, TICK)?;
            let now_ms = now_ms();
            if !self.later.is_empty() {
                self.look_at_later(now_ms);
            }
            {
                let _turn = shared.turn(self.number);
                self.pass = Pass::default();
                events.iter().for_each(|event| self.react(event, now_ms));
                // Check first, because these calls rarely have anything to do.
                if !self.again.is_empty() {
                    self.go_on(now_ms);
                }
                if !self.sending.is_empty() {
                    self.send(now_ms);
                }
                if self.doors.iter().any(|door| door.is_asked) {
                    self.accept(now_ms);
                }
                self.hear_strangers(now_ms);
                self.tick(now_ms);
                if self.chores.is_some() {
                    self.go_on_with_chores(now_ms);
                }
                self.tidy();
            }
            if !self.alone.is_empty() {
                self.go_on_alone(now_ms);
            }
            self.tell_postponed();
        }
        self.finish(&mut events)
    }

    /// Continues connections that waited for the end of a pause, or for memory.
    fn look_at_later(&mut self, now_ms: u64) {
        if now_ms < self.later_at_ms {
            return;
        }
        self.later_at_ms = now_ms + PAUSE_STEP.as_millis() as u64;
        let shared = &self.shared;
        let is_paused = shared.interests.pauses.now(now_ms).is_some();
        // Only the first in the queue can continue.
        let first = shared.line.first().filter(|_| shared.engine.policy().keeps_keys());
        self.later.sort_unstable();
        self.later.dedup();
        let (again, connections) = (&mut self.again, &self.connections);
        self.later.retain(|number| {
            let Some(connection) = connections.get(*number) else { return false };
            let stays = match connection.awaits_room() {
                true => first.is_some_and(|first| first != connection.client().id),
                false => is_paused,
            };
            if !stays {
                again.push(*number);
            }
            stays
        });
    }

    fn wait(&mut self, events: &mut Events, at_most: Duration) -> io::Result<()> {
        let at_most = if self.later.is_empty() { at_most } else { at_most.min(PAUSE_STEP) };
        let is_crowded = self.shared.strangers.are_many_ending();
        let at_most = if is_crowded { at_most.min(CROWD_STEP) } else { at_most };
        let interests = &self.shared.interests;
        let is_tidy = !interests.watches.is_untidy() && !interests.subscriptions.is_untidy();
        let is_done = self.again.is_empty()
            && self.sending.is_empty()
            && self.line.is_empty()
            && self.chores.is_none()
            && is_tidy;
        let is_asked = !is_crowded && self.doors.iter().any(|door| door.is_asked);
        let may_sleep = is_done && !is_asked && self.calls.may_sleep();
        let waited = self.poll.poll(events, Some(if may_sleep { at_most } else { Duration::ZERO }));
        self.calls.take(&mut self.again);
        match waited {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn react(&mut self, event: &Event, now_ms: u64) {
        match event.token() {
            WAKE => {}
            Token(number) if number > FIRST_DOOR - self.doors.len() => {
                self.doors[FIRST_DOOR - number].is_asked = true;
            }
            Token(number) if number >= FIRST_LEAVING => self.see_off(number - FIRST_LEAVING),
            Token(number) => {
                if let Some(connection) = self.connections.get_mut(number) {
                    expect(connection, event);
                }
                self.turn(number, Isolation::Turn, now_ms);
            }
        }
    }

    /// Continues connections with more to do: at least one, and more as time permits.
    fn go_on(&mut self, now_ms: u64) {
        self.pass = Pass::begin(Instant::now());
        let mut more: VecDeque<_> = self.again.drain(..self.again.len().min(AGAIN_AT_ONCE)).collect();
        while let Some(number) = more.pop_front() {
            self.turn(number, Isolation::Turn, now_ms);
            if self.pass.is_over(Instant::now()) {
                break;
            }
        }
        self.again.splice(0..0, more);
    }

    /// Sends more of long replies, one after the other, as time permits.
    fn send(&mut self, now_ms: u64) {
        self.pass = Pass::begin(Instant::now());
        for _ in 0..self.sending.len() {
            let Some(number) = self.sending.pop_front() else { return };
            // The connection may be gone and its number reused.
            let connection = self.connections.get_mut(number);
            if connection.is_some_and(|connection| std::mem::take(&mut connection.is_sending)) {
                self.turn(number, Isolation::Turn, now_ms);
            }
            if self.pass.is_over(Instant::now()) {
                return;
            }
        }
    }

    /// Continues connections whose command needs all turns. This worker must not hold its own turn.
    fn go_on_alone(&mut self, now_ms: u64) {
        let shared = Arc::clone(&self.shared);
        let _turns = shared.all_turns();
        let alone = std::mem::take(&mut self.alone);
        alone.into_iter().for_each(|number| self.turn(number, Isolation::Alone, now_ms));
    }

    /// Accepts some of the waiting connections.
    fn accept(&mut self, now_ms: u64) {
        for door in 0..self.doors.len() {
            self.doors[door].is_asked = self.doors[door].is_asked && self.accept_some(door, now_ms);
        }
    }

    /// Returns whether more may be waiting.
    fn accept_some(&mut self, door: usize, now_ms: u64) -> bool {
        for _ in 0..ACCEPTED_AT_ONCE {
            if self.shared.strangers.are_many_ending() {
                return true;
            }
            match self.doors[door].accept() {
                Ok((socket, ends)) => self.receive(socket, ends, now_ms),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    // The next tick retries, because no event announces clients that are already waiting.
                    if now_ms.saturating_sub(self.not_accepted_told_ms) >= NOT_ACCEPTED_TOLD_EVERY_MS {
                        self.not_accepted_told_ms = now_ms;
                        tracing::warn!(%error, "failed to accept connections");
                    }
                    return false;
                }
            }
        }
        true
    }

    fn receive(&mut self, socket: TcpStream, ends: Ends, now_ms: u64) {
        match accept::admit(socket, ends, &self.shared, &self.limits) {
            Ok(transport) => self.add(transport, ends, now_ms),
            Err(Refused { refusal, told }) => {
                self.shared.refused_one();
                tracing::debug!(client = %ends.client, %refusal, "client refused");
                told.into_iter().for_each(|socket| self.leave(Transport::Plain(socket), now_ms));
            }
        }
    }

    fn add(&mut self, mut transport: Transport, ends: Ends, now_ms: u64) {
        let entry = self.connections.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(transport.socket_mut(), Token(entry.key()), interest);
        let Ok(()) = registered else { return };
        let place = Place { worker: Arc::clone(&self.calls), number: entry.key() };
        let client = self.shared.clients.add(ends, place, now_ms);
        let session = Session::new(client, self.shared.first_gates());
        let connection = entry.insert(Connection::new(transport, session));
        connection.see_standing(&context(&self.shared, self.number, now_ms));
        self.shared.end_strangers_beyond(self.limits.strangers_max);
    }

    /// Gives a connection its turn, or queues it if it is unauthenticated.
    fn turn(&mut self, number: usize, isolation: Isolation, now_ms: u64) {
        match self.connections.get_mut(number) {
            Some(connection) if connection.can_wait() && isolation == Isolation::Turn => {
                if !std::mem::replace(&mut connection.is_in_line, true) {
                    self.line.push_back(number);
                }
            }
            _ => self.take_turn(number, isolation, now_ms),
        }
    }

    /// Gives unauthenticated connections a limited share of the time, so that other connections don't wait
    /// for them.
    fn hear_strangers(&mut self, now_ms: u64) {
        let mut heard = 0;
        while heard < STRANGERS_AT_ONCE {
            let Some(number) = self.line.pop_front() else { return };
            // The connection may be gone and its number reused.
            let connection = self.connections.get_mut(number);
            if connection.is_some_and(|connection| std::mem::take(&mut connection.is_in_line)) {
                self.take_turn(number, Isolation::Turn, now_ms);
                heard += 1;
            }
        }
    }

    fn take_turn(&mut self, number: usize, isolation: Isolation, now_ms: u64) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        let buffers_bytes_max = self.limits.buffers_bytes_max(self.shared.engine.bytes_max());
        let is_scarce = self.shared.buffers_bytes() > buffers_bytes_max / 2 || self.shared.is_reserve_spent();
        let (input_bytes_max, output_bytes_max) =
            if is_scarce { (INPUT_BYTES_SCARCE, OUTPUT_BYTES_SCARCE) } else { (INPUT_BYTES, OUTPUT_BYTES) };
        let isolation = if self.shared.is_single() { Isolation::Alone } else { isolation };
        let context = Context {
            isolation,
            output_bytes_max,
            input_bytes_max,
            pass: Some(&self.pass),
            ..context(&self.shared, self.number, now_ms)
        };
        match connection.turn(&context, &mut self.buffers, &self.limits) {
            // Events are edge-triggered: a turn is complete only when the socket reports that there is no
            // more data.
            Then::Wait => {}
            Then::Again => self.again.push(number),
            Then::Send => {
                if !std::mem::replace(&mut connection.is_sending, true) {
                    self.sending.push_back(number);
                }
            }
            Then::Alone => self.alone.push(number),
            Then::Later => self.later.push(number),
            Then::Leave => {
                let transport = self.close(number, now_ms);
                self.leave(transport, now_ms);
            }
            Then::Close => drop(self.close(number, now_ms)),
        }
        self.shared.make_room_owed(now_ms);
        self.shared.trimming.look(&self.shared.engine);
        if is_scarce {
            self.shared.keep_buffers_to(buffers_bytes_max);
        }
    }

    fn close(&mut self, number: usize, now_ms: u64) -> Transport {
        let connection = self.connections.remove(number);
        connection.release(&context(&self.shared, self.number, now_ms))
    }

    /// Begins a lingering close, so that everything sent arrives.
    fn leave(&mut self, transport: Transport, now_ms: u64) {
        let Some(mut leaving) = Leaving::begin(transport, now_ms) else { return };
        if leaving.is_over(&mut self.buffers.input) {
            return;
        }
        while self.leaving.len() >= leaving::count_max(self.limits.clients_max, self.shared.statistics.len())
        {
            let oldest = self.leaving.iter().min_by_key(|(_, leaving)| leaving.until_ms());
            oldest.map(|(number, _)| number).map(|number| self.leaving.remove(number));
        }
        let entry = self.leaving.vacant_entry();
        let (registry, token) = (self.poll.registry(), Token(FIRST_LEAVING + entry.key()));
        let socket = leaving.socket_mut();
        let registered = registry
            .reregister(socket, token, Interest::READABLE)
            // The socket of a refused client was never registered.
            .or_else(|_| registry.register(socket, token, Interest::READABLE));
        if registered.is_ok() {
            entry.insert(leaving);
        }
    }

    fn see_off(&mut self, number: usize) {
        if self.leaving.get_mut(number).is_some_and(|leaving| leaving.is_over(&mut self.buffers.input)) {
            self.leaving.remove(number);
        }
    }

    /// Publishes the number of clients that wait for the end of a pause.
    fn tell_postponed(&mut self) {
        let now = self.later.len();
        if now != self.postponed {
            self.shared.postpone(self.postponed, now);
            self.postponed = now;
        }
    }

    fn tick(&mut self, now_ms: u64) {
        if now_ms < self.ticked_at_ms + TICK.as_millis() as u64 {
            return;
        }
        self.ticked_at_ms = now_ms;
        self.follow_limits();
        let chores = self.chores.get_or_insert_default();
        if self.shared.is_expiry_active() {
            chores.expire_from.get_or_insert(0);
        }
        if self.number == 0 {
            self.shared.sample(now_ms);
            self.shared.look_after(now_ms);
            chores.is_lowering = true;
        }
        self.leaving.retain(|_, leaving| !leaving.is_late(now_ms));
        if self.shared.interests.pauses.end_if_over(now_ms) {
            self.shared.interests.refresh(&self.shared.engine);
        }
        self.doors.iter_mut().for_each(|door| door.is_asked = true);
        self.close_idle(now_ms);
    }

    /// Applies changed limits. A client may exceed a new limit without any event that would bring its turn.
    fn follow_limits(&mut self) {
        let limits = self.shared.limits();
        if limits != self.limits {
            self.limits = limits;
            self.again.extend(self.connections.iter().map(|(number, _)| number));
        }
    }

    fn go_on_with_chores(&mut self, now_ms: u64) {
        let Some(mut chores) = self.chores.take() else { return };
        if let Some(from) = chores.expire_from {
            chores.expire_from = self.shared.engine.expire(from, EXPIRED_AT_ONCE, now_ms);
            self.shared.end_batch();
        }
        if chores.is_lowering {
            chores.is_lowering = self.shared.follow_limit(now_ms);
        }
        self.chores = (chores != Chores::default()).then_some(chores);
    }

    /// Removes a part of the watches and subscriptions of clients that are gone.
    fn tidy(&mut self) {
        let interests = &self.shared.interests;
        if interests.subscriptions.is_untidy() {
            interests.subscriptions.tidy();
        }
        if interests.watches.is_untidy() && interests.watches.tidy() {
            interests.refresh(&self.shared.engine);
        }
    }

    fn close_idle(&mut self, now_ms: u64) {
        let idle_ms = self.limits.idle.as_millis() as u64;
        if idle_ms == 0 {
            return;
        }
        for (_, connection) in &self.connections {
            if connection.client().is_idle(idle_ms, now_ms) {
                self.shared.end(connection.client(), Ending::Idle);
            }
        }
    }

    /// Answers the requests received so far, and ends.
    fn finish(mut self, events: &mut Events) -> io::Result<()> {
        self.doors.retain(|door| door.owner == Owner::Process);
        self.doors.iter_mut().for_each(|door| door.is_asked = true);
        let shared = Arc::clone(&self.shared);
        for _ in 0..ACCEPTED_LAST {
            let _turn = shared.turn(self.number);
            self.accept(now_ms());
            // Closes unauthenticated clients that were ended.
            self.calls.take(&mut self.again);
            self.go_on(now_ms());
        }
        self.doors.clear();
        self.shared.interests.pauses.end();
        self.again = self.connections.iter().map(|(number, _)| number).collect();
        let end = Instant::now() + STOP_WITHIN;
        while !self.connections.is_empty() && Instant::now() < end {
            let now_ms = now_ms();
            self.look_at_later(now_ms);
            {
                let _turn = shared.turn(self.number);
                self.go_on(now_ms);
                self.send(now_ms);
                self.hear_strangers(now_ms);
            }
            if !self.alone.is_empty() {
                self.go_on_alone(now_ms);
            }
            self.close_quiet(now_ms);
            self.wait(events, TICK)?;
            self.again.extend(events.iter().map(|event| event.token().0));
        }
        Ok(())
    }

    /// Closes connections without pending input or output.
    fn close_quiet(&mut self, now_ms: u64) {
        let busy: HashSet<usize> = self.again.iter().chain(&self.alone).chain(&self.line).copied().collect();
        let others = self.connections.iter().filter(|(number, _)| !busy.contains(number));
        let quiet = others.filter(|(_, connection)| connection.is_quiet());
        let quiet: Vec<_> = quiet.map(|(number, _)| number).collect();
        quiet.into_iter().for_each(|number| drop(self.close(number, now_ms)));
    }
}

/// Passes the half-closes of an event to its connection.
fn expect(connection: &mut Connection, event: &Event) {
    if event.is_read_closed() || event.is_error() {
        connection.expect_end();
    }
    if event.is_write_closed() || event.is_error() {
        connection.expect_nobody();
    }
}

/// The context for a connection outside its turns.
fn context(shared: &Shared, worker: usize, now_ms: u64) -> Context<'_> {
    Context {
        shared,
        statistics: &shared.statistics[worker],
        isolation: Isolation::Turn,
        output_bytes_max: 0,
        input_bytes_max: 0,
        body: None,
        pass: None,
        now_ms,
    }
}

/// Tokens of lingering closes start here.
const FIRST_LEAVING: usize = 1 << 60;
/// Tokens of listeners count down from here.
const FIRST_DOOR: usize = usize::MAX - 1;

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
