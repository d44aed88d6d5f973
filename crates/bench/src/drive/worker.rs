//! The loop of one thread: connections to one server, woken by epoll on edges.
//!
//! A request costs one write, and its answer one read. The clock is read once per wake-up and once per read. Requests on a persistent
//! connection allocate nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};

use super::alarm::Alarm;
use super::connection::{Connection, State};
use super::counts::Counts;
use super::pace::Reuse;
use super::tickets::{Tickets, scramble};
use super::transport::{Progress, Transport};
use super::work::{SLICE, Tell};
use super::{Arrival, Choice, Codec, Conduct, Malformed, Pending, Side, Then};
use crate::result::Failure;

const READ_BYTES: usize = 128 * 1024;
/// Maximum number of consecutive reads from one connection before the others are read.
const READS_IN_A_ROW: usize = 16;
const EVENTS: usize = 1024;
const ALARM: Token = Token(usize::MAX);
/// Time for a server to close the connection after it has answered a request with `Connection: close`.
const ENDING_MAX: Duration = Duration::from_secs(1);
const BACKOFF_FIRST: Duration = Duration::from_millis(1);
const BACKOFF_DOUBLINGS: u32 = 7;

pub(crate) struct Worker<S: Side> {
    pub(super) side: S,
    conduct: Conduct,
    /// Random state of think times.
    random: u64,
    poll: Poll,
    alarm: Alarm,
    connections: Vec<Connection<S::Codec>>,
    tickets: Tickets,
    pub(super) counts: Counts,
    /// Queue of connections with room, for the open loop.
    line: VecDeque<usize>,
    /// Connections with a timer.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Connections with unread data, suspended so that others are read.
    unread: Vec<usize>,
    buffer: Vec<u8>,
    start: Instant,
    phase: Phase,
    /// Error of the last connection that failed.
    trouble: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The worker opens its connections, and sends no request yet.
    Opening,
    Running,
}

/// Treatment of the pending requests when their connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Failed(Failure),
    /// The server announced that it won't answer them, so they are sent again.
    SentAgain,
    /// Requests that have timed out fail; all other requests are sent again.
    LateFailed,
}

impl<S: Side> Worker<S> {
    pub(crate) fn new(side: S, conduct: Conduct, tickets: Tickets) -> io::Result<Self> {
        let poll = Poll::new()?;
        let alarm = Alarm::register(poll.registry(), ALARM)?;
        let connections = (0..conduct.connections).map(|_| Connection::new(side.codec())).collect();
        Ok(Self {
            side,
            random: scramble(conduct.seed ^ tickets.first),
            conduct,
            poll,
            alarm,
            connections,
            tickets,
            counts: Counts::default(),
            line: VecDeque::new(),
            wakes: BinaryHeap::new(),
            unread: Vec::new(),
            buffer: vec![0; READ_BYTES],
            start: Instant::now(),
            phase: Phase::Opening,
            trouble: None,
        })
    }

    /// Opens the persistent connections, before the clock starts.
    pub(crate) fn open_all(&mut self) -> io::Result<Opened> {
        if self.conduct.reuse == Reuse::OnePerRequest {
            return Ok(Opened::NothingToDo);
        }
        let begin = Instant::now();
        for at in 0..self.connections.len() {
            self.open(at, begin);
        }
        let mut events = Events::with_capacity(EVENTS);
        while self.connections.iter().any(|connection| matches!(connection.state, State::Opening(_))) {
            let now = Instant::now();
            self.drop_late(now);
            self.poll(&mut events, self.conduct.timeout.min(SLICE))?;
            events.iter().for_each(|event| self.ready(event));
        }
        let is_open = |connection: &Connection<S::Codec>| connection.state == State::Open;
        let trouble = self.trouble.take();
        Ok(match trouble {
            Some(trouble) if !self.connections.iter().any(is_open) => Opened::NotOne(trouble),
            _ => Opened::Some,
        })
    }

