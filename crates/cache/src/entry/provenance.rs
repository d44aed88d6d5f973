//! Inputs of the decisions about a stored response: facts about it and its request, for readers that judge it by their own rules
//! (`docs/internals/record-format.md`). A response has them only if a tier behind memory may hold it.

use caching::invalidation::Target;
use caching::tags::names_tags;
use caching::{FieldLine, RequestFacts, Rules, Timestamp, fields};
use message::fields::{KeptFields, PackedFields};
use message::head::OwnedRequest;
use store::backing::LogCursor;
use store::format::RequestMarks;
use store::{FillId, allocated_bytes};

use crate::imprint::Imprint;

/// Inputs that are not in the stored head.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// Id of this response in tiers. Each head gets a new random id, because a tier never changes the content under a name.
    pub id: FillId,
    /// Id of the body, if memory stores the body inside the record and a tier can't, because the body is too large.
    pub body: FillId,
    /// Position at the time of the request in the invalidation log of the requesting process; `None` if unknown.
    pub asked_at: Option<LogCursor>,
    /// Time at which the request was sent.
    pub request_time: Timestamp,
    /// Time since which the response is stale, regardless of its fields.
    pub stale_since: Option<Timestamp>,
    pub marks: RequestMarks,
    /// Method and target URI, separated by a space.
    pub(crate) request_line: Box<str>,
    /// Fields of the request, without private values.
    pub(crate) request: KeptFields,
    /// Field lines of the response that affect decisions and are stored in another form than they were received.
    pub(crate) judged: KeptFields,
}

impl Provenance {
    /// Creates the inputs of a response that has a body of its own. Takes the request as the client sent it, and the fields that were sent
    /// to the origin.
    pub fn new(
        (received, sent): (&OwnedRequest, &PackedFields),
        facts: &RequestFacts,
        (asked_at, sent_at): (LogCursor, Timestamp),
        judged: PackedFields,
    ) -> Self {
        Self {
            id: FillId::next(),
            body: FillId::next(),
            asked_at: Some(asked_at),
            request_time: sent_at,
            stale_since: None,
            marks: RequestMarks { had_credentials: facts.has_credentials, had_content: facts.has_content },
            request_line: request_line(&received.method, &target_text(&received.target())),
            request: request_lines(&received.fields, sent).into(),
            judged: judged.into(),
        }
    }

    /// Returns the inputs of the same response, stale from `now` on.
    pub fn expired(&self, now: Timestamp) -> Self {
        let since = self.stale_since.map_or(now, |since| since.min(now));
        Self { id: FillId::next(), stale_since: Some(since), ..self.clone() }
    }

    pub(crate) fn method(&self) -> &str {
        self.request_line.split_once(' ').map_or("", |(method, _)| method)
    }

    pub(crate) fn target(&self) -> &str {
        self.request_line.split_once(' ').map_or("", |(_, target)| target)
    }

    /// Returns the fields of the request by name; `None` if the value is private.
    pub(crate) fn request(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.request.lines().map(|(name, value)| (name, has_public_value(name).then_some(value)))
    }

    pub fn judged(&self) -> impl ExactSizeIterator<Item = FieldLine<'_>> {
        self.judged.lines()
    }

    /// Returns the number of heap bytes in use.
    pub fn heap_bytes(&self) -> usize {
        allocated_bytes(self.request_line.len()) + self.request.heap_bytes() + self.judged.heap_bytes()
    }
}

