//! The requests and answers of one worker.

use std::sync::Arc;

use super::codec::{Answer, HttpCodec, Sink};
use super::h1::H1;
use super::h2::H2;
use super::load::{HttpLoad, Protocol};
use super::plan::Plan;
use super::tally::Tally;
use crate::drive::{Arrival, Choice, Malformed, Pending, Side, Then};
use crate::result::Failure;

#[derive(Debug)]
pub(super) struct HttpSide {
    plan: Arc<Plan>,
    protocol: Protocol,
    pub(super) tally: Tally,
}

impl HttpSide {
    pub(super) fn new(plan: &Arc<Plan>, load: &HttpLoad) -> Self {
        let tally = Tally::new(load.detail, plan.figures.len());
        Self { plan: plan.clone(), protocol: load.protocol, tally }
    }
}

impl Side for HttpSide {
    type Codec = dyn HttpCodec;

    const CLOSES: bool = false;

    fn codec(&self) -> Box<Self::Codec> {
        match self.protocol {
            Protocol::Http1 { pipelining } => Box::new(H1::new(pipelining)),
            Protocol::Http2 { streams } => Box::new(H2::new(streams)),
        }
    }

    fn choose(&mut self, place: u64) -> Choice {
        Choice { request: self.plan.request_at(place), answers: 1 }
    }

    fn begin(&mut self, codec: &mut Self::Codec, pending: Pending, out: &mut Vec<u8>) {
        codec.begin(pending, &self.plan.requests[pending.request], out);
    }

    fn receive(
        &mut self,
        codec: &mut Self::Codec,
        input: &[u8],
        arrival: &mut Arrival<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, Malformed> {
        codec.receive(input, &mut Book { side: self, arrival }, out)
    }

    fn end(&mut self, codec: &mut Self::Codec, arrival: &mut Arrival<'_>) {
        codec.end(&mut Book { side: self, arrival });
    }

    fn failed(&mut self, pending: &Pending) {
        self.tally.error(&self.plan.requests[pending.request]);
    }
}

/// Destination of the answers.
struct Book<'a, 'b> {
    side: &'a mut HttpSide,
    arrival: &'a mut Arrival<'b>,
}

impl Sink for Book<'_, '_> {
    fn answered(&mut self, pending: Pending, answer: Answer) {
        let Self { side: HttpSide { plan, tally, .. }, arrival: Arrival { counts, answered, now } } = self;
        let prepared = &plan.requests[pending.request];
        **answered += 1;
        counts.completed += 1;
        let Answer::Status(status) = answer else {
            counts.fail(Failure::Broken, 1);
            return tally.error(prepared);
        };
        tally.statuses[usize::from(status)] += 1;
        if prepared.status.is_some_and(|expected| expected != status) {
            counts.wrong();
            return tally.error(prepared);
        }
        let latency = now.saturating_duration_since(pending.since);
        counts.right(latency, 1);
        tally.right(prepared, latency);
    }

    fn first_byte(&mut self, pending: Pending) {
        let now = self.arrival.now;
        self.side.tally.first_bytes.record_time(now.saturating_duration_since(pending.since));
    }
}
