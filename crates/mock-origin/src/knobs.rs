//! Query knobs: how the origin shall behave for one request.

use std::{
    fmt::Display,
    ops::RangeInclusive,
    str::FromStr,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Everything that the query asks for; the default asks for nothing.
#[derive(Debug, Default)]
pub(crate) struct Knobs {
    /// `delay`: wait before the head.
    pub(crate) delay: Duration,
    /// `cc`: Cache-Control lines; an empty list means none at all.
    pub(crate) cache_control: Option<Vec<HeaderValue>>,
    /// `vary`: Vary lines.
    pub(crate) vary: Vec<HeaderValue>,
    /// `etag`.
    pub(crate) etag: EtagKnob,
    /// `lm`.
    pub(crate) last_modified: LastModifiedKnob,
    /// `size`: pad the body to this many bytes.
    pub(crate) size_bytes: u64,
    /// `fail`.
    pub(crate) fail: Option<Fail>,
    /// `close`: break the connection after this many body bytes.
    pub(crate) close_after_bytes: Option<u64>,
    /// `sleep_between`: wait between chunks.
    pub(crate) sleep_between: Option<Duration>,
    /// `chunk`: bytes of one chunk.
    pub(crate) chunk_bytes: Option<usize>,
    /// `expires`: Expires, in seconds from now.
    pub(crate) expires_in_s: Option<i64>,
    /// `age`: Age in seconds.
    pub(crate) age_s: Option<u64>,
    /// `date`.
    pub(crate) date: DateKnob,
    /// `header`: extra lines; they replace the origin's own lines of the same name.
    pub(crate) headers: HeaderMap,
    /// `chunked`, or implied by `trailer`.
    pub(crate) framing: Framing,
    /// `trailer`: trailer fields.
    pub(crate) trailers: HeaderMap,
    /// `events`: how many events `/sse` sends.
    pub(crate) events: Option<usize>,
}

/// `etag=`, `etag=auto`, `etag=abc` or `etag=W/abc`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum EtagKnob {
    /// What the route does by itself.
    #[default]
    Untouched,
    Off,
    /// Strong, from the bytes.
    Auto,
    Given(HeaderValue),
}

/// `lm=`, `lm=SECONDS` or `lm=HTTP-DATE`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum LastModifiedKnob {
    /// What the route does by itself.
    #[default]
    Untouched,
    Off,
    /// So long before the origin started.
    Before(Duration),
    At(SystemTime),
}

/// `date=on` or `date=off`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateKnob {
    #[default]
    On,
    Off,
}

/// How the end of the body is told on HTTP/1.1; the greater one wins where route and knob differ.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Framing {
    #[default]
    ContentLength,
    Chunked,
}

/// `fail=0.5`, `fail=503:0.5` or `fail=drop:0.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fail {
    pub(crate) with: Failure,
    pub(crate) probability: f64,
}

/// What a failed request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Status(StatusCode),
    /// No answer: the connection closes (HTTP/1.1) or the stream is reset (HTTP/2).
    Drop,
}

/// A knob that cannot be obeyed; the client gets this text with a 400.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("knob `{knob}`: `{value}` {problem}; allowed: {allowed}")]
pub(crate) struct KnobError {
    knob: String,
    value: String,
    problem: &'static str,
    allowed: String,
}