/// Returns the field lines of a response that affect decisions and differ in `stored`, as they were received. An empty value stands for a
/// field that was received but not stored (`Set-Cookie`, whose value is private), or stored but not received (`Date`, which the gateway
/// adds).
pub fn judged(received: &[FieldLine<'_>], stored: &KeptFields, rules: &Rules) -> PackedFields {
    let stored = stored.to_lines();
    let mut judged = PackedFields::default();
    for (name, value) in received {
        if !decides(name, rules) || is_same(received, &stored, name) {
            continue;
        }
        match name.eq_ignore_ascii_case("set-cookie") {
            false => judged.push(name, value),
            true if judged.value(name).is_none() => judged.push(name, b""),
            true => {}
        }
    }
    for (name, _) in &stored {
        if decides(name, rules) && !fields::contains(received, name) && judged.value(name).is_none() {
            judged.push(name, b"");
        }
    }
    judged
}

/// Pseudo-field among the judged lines: the imprint of the site's configuration on the stored response. The judged lines contain no
/// response field of this name.
pub const IMPRINT: &str = "larder-imprint";

/// Adds the site's imprint to the judged lines, if the site has one.
pub fn with_imprint(mut judged: PackedFields, imprint: Option<Imprint>) -> PackedFields {
    if let Some(imprint) = imprint {
        judged.push(IMPRINT, imprint.to_string().as_bytes());
    }
    judged
}

/// Returns the field lines of a stored response that affect decisions after it was freshened. Decisions then use the stored fields and the
/// `Age` of the 304. An earlier line stays if it doesn't affect these decisions and the 304 doesn't repeat it.
pub fn judged_after(
    before: Option<&Provenance>,
    (received, news): (&[FieldLine<'_>], &[FieldLine<'_>]),
    stored: &KeptFields,
    rules: &Rules,
) -> PackedFields {
    let stored = stored.to_lines();
    let mut judged = PackedFields::default();
    let ages = news.iter().filter(|(name, _)| name.eq_ignore_ascii_case("age"));
    let groups = received.iter().filter(|(name, _)| names_tags(name) && !is_same(received, &stored, name));
    ages.chain(groups).for_each(|(name, value)| judged.push(name, value));
    let is_of_others = |name: &str| names_tags(name) || (is_targeted(name) && !is_one_of(rules, name));
    for (name, value) in before.into_iter().flat_map(Provenance::judged) {
        if is_of_others(name) && !fields::contains(received, name) {
            judged.push(name, value);
        }
    }
    judged
}

/// Returns whether a response field affects decisions under any rules. `Content-Length` is kept elsewhere in a stored head.
fn decides(name: &str, rules: &Rules) -> bool {
    const NAMES: [&str; 9] = [
        "cache-control",
        "age",
        "content-location",
        "date",
        "expires",
        "etag",
        "last-modified",
        "set-cookie",
        "vary",
    ];
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    NAMES.into_iter().any(is) || names_tags(name) || is_targeted(name) || is_one_of(rules, name)
}

/// Returns whether this is the name of a targeted field (RFC 9213).
fn is_targeted(name: &str) -> bool {
    const END: &[u8] = b"-cache-control";
    let name = name.as_bytes();
    name.len() > END.len() && name[name.len() - END.len()..].eq_ignore_ascii_case(END)
}

fn is_one_of(rules: &Rules, name: &str) -> bool {
    let named = rules.targeted_fields.iter().chain(&rules.store_only_with);
    named.into_iter().any(|field| field.eq_ignore_ascii_case(name))
}

fn is_same(received: &[FieldLine<'_>], stored: &[FieldLine<'_>], name: &str) -> bool {
    fields::values(received, name).eq(fields::values(stored, name))
}

/// Returns whether the value of a request field may be shared, because it describes the exchange and not the user.
pub(crate) fn has_public_value(name: &str) -> bool {
    name.eq_ignore_ascii_case("cache-control") || name.eq_ignore_ascii_case("pragma")
}

/// Returns the fields that the client sent and the origin received. Fields that the gateway added say nothing about the client, and fields
/// that it dropped can't have affected the response.
fn request_lines(received: &PackedFields, sent: &PackedFields) -> PackedFields {
    let mut lines = PackedFields::default();
    for (name, value) in received.lines() {
        if sent.value(name).is_none() {
            continue;
        }
        match has_public_value(name) {
            true => lines.push_lowercase(name, value),
            false if lines.value(name).is_none() => lines.push_lowercase(name, b""),
            false => {}
        }
    }
    lines
}

pub(crate) fn request_line(method: &str, target: &str) -> Box<str> {
    format!("{method} {target}").into()
}

fn target_text(target: &Target<'_>) -> String {
    let parts = [target.scheme, b"://", target.authority, target.path];
    let mut text = parts.concat();
    if let Some(query) = target.query {
        text.push(b'?');
        text.extend_from_slice(query);
    }
    String::from_utf8_lossy(&text).into_owned()
}
