//! Stored responses in place of an origin whose circuit breaker isn't closed. Requests that can do without such an origin don't wait
//! for it: when it is time to probe it, a validation behind the response does.

use std::time::Duration;

use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use cache::membership::LookUp;
use caching::explain::Finding;
use caching::{FwdReason, Outcome, may_serve_stale};
use message::explain_record::note;
use origin::{OriginError, Probe};
use telemetry::CacheResult;

use crate::events::{self, Event};
use crate::request::context::RequestContext;
use crate::request::lookup::Lookup;
use crate::request::plan::ForwardMode;
use crate::request::reply::Reply;
use crate::request::serve::Use;
use crate::request::{findings, origin_call, refresh};

const OPEN: OriginError = OriginError::CircuitOpen { retry: Duration::ZERO };

/// A stored response that may stand in, the look-up that found it, and why the origin would be asked.
pub(crate) struct Candidate<'a> {
    pub(crate) hit: &'a Hit,
    pub(crate) look_up: LookUp,
    pub(crate) fwd: FwdReason,
}

/// Returns the reply, or how to load it; `None` if the request has to wait for the origin, or be refused.
pub(crate) fn instead(
    lookup: &Lookup<'_>,
    candidate: Option<Candidate<'_>>,
    key: &[u8],
) -> Option<Result<Reply, ForwardMode>> {
    let RequestContext { site, request, now, .. } = lookup.context;
    let (candidate, circuit) = (candidate?, site.upstream.open_circuit()?);
    let (cause, hit) = (FailureCause::of_error(&OPEN), candidate.hit);
    if !may_stand_in(lookup, &candidate, cause, key) {
        return None;
    }
    let leave = circuit.probe(lookup.client());
    note(request.record, || tried(lookup, &leave));
    note(request.record, || findings::failure(Some(hit), true, cause, now));
    let outcome = Outcome::Forwarded { reason: candidate.fwd, status: None, stored: false, collapsed: false };
    let used = Use::Asked { outcome, result: CacheResult::Stale };
    let way = match lookup.stale(hit, cause, used) {
        Some(reply) => Ok(reply),
        None if lookup.is_within_reach(hit) => Err(lookup.loading(hit, used, Some(cause), key)),
        None => return None,
    };
    // The request counts as refused.
    origin_call::count(lookup.worker, site, request.method, Err(&OPEN), Duration::ZERO);
    match leave {
        Ok(probe) => refresh::probe(lookup, probe, hit, key),
        // The origin was not asked.
        Err(error) => {
            let event = Event::OriginFailed { error: &error, server: None };
            events::emit(site, request.path_and_query, &event);
        }
    }
    Some(way)
}

fn may_stand_in(lookup: &Lookup<'_>, candidate: &Candidate<'_>, cause: FailureCause, key: &[u8]) -> bool {
    let (head, rules) = (&candidate.hit.head, &lookup.rule.caching);
    may_serve_stale(lookup.facts, &head.facts, rules, lookup.now, cause.failure)
        && lookup.cache().may_stand_in(key, candidate.look_up, head)
}

/// Finding about whether the origin is probed behind the response.
fn tried(lookup: &Lookup<'_>, leave: &Result<Probe, OriginError>) -> Finding {
    let says = match leave {
        Ok(_) => "the circuit breaker tries the origin behind the response".to_owned(),
        Err(error) => format!("the origin fails: {error}"),
    };
    let origin = lookup.site.config.origin.name.as_str();
    Finding::new("forward", says, "RFC 9209 section 2.3").with("origin", origin, "")
}
