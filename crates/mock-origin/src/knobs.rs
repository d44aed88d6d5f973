//! Query knobs: behaviour of the origin for one request.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

use http::{HeaderName, HeaderValue};

/// Knobs of a query; the defaults have no effect.
#[derive(Debug, Default)]
pub(crate) struct Knobs {
    /// `delay`: wait before the head.
    pub(crate) delay: Duration,
    /// `sleep_between`: wait between chunks.
    pub(crate) sleep_between: Duration,
    /// `chunk`: bytes of one chunk.
    pub(crate) chunk_bytes: Option<usize>,
    /// `size`: pad the body to this many bytes.
    pub(crate) size_bytes: u64,
    /// `cc`: Cache-Control lines; an empty list removes the field.
    pub(crate) cache_control: Option<Vec<HeaderValue>>,
    /// `etag`: a strong entity tag.
    pub(crate) etag: Option<HeaderValue>,
    /// `vary`: Vary lines.
    pub(crate) vary: Vec<HeaderValue>,
    /// `date=off`.
    pub(crate) without_date: bool,
}

/// A knob that can't be applied; the client gets this text with a 400.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("knob `{knob}`: `{value}` {problem}; allowed: {allowed}")]
pub(crate) struct KnobError {
    knob: String,
    value: String,
    problem: &'static str,
    allowed: String,
}

impl Knobs {
    /// Parses the knobs of a query; other names are ignored (they make URLs distinct).
    ///
    /// # Errors
    /// Returns the first knob whose value is malformed or out of its range.
    pub(crate) fn parse(query: &str) -> Result<Self, KnobError> {
        let mut knobs = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let raw = Raw { knob: &name, value: &value };
            match raw.knob {
                "delay" => knobs.delay = raw.milliseconds()?,
                "sleep_between" => knobs.sleep_between = raw.milliseconds()?,
                "chunk" => knobs.chunk_bytes = Some(raw.number(1..=CHUNK_BYTES_MAX, "bytes")?),
                "size" => knobs.size_bytes = raw.number(0..=BODY_BYTES_MAX, "bytes")?,
                "cc" => {
                    let lines = knobs.cache_control.get_or_insert_default();
                    if !value.is_empty() {
                        lines.push(raw.field_value()?);
                    }
                }
                "etag" => knobs.etag = Some(raw.etag()?),
                "vary" => knobs.vary.push(raw.vary()?),
                "date" => knobs.without_date = raw.date()?,
                _ => {}
            }
        }
        Ok(knobs)
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

    fn etag(&self) -> Result<HeaderValue, KnobError> {
        let opaque = self.value.trim_matches('"');
        //= RFC 9110 section 8.8.3: an entity tag is an opaque quoted string
        let fits = !opaque.is_empty() && !opaque.bytes().any(|byte| matches!(byte, 0..=b' ' | b'"' | 0x7f));
        let value = HeaderValue::from_str(&format!("\"{opaque}\"")).ok().filter(|_| fits);
        value.ok_or_else(|| self.error("is not an entity tag", "text without spaces and quotes"))
    }

    fn date(&self) -> Result<bool, KnobError> {
        match self.value {
            "on" => Ok(false),
            "off" => Ok(true),
            _ => Err(self.error("is not a choice", "on, off")),
        }
    }
}

/// Maximum wait in milliseconds: a longer one is probably a mistake.
const WAIT_MS_MAX: u64 = 600_000;
/// Maximum size of a body. Bodies are generated as they are sent, so this costs no memory.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 40;
const CHUNK_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Knobs {
        Knobs::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    #[test]
    fn values_are_decoded_and_typed() {
        let knobs = parsed("delay=5&sleep_between=7&size=9&chunk=2&date=off&other=x");
        assert_eq!((knobs.delay, knobs.sleep_between), (Duration::from_millis(5), Duration::from_millis(7)));
        assert_eq!((knobs.size_bytes, knobs.chunk_bytes), (9, Some(2)));
        assert!(knobs.without_date);
    }

    #[test]
    fn cache_control_keeps_its_lines_verbatim() {
        assert_eq!(parsed("").cache_control, None);
        assert_eq!(parsed("cc=").cache_control, Some(vec![]));
        let lines = parsed("cc=max-age=60,%20public&cc=s-maxage+%3D+5").cache_control.unwrap();
        assert_eq!(lines, ["max-age=60, public", "s-maxage = 5"]);
    }

    #[test]
    fn entity_tags_are_quoted() {
        for query in ["etag=abc", "etag=%22abc%22"] {
            assert_eq!(parsed(query).etag.unwrap(), "\"abc\"", "{query}");
        }
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
        for query in ["chunk=0", "etag=a%20b", "etag=", "size=-1"] {
            let knob = query.split('=').next().unwrap();
            let message = Knobs::parse(query).expect_err(query).to_string();
            assert!(message.starts_with(&format!("knob `{knob}`: ")), "{message}");
        }
    }
}