impl Knobs {
    /// Reads the knobs from a query; names that are no knobs are left alone (they make URLs distinct).
    ///
    /// # Errors
    /// The first knob whose value is malformed or out of its range.
    pub(crate) fn parse(query: &str) -> Result<Self, KnobError> {
        let mut knobs = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let raw = Raw { knob: &name, value: &value };
            knobs.set_timing(&raw)?;
            knobs.set_field(&raw)?;
            knobs.set_body(&raw)?;
        }
        Ok(knobs)
    }

    fn set_timing(&mut self, raw: &Raw<'_>) -> Result<(), KnobError> {
        match raw.knob {
            "delay" => self.delay = raw.milliseconds()?,
            "sleep_between" => self.sleep_between = Some(raw.milliseconds()?),
            "fail" => self.fail = Some(raw.fail()?),
            _ => {}
        }
        Ok(())
    }

    fn set_field(&mut self, raw: &Raw<'_>) -> Result<(), KnobError> {
        match raw.knob {
            "cc" => {
                let lines = self.cache_control.get_or_insert_default();
                lines.extend(raw.unless_empty(Raw::field_value)?);
            }
            "vary" => self.vary.push(raw.vary()?),
            "etag" => self.etag = raw.etag()?,
            "lm" => self.last_modified = raw.last_modified()?,
            "expires" => {
                self.expires_in_s = Some(raw.number(-SECONDS_MAX..=SECONDS_MAX, "seconds from now")?)
            }
            "age" => self.age_s = Some(raw.number(0..=SECONDS_MAX as u64, "seconds")?),
            "date" => self.date = raw.choice(&[("on", DateKnob::On), ("off", DateKnob::Off)])?,
            "header" => raw.append_field(&mut self.headers)?,
            _ => {}
        }
        Ok(())
    }

    fn set_body(&mut self, raw: &Raw<'_>) -> Result<(), KnobError> {
        match raw.knob {
            "size" => self.size_bytes = raw.number(0..=BODY_BYTES_MAX, "bytes")?,
            "close" => self.close_after_bytes = Some(raw.number(0..=BODY_BYTES_MAX, "body bytes")?),
            "chunk" => self.chunk_bytes = Some(raw.number(1..=CHUNK_BYTES_MAX, "bytes")?),
            "chunked" => {
                self.framing = raw.choice(&[("1", Framing::Chunked), ("0", Framing::ContentLength)])?;
            }
            "trailer" => {
                raw.append_field(&mut self.trailers)?;
                self.framing = Framing::Chunked;
            }
            "events" => self.events = Some(raw.number(0..=EVENTS_MAX, "events")?),
            _ => {}
        }
        Ok(())
    }
}

/// One name and value from the query, decoded.
struct Raw<'a> {
    knob: &'a str,
    value: &'a str,
}