    /// Sends requests from `start` until the load is done, and reports each time slice when it ends.
    pub(super) fn run(&mut self, start: Instant, tell: Tell<'_>) -> io::Result<()> {
        self.begin(start);
        let mut events = Events::with_capacity(EVENTS);
        let mut slice_end = start + SLICE;
        let mut late_check = start;
        loop {
            let now = Instant::now();
            while now >= slice_end {
                slice_end += SLICE;
                if tell(std::mem::take(&mut self.counts.slice)).is_break() {
                    return Ok(());
                }
            }
            if now >= late_check {
                self.drop_late(now);
                late_check = now + SLICE.min(self.conduct.timeout / 4);
            }
            if self.is_over(now) {
                break;
            }
            self.wake(now);
            self.dispatch(now);
            let wait = self.wait(now, slice_end.min(late_check))?;
            self.poll(&mut events, wait)?;
            events.iter().for_each(|event| self.ready(event));
            self.read_on();
        }
        self.counts.unsent = self.unsent();
        let _ = tell(std::mem::take(&mut self.counts.slice));
        Ok(())
    }

    /// The error of the last connection that couldn't be opened.
    pub(super) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    fn begin(&mut self, start: Instant) {
        self.start = start;
        self.phase = Phase::Running;
        for at in 0..self.connections.len() {
            if self.connections[at].state == State::Closed && self.conduct.reuse == Reuse::KeepAlive {
                self.open(at, start);
            } else if self.conduct.think.is_some() {
                self.rest(at, start);
            } else {
                self.offer(at, start);
            }
        }
    }

