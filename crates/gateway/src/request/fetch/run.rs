//! Requests a response from the origin that may be stored, notifies all waiters, and moves the body into its fill, and from there into
//! the store.

use std::sync::Arc;

use bytes::Bytes;
use cache::collapse::answer::{Answer, Failed, Filling};
use cache::collapse::table::LeaderGuard;
use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use cache::fill::{Fill, NotKept, Writer, Written};
use cache::portable;
use caching::explain::Finding;
use caching::validation::{self, Answer as Judgement, First};
use caching::{
    Asked, ContentRange, ExchangeTimes, NotStored, ResponseFacts, Timestamp, Validators, may_serve_stale,
    partial,
};
use message::clock::now;
use message::reason::{Detail, Reason};
use origin::{BodyFrame, OriginBody, OriginError, OriginResponse, Probe};
use telemetry::FillState;

use crate::events::{self, Event};
use crate::request::fetch::fetch_spec::FetchScope;
use crate::request::fetch::job::Job;
use crate::request::fetch::part::Brought;
use crate::request::findings;
use crate::request::origin_call::OriginCall;
use crate::rewrite::Purpose;

/// Whether the request includes the validators of the stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validation {
    With,
    Without,
}

impl Job {
    /// Runs until the end of the body. `probe` is the permit of the circuit breaker, if the job already has one.
    pub(crate) async fn run(self, probe: Option<Probe>, leader: LeaderGuard) {
        if self.lacks_what_it_completes() {
            return leader.land(Answer::Discarded);
        }
        match self.ask(Validation::With, probe, &leader).await {
            Err(error) => self.failed(error, leader),
            Ok((response, times)) => match &self.fetch.scope {
                FetchScope::MissingRange(hole) => {
                    Box::pin(self.hole_answered(hole, response, times, leader)).await
                }
                FetchScope::Whole | FetchScope::AsAsked | FetchScope::Range(_) => {
                    self.answered(response, times, leader).await
                }
            },
        }
    }

    pub(super) async fn ask(
        &self,
        validation: Validation,
        probe: Option<Probe>,
        leader: &LeaderGuard,
    ) -> Result<(Box<OriginResponse>, ExchangeTimes), OriginError> {
        // Fetching missing bytes of a stored response doesn't count as a miss.
        if !self.is_for_hole() {
            self.spend()?;
        }
        let validated = self.fetch.candidates.first().filter(|_| validation == Validation::With);
        let validated = validated.map(|hit| &*hit.head);
        let call = OriginCall { owned: &self.owned, validated, probe };
        //= RFC 9111 section 4.3.1: starting from the request or from the stored response
        let mut fields = call.fields(Purpose::Store);
        if validation == Validation::With && !self.is_taken_away() {
            for (name, value) in validation::conditional_fields(&self.candidates(), self.first()) {
                fields.set(name, &value);
            }
        }
        self.fetch.scope.write_fields(&self.request, &mut fields);
        // Early hints have no directive that permits sharing. If the request has credentials, they would need one to be sent to other
        // clients.
        if self.facts.has_credentials {
            leader.in_flight.make_personal();
        }
        let _waiting = self.worker.recorder.fill(FillState::Waiting);
        let asked_at = now();
        let mut interim = |interim| leader.in_flight.push_interim(interim);
        let asked = Asked::by(|name| fields.value(name).is_some());
        let response = call.send(fields, self.fetch.body(), &mut interim).await?;
        // A response for missing bytes of a stored response is judged separately.
        if !self.is_for_hole()
            && let Some(error) = self.unasked(asked, response.status)
        {
            return Err(error);
        }
        Ok((response, self.times_since(asked_at)))
    }

    fn failed(&self, error: OriginError, leader: LeaderGuard) {
        let cause = FailureCause::of_error(&error);
        self.land_failure(cause, Failed::Error(Arc::new(error)), leader);
    }

    fn land_failure(&self, cause: FailureCause, failed: Failed, leader: LeaderGuard) {
        let answer = match self.usable_stale(cause) {
            Some(stale) => Answer::Stale(stale, cause, failed),
            //= RFC 9111 section 5.2.2.2: an error instead of a stale response
            None => Answer::Failed(failed),
        };
        leader.land(answer);
    }

    fn usable_stale(&self, cause: FailureCause) -> Option<Hit> {
        let (stored, now) = (self.fetch.stale.as_ref(), now());
        let usable = stored.filter(|stale| self.may_stand_in(stale, cause, now));
        self.note(|| findings::failure(usable, stored.is_some(), cause, now));
        usable.cloned()
    }

