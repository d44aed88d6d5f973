//! Asks the origin for a response that may be stored, and tells all waiters.

use std::sync::Arc;

use cache::collapse::answer::{Answer, Failed, Filling, PrivateAnswer};
use cache::collapse::table::LeaderGuard;
use cache::entry::stored::{Hit, Uncacheable};
use cache::failure::FailureCause;
use cache::portable;
use caching::explain::Finding;
use caching::validation::{self, Answer as Judgement, First};
use caching::{
    Asked, ContentRange, ExchangeTimes, NotStored, ResponseFacts, Timestamp, Validators, file_type,
    may_serve_stale, may_store, partial,
};
use http1::ResponseFraming;
use message::clock::now;
use message::reason::{Detail, Reason};
use origin::{OriginError, OriginResponse, Probe};
use telemetry::FillState;

use crate::config::CloseDelimited;
use crate::events::{self, Event};
use crate::request::fetch::job::Job;
use crate::request::fetch::publication::{self, Publication};
use crate::request::fetch::scope::FetchScope;
use crate::request::findings;
use crate::request::origin_call::OriginCall;
use crate::rewrite::Purpose;

/// Whether the stored response's validators are sent along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validation {
    With,
    Without,
}

impl Job {
    /// Runs to the end of the body; `probe` is the permission of the circuit breaker, if it was given already.
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
        // The rest of a response that a client is already receiving counts as no miss.
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
        // Hints can't say that they are for all, as a response to `Authorization` would have to under any rules.
        if self.facts.has_credentials {
            leader.in_flight().make_personal();
        }
        let _waiting = self.worker.recorder.fill(FillState::Waiting);
        let asked_at = now();
        let mut interim = |interim| leader.in_flight().push_interim(interim);
        let asked = Asked::by(|name| fields.value(name).is_some());
        let response = call.send(fields, self.fetch.body(), &mut interim).await?;
        // An answer for missing bytes of a stored response is judged separately.
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
        // Only a 304 is judged by its fields.
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

    /// Returns the freshened response for the request that asked, and the reason if it isn't stored; `None` if only a full response
    /// helps. A response purged while the origin is asked is gone, whatever the answer.
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

    /// Asks again after a 304 that is not about the stored response, or about one that is gone or whose head it has made too large: only
    /// a full response helps.
    async fn ask_again(&self, leader: LeaderGuard) {
        let says = "the origin's 304 can't be used with the stored response: asked again without validators";
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

    /// Stores a full response, or leaves it to the request that asked.
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

    /// Returns the part that a 206 brings; `None` for a 206 that was not asked for, whose part is unknown.
    //= RFC 9111 section 3.3: a 206 as an incomplete 200
    fn received_part(&self, response: &OriginResponse) -> Option<ContentRange> {
        let is_part = response.status == http::StatusCode::PARTIAL_CONTENT;
        if !is_part || !matches!(self.fetch.scope, FetchScope::Range(_)) {
            return None;
        }
        partial::received_part(&response.fields.to_lines(), response.body.content_length())
    }

    /// Makes head and fill of a response that may be stored.
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
        let promised = leader.in_flight().promised();
        let filling =
            self.publication(leader).filling(&storable?, (&lines, times), response, &promised, self.limits());
        let filling = filling.map_err(|_| NotStored::VaryUnusable)?;
        match portable::may_hold(&filling.head, Some(&self.fetch.key)) {
            true => Ok(filling),
            false => Err(NotStored::HeadTooLarge.into()),
        }
    }

    /// Leaves a response that isn't stored to the request that asked.
    pub(crate) fn refuse(
        &self,
        reason: Detail,
        response: Box<OriginResponse>,
        times: ExchangeTimes,
        leader: LeaderGuard,
    ) {
        // Requests to an origin in trouble must stay collapsed.
        if !response.status.is_server_error() {
            self.remember_refusal(reason, times.response, None, || leader.in_flight().is_invalidated());
        }
        self.keep_private(response, reason, leader);
    }