    fn poll(&mut self, events: &mut Events, wait: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            outcome => outcome,
        }
    }

    /// Returns the time until the next housekeeping, and sets the alarm for deadlines that must be more exact.
    fn wait(&mut self, now: Instant, housekeeping: Instant) -> io::Result<Duration> {
        if !self.unread.is_empty() {
            return Ok(Duration::ZERO);
        }
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        let due = if self.tickets.is_closed_loop() || self.line.is_empty() { None } else { self.next_due() };
        let alarm = wake.into_iter().chain(due).min();
        self.alarm.set(alarm, now)?;
        Ok(housekeeping.saturating_duration_since(now))
    }

    fn next_due(&self) -> Option<Instant> {
        let due = self.start.checked_add(self.tickets.next_due()?)?;
        Some(due).filter(|due| self.end().is_none_or(|end| *due < end))
    }

    fn end(&self) -> Option<Instant> {
        Some(self.start + self.conduct.until.duration()?)
    }

    /// Returns whether the load is over. A closed loop ends with its time or its last answer; an open loop waits for
    /// the answers to all sent requests.
    fn is_over(&self, now: Instant) -> bool {
        let is_answered = self.counts.completed == self.tickets.taken;
        let is_late = self.end().is_some_and(|end| now >= end);
        (self.tickets.is_exhausted() && is_answered)
            || (is_late && (is_answered || self.tickets.is_closed_loop()))
    }

    fn unsent(&self) -> u64 {
        self.conduct.until.duration().map_or(0, |duration| self.tickets.overdue(duration))
    }

    /// Takes a request from the schedule, if one is due.
    fn take(&mut self, now: Instant) -> Option<Pending> {
        if self.end().is_some_and(|end| now >= end) {
            return None;
        }
        let ticket = self.tickets.take(now.saturating_duration_since(self.start))?;
        let since = if self.tickets.is_closed_loop() { now } else { self.start + ticket.due };
        let Choice { request, answers } = self.side.choose(ticket.place);
        Some(Pending { request, answers, since, sent: now })
    }

    /// Starts requests on a connection with room, or queues the connection.
    fn offer(&mut self, at: usize, now: Instant) {
        if self.phase == Phase::Opening {
            return;
        }
        if self.tickets.is_closed_loop() || !self.connections[at].next.is_empty() {
            self.fill(at, now);
        }
        let connection = &mut self.connections[at];
        let is_idle_place = self.conduct.reuse == Reuse::OnePerRequest && connection.state == State::Closed;
        let has_room = connection.room() > 0 || (is_idle_place && connection.next.is_empty());
        if !self.tickets.is_closed_loop() && has_room && !connection.is_in_line && !connection.is_resting {
            connection.is_in_line = true;
            self.line.push_back(at);
        }
    }

    /// Begins as many requests as the connection has room for, and sends them.
    fn fill(&mut self, at: usize, now: Instant) {
        if self.conduct.reuse == Reuse::OnePerRequest && self.connections[at].state == State::Closed {
            return self.open_for_next(at, now);
        }
        let is_closed_loop = self.tickets.is_closed_loop();
        while self.connections[at].room() > 0 {
            let kept = self.connections[at].next.pop_front();
            let next = kept.or_else(|| if is_closed_loop { self.take(now) } else { None });
            let Some(pending) = next else { break };
            let Connection { codec, out, .. } = &mut self.connections[at];
            self.side.begin(codec, Pending { sent: now, ..pending }, out);
            if self.conduct.reuse == Reuse::OnePerRequest {
                break;
            }
        }
        self.send(at);
    }

    /// Opens a connection for one request, after taking that request from the schedule.
    fn open_for_next(&mut self, at: usize, now: Instant) {
        if self.connections[at].is_resting {
            return;
        }
        if self.connections[at].next.is_empty() {
            let next = if self.tickets.is_closed_loop() { self.take(now) } else { None };
            self.connections[at].next.extend(next);
        }
        if !self.connections[at].next.is_empty() {
            self.open(at, now);
        }
    }

    /// Gives the requests that are due to connections in the queue.
    fn dispatch(&mut self, now: Instant) {
        if self.tickets.is_closed_loop() {
            return;
        }
        while let Some(&at) = self.line.front() {
            let connection = &self.connections[at];
            let is_idle_place =
                self.conduct.reuse == Reuse::OnePerRequest && connection.state == State::Closed;
            if connection.room() > 0 || is_idle_place {
                let Some(pending) = self.take(now) else { break };
                self.connections[at].next.push_back(pending);
            }
            self.line.pop_front();
            self.connections[at].is_in_line = false;
            if !self.connections[at].next.is_empty() {
                self.offer(at, now);
            }
        }
    }

    /// Resumes connections whose timer has expired.
    fn wake(&mut self, now: Instant) {
        while let Some(&Reverse((due, at))) = self.wakes.peek()
            && due <= now
        {
            self.wakes.pop();
            self.connections[at].is_resting = false;
            if self.connections[at].state == State::Closed && self.conduct.reuse == Reuse::KeepAlive {
                self.open(at, now);
            } else {
                self.offer(at, now);
            }
        }
    }

    /// Pauses a connection for a think time.
    fn rest(&mut self, at: usize, now: Instant) {
        let Some(think) = &self.conduct.think else { return };
        self.random = scramble(self.random);
        let spread_ns = u64::try_from((*think.end() - *think.start()).as_nanos()).unwrap_or(u64::MAX);
        let think = *think.start() + Duration::from_nanos(self.random % spread_ns.saturating_add(1));
        self.connections[at].is_resting = true;
        self.wakes.push(Reverse((now + think, at)));
    }

    fn open(&mut self, at: usize, now: Instant) {
        let (address, tls) = (self.conduct.address, self.conduct.tls.as_ref());
        match Transport::connect(address, tls, self.poll.registry(), Token(at)) {
            Ok(transport) => {
                let connection = &mut self.connections[at];
                connection.transport = Some(transport);
                connection.state = State::Opening(now);
                connection.answered = 0;
                connection.codec.open(&mut connection.out);
            }
            Err(error) => self.not_opened(at, error, Failure::Connect, now),
        }
    }

    /// Fails the request of a connection that couldn't be opened, or if it has none, the next scheduled request.
    fn not_opened(&mut self, at: usize, error: io::Error, failure: Failure, now: Instant) {
        self.trouble = Some(error);
        if self.phase == Phase::Running && self.connections[at].next.is_empty() {
            let next = self.take(now);
            self.connections[at].next.extend(next);
        }
        if let Some(pending) = self.connections[at].next.pop_front() {
            self.fail(&pending, failure);
        }
        self.shut(at);
        self.back_off(at, now);
    }

    fn fail(&mut self, pending: &Pending, failure: Failure) {
        self.counts.completed += 1;
        self.counts.fail(failure, pending.answers);
        self.side.failed(pending);
    }

    /// Drops the connection, but keeps its slot.
    fn shut(&mut self, at: usize) {
        let is_discarded = S::CLOSES && self.conduct.reuse == Reuse::OnePerRequest;
        let connection = &mut self.connections[at];
        connection.transport.take().iter().filter(|_| is_discarded).for_each(Transport::discard);
        connection.state = State::Closed;
        connection.out.clear();
        connection.sent = 0;
        connection.codec.give_up();
    }

    /// Schedules the next attempt to connect, after a delay that doubles with each failure, up to a limit.
    fn back_off(&mut self, at: usize, now: Instant) {
        let connection = &mut self.connections[at];
        let wait = BACKOFF_FIRST * (1 << connection.failures.min(BACKOFF_DOUBLINGS));
        connection.failures += 1;
        connection.is_resting = true;
        self.wakes.push(Reverse((now + wait, at)));
    }

    /// Handles an event on a connection.
    fn ready(&mut self, event: &Event) {
        if event.token() == ALARM {
            return;
        }
        let at = event.token().0;
        if let State::Opening(_) = self.connections[at].state
            && !self.go_on_opening(at)
        {
            return;
        }
        if event.is_writable() && !self.flush(at) {
            return;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let drained = if event.is_read_closed() || event.is_error() {
                Drained::AtError
            } else {
                Drained::AtShortRead
            };
            self.read(at, drained);
        }
    }

    /// Continues to open a connection. Returns whether the socket may be read.
    fn go_on_opening(&mut self, at: usize) -> bool {
        let now = Instant::now();
        let Some(transport) = &mut self.connections[at].transport else { return false };
        match transport.advance() {
            Ok(Progress::UnderWay) => false,
            Ok(Progress::Made) => {
                self.send(at);
                self.opened_if_ready(at, now);
                self.connections[at].transport.is_some()
            }
            Err(error) => {
                self.not_opened(at, error, Failure::Connect, now);
                false
            }
        }
    }

    fn opened_if_ready(&mut self, at: usize, now: Instant) {
        let connection = &mut self.connections[at];
        if let State::Opening(since) = connection.state
            && connection.codec.is_ready()
        {
            connection.state = State::Open;
            self.counts.connects.record_time(now.saturating_duration_since(since));
            self.offer(at, now);
        }
    }

    /// Continues to send when the socket is writable again. Returns whether the socket may be read.
    fn flush(&mut self, at: usize) -> bool {
        let connection = &mut self.connections[at];
        let Some(transport) = &mut connection.transport else { return false };
        if transport.flush().is_err() {
            self.lose(at, self.rest_of_broken(at), Instant::now());
            return false;
        }
        if connection.sent < connection.out.len() {
            self.send(at);
        }
        self.connections[at].transport.is_some()
    }

    /// Sends as much of the output as the socket accepts.
    fn send(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let Some(transport) = &mut connection.transport else { return };
        connection.codec.flush(&mut connection.out);
        while connection.sent < connection.out.len() {
            match transport.write(&connection.out[connection.sent..]) {
                Ok(bytes) => {
                    connection.sent += bytes;
                    self.counts.written_bytes += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Bytes that the server sent before it closed may still be readable.
                Err(_) => break,
            }
        }
        connection.out.clear();
        connection.sent = 0;
    }

    fn read_on(&mut self) {
        for at in std::mem::take(&mut self.unread) {
            self.read(at, Drained::AtError);
        }
    }

    /// Reads the available bytes.
    fn read(&mut self, at: usize, drained: Drained) {
        for _ in 0..READS_IN_A_ROW {
            let connection = &mut self.connections[at];
            let Some(transport) = &mut connection.transport else { return };
            let outcome = transport.read(&mut self.buffer);
            let is_short_last = drained == Drained::AtShortRead && transport.short_read_is_last();
            match outcome {
                Ok(0) => return self.ended(at),
                Ok(bytes) => {
                    self.counts.read_bytes += bytes as u64;
                    self.received(at, bytes);
                    if is_short_last && bytes < READ_BYTES {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.over(at, || error, self.rest_of_broken(at), Instant::now()),
            }
        }
        self.unread.push(at);
    }

    /// Handles the received bytes at the start of the buffer.
    fn received(&mut self, at: usize, bytes: usize) {
        let now = Instant::now();
        let connection = &mut self.connections[at];
        let before = connection.answered;
        let Connection { codec, answered, out, .. } = connection;
        let mut arrival = Arrival { counts: &mut self.counts, answered, now };
        let outcome = self.side.receive(codec, &self.buffer[..bytes], &mut arrival, out);
        let is_answered = connection.answered > before;
        match outcome {
            Ok(Then::GoOn) => {}
            Ok(Then::Close) => return self.ending(at, now),
            Err(Malformed(why)) => {
                let error = || io::Error::new(ErrorKind::InvalidData, why);
                return self.over(at, error, Rest::Failed(Failure::Malformed), now);
            }
        }
        if is_answered {
            connection.failures = 0;
            if self.conduct.reuse == Reuse::OnePerRequest {
                return self.ending(at, now);
            }
            if self.conduct.think.is_some() {
                return self.rest(at, now);
            }
            self.offer(at, now);
        } else {
            self.opened_if_ready(at, now);
        }
        if !self.connections[at].out.is_empty() {
            self.send(at);
        }
    }

    /// Handles the announcement of the server that it will close: pending requests are sent again on the next connection.
    fn ending(&mut self, at: usize, now: Instant) {
        if self.conduct.reuse == Reuse::OnePerRequest && !S::CLOSES {
            // The side that closes first keeps the port in TIME_WAIT for a minute, so the server closes first.
            self.connections[at].state = State::Ending(now);
            return;
        }
        self.lose(at, Rest::SentAgain, now);
    }

    /// Handles the end of a connection.
    fn ended(&mut self, at: usize) {
        let now = Instant::now();
        let Connection { codec, answered, .. } = &mut self.connections[at];
        self.side.end(codec, &mut Arrival { counts: &mut self.counts, answered, now });
        let error = || io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection");
        self.over(at, error, self.rest_of_broken(at), now);
    }

    /// Ends a connection. `error` is reported if it was never open.
    fn over(&mut self, at: usize, error: impl FnOnce() -> io::Error, rest: Rest, now: Instant) {
        if !matches!(self.connections[at].state, State::Opening(_)) {
            return self.lose(at, rest, now);
        }
        let is_malformed = rest == Rest::Failed(Failure::Malformed);
        let failure = if is_malformed { Failure::Malformed } else { Failure::Connect };
        self.not_opened(at, error(), failure, now);
    }

    /// Decides the fate of the pending requests of a broken connection. A server that closes right after an answer may not
    /// have seen the next request: that request is sent again, alone on a connection, and fails if this connection breaks
    /// too.
    fn rest_of_broken(&self, at: usize) -> Rest {
        let connection = &self.connections[at];
        if connection.answered > 0 && connection.codec.is_between() {
            Rest::SentAgain
        } else {
            Rest::Failed(Failure::Broken)
        }
    }

    /// Settles the requests of an open connection that has ended, and opens the next one.
    fn lose(&mut self, at: usize, rest: Rest, now: Instant) {
        let connection = &mut self.connections[at];
        let mut failure = match rest {
            Rest::Failed(failure) => Some(failure),
            Rest::SentAgain => None,
            Rest::LateFailed => Some(Failure::Timeout),
        };
        for pending in connection.codec.give_up() {
            let is_late = now.saturating_duration_since(pending.sent) >= self.conduct.timeout;
            match failure {
                Some(failure) if rest != Rest::LateFailed || is_late => self.fail(&pending, failure),
                _ => self.connections[at].next.push_back(pending),
            }
            // Only the first failed answer was malformed. The later answers are lost with the connection.
            failure =
                failure.map(|failure| if failure == Failure::Malformed { Failure::Broken } else { failure });
        }
        let has_served = self.connections[at].answered > 0;
        self.shut(at);
        self.replace(at, has_served, now);
    }

    /// Opens a new connection in place of one that has ended.
    fn replace(&mut self, at: usize, has_served: bool, now: Instant) {
        if self.phase == Phase::Opening || self.connections[at].is_resting {
            return;
        }
        if !has_served {
            return self.back_off(at, now);
        }
        if self.conduct.reuse == Reuse::OnePerRequest {
            return if self.conduct.think.is_some() { self.rest(at, now) } else { self.offer(at, now) };
        }
        self.counts.reconnects += 1;
        self.open(at, now);
    }

    /// Abandons requests that have timed out.
    fn drop_late(&mut self, now: Instant) {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= self.conduct.timeout;
        let late: Vec<usize> = (0..self.connections.len())
            .filter(|at| {
                let connection = &self.connections[*at];
                match connection.state {
                    State::Closed => false,
                    State::Opening(since) => is_late(since),
                    State::Ending(since) => {
                        is_late(since) || now.saturating_duration_since(since) > ENDING_MAX
                    }
                    State::Open => connection.codec.oldest().is_some_and(is_late),
                }
            })
            .collect();
        for at in late {
            let error = || io::Error::new(ErrorKind::TimedOut, "the connection timed out");
            self.over(at, error, Rest::LateFailed, now);
        }
    }
}

/// Outcome of opening the connections.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Each request opens its own connection.
    NothingToDo,
    Some,
    NotOne(io::Error),
}

/// Condition that ends a series of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    /// A read that doesn't fill the buffer: later data triggers a new event.
    AtShortRead,
    /// The reads end only with an error or the end of the stream, because the end was already signalled.
    AtError,
}
