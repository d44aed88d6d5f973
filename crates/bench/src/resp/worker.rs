//! The loop of one thread: clients with their connections, woken by epoll on edges.
//!
//! A batch costs one write, and its replies one read. The clock is read once per wake-up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::cluster::Nodes;
use super::dialect::{Dialect, Due, Seen, Verb};
use super::keys::{KeySource, Share};
use super::lane::Lane;
use super::load::{Pace, RespLoad, Reuse, Until, Workload};
use super::tally::Tally;
use super::verify::{self, Outcome, Reply};
use crate::alarm::Alarm;
use crate::result::Failure;
use crate::work::{SLICE, Slice, Tell};

pub(super) struct Worker {
    dialect: Arc<Dialect>,
    nodes: Nodes,
    source: KeySource,
    workload: Workload,
    reuse: Reuse,
    pipeline: u64,
    timeout: Duration,
    /// Commands left to send. `None` if a duration ends the load.
    left: Option<u64>,
    duration: Option<Duration>,
    /// Interval between two batches of a client.
    interval: Option<Duration>,
    clients: Vec<Client>,
    /// Clients with a timer.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    poll: Poll,
    alarm: Alarm,
    buffer: Vec<u8>,
    pub(super) tally: Tally,
    slice: Slice,
    end: Option<Instant>,
    /// Clients with a batch in flight.
    busy: usize,
    /// Whether a command was appended to a connection other than the current one.
    is_resent: bool,
}

/// A sender of consecutive batches: one connection, or one to each node of a cluster.
#[derive(Debug)]
struct Client {
    lanes: Vec<Lane>,
    /// Start of the latency.
    since: Instant,
    /// When the batch was sent.
    sent: Instant,
    /// When the next batch is due. Only in an open loop.
    next_due: Option<Instant>,
    /// When the first batch is due, from the start of the run.
    offset: Duration,
    /// Commands of the batch without a reply.
    outstanding: usize,
    /// Step of the workflow, and its key.
    step: u8,
    key: u64,
}

const ALARM: Token = Token(usize::MAX);
const EVENTS: usize = 1024;
/// Pause after a failure, so that a server that is down isn't asked in a busy loop.
const BACKOFF: Duration = Duration::from_millis(10);
const REDIRECTS_MAX: u8 = 5;

impl Worker {
    /// Creates the worker of one share of a load.
    pub(super) fn new(
        load: &RespLoad,
        dialect: &Arc<Dialect>,
        nodes: Nodes,
        share: Share,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let alarm = Alarm::register(poll.registry(), ALARM)?;
        let (left, duration) = match load.until {
            Until::Requests(requests) => {
                let part = share.part_of(requests);
                (Some(part.end - part.start), None)
            }
            Until::Elapsed(duration) => (None, Some(duration)),
        };
        let seconds_per_command = match load.pace {
            Pace::Closed => None,
            Pace::Open { per_second } => Some(1.0 / per_second),
        };
        let batch = seconds_per_command.map(|seconds| seconds * load.pipeline as f64);
        let clients = share.part_of(load.connections as u64).map(|client| {
            let offset = batch.map_or(0.0, |batch| batch * client as f64);
            Client::new(Duration::from_secs_f64(offset))
        });
        Ok(Self {
            dialect: Arc::clone(dialect),
            nodes,
            source: KeySource::new(load.choice, load.keys, load.seed, share),
            workload: load.workload,
            reuse: load.reuse,
            pipeline: load.pipeline as u64,
            timeout: load.timeout,
            left,
            duration,
            interval: batch.map(|batch| Duration::from_secs_f64(batch * load.connections as f64)),
            clients: clients.collect(),
            wakes: BinaryHeap::new(),
            poll,
            alarm,
            buffer: Vec::new(),
            tally: Tally::default(),
            slice: Slice::default(),
            end: None,
            busy: 0,
            is_resent: false,
        })
    }

    /// Starts to connect, so that the first commands don't wait for it.
    pub(super) fn open_all(&mut self) -> io::Result<()> {
        if self.reuse == Reuse::OnePerBatch {
            return Ok(());
        }
        for client in 0..self.clients.len() {
            for node in 0..self.nodes.count() {
                self.open(client, node)?;
            }
        }
        Ok(())
    }

