//! The facts of a request and of a response on which decisions are based, parsed once.

use crate::directives::{DeltaSeconds, LineReader, Qualified, RequestDirectives, ResponseDirectives};
use crate::vary::VarySummary;
use crate::{Control, FieldLine, Rules, Timestamp, age, credentials, date, fields, vary};

/// The class of a method. Names are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodClass {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `QUERY`: safe, and its content is part of the cache key ([`crate::query`]).
    Query,
    /// Any other safe method.
    OtherSafe,
    /// A method that may change state at the origin server, including every unknown method.
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

    /// Returns whether a stored response may answer the method.
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

/// The facts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The method.
    pub method: MethodClass,
    /// `Cache-Control` and `Pragma`.
    pub directives: RequestDirectives,
    /// Whether `Authorization` is present.
    pub has_authorization: bool,
    /// Whether a field is present that identifies the user, including `Authorization` ([`crate::sharing`]).
    pub has_credentials: bool,
    /// Whether the request announces content.
    pub has_content: bool,
    /// Whether `If-None-Match` or `If-Modified-Since` is present, for [`crate::conditional::evaluate`].
    pub has_conditions: bool,
    /// Whether `If-Match` or `If-Unmodified-Since` is present, which only the origin server may evaluate.
    pub has_origin_conditions: bool,
    /// Whether `Range` is present, for [`crate::range::evaluate`].
    pub has_range: bool,
}

impl RequestFacts {
    /// Parses a request in one pass.
    pub fn parse(method: &str, request: &[FieldLine<'_>]) -> Self {
        let mut facts = Self::without_fields(MethodClass::parse(method));
        let mut lines = LineReader::default();
        for (name, value) in request {
            facts.note(name, value, &mut lines);
        }
        facts.directives = lines.finish();
        facts
    }

    /// Adds credentials in fields that the operator's rules name.
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

    /// Records a field. Compares lengths first, which rules out most names.
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

/// Returns whether a field is present with a value other than empty or `0`.
fn asks(response: &[FieldLine<'_>], name: &str) -> bool {
    fields::values(response, name).any(|value| !matches!(value, b"" | b"0"))
}

/// The times of an exchange with the origin server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// Time at which the request was sent.
    pub request: Timestamp,
    /// Time at which the response's header section had arrived.
    pub response: Timestamp,
    /// Offset from the local clock to the clock used for comparisons with other machines: 0 unless a better clock is
    /// known.
    pub clock_ahead_ms: i64,
}

impl ExchangeTimes {
    /// Returns the arrival time by the clock used for comparisons with origin servers.
    pub fn arrival_by_others(&self) -> Timestamp {
        self.response.plus_ms(self.clock_ahead_ms)
    }
}

/// The value of `Expires`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expires {
    /// The field is absent.
    #[default]
    Absent,
    /// The value is not a date (`0`), which counts as in the past.
    Invalid,
    /// The value is this date.
    At(Timestamp),
}

/// The facts of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFacts {
    /// The status code.
    pub status: u16,
    /// The times of the exchange.
    pub times: ExchangeTimes,
    /// The directives of `Cache-Control`, or of the targeted field that replaces it.
    pub directives: ResponseDirectives,
    /// `Date`, or the time of arrival if it is missing or invalid.
    pub date: Timestamp,
    /// `Expires`.
    pub expires: Expires,
    /// `Age` in seconds, if valid.
    pub age_s: Option<DeltaSeconds>,
    /// `Last-Modified`, if valid.
    pub last_modified: Option<Timestamp>,
    /// Whether `ETag` is present and not empty.
    pub has_etag: bool,
    /// Whether a `Set-Cookie` is present that no qualified directive excludes from storing.
    pub has_set_cookie: bool,
    /// Whether the response lacks the field that the rules require for storing ([`Rules::store_only_with`]).
    pub lacks_signal: bool,
    /// `Vary`.
    pub vary: VarySummary,
}

impl ResponseFacts {
    /// Parses a response. The rules determine which field controls this cache.
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

    /// Returns whether the response itself has a lifetime.
    pub fn has_explicit_lifetime(&self) -> bool {
        self.directives.s_maxage.is_some()
            || self.directives.max_age.is_some()
            || self.expires != Expires::Absent
    }

    /// Returns whether the response can be validated with the origin server.
    pub fn has_validator(&self) -> bool {
        self.has_etag || self.last_modified.is_some()
    }

    /// Returns whether every reuse requires a validation.
    //= RFC 9111 section 4.2.1: the most restrictive of conflicting directives
    pub fn must_always_validate(&self) -> bool {
        self.directives.no_cache == Qualified::All
    }
}
