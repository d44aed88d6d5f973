//! Compresses replies: chooses the coding, and replaces the head and the body of a reply by those of its encoded form.
//!
//! | the reply | its form |
//! |---|---|
//! | a stored response | the form stored with it, or being encoded; otherwise encoded now, and stored |
//! | a response that is being stored | likewise, piece by piece as it arrives |
//! | a response for this client alone | encoded piece by piece, and not stored |
//! | 304 | sent with the entity tag that the client named |
//! | a part, and any reply to a request with `Range` | sent unencoded: bytes of different forms are never mixed |
//!
//! A reply that may have an encoded form has `Vary: Accept-Encoding`, whether it is encoded or not.

use std::ops::Deref;
use std::sync::Arc;

use cache::entry::forms::{Form, Forms};
use cache::entry::stored::StoredHead;
use cache::fill::{Fill, FillLimits, FillReader, Writer};
use caching::compression::{self, Coding, NotEncoded};
use caching::explain::Finding;
use caching::{MethodClass, Outcome, RequestFacts, fields};
use http::HeaderName;
use message::explain_record::note;
use message::fields::{Fields, PackedFields};
use message::head::RequestHead;
use message::trailers;
use store::Placement;

use crate::compression::encoder::{Encoder, Task};
use crate::config::{Compression, PersonalResponses};
use crate::request::context::RequestContext;
use crate::request::pump::Pump;
use crate::request::reply::{Body, Length, Reply, ReplyHead};
use crate::request::serve::is_for_one;

/// A request with a rule that compresses replies.
pub(crate) struct Compressing<'a> {
    pub(crate) context: RequestContext<'a>,
    pub(crate) compression: &'a Compression,
}

impl<'a> Deref for Compressing<'a> {
    type Target = RequestContext<'a>;

    fn deref(&self) -> &RequestContext<'a> {
        &self.context
    }
}

/// Outcome for a reply that may have a form.
enum Made {
    /// The reply is sent in this coding.
    Encoded(Coding),
    /// The reply has no body to encode.
    WithoutBody,
}

/// Adds the origin's own entity tags to the client's tags of encoded forms. Returns `None` if the client sent no such tags, as in most
/// requests.
pub(crate) fn with_tags_of_origin(
    request: &RequestHead<'_>,
    facts: &RequestFacts,
    compression: &Compression,
) -> Option<PackedFields> {
    if !(facts.has_conditions || facts.has_origin_conditions) {
        return None;
    }
    let tags = |name, codings: &[Coding]| {
        compression::with_tags_of_origin(fields::values(request.fields, name), codings)
    };
    // If a different coding is chosen for the request, the client can't use its copy in the old coding.
    let chosen = compression.compressible.choose(facts, request.fields).ok();
    let if_none_match = chosen.and_then(|coding| tags("if-none-match", &[coding]));
    let if_match = tags("if-match", &Coding::ALL);
    if if_none_match.is_none() && if_match.is_none() {
        return None;
    }
    let mut read = PackedFields::from_lines(request.fields.iter().copied());
    if_none_match.into_iter().for_each(|value| read.set("if-none-match", &value));
    if_match.into_iter().for_each(|value| read.set("if-match", &value));
    Some(read)
}

