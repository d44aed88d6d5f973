//! Content negotiation in a cache: the meaning of `Accept-Encoding` and `Accept-Language` (RFC 9110 sections 12.4.2,
//! 12.5.3 and 12.5.4), whether two values have the same meaning, and whether the origin server would select a given
//! stored response.
//!
//! A value outside the grammar has no meaning here: it is compared as sent, and selects nothing.

use std::cmp::{Ordering, Reverse};
use std::ops::ControlFlow;

use smallvec::SmallVec;

use crate::{FieldLine, fields};

/// How the values of `Accept-Encoding` and `Accept-Language` select a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Negotiation {
    /// Values are compared member by member, as for any other field.
    AsSent,
    /// Values are compared by meaning, regardless of case, order, spaces and the spelling of weights.
    #[default]
    Normalised,
    /// By meaning. If no stored response was selected by the same preferences, one is used if its own
    /// `Content-Encoding` or `Content-Language` makes the selection certain.
    Selecting,
}

/// A request field with preferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Encoding,
    Language,
}

/// The content codings to which a rule reduces `Accept-Encoding`, because clients also list codings that the origin
/// doesn't have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings {
    /// In lower case, in the order in which they are sent to the origin; empty for all codings.
    names: Vec<Box<str>>,
}

impl Codings {
    /// All codings: `Accept-Encoding` stays unchanged.
    pub const ALL: &'static Self = &Self { names: Vec::new() };

    /// Creates a set from the names of at most [`Self::COUNT_MAX`] codings.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let named = names.into_iter().map(|name| name.to_ascii_lowercase().into_boxed_str());
        Self { names: named.take(Self::COUNT_MAX).collect() }
    }

    /// Maximum number of codings: with `identity` and `*`, all of them fit into one field.
    pub const COUNT_MAX: usize = 8;

    /// Returns whether the set lists only `identity`, so that the origin never gets a request for a coding.
    fn are_none(&self) -> bool {
        matches!(&self.names[..], [only] if only.as_bytes() == IDENTITY)
    }

    /// Returns whether `Accept-Encoding` stays unchanged.
    pub fn are_all(&self) -> bool {
        self.names.is_empty()
    }

    fn keep(&self, coding: &[u8]) -> bool {
        let mut kept = self.names.iter().map(|name| name.as_bytes()).chain([ANY, IDENTITY]);
        self.are_all() || kept.any(|known| known.eq_ignore_ascii_case(coding))
    }

    fn place(&self, coding: &[u8]) -> usize {
        let mut names = self.names.iter().map(|name| name.as_bytes());
        names.position(|name| name.eq_ignore_ascii_case(coding)).unwrap_or(self.names.len())
    }

    /// Returns `Accept-Encoding` for the origin, in one form for all values of the same meaning. Returns `None` if the
    /// field is absent or has no meaning: it is then forwarded as sent.
    //= RFC 9110 section 12.5.3: Accept-Encoding
    pub fn accept_encoding(&self, request: &[FieldLine<'_>]) -> Option<String> {
        let mut preferences = Preferences::parse(Dimension::Encoding, request, self)?;
        preferences.members.sort_by_key(|member| (Reverse(member.weight), self.place(member.range)));
        let texts: Vec<String> = preferences.texts().map(|text| text.to_ascii_lowercase()).collect();
        Some(if texts.is_empty() { "identity".to_owned() } else { texts.join(", ") })
    }
}

/// Maximum number of parsed members: values with more are compared as sent.
const MEMBERS_MAX: usize = 16;

/// Maximum length of a parsed coding or language range, in bytes.
const RANGE_BYTES_MAX: usize = 64;

impl Dimension {
    /// Returns the dimension of a lower-case field name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "accept-encoding" => Some(Self::Encoding),
            "accept-language" => Some(Self::Language),
            _ => None,
        }
    }

    fn request_field(self) -> &'static str {
        match self {
            Self::Encoding => "accept-encoding",
            Self::Language => "accept-language",
        }
    }
}

/// A client's preferences: at most one weight per range, ordered by range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preferences<'a> {
    members: SmallVec<[Preference<'a>; MEMBERS_MAX]>,
}

#[derive(Clone, Copy, Debug)]
struct Preference<'a> {
    range: &'a [u8],
    /// In thousandths; 0 is a refusal.
    weight: u16,
}

impl PartialEq for Preference<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.range.eq_ignore_ascii_case(other.range) && self.weight == other.weight
    }
}

impl Eq for Preference<'_> {}

