//! The response to the client: a stored response (whole, in part or without content), or one that is not
//! stored.

use caching::range::{self, write_content_range, write_unsatisfied};
use caching::{
    CacheName, CacheStatus, ExchangeTimes, HopByHop, MethodClass, NotReused, Outcome, Precondition, Ranges,
    conditional,
};

use super::{Exchange, Message, Request, Response, Stored, dated, owned};

impl Exchange<'_> {
    pub(super) fn times(&self) -> ExchangeTimes {
        ExchangeTimes { request: self.now, response: self.now, clock_ahead_ms: 0 }
    }

    /// Returns the request for the origin, with the end-to-end fields for which `is_wanted` is true.
    pub(super) fn forwarded(&self, is_wanted: impl Fn(&str) -> bool) -> Request {
        let hop_by_hop = HopByHop::of(self.lines);
        let lines = self.lines.iter().copied();
        let fields = owned(lines.filter(|(name, _)| !hop_by_hop.contains(name) && is_wanted(name)));
        Request { message: Message { fields, ..self.request.message.clone() }, ..self.request.clone() }
    }

    /// Answers from a stored response.
    pub(super) fn stored(&self, stored: &Stored, outcome: Outcome, detail: Option<&str>) -> Response {
        let mut response = self.represented(stored);
        let age_s = stored.facts.age_s(self.now);
        //= RFC 9111 section 4: Age in a response that was not just validated
        let is_just_received = matches!(outcome, Outcome::Forwarded { .. }) && age_s == 0;
        if !is_just_received {
            response.message.fields.push(("age".to_owned(), age_s.to_string().into_bytes()));
        }
        let status = CacheStatus { outcome, ttl_s: Some(stored.facts.ttl_s(self.now)), key: None, detail };
        with_status(response, &status)
    }

    /// Answers from a response that was just stored, and adds its fields that are not stored.
    pub(super) fn first_use(
        &self,
        stored: &Stored,
        outcome: Outcome,
        unshared: Vec<(String, Vec<u8>)>,
    ) -> Response {
        let mut response = self.stored(stored, outcome, None);
        response.message.fields.extend(unshared);
        response
    }

    //= RFC 9110 section 13.2.2: preconditions come before ranges
    fn represented(&self, stored: &Stored) -> Response {
        let validators = stored.validators();
        let (method, lines) = (self.facts.method, self.lines);
        let precondition = conditional::evaluate(method, lines, &stored.facts, &validators, self.now);
        let mut response = Response {
            status: stored.facts.status,
            reason: stored.reason.clone(),
            message: stored.message.clone(),
        };
        if precondition == Precondition::NotModified {
            response.message.fields.retain(|(name, _)| conditional::belongs_in_304(name));
            response.message.body.clear();
            return Response { status: 304, reason: String::new(), ..response };
        }
        let complete_bytes = stored.message.body.len() as u64;
        match range::evaluate(method, lines, &stored.facts, &validators, complete_bytes, self.now) {
            Ranges::Single(part) => single_range(response, part, complete_bytes),
            Ranges::Unsatisfiable => unsatisfiable(complete_bytes),
            // A cache may answer a request for several ranges with the whole response.
            Ranges::Whole | Ranges::Multi(_) => {
                if method == MethodClass::Head {
                    response.message.body.clear();
                }
                response
            }
        }
    }

    /// Passes on a response that is not stored.
    pub(super) fn passed(&self, response: Response, reason: NotReused, detail: &str) -> Response {
        let lines = response.message.lines();
        let hop_by_hop = HopByHop::of(&lines);
        let fields = owned(lines.iter().copied().filter(|(name, _)| !hop_by_hop.contains(name)));
        let message = Message { fields: dated(fields, self.now), body: response.message.body.clone() };
        let reason = reason.fwd();
        let outcome =
            Outcome::Forwarded { reason, status: Some(response.status), stored: false, collapsed: false };
        let status = CacheStatus { outcome, ttl_s: None, key: None, detail: Some(detail) };
        with_status(Response { message, ..response }, &status)
    }

    /// Generates a response of the cache itself.
    pub(super) fn generated(&self, status: u16, detail: &str) -> Response {
        let message = Message { fields: dated(Vec::new(), self.now), body: Vec::new() };
        let outcome =
            CacheStatus { outcome: Outcome::Generated, ttl_s: None, key: None, detail: Some(detail) };
        with_status(Response { status, reason: String::new(), message }, &outcome)
    }
}

fn single_range(mut response: Response, part: caching::ByteRange, complete_bytes: u64) -> Response {
    let mut content_range = Vec::new();
    write_content_range(part, complete_bytes, &mut content_range);
    response.message.fields.push(("content-range".to_owned(), content_range));
    let (first, last) = (part.first as usize, part.last as usize);
    response.message.body = response.message.body[first..=last].to_vec();
    Response { status: 206, reason: String::new(), ..response }
}

fn unsatisfiable(complete_bytes: u64) -> Response {
    let mut content_range = Vec::new();
    write_unsatisfied(complete_bytes, &mut content_range);
    let fields = vec![("content-range".to_owned(), content_range)];
    Response { status: 416, reason: String::new(), message: Message { fields, body: Vec::new() } }
}

fn with_status(mut response: Response, status: &CacheStatus<'_>) -> Response {
    let name = CacheName::new("larder").expect("a token");
    let mut value = Vec::new();
    status.write(&name, &mut value);
    response.message.fields.push(("cache-status".to_owned(), value));
    response
}