impl Compressing<'_> {
    /// Converts a reply to the form for its client.
    pub(crate) fn apply(&self, reply: &mut Reply) {
        // Generated replies are short, so they aren't compressed.
        if reply.cache_status.outcome == Outcome::Generated {
            return;
        }
        self.vary_as_whole(reply);
        let made = self.may_encode(reply).and_then(|()| self.encode(reply));
        match &made {
            Ok(Made::Encoded(coding)) => self.worker.recorder.compression(Ok(coding.name())),
            Ok(Made::WithoutBody) => {}
            Err(reason) => self.worker.recorder.compression(Err(reason.as_str())),
        }
        note(self.request.record, || finding(&made));
    }

    /// Checks whether the reply could be encoded for any client.
    fn may_encode(&self, reply: &Reply) -> Result<(), NotEncoded> {
        let may_encode = |status, fields: Fields<'_>, bytes| {
            let rules = &self.rule.caching;
            self.compression.compressible.may_encode(status, fields.lines(), bytes, rules)
        };
        let bytes = if let Length::Known(bytes) = reply.length { Some(bytes) } else { None };
        match &reply.head {
            ReplyHead::NotModified(head) | ReplyHead::Range(head) | ReplyHead::Ranges(head) => {
                may_encode(head.facts.status, head.fields.view(), head.declared_bytes())
            }
            // For a 304, only the entity tag of the response is known.
            ReplyHead::Own(_) if reply.status == 304 => Ok(()),
            head => may_encode(reply.status, head.fields(), bytes),
        }
    }

    /// Adds the `Vary` of the whole response to a 304 or a part that isn't stored.
    fn vary_as_whole(&self, reply: &mut Reply) {
        let ReplyHead::Own(own) = &reply.head else { return };
        let compressible = &self.compression.compressible;
        if matches!(reply.status, 206 | 304)
            && compressible.whole_may_be_encoded(own.fields.lines(), &self.rule.caching)
        {
            add_vary(reply);
        }
    }

    fn encode(&self, reply: &mut Reply) -> Result<Made, NotEncoded> {
        match &reply.head {
            ReplyHead::Own(_) if reply.status == 304 => {
                self.tell_form(reply);
                return Ok(Made::WithoutBody);
            }
            ReplyHead::NotModified(_) => {
                add_vary(reply);
                self.tell_form(reply);
                return Ok(Made::WithoutBody);
            }
            _ => add_vary(reply),
        }
        let coding = self.compression.compressible.choose(self.facts, self.request.fields)?;
        if self.is_personal(&reply.head) {
            return Err(NotEncoded::Personal);
        }
        match &reply.head {
            ReplyHead::Range(_) | ReplyHead::Ranges(_) | ReplyHead::NotModified(_) => {
                return Err(NotEncoded::Range);
            }
            ReplyHead::Whole(head) => {
                let head = Arc::clone(head);
                self.encode_stored(reply, &head, coding)?;
            }
            ReplyHead::Own(_) => self.encode_private(reply, coding)?,
        }
        give_head(reply, coding);
        Ok(Made::Encoded(coding))
    }

    /// Returns whether the reply may contain both secrets of its client and content that others choose, and so must not be compressed.
    fn is_personal(&self, head: &ReplyHead) -> bool {
        if self.compression.personal == PersonalResponses::Compressed {
            return false;
        }
        let rules = &self.rule.caching;
        match head.stored() {
            Some(stored) => is_for_one(self, stored),
            None => compression::is_personal(self.facts, head.fields().lines(), rules),
        }
    }

    /// Sets the entity tag of a 304 to the tag of the encoded form that the client has.
    fn tell_form(&self, reply: &mut Reply) {
        let Ok(coding) = self.compression.compressible.choose(self.facts, self.request.fields) else {
            return;
        };
        let tag = reply.head.fields().value("etag");
        let Some(form) = tag.and_then(|tag| compression::tag_in(coding, tag)) else { return };
        if !compression::names_form(fields::values(self.request.fields, "if-none-match"), &form) {
            return;
        }
        add_vary(reply);
        let mut own = reply.own_head();
        own.fields.set("etag", &form);
        reply.take_head(own);
    }

    fn is_head(&self) -> bool {
        self.facts.method == MethodClass::Head
    }

    /// Encodes a stored response, once for all clients that receive this coding.
    fn encode_stored(&self, reply: &mut Reply, head: &StoredHead, coding: Coding) -> Result<(), NotEncoded> {
        let forms = head.forms.get(self.cache().budget()).map_err(|_| NotEncoded::Busy)?;
        let body = match forms.find(coding) {
            Form::NoGain => return Err(NotEncoded::NoGain),
            Form::Kept { pieces, bytes } => {
                reply.length = Length::Known(bytes);
                reply.body = if self.is_head() { Body::Empty } else { Body::Pieces(pieces) };
                return Ok(());
            }
            _ if self.is_head() => Body::Empty,
            Form::Underway(fill) => Body::Fill(fill.reader(0, None).ok_or(NotEncoded::Busy)?),
            Form::Absent => Body::Fill(self.start(reply, coding, Some(forms))?),
        };
        reply.length = Length::Unknown;
        reply.body = body;
        Ok(())
    }

    /// Encodes a response for this client alone.
    fn encode_private(&self, reply: &mut Reply, coding: Coding) -> Result<(), NotEncoded> {
        match &reply.body {
            Body::Empty if self.is_head() => {}
            Body::Origin(_) | Body::Ahead(_) => reply.body = Body::Ahead(self.start(reply, coding, None)?),
            _ => return Err(NotEncoded::Status),
        }
        reply.length = Length::Unknown;
        Ok(())
    }

    /// Starts to encode the body of a reply.
    fn start(
        &self,
        reply: &mut Reply,
        coding: Coding,
        forms: Option<Arc<Forms>>,
    ) -> Result<FillReader, NotEncoded> {
        let (worker, site) = (Arc::clone(self.worker), Arc::clone(self.site));
        let bytes = if let Length::Known(bytes) = reply.length { Some(bytes) } else { None };
        let task = Task { coding, level: self.compression.levels.of(coding), bytes };
        let budget = worker.cache(&site).budget();
        let limits = &self.live.config.limits;
        let client = self.client();
        let place = worker.shared.compressor.place(limits, client).ok_or(NotEncoded::Busy)?;
        let charge = budget.reserve(task.memory_bytes()).map_err(|_| {
            worker.make_room(&site, limits);
            NotEncoded::Busy
        })?;
        let encoder = Encoder::new(task).map_err(|_| NotEncoded::Busy)?;
        let fill = match &forms {
            Some(_) => Fill::new(Arc::clone(budget), self.fill_limits(), None, Arc::default()),
            None => Fill::window(Arc::clone(budget)),
        };
        let reader = fill.reader(0, None).ok_or(NotEncoded::Busy)?;
        fill.count_encoder(Some(charge));
        forms.iter().for_each(|forms| forms.begin(coding, &fill));
        let source = std::mem::replace(&mut reply.body, Body::Empty);
        let writer = Writer(fill);
        let pump = Pump { worker, site, source, task, encoder, writer, forms, place };
        drop(tokio::spawn(pump.run()));
        Ok(reader)
    }

    fn fill_limits(&self) -> FillLimits {
        let cache = self.cache();
        FillLimits {
            body_bytes_max: cache.body_bytes_max(),
            segment_bytes: cache.memory.segment_bytes_max(),
            first_segment_bytes: cache.memory.segment_bytes_max(),
            place: Placement::Heap,
        }
    }
}

