//! The validators of a response (RFC 9110 section 8.8), borrowed for a decision, and what is kept of them.

use crate::{EntityTag, FieldLine, Timestamp, date, fields};

/// `ETag` and `Last-Modified` of a response. `Last-Modified` comes as it was sent and as the date it is;
/// one that is no date is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The value of `ETag`, not empty.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified`
    pub last_modified: Option<(&'a [u8], Timestamp)>,
    /// `Date`, where valid.
    pub date: Option<Timestamp>,
}

impl<'a> Validators<'a> {
    /// Reads them from a response. `now` settles the century of two-digit years.
    pub fn parse(response: &'a [FieldLine<'a>], now: Timestamp) -> Self {
        let dated = |value: &'a [u8]| Some((value, date::parse(value, now)?));
        Self {
            etag: fields::first(response, "etag").filter(|value| !value.is_empty()),
            last_modified: fields::only(response, "last-modified").and_then(dated),
            date: fields::first(response, "date").and_then(|value| date::parse(value, now)),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// The entity tag.
    pub fn entity_tag(&self) -> Option<EntityTag<'a>> {
        EntityTag::parse(self.etag?)
    }

    /// Whether `Last-Modified` can serve as a strong validator: `Date` is at least a second later.
    //= RFC 9110 section 8.8.2.2: when a modification date is strong
    pub fn is_last_modified_strong(&self) -> bool {
        let age_ms = self.last_modified.zip(self.date).map(|((_, modified), date)| date.ms_since(modified));
        age_ms.is_some_and(|age_ms| age_ms >= 1000)
    }
}

/// What was found out about [`Validators`], to be kept with the fields of a stored response: their text stays there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredValidators {
    has_etag: bool,
    last_modified: Option<Timestamp>,
    date: Option<Timestamp>,
}

impl StoredValidators {
    /// For the decisions. `value` gives the first value of a field of the response that they were parsed from.
    pub fn view<'a>(&self, value: impl Fn(&str) -> Option<&'a [u8]>) -> Validators<'a> {
        Validators {
            etag: if self.has_etag { value("etag") } else { None },
            last_modified: self.last_modified.and_then(|at| Some((value("last-modified")?, at))),
            date: self.date,
        }
    }
}

impl From<Validators<'_>> for StoredValidators {
    fn from(validators: Validators<'_>) -> Self {
        Self {
            has_etag: validators.etag.is_some(),
            last_modified: validators.last_modified.map(|(_, at)| at),
            date: validators.date,
        }
    }
}
