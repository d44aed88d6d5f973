//! The validators of a response (RFC 9110 section 8.8), borrowed for a decision or owned to be kept.

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

/// [`Validators`] to be kept with a stored response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredValidators {
    etag: Option<Box<[u8]>>,
    last_modified: Option<(Box<[u8]>, Timestamp)>,
    date: Option<Timestamp>,
}

impl StoredValidators {
    /// For the decisions.
    pub fn view(&self) -> Validators<'_> {
        Validators {
            etag: self.etag.as_deref(),
            last_modified: self.last_modified.as_ref().map(|(text, at)| (&text[..], *at)),
            date: self.date,
        }
    }
}

impl From<Validators<'_>> for StoredValidators {
    fn from(validators: Validators<'_>) -> Self {
        Self {
            etag: validators.etag.map(Into::into),
            last_modified: validators.last_modified.map(|(text, at)| (text.into(), at)),
            date: validators.date,
        }
    }
}