/// Adds `Vary: Accept-Encoding`, unless it is present.
fn add_vary(reply: &mut Reply) {
    let names = |value: &[u8]| {
        let mut members = fields::Members::new(value);
        members.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
    };
    if !reply.head.fields().values("vary").any(names) {
        reply.extra.push("vary", b"Accept-Encoding");
    }
}

/// Replaces the head of a reply by that of its encoded form. Ranges aren't offered, because the next encoding may have different bytes.
//= RFC 9110 section 8.8.3.3: entity tags vary on content coding
fn give_head(reply: &mut Reply, coding: Coding) {
    let mut own = reply.own_head();
    let tag = own.fields.value("etag").and_then(|tag| compression::tag_in(coding, tag));
    // Digests of the original bytes aren't valid for the encoded ones.
    let digests = compression::DIGEST_FIELDS.map(HeaderName::from_static);
    let announced = trailers::announcing(own.fields.values("trailer"), &digests);
    own.fields.retain(|name| {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        !(is(b"accept-ranges") || is(b"content-encoding") || is(b"trailer") || (tag.is_some() && is(b"etag")))
    });
    own.fields.push("content-encoding", coding.name().as_bytes());
    tag.into_iter().for_each(|tag| own.fields.push("etag", &tag));
    announced.into_iter().for_each(|names| own.fields.push("trailer", &names));
    reply.take_head(own);
}

fn finding(made: &Result<Made, NotEncoded>) -> Finding {
    match made {
        Ok(Made::Encoded(coding)) => {
            let says = "the response is sent in a coding that the client accepts";
            Finding::new("compress", says, "RFC 9110 section 12.5.3").with("coding", coding.name(), "")
        }
        Ok(Made::WithoutBody) => Finding::new("compress", "the response has no body to compress", ""),
        Err(reason) => Finding::new("compress", "the response is sent as received", reason.section()).with(
            "because",
            reason.meaning(),
            "",
        ),
    }
}
