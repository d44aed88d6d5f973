//! The commands of one worker, in batches, and their replies.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::dialect::{Dialect, Due, Seen, Verb};
use super::keys::{KeySource, Share};
use super::load::{RespLoad, Until, Workload};
use super::tally::Tally;
use super::verify::{self, Reply};
use crate::drive::{Arrival, Choice, Codec, Counts, Malformed, Pending, Side, Then};

pub(super) struct RespSide {
    dialect: Arc<Dialect>,
    source: KeySource,
    workload: Workload,
    pipeline: u64,
    /// Number of commands left to send. `None` if a duration ends the load.
    left: Option<u64>,
    pub(super) tally: Tally,
}

/// The commands in flight on a connection.
#[derive(Debug)]
pub(super) struct RespCodec {
    dialect: Arc<Dialect>,
    due: VecDeque<Due>,
    batch: Option<Pending>,
    /// Bytes of an incomplete reply.
    rest: Vec<u8>,
    /// Current step of the workflow, and the key that it uses.
    step: u8,
    key: u64,
}

impl RespSide {
    pub(super) fn new(load: &RespLoad, dialect: &Arc<Dialect>, share: Share) -> Self {
        Self {
            dialect: dialect.clone(),
            source: KeySource::new(load.choice, load.keys, load.seed, share),
            workload: load.workload,
            pipeline: load.pipeline as u64,
            left: match load.until {
                Until::Requests(requests) => Some(share.amount_of(requests)),
                Until::Elapsed(_) => None,
            },
            tally: Tally::default(),
        }
    }

    /// Handles the replies in the bytes, up to the first incomplete one.
    fn replies(
        &mut self,
        codec: &mut RespCodec,
        bytes: &[u8],
        counts: &mut Counts,
        done: &mut Done,
    ) -> Result<(), Malformed> {
        while self.expected(codec, bytes, done) == Seen::Other && self.other(codec, bytes, counts, done)? {}
        Ok(())
    }

    /// Handles the expected replies, and classifies the bytes after them.
    fn expected(&mut self, codec: &mut RespCodec, bytes: &[u8], done: &mut Done) -> Seen {
        while done.bytes < bytes.len() {
            let due = codec.due.front();
            match due.map_or(Seen::Other, |due| self.dialect.compare(*due, &bytes[done.bytes..])) {
                Seen::Expected(length) => done.bytes += length,
                other => return other,
            }
            if let Some(due) = codec.due.pop_front().filter(|due| due.verb.is_counted()) {
                self.tally.right(due.verb);
                done.right += 1;
            }
        }
        Seen::Begin
    }

    /// Handles an unexpected reply, or one without a command. Returns whether it is complete.
    fn other(
        &mut self,
        codec: &mut RespCodec,
        bytes: &[u8],
        counts: &mut Counts,
        done: &mut Done,
    ) -> Result<bool, Malformed> {
        let bytes = &bytes[done.bytes..];
        let due = codec.due.front().copied();
        let (length, outcome, is_right) = match verify::read(&self.dialect, due.unwrap_or(GREETING), bytes) {
            Reply::Begin => return Ok(false),
            Reply::Push { bytes } => {
                done.bytes += bytes;
                return Ok(true);
            }
            Reply::Right { bytes, outcome } => (bytes, outcome, true),
            Reply::Wrong { bytes, outcome } => (bytes, outcome, false),
            Reply::Malformed => return Err(self.malformed(due, bytes)),
        };
        let Some(due) = due else { return Err(self.malformed(None, bytes)) };
        codec.due.pop_front();
        if !is_right {
            self.tally.problem(&self.dialect, Some(due), &bytes[..length]);
        }
        done.bytes += length;
        if due.verb.is_counted() {
            self.tally.other(&outcome);
            if is_right {
                done.right += 1;
            } else {
                done.wrong += 1;
                counts.wrong();
            }
        }
        Ok(true)
    }

    fn malformed(&mut self, due: Option<Due>, bytes: &[u8]) -> Malformed {
        self.tally.problem(&self.dialect, due, bytes);
        Malformed("bytes that aren't a reply")
    }
}

/// The greeting. An unsolicited reply, which has no command, is counted as a reply to the greeting.
const GREETING: Due = Due { verb: Verb::Greeting, key: 0 };

/// Handled replies.
#[derive(Default)]
struct Done {
    bytes: usize,
    right: usize,
    wrong: usize,
}

impl Side for RespSide {
    type Codec = RespCodec;

    const CLOSES: bool = true;

    fn codec(&self) -> Box<RespCodec> {
        Box::new(RespCodec {
            dialect: self.dialect.clone(),
            due: VecDeque::new(),
            batch: None,
            rest: Vec::new(),
            step: 0,
            key: 0,
        })
    }

    fn choose(&mut self, _place: u64) -> Choice {
        let size = self.left.map_or(self.pipeline, |left| left.min(self.pipeline));
        self.left = self.left.map(|left| left - size);
        Choice { request: 0, answers: usize::try_from(size).expect("a pipeline is short") }
    }

    fn begin(&mut self, codec: &mut RespCodec, pending: Pending, out: &mut Vec<u8>) {
        for _ in 0..pending.answers {
            let due = codec.next(self.workload, &mut self.source);
            self.dialect.write(out, due);
            codec.due.push_back(due);
        }
        codec.batch = Some(pending);
    }

    fn receive(
        &mut self,
        codec: &mut RespCodec,
        input: &[u8],
        arrival: &mut Arrival<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Then, Malformed> {
        let (mut rest, mut done) = (mem::take(&mut codec.rest), Done::default());
        let result = if rest.is_empty() {
            let result = self.replies(codec, input, arrival.counts, &mut done);
            rest.extend_from_slice(&input[done.bytes..]);
            result
        } else {
            rest.extend_from_slice(input);
            let result = self.replies(codec, &rest, arrival.counts, &mut done);
            rest.drain(..done.bytes);
            result
        };
        codec.rest = rest;
        // The replies before a malformed one still count.
        codec.answered(&done, arrival);
        result.map(|()| Then::GoOn)
    }
}

impl RespCodec {
    /// Counts the answers to the batch.
    fn answered(&mut self, done: &Done, arrival: &mut Arrival<'_>) {
        let Some(batch) = &mut self.batch else { return };
        batch.answers -= done.right + done.wrong;
        if done.right > 0 {
            arrival.counts.right(arrival.now.saturating_duration_since(batch.since), done.right);
        }
        if batch.answers == 0 {
            self.batch = None;
            arrival.counts.completed += 1;
            *arrival.answered += 1;
        }
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
        Due { verb, key: self.key }
    }
}

impl Codec for RespCodec {
    fn open(&mut self, out: &mut Vec<u8>) {
        if !self.dialect.greeting.is_empty() {
            out.extend_from_slice(&self.dialect.greeting);
            self.due.push_back(GREETING);
        }
    }

    /// A batch is sent after all replies to the previous one.
    fn room(&self) -> usize {
        usize::from(self.batch.is_none())
    }

    fn oldest(&self) -> Option<Instant> {
        self.batch.map(|batch| batch.sent)
    }

    fn give_up(&mut self) -> Vec<Pending> {
        self.due.clear();
        self.rest.clear();
        self.batch.take().into_iter().collect()
    }
}