impl<'a> Preferences<'a> {
    /// Parses the field of a request. Returns `None` if it is absent or has no meaning. Doesn't allocate.
    //= RFC 9111 section 4.1: normalization with identical semantics
    pub(crate) fn parse(
        dimension: Dimension,
        request: &'a [FieldLine<'a>],
        codings: &'a Codings,
    ) -> Option<Self> {
        let name = dimension.request_field();
        fields::contains(request, name).then_some(())?;
        let mut preferences = Self { members: SmallVec::new() };
        if dimension == Dimension::Encoding && codings.are_none() {
            return Some(preferences);
        }
        for member in fields::members(request, name) {
            let preference = Preference::parse(dimension, member)?;
            if dimension == Dimension::Language || codings.keep(preference.range) {
                preferences.insert(preference)?;
            }
        }
        if dimension == Dimension::Encoding {
            preferences.name_all(codings)?;
            preferences.reduce_codings();
        }
        Some(preferences)
    }

    /// Replaces an asterisk by the codings that it accepts, if they are known.
    //= RFC 9110 section 12.5.3: Accept-Encoding
    fn name_all(&mut self, codings: &'a Codings) -> Option<()> {
        let Some(weight) = self.listed(ANY).filter(|weight| *weight > 0 && !codings.names.is_empty()) else {
            return Some(());
        };
        self.members.retain(|member| !member.is(ANY));
        for coding in codings.names.iter().map(|name| name.as_bytes()).chain([IDENTITY]) {
            if self.listed(coding).is_none() {
                self.insert(Preference { range: coding, weight })?;
            }
        }
        Some(())
    }

    /// Writes each range with its weight, ordered by range; the ranges are in lower case.
    pub(crate) fn write(&self, mut sink: impl FnMut(&[u8], u16) -> ControlFlow<()>) -> ControlFlow<()> {
        for member in &self.members {
            let mut lower = [0u8; RANGE_BYTES_MAX];
            let lower = &mut lower[..member.range.len()];
            lower.copy_from_slice(member.range);
            lower.make_ascii_lowercase();
            sink(lower, member.weight)?;
        }
        ControlFlow::Continue(())
    }

    /// Formats each member.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        self.members.iter().map(|member| {
            let range = String::from_utf8_lossy(member.range);
            match member.weight {
                1000 => range.into_owned(),
                weight => format!("{range};q={}", f64::from(weight) / 1000.0),
            }
        })
    }

    /// Reads the output of [`Self::write`].
    pub(crate) fn from_written(members: impl Iterator<Item = (&'a [u8], u16)>) -> Self {
        Self { members: members.map(|(range, weight)| Preference { range, weight }).collect() }
    }

    /// Returns `None` for too many ranges, or two weights for one.
    fn insert(&mut self, member: Preference<'a>) -> Option<()> {
        match self.members.binary_search_by(|known| compare(known.range, member.range)) {
            Ok(known) => (self.members[known].weight == member.weight).then_some(()),
            Err(_) if self.members.len() == MEMBERS_MAX => None,
            Err(place) => {
                self.members.insert(place, member);
                Some(())
            }
        }
    }

    fn listed(&self, range: &[u8]) -> Option<u16> {
        let place = self.members.binary_search_by(|known| compare(known.range, range)).ok()?;
        Some(self.members[place].weight)
    }

    /// Removes members that follow from other members.
    //= RFC 9110 section 12.5.3: Accept-Encoding
    fn reduce_codings(&mut self) {
        match self.listed(ANY) {
            // Unlisted codings are refused, except identity.
            None => self.members.retain(|member| member.weight > 0 || member.is(IDENTITY)),
            Some(0) => {
                let refuses_identity = self.listed(IDENTITY).is_none_or(|weight| weight == 0);
                self.members.retain(|member| member.weight > 0);
                if refuses_identity {
                    // This can't fail, because removing the asterisk has made room.
                    let _ = self.insert(Preference { range: IDENTITY, weight: 0 });
                }
            }
            Some(any) => {
                self.members.retain(|member| member.weight != any || member.is(ANY) || member.is(IDENTITY))
            }
        }
        // If `identity` is the only accepted coding, its weight doesn't matter.
        if let [only] = &self.members[..]
            && only.is(IDENTITY)
            && only.weight > 0
        {
            self.members.clear();
        }
    }

    /// Returns the weight of a content coding, in units that leave room for an unlisted `identity`: acceptable, and
    /// after all listed codings.
    pub(crate) fn weight_of_coding(&self, coding: &[u8]) -> u32 {
        let listed = self.listed(coding).or_else(|| self.listed(ANY)).map(|weight| u32::from(weight) * 10);
        listed.unwrap_or_else(|| u32::from(coding.eq_ignore_ascii_case(IDENTITY)))
    }

    /// Returns the weight of a language tag: that of the longest range that matches it.
    //= RFC 9110 section 12.5.4: Accept-Language
    fn weight_of_language(&self, tag: &[u8]) -> u32 {
        let matching = self.members.iter().filter(|member| member.matches_language(tag));
        let best = matching.max_by_key(|member| if member.is(ANY) { 0 } else { member.range.len() });
        best.map_or(0, |member| u32::from(member.weight))
    }
}