    /// Runs the load, and reports each time slice when it ends.
    pub(super) fn run(&mut self, start: Instant, tell: Tell<'_>) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut slice_end = start + SLICE;
        self.end = self.duration.map(|duration| start + duration);
        self.schedule(start);
        loop {
            let mut now = Instant::now();
            while now >= slice_end {
                self.give_up_late(now);
                if tell(mem::take(&mut self.slice)).is_break() {
                    (self.left, self.end) = (Some(0), Some(now));
                }
                slice_end += SLICE;
                now = Instant::now();
            }
            self.wake(now);
            if !self.is_busy() {
                break;
            }
            self.alarm.set(self.wakes.peek().map(|Reverse((at, _))| *at), now)?;
            match self.poll.poll(&mut events, Some(slice_end - now)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            let now = Instant::now();
            for event in events.iter().filter(|event| event.token() != ALARM) {
                let far = if event.is_read_closed() { Far::Ended } else { Far::Open };
                self.attend(event.token(), far, now);
            }
        }
        self.count_unsent(Instant::now());
        let _ = tell(mem::take(&mut self.slice));
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.busy > 0 || !self.wakes.is_empty()
    }

    fn schedule(&mut self, start: Instant) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.next_due = self.interval.map(|_| start + client.offset);
            self.wakes.push(Reverse((start + client.offset, index)));
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, client))) = self.wakes.peek().copied() {
            if at > now {
                return;
            }
            self.wakes.pop();
            self.begin(client, now);
        }
    }

    /// Sends the next batch, if there is one left.
    fn begin(&mut self, index: usize, now: Instant) {
        let size = self.left.map_or(self.pipeline, |left| left.min(self.pipeline));
        let due = self.clients[index].next_due.unwrap_or(now);
        if size == 0 || self.end.is_some_and(|end| now.max(due) >= end) {
            return;
        }
        if let Some(left) = &mut self.left {
            *left -= size;
        }
        let client = &mut self.clients[index];
        (client.since, client.sent) = (due, now);
        client.next_due = self.interval.map(|interval| due + interval);
        for _ in 0..size {
            let due = client.next(self.workload, &mut self.source);
            let node = self.nodes.of(&self.dialect, due);
            client.lane(node).append(&self.dialect, due);
        }
        client.outstanding = usize::try_from(size).expect("a pipeline is short");
        self.busy += 1;
        self.send(index, now);
    }

    /// Opens missing connections, and writes pending commands.
    fn send(&mut self, index: usize, now: Instant) {
        for node in 0..self.clients[index].lanes.len() {
            if self.clients[index].lanes[node].due.is_empty() {
                continue;
            }
            let is_open = self.open(index, node).map_err(|_| Failure::Connect);
            let sent = is_open.and_then(|()| self.clients[index].lanes[node].flush());
            match sent {
                Ok(bytes) => self.tally.written_bytes += bytes,
                Err(failure) => self.fail(index, node, failure, now),
            }
        }
    }

    fn open(&mut self, client: usize, node: usize) -> io::Result<()> {
        let address = self.nodes.address(node);
        let token = Token(client * Nodes::MAX + node);
        let lane = self.clients[client].lane(node);
        lane.open(self.poll.registry(), token, address, &self.dialect)?;
        Ok(())
    }

    /// Handles an event on a connection.
    fn attend(&mut self, token: Token, far: Far, now: Instant) {
        let (index, node) = (token.0 / Nodes::MAX, token.0 % Nodes::MAX);
        let under_way = self.busy;
        let had_work = self.clients[index].outstanding > 0;
        if let Err(failure) = self.exchange(index, node, far, now) {
            self.fail(index, node, failure, now);
        }
        if mem::take(&mut self.is_resent) {
            self.send(index, now);
        }
        // Unless a failure has ended the batch already.
        if had_work && self.clients[index].outstanding == 0 && self.busy == under_way {
            self.finish(index, now);
        }
    }

    fn exchange(&mut self, index: usize, node: usize, far: Far, now: Instant) -> Result<(), Failure> {
        let lane = &mut self.clients[index].lanes[node];
        lane.confirm()?;
        self.tally.written_bytes += lane.flush()?;
        let mut buffer = mem::take(&mut self.buffer);
        let result = self.read_all(index, node, &mut buffer, far, now);
        self.buffer = buffer;
        result
    }

    fn read_all(
        &mut self,
        index: usize,
        node: usize,
        buffer: &mut Vec<u8>,
        far: Far,
        now: Instant,
    ) -> Result<(), Failure> {
        while let Some(read) = self.clients[index].lanes[node].read(buffer)? {
            self.tally.read_bytes += read.new as u64;
            self.take(index, node, &buffer[..read.end], now)?;
            // The edge that signalled the end isn't repeated.
            if read.is_drained && far == Far::Open {
                break;
            }
        }
        Ok(())
    }

    /// Handles the replies in the bytes, and keeps the rest.
    fn take(&mut self, index: usize, node: usize, bytes: &[u8], now: Instant) -> Result<(), Failure> {
        let (mut at, mut right) = (0, 0);
        let result = loop {
            let lane = &mut self.clients[index].lanes[node];
            let taken = take_expected(&self.dialect, lane, &bytes[at..], &mut self.tally);
            at += taken.bytes;
            right += taken.right;
            if !taken.is_other {
                break Ok(());
            }
            match self.take_other(index, node, &bytes[at..]) {
                Ok(Taken::Begin) => break Ok(()),
                Ok(Taken::Bytes(length)) => at += length,
                Ok(Taken::Right(length)) => {
                    at += length;
                    right += 1;
                }
                // The replies before it count all the same.
                Err(failure) => break Err(failure),
            }
        };
        let client = &mut self.clients[index];
        client.lanes[node].rest.extend_from_slice(&bytes[at..]);
        client.outstanding -= right;
        if right > 0 {
            let latency = now.saturating_duration_since(client.since);
            let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            self.slice.latencies.record_many(latency_us, right as u64);
        }
        result
    }

    /// Handles a reply that isn't the expected one, or that no command waits for.
    fn take_other(&mut self, index: usize, node: usize, bytes: &[u8]) -> Result<Taken, Failure> {
        let address = self.nodes.address(node);
        let due = self.clients[index].lanes[node].due.front().copied();
        let reply = verify::read(&self.dialect, due.unwrap_or(UNASKED), bytes, address);
        match reply {
            Reply::Begin => return Ok(Taken::Begin),
            Reply::Push { bytes } => return Ok(Taken::Bytes(bytes)),
            Reply::Malformed => return Err(self.malformed(due, bytes)),
            _ => {}
        }
        let Some(due) = due else { return Err(self.malformed(None, bytes)) };
        self.clients[index].lanes[node].due.pop_front();
        match reply {
            Reply::Right { bytes, outcome } if due.verb.is_counted() => {
                self.tally.other(&outcome);
                Ok(Taken::Right(bytes))
            }
            Reply::Right { bytes, .. } => Ok(Taken::Bytes(bytes)),
            Reply::Moved { bytes, slot, to } if self.is_redirected(due) => {
                self.tally.moved += 1;
                if let Some(to) = self.nodes.moved(slot, to) {
                    self.again(index, to, due);
                }
                Ok(Taken::Bytes(bytes))
            }
            Reply::Ask { bytes, to } if self.is_redirected(due) => {
                self.tally.asked += 1;
                if let Some(to) = self.nodes.index(to) {
                    self.clients[index].lane(to).append(&self.dialect, ASKING);
                    self.again(index, to, due);
                }
                Ok(Taken::Bytes(bytes))
            }
            Reply::Wrong { bytes: length, outcome } => {
                self.wrong(index, due, &outcome, &bytes[..length]);
                Ok(Taken::Bytes(length))
            }
            Reply::Moved { bytes: length, .. } | Reply::Ask { bytes: length, .. } => {
                self.wrong(index, due, &Outcome::Error("-MOVED".to_owned()), &bytes[..length]);
                Ok(Taken::Bytes(length))
            }
            Reply::Begin | Reply::Push { .. } | Reply::Malformed => unreachable!("they have returned"),
        }
    }

    fn is_redirected(&self, due: Due) -> bool {
        self.nodes.is_cluster() && due.verb.is_counted() && due.redirects < REDIRECTS_MAX
    }

    /// Sends a command again, to another node.
    fn again(&mut self, index: usize, node: usize, due: Due) {
        let due = Due { redirects: due.redirects + 1, ..due };
        self.clients[index].lane(node).append(&self.dialect, due);
        self.is_resent = true;
    }

    fn wrong(&mut self, index: usize, due: Due, outcome: &Outcome, reply: &[u8]) {
        self.tally.problem(&self.dialect, Some(due), reply);
        if due.verb.is_counted() {
            self.tally.other(outcome);
            self.tally.errors.wrong += 1;
            self.slice.errors += 1;
            self.clients[index].outstanding -= 1;
        }
    }

    fn malformed(&mut self, due: Option<Due>, bytes: &[u8]) -> Failure {
        self.tally.problem(&self.dialect, due, bytes);
        Failure::Malformed
    }

    /// Ends a connection. Its commands in flight have failed.
    fn fail(&mut self, index: usize, node: usize, failure: Failure, now: Instant) {
        let client = &mut self.clients[index];
        let lane = &mut client.lanes[node];
        let failed = lane.due.iter().filter(|due| due.verb.is_counted()).count();
        lane.close();
        self.tally.reconnects += 1;
        client.outstanding -= failed;
        self.slice.errors += failed as u64;
        self.tally.fail(failure, failed as u64);
        if failed > 0 && client.outstanding == 0 {
            self.busy -= 1;
            let due = client.next_due.unwrap_or(now);
            self.wakes.push(Reverse((due.max(now + BACKOFF), index)));
        }
    }

    /// Handles the completion of a batch.
    fn finish(&mut self, index: usize, now: Instant) {
        self.busy -= 1;
        let client = &mut self.clients[index];
        if self.reuse == Reuse::OnePerBatch {
            client.lanes.iter_mut().for_each(Lane::close);
        }
        match client.next_due {
            Some(due) if due > now => self.wakes.push(Reverse((due, index))),
            _ => self.begin(index, now),
        }
    }

    /// Gives up the batches whose replies are late.
    fn give_up_late(&mut self, now: Instant) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if client.outstanding == 0 || now.saturating_duration_since(client.sent) < self.timeout {
                continue;
            }
            for node in 0..client.lanes.len() {
                if !self.clients[index].lanes[node].due.is_empty() {
                    self.fail(index, node, Failure::Timeout, now);
                }
            }
        }
    }

    /// In an open loop, counts the commands that were due but not sent before the end.
    fn count_unsent(&mut self, now: Instant) {
        let (Some(interval), Some(end)) = (self.interval, self.end) else { return };
        for due in self.clients.iter().filter_map(|client| client.next_due) {
            let late = end.min(now).saturating_duration_since(due);
            if !late.is_zero() {
                let batches = late.as_nanos().div_ceil(interval.as_nanos().max(1));
                self.tally.unsent += u64::try_from(batches).unwrap_or(u64::MAX).saturating_mul(self.pipeline);
            }
        }
    }
}