    /// Notes under the key that responses for it aren't stored, if the reason goes beyond this one and isn't noted already.
    pub(crate) fn remember_refusal(
        &self,
        reason: Detail,
        now: Timestamp,
        known: Option<Uncacheable>,
        is_outdated: impl FnOnce() -> bool,
    ) {
        if !is_lasting(reason) {
            return;
        }
        let until = now.plus_ms(self.site.config.collapse.uncacheable_for_ms());
        let note = Uncacheable { until, because: reason, scope: self.refusal_scope(reason) };
        self.lease.iter().for_each(|lease| lease.note(note));
        if !known.is_some_and(|known| known.is_renewed_enough(&note, now)) {
            publication::mark_uncacheable(self, note, now, is_outdated);
        }
    }

    pub(crate) fn storable(
        &self,
        facts: &ResponseFacts,
        response: &OriginResponse,
        times: ExchangeTimes,
    ) -> Result<caching::Storable, Detail> {
        let rules = &self.rule().caching;
        let storable = may_store(&self.facts, facts, rules, times.response)?;
        let path_and_query = &self.request.path_and_query;
        file_type::permits(rules, path_and_query, facts.status, response.fields.values("content-type"))?;
        // The answer to the range of one request, which is no part of the key.
        if response.status == http::StatusCode::RANGE_NOT_SATISFIABLE
            && matches!(self.fetch.scope, FetchScope::Range(_))
        {
            return Err(NotStored::Status.into());
        }
        if response.unknown_transfer_coding {
            return Err(Reason::UnknownTransferCoding.into());
        }
        //= RFC 9112 section 8: what the close ends is complete if its header section is
        if response.body.framing() == ResponseFraming::UntilClose
            && self.rule().close_delimited == CloseDelimited::Pass
        {
            return Err(Reason::CloseDelimited.into());
        }
        match response.body.content_length() {
            Some(bytes) if bytes > self.limits().body_bytes_max => Err(Reason::TooLarge.into()),
            _ => Ok(storable),
        }
    }

    //= RFC 9111 section 5.2.1.5: no trace in storage
    //= RFC 9111 section 5.2.2.5: no trace in storage
    pub(crate) fn keep_private(&self, response: Box<OriginResponse>, reason: Detail, leader: LeaderGuard) {
        self.not_stored(reason);
        let status = response.status.as_u16();
        let response = parking_lot::Mutex::new(Some(response));
        let scope = self.refusal_scope(reason);
        leader.land(Answer::Private(Arc::new(PrivateAnswer { reason, scope, status, response })));
    }

    pub(crate) fn not_stored(&self, reason: Detail) {
        if reason == Reason::MemoryFull.into() {
            self.worker.make_room(&self.site, &self.live.config.limits);
        }
        let reason = reason.as_str();
        self.worker.recorder.not_stored(reason);
        events::emit(&self.site, &self.request.path_and_query, &Event::NotStored(reason));
    }

    pub(crate) fn publication<'a>(&'a self, leader: &'a LeaderGuard) -> Publication<'a> {
        Publication { job: self, in_flight: leader.in_flight() }
    }
}

/// Returns whether the next response for the key will probably be refused too, for requests in the scope of the reason.
fn is_lasting(reason: Detail) -> bool {
    match reason {
        Detail::Store(reason) => matches!(
            reason,
            NotStored::ResponseNoStore
                | NotStored::Private
                | NotStored::Authorization
                | NotStored::Credentials
                | NotStored::NotSignalled
                | NotStored::SetCookie
                | NotStored::TypeMismatch
                | NotStored::VaryAny
                | NotStored::VaryUnusable
                | NotStored::NoFreshness
                | NotStored::HeadTooLarge
        ),
        Detail::Here(_) => true,
        Detail::Reuse(_) | Detail::Origin(_) => false,
    }
}