    pub(crate) fn may_stand_in(&self, stale: &Hit, cause: FailureCause, now: Timestamp) -> bool {
        may_serve_stale(&self.facts, &stale.head.facts, &self.rule().caching, now, cause.failure)
            && self.cache().may_stand_in(&self.fetch.key, self.fetch.look_up, &stale.head)
    }

    async fn answered(&self, response: Box<OriginResponse>, times: ExchangeTimes, leader: LeaderGuard) {
        match self.judge(&response, times) {
            Judgement::Freshen(identified) => match self.freshen(&identified, &response, times, &leader) {
                Some((hit, storing)) => leader.land(Answer::Freshened(hit, storing)),
                None => Box::pin(self.ask_again(leader)).await,
            },
            Judgement::Unidentified if !self.fetch.candidates.is_empty() => {
                Box::pin(self.ask_again(leader)).await
            }
            Judgement::ServerError => Box::pin(self.server_error(response, times, leader)).await,
            Judgement::Unidentified | Judgement::Replace => self.take(response, times, leader).await,
        }
    }

    fn judge(&self, response: &OriginResponse, times: ExchangeTimes) -> Judgement {
        // Only the decision about a 304 depends on its fields.
        let is_304 = response.status == http::StatusCode::NOT_MODIFIED;
        let lines = if is_304 { response.fields.to_lines() } else { Vec::new() };
        let status = response.status.as_u16();
        validation::judge(status, &lines, &self.candidates(), self.first(), times.response)
    }