impl<'a> Preference<'a> {
    fn parse(dimension: Dimension, member: &'a [u8]) -> Option<Self> {
        let (range, weight) = match memchr::memchr(b';', member) {
            None => (member, 1000),
            Some(at) => (fields::trim(&member[..at]), parse_weight(fields::trim(&member[at + 1..]))?),
        };
        let is_understood = fields::is_token(range) && range.len() <= RANGE_BYTES_MAX;
        let range = if dimension == Dimension::Encoding { coding_name(range) } else { range };
        is_understood.then_some(Self { range, weight })
    }

    fn is(&self, range: &[u8]) -> bool {
        self.range.eq_ignore_ascii_case(range)
    }

    /// Basic filtering: the tag equals the range, or begins with the range and a hyphen.
    fn matches_language(&self, tag: &[u8]) -> bool {
        let begins =
            tag.len() >= self.range.len() && tag[..self.range.len()].eq_ignore_ascii_case(self.range);
        self.is(ANY) || (begins && matches!(tag.get(self.range.len()), None | Some(b'-')))
    }
}

/// Returns whether the origin server, which selected `response` for a request with the preferences `then`, is certain to select it for a
/// request with the preferences `now` too, as far as this dimension is concerned. It is certain in two cases.
///
/// First case: `now` accepts the response's coding or language, and the change favours no alternative. Each alternative that `now` accepts
/// was accepted `then` too, with at least the same weight relative to the weight of the response. The server has already preferred this
/// response to all of them.
///
/// Second case: no alternative could suit the client better. For a language, no alternative has a greater weight in
/// `now`; for a coding, every alternative has a smaller weight. Among codings of equal weight the server selects the
/// one that compresses best, which the client would not get.
//= RFC 9111 section 4.1: preference among several matches
pub(crate) fn is_certain(
    dimension: Dimension,
    then: Option<&Preferences<'_>>,
    now: &Preferences<'_>,
    response: &[FieldLine<'_>],
) -> bool {
    match dimension {
        Dimension::Encoding => {
            let (Some(then), Some(coding)) = (then, content_coding(response)) else { return false };
            is_certain_coding(then, now, coding)
        }
        Dimension::Language => content_language(response).is_some_and(|tag| {
            is_first_language(now, tag) || then.is_some_and(|then| is_certain_language(then, now, tag))
        }),
    }
}

fn is_certain_coding(then: &Preferences<'_>, now: &Preferences<'_>, coding: &[u8]) -> bool {
    let chosen = Weights { then: then.weight_of_coding(coding), now: now.weight_of_coding(coding) };
    let others = now.members.iter().map(|member| member.range).chain([IDENTITY]);
    let mut others = others.filter(|other| !other.eq_ignore_ascii_case(coding));
    // An asterisk stands for all unnamed codings, which must have been acceptable then too.
    let weight_then = |other: &[u8]| match other {
        ANY => then.listed(ANY).map_or(0, |weight| u32::from(weight) * 10),
        _ => then.weight_of_coding(other),
    };
    //= RFC 9110 section 12.5.3: Accept-Encoding
    let is_behind = |other: &[u8]| {
        let other = Weights { then: weight_then(other), now: now.weight_of_coding(other) };
        other.now < chosen.now || !chosen.is_overtaken_by(other)
    };
    chosen.now > 0 && chosen.then > 0 && others.all(is_behind)
}

fn is_certain_language(then: &Preferences<'_>, now: &Preferences<'_>, tag: &[u8]) -> bool {
    let chosen = Weights { then: then.weight_of_language(tag), now: now.weight_of_language(tag) };
    chosen.now > 0
        && chosen.then > 0
        && now.members.iter().filter(|member| !member.is(tag)).all(|other| {
            let weight_then = then.listed(other.range).map_or(0, u32::from);
            !chosen.is_overtaken_by(Weights { then: weight_then, now: u32::from(other.weight) })
        })
}

fn is_first_language(now: &Preferences<'_>, tag: &[u8]) -> bool {
    let weight = now.weight_of_language(tag);
    weight > 0 && now.members.iter().all(|member| u32::from(member.weight) <= weight)
}

/// The weights of one alternative in two requests.
#[derive(Clone, Copy)]
struct Weights {
    then: u32,
    now: u32,
}

impl Weights {
    /// Returns whether the weight of the other alternative, relative to this one, is greater now than it was then.
    fn is_overtaken_by(self, other: Self) -> bool {
        other.now * self.then > other.then * self.now
    }
}

/// Returns the only content coding of a response, `identity` if it has none.
fn content_coding<'a>(response: &'a [FieldLine<'a>]) -> Option<&'a [u8]> {
    let mut codings = fields::members(response, "content-encoding");
    let coding = coding_name(codings.next().unwrap_or(IDENTITY));
    (codings.next().is_none() && fields::is_token(coding) && coding != ANY).then_some(coding)
}

/// Returns the only language of a response.
fn content_language<'a>(response: &'a [FieldLine<'a>]) -> Option<&'a [u8]> {
    let mut languages = fields::members(response, "content-language");
    let tag = languages.next()?;
    (languages.next().is_none() && fields::is_token(tag) && tag != ANY).then_some(tag)
}

//= RFC 9110 section 8.4.1.3: x-gzip is gzip
fn coding_name(coding: &[u8]) -> &[u8] {
    let is = |known: &[u8]| coding.eq_ignore_ascii_case(known);
    if is(b"x-gzip") {
        b"gzip"
    } else if is(b"x-compress") {
        b"compress"
    } else {
        coding
    }
}

/// Parses `q=` and a number from 0 to 1 with at most three digits after the point, in thousandths.
//= RFC 9110 section 12.4.2: quality values
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', number @ ..] = parameter else { return None };
    let (whole, fraction) = match number {
        [whole] => (whole, &b""[..]),
        [whole, b'.', fraction @ ..] => (whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |index: usize| u16::from(fraction.get(index).unwrap_or(&b'0') - b'0');
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

fn compare(one: &[u8], other: &[u8]) -> Ordering {
    one.iter().map(u8::to_ascii_lowercase).cmp(other.iter().map(u8::to_ascii_lowercase))
}

const ANY: &[u8] = b"*";
const IDENTITY: &[u8] = b"identity";

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are equal exactly if the preferences are, and parsing the text again changes nothing.
    #[test]
    fn accept_encoding_has_one_form() {
        let codings = Codings::new(["zstd", "BR", "gzip"]);
        for (sent, expected) in [
            ("gzip", Some("gzip")),
            ("gzip, deflate", Some("gzip")),
            ("deflate, GZIP;q=1.0", Some("gzip")),
            ("x-gzip, compress, foo", Some("gzip")),
            ("gzip, deflate, br", Some("br, gzip")),
            ("gzip, deflate, br, zstd", Some("zstd, br, gzip")),
            ("gzip;q=0.5, br", Some("br, gzip;q=0.5")),
            ("br;q=0.5, gzip", Some("gzip, br;q=0.5")),
            ("gzip, br;q=0", Some("gzip")),
            ("*", Some("zstd, br, gzip, identity")),
            ("gzip, *;q=0.1", Some("gzip, zstd;q=0.1, br;q=0.1, identity;q=0.1")),
            ("*;q=0", Some("identity;q=0")),
            ("gzip, *;q=0", Some("gzip, identity;q=0")),
            ("gzip, identity;q=0", Some("gzip, identity;q=0")),
            ("br;q=0, *", Some("zstd, gzip, identity")),
            ("identity;q=0.5, gzip", Some("gzip, identity;q=0.5")),
            ("identity", Some("identity")),
            ("", Some("identity")),
            ("deflate", Some("identity")),
            ("gzip;level=9", None),
            ("gzip;q=2", None),
            ("gzip, gzip;q=0.5", None),
        ] {
            let found = codings.accept_encoding(&[("Accept-Encoding", sent.as_bytes())]);
            assert_eq!(found.as_deref(), expected, "{sent}");
            if let Some(text) = found {
                let again = codings.accept_encoding(&[("accept-encoding", text.as_bytes())]);
                assert_eq!(again.as_deref(), Some(&text[..]), "{sent}");
                let meant = |text| {
                    let lines = [("accept-encoding", text)];
                    let meant = Preferences::parse(Dimension::Encoding, &lines, &codings);
                    meant.map(|meant| meant.texts().map(|text| text.to_lowercase()).collect::<Vec<_>>())
                };
                assert_eq!(meant(sent.as_bytes()), meant(text.as_bytes()), "{sent}");
            }
        }
        assert_eq!(codings.accept_encoding(&[("Accept", b"gzip")]), None, "there is no such field");
        for sent in ["gzip, br", "*", "identity;q=0, gzip", "gzip;level=9", ""] {
            let none = Codings::new(["identity"]);
            let found = none.accept_encoding(&[("Accept-Encoding", sent.as_bytes())]);
            assert_eq!(found.as_deref(), Some("identity"), "{sent}: no coding is requested from the origin");
        }
        let lines: [FieldLine<'_>; 2] = [("Accept-Encoding", b"gzip"), ("Accept-Encoding", b"br")];
        assert_eq!(codings.accept_encoding(&lines).as_deref(), Some("br, gzip"));
    }
}