impl Raw<'_> {
    fn error(&self, problem: &'static str, allowed: impl Display) -> KnobError {
        KnobError {
            knob: self.knob.to_owned(),
            value: self.value.to_owned(),
            problem,
            allowed: allowed.to_string(),
        }
    }

    fn number<N>(&self, range: RangeInclusive<N>, unit: &str) -> Result<N, KnobError>
    where
        N: FromStr + PartialOrd + Display,
    {
        let allowed = || format!("a whole number from {} to {} ({unit})", range.start(), range.end());
        let number =
            self.value.parse().map_err(|_| self.error("is not a whole number in range", allowed()))?;
        if !range.contains(&number) {
            return Err(self.error("is out of range", allowed()));
        }
        Ok(number)
    }

    fn milliseconds(&self) -> Result<Duration, KnobError> {
        self.number(0..=WAIT_MS_MAX, "milliseconds").map(Duration::from_millis)
    }

    fn unless_empty<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, KnobError>,
    ) -> Result<Option<T>, KnobError> {
        if self.value.is_empty() {
            return Ok(None);
        }
        read(self).map(Some)
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, KnobError> {
        let chosen = choices.iter().find(|(name, _)| *name == self.value);
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            self.error("is not a choice", names.join(", "))
        })
    }

    fn field_value(&self) -> Result<HeaderValue, KnobError> {
        HeaderValue::from_str(self.value)
            .map_err(|_| self.error("is not a field value", "any text without control characters"))
    }

    fn vary(&self) -> Result<HeaderValue, KnobError> {
        let is_name = |name: &str| name == "*" || HeaderName::from_bytes(name.as_bytes()).is_ok();
        if !self.value.split(',').all(|name| is_name(name.trim())) {
            return Err(self.error("is not a list of field names", "field names separated by commas, or *"));
        }
        self.field_value()
    }

    fn etag(&self) -> Result<EtagKnob, KnobError> {
        let (weakness, opaque) = match self.value.strip_prefix("W/") {
            Some(opaque) => ("W/", opaque),
            None => ("", self.value),
        };
        match opaque {
            "" if weakness.is_empty() => return Ok(EtagKnob::Off),
            "auto" if weakness.is_empty() => return Ok(EtagKnob::Auto),
            _ => {}
        }
        let opaque = opaque.trim_matches('"');
        //= RFC 9110 section 8.8.3: an entity tag is an opaque quoted string
        let fits = !opaque.bytes().any(|byte| matches!(byte, 0..=b' ' | b'"' | 0x7f));
        let value = HeaderValue::from_str(&format!("{weakness}\"{opaque}\"")).ok().filter(|_| fits);
        value.map(EtagKnob::Given).ok_or_else(|| {
            self.error(
                "is not an entity tag",
                "nothing, auto, or text without spaces and quotes, with W/ before it if weak",
            )
        })
    }

    fn last_modified(&self) -> Result<LastModifiedKnob, KnobError> {
        if self.value.is_empty() {
            return Ok(LastModifiedKnob::Off);
        }
        if let Ok(date) = httpdate::parse_http_date(self.value) {
            return Ok(LastModifiedKnob::At(date));
        }
        let seconds = self.value.parse().ok().filter(|seconds| (0..=LAST_MODIFIED_S_MAX).contains(seconds));
        seconds.map(|seconds| LastModifiedKnob::Before(Duration::from_secs(seconds))).ok_or_else(|| {
            let allowed = format!(
                "nothing, an HTTP-date, or 0 to {LAST_MODIFIED_S_MAX} seconds before the origin started"
            );
            self.error("is neither an HTTP-date nor a number of seconds", allowed)
        })
    }

    fn fail(&self) -> Result<Fail, KnobError> {
        let allowed = "PROBABILITY (0 to 1), STATUS:PROBABILITY (400 to 599) or drop:PROBABILITY";
        let (with, probability) = self.value.rsplit_once(':').unwrap_or(("500", self.value));
        let status = with.parse().ok().filter(|code| (400..600).contains(code));
        let with = match status.and_then(|code| StatusCode::from_u16(code).ok()) {
            Some(status) => Failure::Status(status),
            None if with == "drop" => Failure::Drop,
            None => return Err(self.error("names no way to fail", allowed)),
        };
        let probability = probability.parse().ok().filter(|chance| (0.0..=1.0).contains(chance));
        let probability = probability.ok_or_else(|| self.error("has no probability", allowed))?;
        Ok(Fail { with, probability })
    }

    fn append_field(&self, fields: &mut HeaderMap) -> Result<(), KnobError> {
        let allowed = "Name:Value, except Content-Length, Transfer-Encoding, Trailer and Upgrade";
        let (name, value) = self.value.split_once(':').ok_or_else(|| self.error("has no colon", allowed))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes())
            .map_err(|_| self.error("does not start with a field name", allowed))?;
        if FRAMING_FIELDS.contains(&name.as_str()) {
            return Err(self.error("names a field that the server itself must write", allowed));
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| self.error("holds a character that no field value may have", allowed))?;
        fields.append(name, value);
        Ok(())
    }
}

