//! Turns the answer of a route into the response, according to the knobs.

use std::time::SystemTime;

use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderName,
    LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request::Parts};

use super::{
    body::{BodyPlan, OriginBody},
    conditional::{self, Outcome, Ranges, Validators},
    content::Content,
    knobs::{KnobError, Knobs},
};

/// The answer of a route, before the knobs.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Content,
    /// Whether to send an ETag of the content if no knob sets one.
    pub(crate) has_etag: bool,
    /// Bytes per chunk, unless the `chunk` knob overrides it.
    pub(crate) chunk_bytes: usize,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, content_type: &'static str, content: Content) -> Self {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, fields, content, has_etag: false, chunk_bytes: CHUNK_BYTES }
    }

    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", Content::of(text.into()))
    }

    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::new(status, "application/json", Content::of(format!("{value}\n")))
    }

    /// Creates a refusal in plain text that no cache stores.
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
            Err(_) => tracing::debug!(%name, value, "left out an invalid field value"),
        }
        self
    }

    /// Makes the answer cacheable, with an ETag from its bytes.
    pub(crate) fn cacheable(mut self, cache_control: &'static str) -> Self {
        self.has_etag = true;
        self.with(CACHE_CONTROL, cache_control)
    }

    /// Applies the knobs and the request's conditions.
    pub(crate) fn finish(mut self, knobs: &Knobs, head: &Parts) -> Response<OriginBody> {
        self.vary(knobs, &head.headers);
        self.content = self.content.padded_to(knobs.size_bytes);
        self.fields(knobs, head);
        let outcome = self.outcome(head);
        self.respond(knobs, head, outcome)
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

    fn fields(&mut self, knobs: &Knobs, head: &Parts) {
        let etag = knobs.etag.clone().or_else(|| self.has_etag.then(|| self.content_etag()));
        self.fields.extend(etag.map(|etag| (ETAG, etag)));
        if let Some(lines) = &knobs.cache_control {
            self.fields.remove(CACHE_CONTROL);
            self.fields.extend(lines.iter().map(|line| (CACHE_CONTROL, line.clone())));
        }
        if self.status == StatusCode::OK && is_read(&head.method) {
            self.fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        // The HTTP library is configured not to add a Date itself, because it may be unwanted.
        if !knobs.without_date {
            self.fields.insert(DATE, date_value(SystemTime::now()));
        }
    }

    fn content_etag(&self) -> HeaderValue {
        HeaderValue::from_str(&format!("\"{:016x}\"", self.content.fingerprint()))
            .expect("quotes and hexadecimal digits are valid in a field value")
    }

    fn outcome(&self, head: &Parts) -> Outcome {
        if self.status != StatusCode::OK || !is_read(&head.method) {
            return Outcome::Full;
        }
        let text = |name| self.fields.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let last_modified = text(LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok());
        let current = Validators { etag: text(ETAG), last_modified };
        //= RFC 9110 section 14.2: Range is for GET, and for what would be a 200
        let ranges = if head.method == Method::GET { Ranges::Served } else { Ranges::Ignored };
        conditional::evaluate(&head.headers, current, self.content.len_bytes(), ranges)
    }

    fn respond(mut self, knobs: &Knobs, head: &Parts, outcome: Outcome) -> Response<OriginBody> {
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
        //= RFC 9110 section 15.4.5: fields of a 304 response
        if self.status == StatusCode::NOT_MODIFIED {
            for name in [CONTENT_TYPE, ACCEPT_RANGES] {
                self.fields.remove(name);
            }
            range = 0..0;
        } else {
            self.fields.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        }
        let plan = BodyPlan {
            range: if head.method == Method::HEAD { 0..0 } else { range },
            chunk_bytes: knobs.chunk_bytes.unwrap_or(self.chunk_bytes),
            sleep_between: knobs.sleep_between,
            content: self.content,
        };
        let mut response = Response::new(OriginBody::new(plan));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.fields;
        response
    }

    fn set_content_range(&mut self, range: &str) {
        let value = HeaderValue::from_str(range).expect("digits and punctuation are valid in a field value");
        self.fields.insert(CONTENT_RANGE, value);
    }
}

/// Form of the note in the content that names the request's values of the nominated fields.
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
            "text/html" | "image/svg+xml" => Self::Comment("<!-- ", " -->\n"),
            "text/css" => Self::Comment("/* ", " */\n"),
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

/// Returns the request's values of the fields that the `vary` knob nominates: `name: value; name:
/// (absent)`.
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

/// Returns the time as a field value.
pub(crate) fn date_value(time: SystemTime) -> HeaderValue {
    HeaderValue::from_str(&httpdate::fmt_http_date(time)).expect("an HTTP-date has visible characters only")
}

/// Bytes per chunk of ordinary answers.
const CHUNK_BYTES: usize = 16 * 1024;
