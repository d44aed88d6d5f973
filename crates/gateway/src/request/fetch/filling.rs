//! Moves the body of a response into its fill, and from there into the store.

use std::sync::Arc;

use bytes::Bytes;
use cache::collapse::answer::{Answer, Failed, Filling};
use cache::collapse::table::LeaderGuard;
use cache::fill::{Fill, NotKept, Writer, Written};
use caching::explain::Finding;
use message::reason::Reason;
use origin::{BodyFrame, OriginBody, OriginError, OriginResponse};
use telemetry::FillState;

use crate::events::{self, Event};
use crate::request::fetch::job::Job;
use crate::request::fetch::part::Brought;
use crate::request::fetch::scope::FetchScope;
use crate::request::findings;

/// Whether a body was given to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    ToDo,
    Done,
}

impl Job {
    /// Moves the body into the fill, and the complete body into the store.
    pub(crate) async fn fill(&self, response: Box<OriginResponse>, filling: Filling, leader: LeaderGuard) {
        let mut body = response.body;
        let has_length = body.content_length().is_some();
        let mut trailers = None;
        let writer = Writer(Arc::clone(&filling.fill));
        let fill = &writer.0;
        leader.announce(Answer::Filling(filling.clone()));
        if filling.storing().is_err() {
            // No response will be written: requests that wait at other instances must not wait for the end.
            self.free_lease();
        }
        let _streaming = self.worker.recorder.fill(FillState::Streaming);
        let mut storing = Storing::ToDo;
        let pause_max = self.site.config.collapse.limits().map(|limits| limits.wait_max);
        let end = loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = fill.deserted(pause_max, &self.request.place_wanted) => break Err("abandoned"),
            };
            match frame {
                Some(Ok(BodyFrame::Data(data))) => match self.pass((&body, &filling), data, &leader).await {
                    Some(Written::All) if has_length => {
                        storing = self.store_filled(&filling, &leader);
                        fill.release();
                    }
                    None | Some(Written::Kept | Written::All | Written::NoLongerKept(_)) => {}
                    Some(Written::TooLong) => break Err("part-length"),
                    Some(Written::Abandoned) => break Err(abandoned(fill)),
                    Some(Written::TooSlow) => break Err("transfers-max"),
                },
                Some(Ok(BodyFrame::Trailers(map))) => trailers = Some(map),
                Some(Err(error)) => {
                    if matches!(error, OriginError::BodyTooLarge { .. }) {
                        // The beginning is not to be stored any more than the whole.
                        storing = Storing::Done;
                    }
                    break Err(error.reason());
                }
                None => break Ok(()),
            }
        };
        if matches!(self.fetch.scope, FetchScope::MissingRange(_)) {
            self.worker.recorder.missing_part_bytes(fill.arrived_bytes());
        }
        match end {
            // A part whose length differs from the announced one may hold any bytes.
            Ok(()) if !fill.is_as_announced() => self.abort(fill, "part-length", leader),
            Ok(()) => {
                if storing == Storing::ToDo {
                    self.store_filled(&filling, &leader);
                }
                fill.complete(trailers);
            }
            Err(reason) => {
                if storing == Storing::ToDo {
                    self.store_beginning(&filling, &leader);
                }
                self.abort(fill, reason, leader);
            }
        }
    }

    /// Passes a piece on. If the body is no longer kept, waiters learn that at once; room is made only after its readers have caught up:
    /// until then they hold the most, and would lose it.
    async fn pass(
        &self,
        (body, filling): (&OriginBody, &Filling),
        data: Bytes,
        leader: &LeaderGuard,
    ) -> Option<Written> {
        let fill = &filling.fill;
        let begins = fill.has_nothing();
        let written = body.pass_on(fill.write(data, || body.wait_for_client())).await;
        if begins && filling.storing().is_ok() {
            leader.begun(filling);
        }
        let Some(Written::NoLongerKept(reason)) = written else { return written };
        self.stop_keeping(reason, leader);
        let caught_up = body.pass_on(fill.catch_up(|| body.wait_for_client())).await;
        self.not_stored(reason.reason().into());
        caught_up
    }

    fn stop_keeping(&self, reason: NotKept, leader: &LeaderGuard) {
        leader.hide();
        self.free_lease();
        self.note(|| findings::because("store", "no longer kept", reason.reason().into()));
    }

    fn free_lease(&self) {
        self.lease.iter().for_each(|lease| lease.free());
    }

    /// Stores a body that has arrived, if it may be stored.
    fn store_filled(&self, filling: &Filling, leader: &LeaderGuard) -> Storing {
        if let Some(reason) = filling.refused {
            self.not_stored(reason.into());
            return Storing::Done;
        }
        let Some(body) = filling.fill.body() else { return Storing::Done };
        if !filling.head.facts.is_shareable() && !Arc::ptr_eq(&self.live, &self.worker.live()) {
            // The rules of a reloaded configuration may judge otherwise for whom it is.
            self.not_stored(Reason::Outdated.into());
            return Storing::Done;
        }
        let publication = self.publication(leader);
        let stored = match &filling.part {
            Some(part) => publication.store_part(&filling.head, part, body, Brought::Part),
            None => publication.store(&filling.head, body),
        };
        let refused = if leader.in_flight.is_invalidated() { Reason::Outdated } else { Reason::StoreFull };
        match stored {
            Ok(()) => {
                // Before readers get the end: a request that follows on it starts the validation that it needs, and joins no finished fetch.
                leader.hide();
                if filling.part.is_some() {
                    self.worker.recorder.part_stored();
                }
            }
            Err(_) => self.not_stored(refused.into()),
        }
        let says = if filling.part.is_some() { "stored as a part" } else { "stored" };
        self.note(|| match stored {
            Ok(()) => Finding::new("store", says, "RFC 9111 section 3.3"),
            Err(_) => findings::because("store", "not stored", refused.into()),
        });
        Storing::Done
    }

    fn abort(&self, fill: &Fill, reason: &'static str, leader: LeaderGuard) {
        // Waiters that have none of it learn of the failure before they see its end.
        leader.land(Answer::Failed(Failed::Error(Arc::new(OriginError::BodyTruncated))));
        fill.abort(None);
        let says = format!("the body broke off ({reason}): not stored as complete");
        self.note(|| Finding::new("store", says, "RFC 9111 section 3.3"));
        self.worker.recorder.fill_aborted(reason);
        events::emit(&self.site, &self.request.path_and_query, &Event::FillAborted(reason));
    }
}

/// Returns why a body without readers is not fetched to its end. If there was no room for it, that is the reason it isn't stored.
fn abandoned(fill: &Fill) -> &'static str {
    match fill.why_not_stored() {
        Some(NotKept::OverBudget) => NotKept::OverBudget.reason().as_str(),
        Some(NotKept::TooLarge) | None => "abandoned",
    }
}