/// Whether the server may still send data, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Open,
    Ended,
}

/// Stands for the command of an unsolicited reply.
const UNASKED: Due = Due { verb: Verb::Greeting, redirects: 0, key: 0 };
const ASKING: Due = Due { verb: Verb::Asking, redirects: 0, key: 0 };

/// Result of a reply that isn't the expected one.
enum Taken {
    Begin,
    Bytes(usize),
    /// A command has its reply.
    Right(usize),
}

/// Result of the fast path.
struct Expected {
    bytes: usize,
    right: usize,
    /// Whether a reply other than the expected one follows.
    is_other: bool,
}

/// Handles the expected replies, up to the first other one.
fn take_expected(dialect: &Dialect, lane: &mut Lane, bytes: &[u8], tally: &mut Tally) -> Expected {
    let (mut at, mut right) = (0, 0);
    let mut is_other = false;
    while at < bytes.len() {
        let seen = lane.due.front().map_or(Seen::Other, |due| dialect.compare(*due, &bytes[at..]));
        let Seen::Expected(length) = seen else {
            is_other = seen == Seen::Other;
            break;
        };
        at += length;
        if let Some(due) = lane.due.pop_front().filter(|due| due.verb.is_counted()) {
            tally.right(due.verb);
            right += 1;
        }
    }
    Expected { bytes: at, right, is_other }
}

impl Client {
    fn new(offset: Duration) -> Self {
        let now = Instant::now();
        Self {
            lanes: Vec::new(),
            since: now,
            sent: now,
            next_due: None,
            offset,
            outstanding: 0,
            step: 0,
            key: 0,
        }
    }

    /// The connection to a node.
    fn lane(&mut self, node: usize) -> &mut Lane {
        if self.lanes.len() <= node {
            self.lanes.resize_with(node + 1, Lane::default);
        }
        &mut self.lanes[node]
    }

    /// The next command of the workload.
    fn next(&mut self, workload: Workload, source: &mut KeySource) -> Due {
        let verb = match (workload, self.step) {
            (Workload::Set, _) | (Workload::Workflow, 0) => Verb::Set,
            (Workload::Get, _) | (Workload::Workflow, 1) => Verb::Get,
            (Workload::Del, _) => Verb::Del,
            (Workload::Workflow, _) => Verb::GetMissing,
        };
        if workload != Workload::Workflow || self.step == 0 {
            self.key = source.next();
        }
        self.step = (self.step + 1) % 3;
        Due { verb, redirects: 0, key: self.key }
    }
}
