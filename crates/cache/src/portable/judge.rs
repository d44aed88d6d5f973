//! Decisions about a stored response under its reader's rules, from the inputs in the record.

use caching::invalidation::Target;
use caching::post::may_store_for_get;
use caching::{
    ExchangeTimes, FieldLine, MethodClass, NominatedFields, NominatedValues, RequestFacts, ResponseFacts,
    StorageFilter, StoredFacts, fields, file_type, may_store,
};
use message::clock;
use message::fields::PackedFields;
use store::FillId;
use store::format::{Content, FieldLine as RawLine, NamedValue, Response, Variant};

use super::decode::Reader;
use super::encode::CONTENT_LENGTH;
use crate::entry::cold_fields::ColdFields;
use crate::entry::provenance::{self, IMPRINT, Provenance, has_public_value};
use crate::entry::stored::StoredHead;
use crate::imprint::Imprint;
use crate::membership::{Membership, Stamp};

/// Returns the head of a response; `None` if the reader would not have stored it, or the record is invalid.
pub(super) fn head(
    variant: &Variant<'_>,
    response: &Response<'_>,
    reader: &Reader<'_>,
) -> Option<StoredHead> {
    let seen = Seen::of(response, reader)?;
    let facts = seen.facts(reader)?;
    let fields = seen.stored_fields(reader);
    let nominated = NominatedFields::parse(&fields.to_lines()).ok()?;
    let values = nominated_values(&nominated, &variant.nominated, reader)?;
    let reason = response.reason.filter(|reason| is_text(reason));
    let mut particulars = ColdFields::new(nominated, values, reason);
    particulars.change_provenance(|provenance| {
        provenance.membership = seen.membership(reader);
        provenance.inputs = Some(Box::new(seen.inputs(variant.id, reader)));
    });
    let asked_at = response.log.and_then(|place| reader.invalidations.stamp_at(place));
    let stamp = asked_at.unwrap_or(Stamp::OLDEST);
    let head = StoredHead::new(facts, fields, seen.declared_bytes(), particulars, stamp);
    // The head counts as stale if the position of its request is unknown, because it may have been purged since.
    Some(if asked_at.is_some() { head } else { head.expired(facts.response_time) })
}

/// A response from a record and its request, after checking that text is valid.
struct Seen<'a> {
    response: &'a Response<'a>,
    times: ExchangeTimes,
    method: &'a str,
    target: &'a str,
    head: Vec<FieldLine<'a>>,
    judged: Vec<FieldLine<'a>>,
    /// The judged lines, and all lines of the head with other names.
    received: Vec<FieldLine<'a>>,
    request: Vec<FieldLine<'a>>,
}

impl<'a> Seen<'a> {
    fn of(response: &'a Response<'a>, reader: &Reader<'_>) -> Option<Self> {
        let (head, mut judged) = (lines(&response.head)?, lines(&response.judged)?);
        if !is_of(reader.rules.imprint, &judged) {
            return None;
        }
        judged.retain(|(name, _)| *name != IMPRINT);
        let of_head = head.iter().filter(|(name, _)| !fields::contains(&judged, name));
        let received = judged.iter().chain(of_head).copied().collect();
        let request = response.request.iter();
        let request = request.map(|(name, value)| line((*name, value.unwrap_or_default())));
        let times = ExchangeTimes {
            request: reader.at(response.request_time_ms),
            response: reader.at(response.response_time_ms),
            clock_ahead_ms: clock::corrected_by_ms(reader.clock_ahead_ms),
        };
        Some(Self {
            response,
            times,
            method: std::str::from_utf8(response.method)
                .ok()
                .filter(|name| fields::is_token(name.as_bytes()))?,
            target: std::str::from_utf8(response.target).ok()?,
            received,
            request: request.collect::<Option<_>>()?,
            head,
            judged,
        })
    }

    /// Returns the facts of the request. HEAD counts as GET, as its response describes that of a GET.
    fn request_facts(&self, reader: &Reader<'_>) -> RequestFacts {
        let marks = self.response.marks;
        let facts = RequestFacts::parse(self.method, &self.request);
        let facts = facts.with_credentials_of(&self.request, reader.rules.caching);
        let method = if facts.method == MethodClass::Head { MethodClass::Get } else { facts.method };
        RequestFacts {
            method,
            has_credentials: facts.has_credentials || marks.had_credentials,
            has_content: marks.had_content,
            ..facts
        }
    }