    fn candidates(&self) -> Vec<Validators<'_>> {
        self.fetch.candidates.iter().map(|hit| hit.head.validators()).collect()
    }

    fn first(&self) -> First {
        if self.fetch.stale.is_some() { First::Selected } else { First::Other }
    }

    /// Returns the freshened response for the request that caused the validation, and the reason if it isn't stored; `None` if only a
    /// full response can answer the request. A response that was purged during the validation isn't used, whatever the origin answers.
    //= RFC 9111 section 4.3.4: freshening stored responses upon validation
    fn freshen(
        &self,
        identified: &[usize],
        response: &OriginResponse,
        times: ExchangeTimes,
        leader: &LeaderGuard,
    ) -> Option<(Hit, Result<(), Detail>)> {
        let hits = identified.iter().map(|index| &self.fetch.candidates[*index]);
        let (hit, storing) = self.publication(leader).freshen_all(hits, response, times)?;
        if self.is_taken_away() {
            return None;
        }
        self.note(|| findings::freshened(&hit, storing, times.response));
        Some((hit, storing))
    }

    /// Sends the request again without validators after a 304 that doesn't match the stored response, or whose stored response has
    /// been removed or now has a head that is too large.
    async fn ask_again(&self, leader: LeaderGuard) {
        let says = "the origin's 304 can't be applied: request repeated without validators";
        self.note(|| Finding::new("freshen", says, "RFC 9111 section 4.3.3"));
        match self.ask(Validation::Without, None, &leader).await {
            Err(error) => self.failed(error, leader),
            Ok((response, times)) => self.take(response, times, leader).await,
        }
    }

    async fn server_error(&self, response: Box<OriginResponse>, times: ExchangeTimes, leader: LeaderGuard) {
        let status = response.status.as_u16();
        let cause = FailureCause::of_status(status);
        match self.usable_stale(cause) {
            Some(stale) => leader.land(Answer::Stale(stale, cause, Failed::Status(status))),
            None => self.take(response, times, leader).await,
        }
    }

    /// Stores a full response, or delivers it only to the request that caused the forward.
    //= RFC 9111 section 4.3.3: a full response may be stored
    pub(crate) async fn take(
        &self,
        response: Box<OriginResponse>,
        times: ExchangeTimes,
        leader: LeaderGuard,
    ) {
        if let Some(part) = self.received_part(&response) {
            return Box::pin(self.take_part(part, response, times, leader)).await;
        }
        match self.filling(&response, times, &leader) {
            Ok(filling) => self.fill(response, filling, leader).await,
            Err(reason) => self.refuse(reason, response, times, leader),
        }
    }

    /// Returns the part in a 206; `None` if the request had no range, because the part is then unknown.
    //= RFC 9111 section 3.3: a 206 as an incomplete 200
    fn received_part(&self, response: &OriginResponse) -> Option<ContentRange> {
        let is_part = response.status == http::StatusCode::PARTIAL_CONTENT;
        if !is_part || !matches!(self.fetch.scope, FetchScope::Range(_)) {
            return None;
        }
        partial::received_part(&response.fields.to_lines(), response.body.content_length())
    }

    /// Creates the head and fill of a response that may be stored.
    fn filling(
        &self,
        response: &OriginResponse,
        times: ExchangeTimes,
        leader: &LeaderGuard,
    ) -> Result<Filling, Detail> {
        let lines = response.fields.to_lines();
        let facts = ResponseFacts::parse(response.status.as_u16(), &lines, times, &self.rule().caching);
        let storable = self.storable(&facts, response, times);
        self.note(|| findings::storing(storable.as_ref().map_err(|reason| *reason), times.response));
        let promised = Arc::clone(&leader.in_flight.waiters);
        let filling =
            self.publication(leader).filling(&storable?, (&lines, times), response, &promised, self.limits());
        let filling = filling.map_err(|_| NotStored::VaryUnusable)?;
        match portable::may_hold(&filling.head, Some(&self.fetch.key)) {
            true => Ok(filling),
            false => Err(NotStored::HeadTooLarge.into()),
        }
    }

    /// Moves the body into the fill, and the complete body into the store.
    pub(crate) async fn fill(&self, response: Box<OriginResponse>, filling: Filling, leader: LeaderGuard) {
        let mut body = response.body;
        let has_length = body.content_length().is_some();
        let mut trailers = None;
        let writer = Writer(Arc::clone(&filling.fill));
        let fill = &writer.0;
        leader.announce(Answer::Filling(filling.clone()));
        if filling.storing().is_err() {
            // The response isn't stored, so requests on other instances must not wait for its end.
            self.free_lease();
        }
        let _streaming = self.worker.recorder.fill(FillState::Streaming);
        let mut is_judged = false;
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
                        self.store_filled(&filling, &leader);
                        is_judged = true;
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
                        // The beginning of this body must not be stored either.
                        is_judged = true;
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
            // If the length of a part differs from the announced one, it may contain wrong bytes.
            Ok(()) if !fill.is_as_announced() => self.abort(fill, "part-length", leader),
            Ok(()) => {
                if !is_judged {
                    self.store_filled(&filling, &leader);
                }
                fill.complete(trailers);
            }
            Err(reason) => {
                if !is_judged {
                    self.store_beginning(&filling, &leader);
                }
                self.abort(fill, reason, leader);
            }
        }
    }

    /// Passes a piece to the readers. If the body is no longer kept, waiters are notified immediately. Memory is freed only after the
    /// readers have caught up. Until then, the bytes that they still need take the most memory, and freeing memory would discard those
    /// bytes.
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

    /// Stores a complete body, if it may be stored.
    fn store_filled(&self, filling: &Filling, leader: &LeaderGuard) {
        if let Some(reason) = filling.refused {
            self.not_stored(reason.into());
            return;
        }
        let Some(body) = filling.fill.body() else { return };
        if !filling.head.facts.is_shareable() && !Arc::ptr_eq(&self.live, &self.worker.live()) {
            // A reloaded configuration may have different rules about the clients that may receive the response.
            self.not_stored(Reason::Outdated.into());
            return;
        }
        let publication = self.publication(leader);
        let stored = match &filling.part {
            Some(part) => publication.store_part(&filling.head, part, body, Brought::Part),
            None => publication.store(&filling.head, body),
        };
        let is_overtaken = leader.in_flight.is_invalidated() || leader.in_flight.rival().is_some();
        let refused = if is_overtaken { Reason::Outdated } else { Reason::StoreFull };
        match stored {
            Ok(()) => {
                // The fetch is hidden before readers receive the end, so that the next request starts its own validation instead of
                // joining a finished fetch.
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
    }

    fn abort(&self, fill: &Fill, reason: &'static str, leader: LeaderGuard) {
        // Waiters that have received no bytes must learn of the failure before the fill ends.
        leader.land(Answer::Failed(Failed::Error(Arc::new(OriginError::BodyTruncated))));
        fill.abort(None);
        let says = format!("the body was cut short ({reason}): not stored as complete");
        self.note(|| Finding::new("store", says, "RFC 9111 section 3.3"));
        self.worker.recorder.fill_aborted(reason);
        events::emit(&self.site, &self.request.path_and_query, &Event::FillAborted(reason));
    }
}

/// Returns the reason why a body without readers isn't fetched to its end. If there is no room for the body, this is the reason why it
/// isn't stored.
fn abandoned(fill: &Fill) -> &'static str {
    match fill.why_not_stored() {
        Some(NotKept::OverBudget) => NotKept::OverBudget.reason().as_str(),
        Some(NotKept::TooLarge) | None => "abandoned",
    }
}
