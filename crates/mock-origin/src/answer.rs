//! From what a route says and what the knobs ask for to the response that is sent.

use std::{
    io::Write,
    time::{Duration, SystemTime},
};

use flate2::{Compression, write::GzEncoder};
use http::header::{
    ACCEPT_RANGES, AGE, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, TRAILER, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::{
    body::{BodyPlan, OriginBody, Witness},
    conditional::{self, Outcome, Ranges, Validators},
    content::Content,
    knobs::{DateKnob, EtagKnob, Framing, KnobError, Knobs, LastModifiedKnob},
};

/// What a route answers, before the knobs.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Content,
    pub(crate) etag: DefaultEtag,
    pub(crate) coding: Coding,
    pub(crate) ranges: Ranges,
    pub(crate) framing: Framing,
    /// Bytes per chunk unless the `chunk` knob says otherwise.
    pub(crate) chunk_bytes: usize,
    pub(crate) sleep_between: Duration,
}

/// Whether the route sends an ETag when no knob asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultEtag {
    None,
    FromContent,
}

/// Content coding of the representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
}

/// The request as far as an answer depends on it.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) now: SystemTime,
    pub(crate) started_at: SystemTime,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, content_type: &'static str, content: Content) -> Self {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self {
            status,
            fields,
            content,
            etag: DefaultEtag::None,
            coding: Coding::Identity,
            ranges: Ranges::Served,
            framing: Framing::ContentLength,
            chunk_bytes: CHUNK_BYTES,
            sleep_between: Duration::ZERO,
        }
    }

    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", Content::of(text.into()))
    }

    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::new(status, "application/json", Content::of(format!("{value}\n")))
    }

    /// A refusal in plain text that no cache keeps.
    pub(crate) fn refusal(status: StatusCode, reason: impl Into<String>) -> Self {
        let mut reason: String = reason.into();
        reason.push('\n');
        Self::text(status, reason).with(CACHE_CONTROL, "no-store")
    }

    pub(crate) fn bad_knob(error: &KnobError) -> Self {
        Self::refusal(StatusCode::BAD_REQUEST, error.to_string())
    }

    pub(crate) fn method_not_allowed(allowed: &[&str]) -> Self {
        let allowed = allowed.join(", ");
        let refusal = Self::refusal(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}"));
        refusal.with(ALLOW, &allowed)
    }

    /// Sets one field; values come from the routes, which build them from visible characters only.
    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => _ = self.fields.insert(name, value),
            Err(_) => tracing::debug!(%name, value, "left out a value that no field may have"),
        }
        self
    }

    /// Cacheable for so long, with an ETag from the bytes.
    pub(crate) fn cacheable(mut self, cache_control: &'static str) -> Self {
        self.etag = DefaultEtag::FromContent;
        self.with(CACHE_CONTROL, cache_control)
    }

    /// Obeys the knobs and the request's conditions.
    pub(crate) fn finish(mut self, knobs: &Knobs, asked: &Asked<'_>) -> Finished {
        self.vary(knobs, asked.headers);
        self.content = self.content.padded_to(knobs.size_bytes);
        self.encode();
        self.validators(knobs, asked);
        self.other_fields(knobs, asked);
        self.replace_fields(&knobs.headers);
        let outcome = self.outcome(asked);
        self.respond(knobs, asked, outcome)
    }

    fn vary(&mut self, knobs: &Knobs, headers: &HeaderMap) {
        for line in &knobs.vary {
            self.fields.append(VARY, line.clone());
        }
        let note = nominated(&knobs.vary, headers);
        if note.is_empty() {
            return;
        }
        let style = NoteStyle::of(&self.fields);
        let content = std::mem::replace(&mut self.content, Content::of(""));
        self.content = content.varied_by(&note, |text, note| style.write(text, note));
    }

    fn encode(&mut self) {
        if self.coding == Coding::Identity {
            return;
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let encoded = encoder.write_all(&self.content.materialised()).and_then(|()| encoder.finish());
        self.content = Content::of(encoded.expect("a Vec accepts every write"));
        self.fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }

    fn validators(&mut self, knobs: &Knobs, asked: &Asked<'_>) {
        let etag = match (&knobs.etag, self.etag) {
            (EtagKnob::Given(value), _) => Some(value.clone()),
            (EtagKnob::Auto, _) | (EtagKnob::Untouched, DefaultEtag::FromContent) => {
                Some(self.content_etag())
            }
            (EtagKnob::Off, _) | (EtagKnob::Untouched, DefaultEtag::None) => None,
        };
        self.fields.extend(etag.map(|etag| (ETAG, etag)));
        let modified = match knobs.last_modified {
            LastModifiedKnob::Untouched => return,
            LastModifiedKnob::Off => None,
            LastModifiedKnob::Before(ago) => asked.started_at.checked_sub(ago),
            LastModifiedKnob::At(date) => Some(date),
        };
        self.fields.remove(LAST_MODIFIED);
        self.fields.extend(modified.map(|modified| (LAST_MODIFIED, date_value(modified))));
    }

    fn content_etag(&self) -> HeaderValue {
        HeaderValue::from_str(&format!("\"{:016x}\"", self.content.fingerprint()))
            .expect("quotes and hexadecimal digits are valid in a field value")
    }

    fn other_fields(&mut self, knobs: &Knobs, asked: &Asked<'_>) {
        if let Some(lines) = &knobs.cache_control {
            self.fields.remove(CACHE_CONTROL);
            self.fields.extend(lines.iter().map(|line| (CACHE_CONTROL, line.clone())));
        }
        if let Some(seconds) = knobs.expires_in_s {
            let distance = Duration::from_secs(seconds.unsigned_abs());
            let expires =
                if seconds < 0 { asked.now.checked_sub(distance) } else { asked.now.checked_add(distance) };
            self.fields.insert(EXPIRES, date_value(expires.unwrap_or(asked.now)));
        }
        if let Some(age_s) = knobs.age_s {
            self.fields.insert(AGE, HeaderValue::from(age_s));
        }
        if self.ranges == Ranges::Served && self.status == StatusCode::OK && is_read(asked.method) {
            self.fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        // The HTTP library would add a Date by itself, also where none is wanted; it is told not to.
        if knobs.date == DateKnob::On {
            self.fields.insert(DATE, date_value(asked.now));
        }
    }

    fn replace_fields(&mut self, given: &HeaderMap) {
        for name in given.keys() {
            self.fields.remove(name);
            self.fields.extend(given.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
    }

    fn outcome(&self, asked: &Asked<'_>) -> Outcome {
        if self.status != StatusCode::OK || !is_read(asked.method) {
            return Outcome::Full;
        }
        let text = |name| self.fields.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let last_modified = text(LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok());
        let current = Validators { etag: text(ETAG), last_modified };
        //= RFC 9110 section 14.2: Range is for GET, and for what would be a 200
        let ranges = if asked.method == Method::GET { self.ranges } else { Ranges::Ignored };
        conditional::evaluate(asked.headers, current, self.content.len_bytes(), ranges)
    }

    fn respond(mut self, knobs: &Knobs, asked: &Asked<'_>, outcome: Outcome) -> Finished {
        let len_bytes = self.content.len_bytes();
        let mut range = 0..len_bytes;
        match outcome {
            Outcome::Full => {}
            Outcome::Partial(part) => {
                self.status = StatusCode::PARTIAL_CONTENT;
                self.set_content_range(&format!("bytes {}-{}/{len_bytes}", part.start, part.end - 1));
                range = part;
            }
            Outcome::NotModified => self.status = StatusCode::NOT_MODIFIED,
            Outcome::PreconditionFailed => {
                self.status = StatusCode::PRECONDITION_FAILED;
                range = 0..0;
            }
            Outcome::Unsatisfiable => {
                self.status = StatusCode::RANGE_NOT_SATISFIABLE;
                self.set_content_range(&format!("bytes */{len_bytes}"));
                range = 0..0;
            }
        }
        let plan = BodyPlan {
            range,
            framing: knobs.framing.max(self.framing),
            chunk_bytes: knobs.chunk_bytes.unwrap_or(self.chunk_bytes),
            sleep_between: knobs.sleep_between.unwrap_or(self.sleep_between),
            break_after_bytes: knobs.close_after_bytes,
            trailers: knobs.trailers.clone(),
            content: self.content,
        };
        Finished::framed(self.status, self.fields, plan, asked.method)
    }

    fn set_content_range(&mut self, range: &str) {
        let value = HeaderValue::from_str(range).expect("digits and punctuation are valid in a field value");
        self.fields.insert(CONTENT_RANGE, value);
    }
}

/// A response that only lacks its connection.
pub(crate) struct Finished {
    pub(crate) status: StatusCode,
    fields: HeaderMap,
    plan: BodyPlan,
}

impl Finished {
    fn framed(status: StatusCode, mut fields: HeaderMap, plan: BodyPlan, method: &Method) -> Self {
        //= RFC 9110 section 15.4.5: fields of a 304 response
        let without_content =
            [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
        if without_content.contains(&status) {
            for name in [CONTENT_TYPE, CONTENT_ENCODING, ACCEPT_RANGES] {
                fields.remove(name);
            }
            return Self { status, fields, plan: BodyPlan::empty() };
        }
        if plan.framing == Framing::ContentLength {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(plan.range.end - plan.range.start));
        }
        for name in plan.trailers.keys() {
            fields.append(TRAILER, HeaderValue::from(name.clone()));
        }
        let plan = if method == Method::HEAD { BodyPlan::empty() } else { plan };
        Self { status, fields, plan }
    }

    pub(crate) fn into_response(self, witness: Witness) -> Response<OriginBody> {
        let mut response = Response::new(OriginBody::new(self.plan, witness));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.fields;
        response
    }
}

/// How a text says which values of the nominated fields it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoteStyle {
    JsonMember,
    Comment(&'static str, &'static str),
}

impl NoteStyle {
    fn of(fields: &HeaderMap) -> Self {
        let content_type = fields.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match content_type.split(';').next().unwrap_or_default() {
            "application/json" => Self::JsonMember,
            "text/html" | "text/xml" | "image/svg+xml" => Self::Comment("<!-- ", " -->\n"),
            "text/css" => Self::Comment("/* ", " */\n"),
            "text/event-stream" => Self::Comment(": ", "\n\n"),
            _ => Self::Comment("", "\n"),
        }
    }

    fn write(self, text: &[u8], note: &str) -> Vec<u8> {
        match self {
            Self::Comment(open, close) => [text, format!("{open}{note}{close}").as_bytes()].concat(),
            Self::JsonMember => {
                let Some(object) = text.trim_ascii_end().strip_suffix(b"}") else {
                    return text.to_vec();
                };
                let member = format!(",\"varied\":{}}}\n", serde_json::Value::from(note));
                [object, member.as_bytes()].concat()
            }
        }
    }
}

/// The request's values of the fields that the `vary` knob nominates: `name: value; name: (absent)`.
fn nominated(vary: &[HeaderValue], headers: &HeaderMap) -> String {
    let names = vary.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let notes = names.map(str::trim).filter(|name| *name != "*").map(|name| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let value = if values.is_empty() { "(absent)".to_owned() } else { values.join(", ") };
        format!("{}: {value}", name.to_ascii_lowercase())
    });
    notes.collect::<Vec<_>>().join("; ")
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The field value of a time.
pub(crate) fn date_value(time: SystemTime) -> HeaderValue {
    HeaderValue::from_str(&httpdate::fmt_http_date(time)).expect("an HTTP-date has visible characters only")
}

/// Bytes per chunk of ordinary answers.
const CHUNK_BYTES: usize = 16 * 1024;
