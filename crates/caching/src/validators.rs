//! The validators of a response (RFC 9110 section 8.8), borrowed for a decision, and their stored form.

use crate::{EntityTag, FieldLine, Timestamp, date, fields};

/// `ETag` and `Last-Modified` of a response. `Last-Modified` is kept as sent and as a date; a value that isn't a date
/// is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The value of `ETag`, not empty.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified`.
    pub last_modified: Option<(&'a [u8], Timestamp)>,
    is_last_modified_strong: bool,
}

impl<'a> Validators<'a> {
    /// Parses the validators of a response. `now` determines the century of two-digit years.
    pub fn parse(response: &'a [FieldLine<'a>], now: Timestamp) -> Self {
        let dated = |value: &'a [u8]| Some((value, date::parse(value, now)?));
        let last_modified = fields::only(response, "last-modified").and_then(dated);
        let date = fields::first(response, "date").and_then(|value| date::parse(value, now));
        //= RFC 9110 section 8.8.2.2: when a modification date is strong
        let age_ms = last_modified.zip(date).map(|((_, modified), date)| date.ms_since(modified));
        Self {
            etag: fields::first(response, "etag").filter(|value| !value.is_empty()),
            last_modified,
            is_last_modified_strong: age_ms.is_some_and(|age_ms| age_ms >= 1000),
        }
    }

    /// Returns whether there are no validators.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// Returns the entity tag.
    pub fn entity_tag(&self) -> Option<EntityTag<'a>> {
        EntityTag::parse(self.etag?)
    }

    /// Returns whether `Last-Modified` can serve as a strong validator: `Date` is at least a second later.
    pub fn is_last_modified_strong(&self) -> bool {
        self.is_last_modified_strong
    }
}

/// Parsed properties of [`Validators`], stored next to the fields of a response, which contain the text of the
/// validators. `Date` only decides whether `Last-Modified` is strong, so it isn't stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredValidators {
    /// `Last-Modified` in whole seconds, with the flags in the low bits.
    packed: i64,
}

const HAS_ETAG: i64 = 1;
const HAS_LAST_MODIFIED: i64 = 2;
const IS_STRONG: i64 = 4;
const FLAG_BITS: u32 = 3;

impl StoredValidators {
    /// Returns the validators. `value` returns the first value of a field in the response from which the validators
    /// were parsed.
    #[inline]
    pub fn view<'a>(&self, value: impl Fn(&str) -> Option<&'a [u8]>) -> Validators<'a> {
        let has = |flag| self.packed & flag != 0;
        let modified = || Some((value("last-modified")?, Timestamp::from_seconds(self.packed >> FLAG_BITS)));
        Validators {
            etag: if has(HAS_ETAG) { value("etag") } else { None },
            last_modified: if has(HAS_LAST_MODIFIED) { modified() } else { None },
            is_last_modified_strong: has(IS_STRONG),
        }
    }
}

impl From<Validators<'_>> for StoredValidators {
    fn from(validators: Validators<'_>) -> Self {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let seconds = validators.last_modified.map_or(0, |(_, at)| at.whole_seconds());
        Self {
            packed: seconds << FLAG_BITS
                | flag(validators.etag.is_some(), HAS_ETAG)
                | flag(validators.last_modified.is_some(), HAS_LAST_MODIFIED)
                | flag(validators.is_last_modified_strong, IS_STRONG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    /// Checks that the stored form returns the validators that the fields contain.
    fn check(lines: &[FieldLine<'_>], is_strong: bool) {
        let parsed = Validators::parse(lines, NOW);
        let stored = StoredValidators::from(parsed);
        assert_eq!(stored.view(|name| fields::first(lines, name)), parsed);
        assert_eq!(parsed.is_last_modified_strong(), is_strong, "{parsed:?}");
    }

    #[test]
    fn what_is_kept_says_the_same() {
        let date: FieldLine<'_> = ("date", b"Thu, 01 Jan 2026 00:00:01 GMT");
        let modified = |value: &'static str| ("last-modified", value.as_bytes());
        check(&[], false);
        check(&[date, ("etag", b"\"1\"")], false);
        check(&[date, modified("Thu, 01 Jan 2026 00:00:00 GMT")], true);
        check(&[date, modified("Thu, 01 Jan 2026 00:00:01 GMT"), ("etag", b"")], false);
        check(&[modified("Thu, 01 Jan 2026 00:00:00 GMT")], false);
        check(&[date, modified("Wed, 01 Jan 1600 00:00:00 GMT"), ("etag", b"W/\"1\"")], true);
        check(&[date, modified("yesterday")], false);
    }
}