    /// Returns the facts of the stored response; `None` if the reader would not have stored it.
    fn facts(&self, reader: &Reader<'_>) -> Option<StoredFacts> {
        let (rules, now) = (reader.rules.caching, self.times.response);
        let request = self.request_facts(reader);
        let response = ResponseFacts::parse(self.response.status, &self.received, self.times, rules);
        let storable = match self.method {
            "POST" => may_store_for_get(&request, &response, &self.received, &self.target()?, rules, now),
            _ => may_store(&request, &response, rules, now),
        };
        let facts = storable.ok()?.facts;
        let content_types = fields::values(&self.received, "content-type");
        file_type::permits(rules, self.target, self.response.status, content_types).ok()?;
        let stale_since = self.response.stale_since_ms.map(|since| reader.at(since));
        Some(stale_since.map_or(facts, |since| facts.expired(since)))
    }

    /// Returns the fields of the record that the reader keeps.
    fn stored_fields(&self, reader: &Reader<'_>) -> PackedFields {
        let filter = StorageFilter::of(&self.received, reader.rules.caching);
        let is_kept = |name: &str| filter.keeps(name) && !name.eq_ignore_ascii_case(CONTENT_LENGTH);
        PackedFields::from_lines(self.head.iter().copied().filter(|(name, _)| is_kept(name)))
    }

    fn membership(&self, reader: &Reader<'_>) -> Option<Membership> {
        let (target, site_key) = (self.target(), reader.site_key);
        reader.invalidations.membership_of(&self.received, &reader.rules, target.as_ref(), site_key)
    }

    fn target(&self) -> Option<Target<'a>> {
        let (scheme, rest) = self.target.split_once("://")?;
        let (authority, path_and_query) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (path, query) = match path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (path_and_query, None),
        };
        Some(Target {
            scheme: scheme.as_bytes(),
            authority: authority.as_bytes(),
            path: path.as_bytes(),
            query,
        })
    }

    fn declared_bytes(&self) -> Option<u64> {
        std::str::from_utf8(fields::only(&self.judged, CONTENT_LENGTH)?).ok()?.parse().ok()
    }

    fn inputs(&self, id: FillId, reader: &Reader<'_>) -> Provenance {
        let response = self.response;
        let of_request = self.request.iter().copied();
        let judged =
            self.judged.iter().copied().filter(|(name, _)| !name.eq_ignore_ascii_case(CONTENT_LENGTH));
        let judged = provenance::with_imprint(PackedFields::from_lines(judged), reader.rules.imprint);
        let request = PackedFields::from_lines(
            of_request.map(|(name, value)| (name, if has_public_value(name) { value } else { b"" })),
        );
        Provenance {
            id,
            body: match &response.body.content {
                Content::Inline(_) => FillId::next(),
                Content::Segments(layout) => layout.fill,
            },
            asked_at: response.log,
            request_time: self.times.request,
            stale_since: response.stale_since_ms.map(|since| reader.at(since)),
            marks: response.marks,
            request_line: provenance::request_line(self.method, self.target),
            request: request.into(),
            judged: judged.into(),
        }
    }
}

/// Returns whether a response was stored by a site with this reader's configuration.
fn is_of(imprint: Option<Imprint>, judged: &[FieldLine<'_>]) -> bool {
    let written = judged.iter().find(|(name, _)| *name == IMPRINT).map(|(_, value)| *value);
    imprint.map(|imprint| imprint.to_string()).as_deref().map(str::as_bytes) == written
}

/// Returns the values of the nominated fields; `None` if the record lacks any of them.
fn nominated_values(
    nominated: &NominatedFields,
    listed: &[NamedValue<'_>],
    reader: &Reader<'_>,
) -> Option<NominatedValues> {
    let is_listed = |name: &str| listed.iter().any(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
    if !nominated.names().all(is_listed) {
        return None;
    }
    let had = listed.iter().filter_map(|(name, value)| Some(line((name, (*value)?))));
    let had: Vec<FieldLine<'_>> = had.collect::<Option<_>>()?;
    Some(nominated.capture(reader.rules.selecting(&had)))
}

/// Checks field lines; `None` if one is invalid, because it could be split into two.
fn lines<'a>(lines: &[RawLine<'a>]) -> Option<Vec<FieldLine<'a>>> {
    lines.iter().map(|raw| line(*raw)).collect()
}

fn line<'a>((name, value): RawLine<'a>) -> Option<FieldLine<'a>> {
    let name = std::str::from_utf8(name).ok().filter(|name| fields::is_token(name.as_bytes()))?;
    is_text(value).then_some((name, value))
}

fn is_text(value: &[u8]) -> bool {
    !value.iter().any(|byte| b"\r\n\0".contains(byte))
}
