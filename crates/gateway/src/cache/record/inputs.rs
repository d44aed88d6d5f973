//! What was seen of a stored response and of the request that it answered, for those who judge it anew by rules of
//! their own: `docs/design/record-format.md`. Kept only where a tier behind memory is to hold it.

use caching::invalidation::Target;
use caching::tags::names_tags;
use caching::{FieldLine, RequestFacts, Rules, Timestamp, fields};
use message::fields::{KeptFields, PackedFields};
use store::backing::LogCursor;
use store::format::RequestMarks;
use store::{FillId, allocated_bytes};

use crate::config::Imprint;

/// Whether inputs are kept with what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepInputs {
    No,
    Yes,
}

/// What was seen, as far as it is not in the stored head.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// Names this response in tiers, where nothing under a name ever changes: drawn anew whenever a head is made.
    pub(crate) id: FillId,
    /// Names the body. Of use where it travels inside of the record in memory, and is too large for that elsewhere.
    pub(crate) body: FillId,
    /// When it was asked for, as those order invalidations who asked; `None` where nobody knows.
    pub(crate) asked_at: Option<LogCursor>,
    /// When the request was sent.
    pub(crate) request_time: Timestamp,
    /// From when on it is stale whatever its fields say.
    pub(crate) stale_since: Option<Timestamp>,
    pub(crate) marks: RequestMarks,
    /// Method and target URI, with a space between them.
    request_line: Box<str>,
    /// Fields of the request, those with values that are nobody's business without them.
    request: KeptFields,
    /// Field lines of the response that decide, where they came in another way than they are stored.
    judged: KeptFields,
}

/// A request, as far as a response to it is judged by it.
#[derive(Clone, Copy)]
pub(crate) struct SeenRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: Target<'a>,
    /// As the client sent them.
    pub(crate) fields: &'a PackedFields,
    /// As the origin got them.
    pub(crate) sent: &'a PackedFields,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) asked_at: LogCursor,
    pub(crate) sent_at: Timestamp,
}

impl Inputs {
    /// Of a response to this request that brings a body of its own.
    pub(crate) fn new(request: &SeenRequest<'_>, judged: PackedFields) -> Self {
        Self {
            id: FillId::next(),
            body: FillId::next(),
            asked_at: Some(request.asked_at),
            request_time: request.sent_at,
            stale_since: None,
            marks: RequestMarks {
                had_credentials: request.facts.has_credentials,
                had_content: request.facts.has_content,
            },
            request_line: request_line(request.method, &target_text(&request.target)),
            request: request_lines(request).into(),
            judged: judged.into(),
        }
    }

    /// As a tier had them: `request_line` as [`request_line`] writes it, `request` as [`request_lines`].
    pub(super) fn read(read: ReadInputs<'_>) -> Self {
        let ReadInputs { id, body, asked_at, request_time, stale_since, marks, .. } = read;
        Self {
            id,
            body,
            asked_at,
            request_time,
            stale_since,
            marks,
            request_line: request_line(read.method, read.target),
            request: read.request.into(),
            judged: read.judged.into(),
        }
    }

    /// Of the same body after news of it.
    #[must_use]
    pub(crate) fn of_same_body(self, before: &Self) -> Self {
        Self { body: before.body, ..self }
    }

    /// Of the same response, stale from `now` on.
    pub(crate) fn expired(&self, now: Timestamp) -> Self {
        let since = self.stale_since.map_or(now, |since| since.min(now));
        Self { id: FillId::next(), stale_since: Some(since), ..self.clone() }
    }

    /// Of the same response, whose invalidations up to a place are accounted for.
    pub(super) fn good_up_to(self, place: LogCursor) -> Self {
        Self { asked_at: Some(place), ..self }
    }

    pub(super) fn method(&self) -> &str {
        self.request_line.split_once(' ').map_or("", |(method, _)| method)
    }

    pub(super) fn target(&self) -> &str {
        self.request_line.split_once(' ').map_or("", |(_, target)| target)
    }

    /// The fields of the request by name; `None` where the value is nobody's business.
    pub(super) fn request(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.request.lines().map(|(name, value)| (name, has_public_value(name).then_some(value)))
    }

    pub(crate) fn judged(&self) -> impl ExactSizeIterator<Item = FieldLine<'_>> {
        self.judged.lines()
    }

    /// Heap bytes in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        allocated_bytes(self.request_line.len()) + self.request.heap_bytes() + self.judged.heap_bytes()
    }
}

/// [`Inputs`] in parts.
pub(super) struct ReadInputs<'a> {
    pub(super) id: FillId,
    pub(super) body: FillId,
    pub(super) asked_at: Option<LogCursor>,
    pub(super) request_time: Timestamp,
    pub(super) stale_since: Option<Timestamp>,
    pub(super) marks: RequestMarks,
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    pub(super) request: PackedFields,
    pub(super) judged: PackedFields,
}

/// The lines of a response that decide and are not the same in `stored`, as they were received. One with an empty
/// value stands for a field that was received without being stored (`Set-Cookie`, whose value is its user's), or stored
/// without having been received (`Date`, which this gateway writes).
pub(crate) fn judged(received: &[FieldLine<'_>], stored: &KeptFields, rules: &Rules) -> PackedFields {
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

/// Beside judged lines: what of the site's configuration is in what is stored. No response has it there.
pub(crate) const IMPRINT: &str = "larder-imprint";

/// Adds it, where there is one.
pub(crate) fn with_imprint(mut judged: PackedFields, imprint: Option<Imprint>) -> PackedFields {
    if let Some(imprint) = imprint {
        judged.push(IMPRINT, imprint.to_string().as_bytes());
    }
    judged
}

/// The same after news of a stored response, which is judged by the fields that are stored now and by the age of the
/// news. Of what was received before, that stays which neither bears on this judgement nor is told anew.
pub(crate) fn judged_after(
    before: Option<&Inputs>,
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
    for (name, value) in before.into_iter().flat_map(Inputs::judged) {
        if is_of_others(name) && !fields::contains(received, name) {
            judged.push(name, value);
        }
    }
    judged
}

/// Whether a response field decides something, by these rules or others. `Content-Length` has a place of its own in a
/// stored head.
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

/// Whether it is a targeted field by its name, as RFC 9213 wants them.
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

/// Whether the value of a request field may be told: what it says is about the exchange, not about the user.
pub(super) fn has_public_value(name: &str) -> bool {
    name.eq_ignore_ascii_case("cache-control") || name.eq_ignore_ascii_case("pragma")
}

/// The fields that the client sent and the origin got. Those that this gateway wrote tell nothing of the client, and
/// those that ended here cannot have changed the response.
fn request_lines(request: &SeenRequest<'_>) -> PackedFields {
    let mut lines = PackedFields::default();
    for (name, value) in request.fields.lines() {
        if request.sent.value(name).is_none() {
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

fn request_line(method: &str, target: &str) -> Box<str> {
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