/// Longer waits are more likely a slip than a wish.
const WAIT_MS_MAX: u64 = 600_000;
/// Bodies are generated as they are sent, so this costs no memory.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 40;
const CHUNK_BYTES_MAX: usize = 1 << 20;
const EVENTS_MAX: usize = 10_000;
/// More than a century; far from the edges of every clock.
const SECONDS_MAX: i64 = 1 << 32;
/// Keeps Last-Modified after 1970 for every clock that is right.
const LAST_MODIFIED_S_MAX: u64 = 1_500_000_000;
const FRAMING_FIELDS: [&str; 4] = ["content-length", "transfer-encoding", "trailer", "upgrade"];

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn parsed(query: &str) -> Knobs {
        Knobs::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    #[test]
    fn values_are_decoded_and_typed() {
        let knobs =
            parsed("delay=5&sleep_between=7&size=9&close=3&chunk=2&age=11&expires=-60&events=4&other=x");
        assert_eq!(
            (knobs.delay, knobs.sleep_between),
            (Duration::from_millis(5), Some(Duration::from_millis(7)))
        );
        assert_eq!((knobs.size_bytes, knobs.close_after_bytes, knobs.chunk_bytes), (9, Some(3), Some(2)));
        assert_eq!((knobs.age_s, knobs.expires_in_s, knobs.events), (Some(11), Some(-60), Some(4)));
    }

    #[test]
    fn cache_control_keeps_its_lines_verbatim() {
        assert_eq!(parsed("").cache_control, None);
        assert_eq!(parsed("cc=").cache_control, Some(vec![]));
        let lines = parsed("cc=max-age=60,%20public&cc=s-maxage+%3D+5").cache_control.unwrap();
        assert_eq!(lines, ["max-age=60, public", "s-maxage = 5"]);
    }

    #[test]
    fn entity_tags() {
        let given = |text| EtagKnob::Given(HeaderValue::from_static(text));
        let cases = [
            ("etag=abc", given("\"abc\"")),
            ("etag=%22abc%22", given("\"abc\"")),
            ("etag=W/abc", given("W/\"abc\"")),
            ("etag=W/", given("W/\"\"")),
            ("etag=auto", EtagKnob::Auto),
            ("etag=", EtagKnob::Off),
            ("", EtagKnob::Untouched),
        ];
        for (query, expected) in cases {
            assert_eq!(parsed(query).etag, expected, "{query}");
        }
    }

    #[test]
    fn last_modified_takes_seconds_or_a_date() {
        let at = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let cases = [
            ("lm=90", LastModifiedKnob::Before(Duration::from_secs(90))),
            ("lm=Sun,+06+Nov+1994+08:49:37+GMT", LastModifiedKnob::At(at)),
            ("lm=", LastModifiedKnob::Off),
        ];
        for (query, expected) in cases {
            assert_eq!(parsed(query).last_modified, expected, "{query}");
        }
    }

    #[test]
    fn failures() {
        let cases = [
            ("fail=0.5", Failure::Status(StatusCode::INTERNAL_SERVER_ERROR), 0.5),
            ("fail=503:1", Failure::Status(StatusCode::SERVICE_UNAVAILABLE), 1.0),
            ("fail=drop:0", Failure::Drop, 0.0),
        ];
        for (query, with, probability) in cases {
            assert_eq!(parsed(query).fail, Some(Fail { with, probability }), "{query}");
        }
    }

    #[test]
    fn fields_and_trailers_repeat() {
        let knobs = parsed("header=X-A:1&header=x-a:%202&trailer=X-Sum:abc&date=off");
        assert_eq!(knobs.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((knobs.trailers["x-sum"].as_bytes(), knobs.framing), (&b"abc"[..], Framing::Chunked));
        assert_eq!(knobs.date, DateKnob::Off);
    }

    #[test]
    fn a_malformed_knob_names_itself_and_what_is_allowed() {
        let cases = [
            (
                "delay=abc",
                "knob `delay`: `abc` is not a whole number in range; allowed: a whole number from 0 to 600000 (milliseconds)",
            ),
            (
                "delay=600001",
                "knob `delay`: `600001` is out of range; allowed: a whole number from 0 to 600000 (milliseconds)",
            ),
            ("date=maybe", "knob `date`: `maybe` is not a choice; allowed: on, off"),
            (
                "vary=a+b",
                "knob `vary`: `a b` is not a list of field names; allowed: field names separated by commas, or *",
            ),
            (
                "cc=a%0Ab",
                "knob `cc`: `a\nb` is not a field value; allowed: any text without control characters",
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(Knobs::parse(query).unwrap_err().to_string(), expected);
        }
        let rejected = [
            "fail=2",
            "fail=nan",
            "fail=200:1",
            "fail=503",
            "chunk=0",
            "chunked=yes",
            "etag=a%20b",
            "lm=soon",
            "age=-1",
            "header=novalue",
            "header=a%20b:c",
            "header=Content-Length:5",
            "trailer=Transfer-Encoding:chunked",
            "size=-1",
        ];
        for query in rejected {
            let knob = query.split('=').next().unwrap();
            let message = Knobs::parse(query).expect_err(query).to_string();
            assert!(message.starts_with(&format!("knob `{knob}`: ")), "{message}");
        }
    }
}
