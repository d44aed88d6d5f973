//! What the decisions need to know of a request and of a response, read once.

use crate::directives::{DeltaSeconds, LineReader, Qualified, RequestDirectives, ResponseDirectives};
use crate::vary::VarySummary;
use crate::{Control, FieldLine, Rules, Timestamp, age, credentials, date, fields, vary};

/// What matters to a cache about a method. Names are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodClass {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `QUERY`: safe, and its content is part of what it asks for ([`crate::query`]).
    Query,
    /// Any other safe method.
    OtherSafe,
    /// May change something at the origin server; every unknown method is taken to.
    Unsafe,
}

impl MethodClass {
    /// Classifies a method name.
    //= RFC 9110 section 9.1: methods are case-sensitive
    //= RFC 9110 section 9.2.1: safe methods
    pub fn parse(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            //= RFC 10008 section 2: QUERY is safe and idempotent
            "QUERY" => Self::Query,
            "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" => Self::OtherSafe,
            _ => Self::Unsafe,
        }
    }

    /// Whether a stored response may answer it.
    //= RFC 9110 section 9.3.1: GET answers GET and HEAD
    //= RFC 9110 section 9.3.2: HEAD is answered from what is stored
    //= RFC 9110 section 9.3.3: POST is never answered from what is stored
    //= RFC 9110 section 9.3.4: PUT is not cacheable
    //= RFC 9110 section 9.3.5: DELETE is not cacheable
    //= RFC 9110 section 9.3.7: OPTIONS is not cacheable
    //= RFC 9110 section 9.3.8: TRACE is not cacheable
    //= RFC 9110 section 9.2.3: methods whose responses are cacheable
    pub fn is_reusing(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Query)
    }
}

/// A request, as far as the decisions look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The method.
    pub method: MethodClass,
    /// `Cache-Control` and `Pragma`.
    pub directives: RequestDirectives,
    /// `Authorization` is present.
    pub has_authorization: bool,
    /// A field is present that tells whose request it is, `Authorization` among them ([`crate::sharing`]).
    pub has_credentials: bool,
    /// The request announces content.
    pub has_content: bool,
    /// `If-None-Match` or `If-Modified-Since` is present: [`crate::conditional::evaluate`] has work.
    pub has_conditions: bool,
    /// `If-Match` or `If-Unmodified-Since` is present: only the origin server may judge these.
    pub has_origin_conditions: bool,
    /// `Range` is present: [`crate::range::evaluate`] has work.
    pub has_range: bool,
}

impl RequestFacts {
    /// Reads a request in one pass.
    pub fn parse(method: &str, request: &[FieldLine<'_>]) -> Self {
        let mut facts = Self::without_fields(MethodClass::parse(method));
        let mut lines = LineReader::default();
        for (name, value) in request {
            facts.note(name, value, &mut lines);
        }
        facts.directives = lines.finish();
        facts
    }

    /// The same, with the credentials that only the operator knows as such.
    #[must_use]
    pub fn with_credentials_of(mut self, request: &[FieldLine<'_>], rules: &Rules) -> Self {
        if !rules.credential_fields.is_empty() && !self.has_credentials {
            self.has_credentials = request.iter().any(|(name, _)| rules.is_credential(name));
        }
        self
    }

    fn without_fields(method: MethodClass) -> Self {
        Self {
            method,
            directives: RequestDirectives::default(),
            has_authorization: false,
            has_credentials: false,
            has_content: false,
            has_conditions: false,
            has_origin_conditions: false,
            has_range: false,
        }
    }

    /// The length first: it tells most names from all that matter here.
    #[inline]
    fn note(&mut self, name: &str, value: &[u8], lines: &mut LineReader) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            5 => self.has_range |= is("range"),
            6 => lines.read(name, value),
            8 => self.has_origin_conditions |= is("if-match"),
            13 => {
                self.has_authorization |= is("authorization");
                self.has_conditions |= is("if-none-match");
                lines.read(name, value);
            }
            14 => self.has_content |= is("content-length") && value != b"0",
            17 => {
                self.has_content |= is("transfer-encoding");
                self.has_conditions |= is("if-modified-since");
            }
            19 => self.has_origin_conditions |= is("if-unmodified-since"),
            _ => {}
        }
        self.has_credentials |= credentials::is_credential(name);
    }
}

/// Whether a field is there and says something else than no.
fn asks(response: &[FieldLine<'_>], name: &str) -> bool {
    fields::values(response, name).any(|value| !matches!(value, b"" | b"0"))
}

/// When an exchange with the origin server took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// The request was sent.
    pub request: Timestamp,
    /// The response's header section had arrived.
    pub response: Timestamp,
    /// How far the clock that others go by is ahead of the one that has told these times: 0, unless a better one is known.
    pub clock_ahead_ms: i64,
}

impl ExchangeTimes {
    /// The arrival by the clock that others go by: to be compared with what origin servers say of their time.
    pub fn arrival_by_others(&self) -> Timestamp {
        self.response.plus_ms(self.clock_ahead_ms)
    }
}

/// The value of `Expires`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expires {
    /// Not there.
    #[default]
    Absent,
    /// Not a date (`0`): in the past.
    Invalid,
    /// This date.
    At(Timestamp),
}

/// A response, as far as the decisions look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFacts {
    /// The status code.
    pub status: u16,
    /// When the exchange took place.
    pub times: ExchangeTimes,
    /// Those of `Cache-Control`, or of the targeted field that counts in its place.
    pub directives: ResponseDirectives,
    /// `Date`, or the time of arrival where it is missing or invalid.
    pub date: Timestamp,
    /// `Expires`
    pub expires: Expires,
    /// `Age` in seconds, where valid.
    pub age_s: Option<DeltaSeconds>,
    /// `Last-Modified`, where valid.
    pub last_modified: Option<Timestamp>,
    /// `ETag` is present and not empty.
    pub has_etag: bool,
    /// A `Set-Cookie` is present that no qualified directive takes out of what is stored.
    pub has_set_cookie: bool,
    /// It does not ask to be stored, where the rules want that ([`Rules::store_only_with`]).
    pub lacks_signal: bool,
    /// `Vary`
    pub vary: VarySummary,
}

impl ResponseFacts {
    /// Reads a response. The rules say which field controls this cache.
    pub fn parse(status: u16, response: &[FieldLine<'_>], times: ExchangeTimes, rules: &Rules) -> Self {
        let read_date = |value: &[u8]| date::parse(value, times.response);
        let control = Control::of(response, rules);
        Self {
            status,
            times,
            directives: control.directives(),
            //= RFC 9110 section 6.6.1: a response without Date is dated by its recipient
            //= RFC 9110 section 6.6.1: an invalid Date may be replaced by the arrival
            date: fields::first(response, "date")
                .and_then(read_date)
                .unwrap_or_else(|| times.arrival_by_others()),
            //= RFC 9213 section 2.2: Cache-Control and Expires are ignored beside a targeted field
            expires: fields::first(response, "expires")
                .filter(|_| !control.is_targeted())
                .map_or(Expires::Absent, |value| read_date(value).map_or(Expires::Invalid, Expires::At)),
            age_s: age::parse(response),
            last_modified: fields::only(response, "last-modified")
                .and_then(|value| date::parse(value, times.response)),
            has_etag: fields::first(response, "etag").is_some_and(|value| !value.is_empty()),
            has_set_cookie: fields::contains(response, "set-cookie") && !control.is_qualified("set-cookie"),
            lacks_signal: rules.store_only_with.as_deref().is_some_and(|name| !asks(response, name)),
            vary: vary::summarize(response),
        }
    }

    /// Whether the response itself says how long it is fresh.
    pub fn has_explicit_lifetime(&self) -> bool {
        self.directives.s_maxage.is_some()
            || self.directives.max_age.is_some()
            || self.expires != Expires::Absent
    }

    /// Whether the origin server can be asked if the response still holds.
    pub fn has_validator(&self) -> bool {
        self.has_etag || self.last_modified.is_some()
    }

    /// Whether every reuse needs a validation first.
    //= RFC 9111 section 4.2.1: the most restrictive of conflicting directives
    pub fn must_always_validate(&self) -> bool {
        self.directives.no_cache == Qualified::All
    }
}
