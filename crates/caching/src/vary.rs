//! `Vary` (RFC 9111 section 4.1): the nominated fields of a stored response, their values in the request that it
//! answered, and whether another request has the same values.
//!
//! Values are compared after the normalisation that section 4.1 permits: lines of one field are combined, and
//! whitespace around commas outside of quoted strings is ignored. An absent field matches only an absent one.
//! `Accept-Encoding` and `Accept-Language` are compared by meaning ([`Negotiation`]).

use std::ops::ControlFlow;

use smallvec::SmallVec;

use crate::negotiation::{self, Codings, Dimension, Negotiation, Preferences};
use crate::{FieldLine, fields};

/// Maximum number of nominated fields: a response with more can't answer other requests.
pub const NOMINATED_FIELDS_MAX: usize = 16;

/// The reason why no later request can match a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum VaryUnusable {
    /// `Vary: *`.
    #[error("Vary is *")]
    Any,
    /// A member is not a field name.
    #[error("a member of Vary isn't a field name")]
    InvalidName,
    /// `Vary` nominates more than [`NOMINATED_FIELDS_MAX`] fields.
    #[error("Vary nominates more than {NOMINATED_FIELDS_MAX} fields")]
    TooMany,
}

/// The result of [`NominatedFields::parse`], without the field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarySummary {
    /// The response answers every request for its key.
    NothingNominated,
    /// The response answers requests that have the same values of the nominated fields.
    Nominates,
    /// The response answers no other request.
    Unusable(VaryUnusable),
}

/// The field names that a response nominates with `Vary`: lower case, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NominatedFields {
    /// The names joined by commas, which no name contains.
    names: Box<str>,
}

impl NominatedFields {
    /// Parses `Vary` of a response.
    //= RFC 9111 section 4.1: a member * always fails to match
    //= RFC 9110 section 12.5.5: Vary
    pub fn parse(response: &[FieldLine<'_>]) -> Result<Self, VaryUnusable> {
        let names = collect_names(response)?;
        let mut names: Vec<String> = names.into_iter().map(str::to_ascii_lowercase).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Self { names: names.join(",").into() })
    }

    /// Returns the fields from names joined by commas, as [`Self::as_str`] returns them.
    pub fn from_joined(names: &str) -> Self {
        Self { names: names.into() }
    }

    /// Returns the names joined by commas. Two sets of nominated fields are equal exactly if the joined names are
    /// equal.
    pub fn as_str(&self) -> &str {
        &self.names
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut rest = &*self.names;
        // The names are few and short, so setting up an optimised search costs more than it saves.
        let names = std::iter::from_fn(move || {
            let end = rest.bytes().position(|byte| byte == b',').unwrap_or(rest.len());
            let (name, left) = rest.split_at_checked(end).filter(|_| !rest.is_empty())?;
            rest = left.strip_prefix(',').unwrap_or_default();
            Some(name)
        });
        names.filter(|name| !name.is_empty())
    }

    /// Returns whether this field, in lower case, is nominated.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }

    /// Returns whether no field is nominated, so that every request matches.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Captures the nominated values of a request.
    pub fn capture(&self, request: Selecting<'_>) -> NominatedValues {
        let (mut bytes, mut sent) = (Vec::new(), Vec::new());
        let _ = self.encode(request, &mut |piece| {
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        if self.names().any(|name| request.dimension(name).is_some()) {
            let _ = self.encode_sent(request, &mut |piece| {
                sent.extend_from_slice(piece);
                ControlFlow::Continue(())
            });
        }
        NominatedValues { bytes: bytes.into(), sent: sent.into() }
    }

    /// Returns whether `request` has the captured values. Doesn't allocate.
    pub fn matches(&self, captured: &NominatedValues, request: Selecting<'_>) -> bool {
        let mut sent = Comparison { left: &captured.sent };
        let mut was_sent =
            || self.encode_sent(request, &mut |piece| sent.take(piece)).is_continue() && sent.is_over();
        if !captured.sent.is_empty() && was_sent() {
            return true;
        }
        let mut meant = Comparison { left: &captured.bytes };
        self.encode(request, &mut |piece| meant.take(piece)).is_continue() && meant.is_over()
    }

    /// Returns whether the origin server is certain to select `response` for `request` as it did for the request with
    /// the captured values, by the response's own fields: [`Negotiation::Selecting`]. Doesn't allocate.
    //= RFC 9111 section 4.1: preference among several matches
    pub fn is_certain(
        &self,
        captured: &NominatedValues,
        request: Selecting<'_>,
        response: &[FieldLine<'_>],
    ) -> bool {
        if !self.names().any(|name| request.looks_at_responses(name)) {
            return false;
        }
        let mut left = &captured.bytes[..];
        self.names().all(|name| {
            let Some((value, rest)) = cut_value(left) else { return false };
            left = rest;
            let is_certain =
                || request.looks_at_responses(name) && is_certain_value(name, value, request, response);
            has_value(name, value, request) || is_certain()
        })
    }

    /// Returns whether `response` answers all requests that another response answers, so that the other is redundant.
    /// Both responses nominate the same fields and have the same coding; `own` and `other` are the values captured for
    /// each.
    pub fn covers(
        &self,
        own: &NominatedValues,
        other: &NominatedValues,
        selecting: Selecting<'_>,
        response: &[FieldLine<'_>],
    ) -> bool {
        let (mut own, mut other) = (&own.bytes[..], &other.bytes[..]);
        self.names().all(|name| {
            let (Some((then, rest)), Some((now, other_rest))) = (cut_value(own), cut_value(other)) else {
                return false;
            };
            (own, other) = (rest, other_rest);
            let is_certain = || match (Dimension::of(name), preferences_in(then), preferences_in(now)) {
                (Some(dimension), Some(then), Some(now)) if selecting.looks_at_responses(name) => {
                    negotiation::is_certain(dimension, Some(&then), &now, response)
                }
                _ => false,
            };
            then == now || is_certain()
        })
    }

    /// Appends bytes that are equal for two requests exactly if the nominated fields and their values are equal.
    /// Allocates in `out` only.
    pub fn write_variant_key(&self, request: Selecting<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&length_prefix(self.names.as_bytes()));
        out.extend_from_slice(self.names.as_bytes());
        let _ = self.encode(request, &mut |piece| {
            out.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
    }

    /// Returns the lines of the nominated fields in the request with the captured values: capturing them again gives
    /// the same values. An absent field has one line with `None`; a field with several lines or members has several.
    pub fn lines<'a>(&'a self, captured: &'a NominatedValues) -> Vec<(&'a str, Option<&'a [u8]>)> {
        let mut left = if captured.sent.is_empty() { &captured.bytes[..] } else { &captured.sent[..] };
        let mut lines = Vec::new();
        for name in self.names() {
            let before = lines.len();
            while let Some((value, rest)) = cut_member(left) {
                left = rest;
                lines.push((name, Some(value)));
            }
            left = left.strip_prefix(&[END]).unwrap_or_default();
            if lines.len() == before {
                lines.push((name, None));
            }
        }
        lines
    }

    /// Formats the captured values: each name with its members in quotes, or `absent`.
    pub fn describe(&self, captured: &NominatedValues) -> Vec<(String, String)> {
        let mut left = &captured.bytes[..];
        let mut text_of = || {
            let (value, rest) = cut_value(left)?;
            left = rest;
            Some(value_text(value))
        };
        self.names().map(|name| (name.to_owned(), text_of().unwrap_or_default())).collect()
    }

    /// Passes the captured form to `sink` piece by piece.
    //= RFC 9111 section 4.1: whitespace does not count
    //= RFC 9111 section 4.1: field lines are combined
    //= RFC 9111 section 4.1: absent matches absent only
    fn encode(
        &self,
        request: Selecting<'_>,
        sink: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.names().try_for_each(|name| encode_value(name, request, sink))
    }

    /// Passes the lines of the nominated fields to `sink` as sent.
    fn encode_sent(
        &self,
        request: Selecting<'_>,
        sink: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.names().try_for_each(|name| {
            for value in fields::values(request.request, name) {
                sink(&[MEMBER])?;
                sink(&length_prefix(value))?;
                sink(value)?;
            }
            sink(&[END])
        })
    }
}

/// The values of the nominated fields in the request that a stored response answered.
#[derive(Clone, Debug, Default)]
pub struct NominatedValues {
    bytes: Box<[u8]>,
    /// The lines as sent, if fields are compared by meaning; empty otherwise. Most requests have exactly the same
    /// lines, and comparing bytes is faster than parsing.
    sent: Box<[u8]>,
}

impl PartialEq for NominatedValues {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for NominatedValues {}

impl NominatedValues {
    /// Returns the lengths of this value's allocations, in bytes.
    pub fn heap_bytes(&self) -> [usize; 2] {
        [self.bytes.len(), self.sent.len()]
    }
}

/// The request fields that select among stored responses, and how they are compared.
#[derive(Clone, Copy, Debug)]
pub struct Selecting<'a> {
    request: &'a [FieldLine<'a>],
    negotiation: Negotiation,
    codings: &'a Codings,
}

impl<'a> Selecting<'a> {
    /// Returns the fields of a request.
    pub fn new(request: &'a [FieldLine<'a>], negotiation: Negotiation) -> Self {
        Self { request, negotiation, codings: Codings::ALL }
    }

    /// Reduces `Accept-Encoding` to the codings that are requested from the origin server.
    #[must_use]
    pub fn reduced_to(self, codings: &'a Codings) -> Self {
        Self { codings, ..self }
    }

    /// Returns whether the fields of a stored response take part in the comparison of this request field.
    fn looks_at_responses(&self, name: &str) -> bool {
        match self.negotiation {
            Negotiation::AsSent => false,
            //= RFC 9111 section 4.1: preference among several matches
            Negotiation::Normalised => {
                !self.codings.are_all() && Dimension::of(name) == Some(Dimension::Encoding)
            }
            Negotiation::Selecting => true,
        }
    }

    /// Returns the client's preferences, if the field is compared by meaning.
    fn preferences(&self, name: &str) -> Option<(Dimension, Preferences<'a>)> {
        let dimension = self.dimension(name)?;
        Some((dimension, Preferences::parse(dimension, self.request, self.codings)?))
    }

    fn dimension(&self, name: &str) -> Option<Dimension> {
        Dimension::of(name).filter(|_| self.negotiation != Negotiation::AsSent)
    }
}

/// Summarizes `Vary` of a response. Doesn't allocate.
pub(crate) fn summarize(response: &[FieldLine<'_>]) -> VarySummary {
    match collect_names(response) {
        Ok(names) if names.is_empty() => VarySummary::NothingNominated,
        Ok(_) => VarySummary::Nominates,
        Err(unusable) => VarySummary::Unusable(unusable),
    }
}

/// Marks in the captured form of a value: members, each marked and preceded by its length, then an end mark. An absent
/// field has no member, an empty one has an empty member. Preferences have a separate mark before their members, so
/// that they differ from every value captured as sent.
const MEMBER: u8 = 1;
const PREFERENCES: u8 = 2;
const END: u8 = 0;

const LENGTH_BYTES: usize = 8;
const WEIGHT_BYTES: usize = 2;

type Names<'a> = SmallVec<[&'a str; NOMINATED_FIELDS_MAX]>;

/// Returns the distinct members of `Vary`, as written. An error for `*` takes precedence over all other errors.
fn collect_names<'a>(response: &'a [FieldLine<'a>]) -> Result<Names<'a>, VaryUnusable> {
    if fields::members(response, "vary").any(|member| member == b"*") {
        return Err(VaryUnusable::Any);
    }
    let mut names = Names::new();
    for member in fields::members(response, "vary") {
        let name = std::str::from_utf8(member).ok().filter(|name| fields::is_token(name.as_bytes()));
        let name = name.ok_or(VaryUnusable::InvalidName)?;
        if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            continue;
        }
        if names.len() == NOMINATED_FIELDS_MAX {
            return Err(VaryUnusable::TooMany);
        }
        names.push(name);
    }
    Ok(names)
}

/// Formats a captured value.
fn value_text(captured: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (members, is_absent): (Vec<String>, bool) = match captured {
        [PREFERENCES, members @ ..] => (captured_preferences(members).texts().collect(), false),
        members => {
            let mut left = members;
            let cut = std::iter::from_fn(|| {
                let (member, rest) = cut_member(left)?;
                left = rest;
                Some(text(member))
            });
            (cut.collect(), members == [END])
        }
    };
    if is_absent { "absent".to_owned() } else { format!("\"{}\"", members.join(", ")) }
}

fn encode_value(
    name: &str,
    request: Selecting<'_>,
    sink: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if let Some((_, preferences)) = request.preferences(name) {
        sink(&[PREFERENCES])?;
        preferences.write(|range, weight| {
            sink(&[MEMBER])?;
            sink(&((range.len() + WEIGHT_BYTES) as u64).to_be_bytes())?;
            sink(range)?;
            sink(&weight.to_be_bytes())
        })?;
    } else {
        for member in fields::values(request.request, name).flat_map(fields::Members::new) {
            sink(&[MEMBER])?;
            sink(&length_prefix(member))?;
            sink(member)?;
        }
    }
    sink(&[END])
}

/// Returns whether the request has this captured value.
fn has_value(name: &str, captured: &[u8], request: Selecting<'_>) -> bool {
    let mut value = Comparison { left: captured };
    encode_value(name, request, &mut |piece| value.take(piece)).is_continue() && value.is_over()
}

/// A comparison of bytes with a text that arrives in pieces.
struct Comparison<'a> {
    left: &'a [u8],
}

impl Comparison<'_> {
    fn take(&mut self, piece: &[u8]) -> ControlFlow<()> {
        match self.left.strip_prefix(piece) {
            Some(rest) => {
                self.left = rest;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn is_over(&self) -> bool {
        self.left.is_empty()
    }
}

fn is_certain_value(name: &str, captured: &[u8], request: Selecting<'_>, response: &[FieldLine<'_>]) -> bool {
    let Some((dimension, now)) = request.preferences(name) else { return false };
    let then = preferences_in(captured);
    negotiation::is_certain(dimension, then.as_ref(), &now, response)
}

/// Returns the captured preferences, if the value was captured as preferences.
fn preferences_in(captured: &[u8]) -> Option<Preferences<'_>> {
    match captured {
        [PREFERENCES, members @ ..] => Some(captured_preferences(members)),
        _ => None,
    }
}

fn captured_preferences(mut members: &[u8]) -> Preferences<'_> {
    Preferences::from_written(std::iter::from_fn(move || {
        let (member, rest) = cut_member(members)?;
        members = rest;
        let (range, weight) = member.split_last_chunk::<WEIGHT_BYTES>()?;
        Some((range, u16::from_be_bytes(*weight)))
    }))
}

/// Splits off the captured form of the first value, including its end mark.
fn cut_value(captured: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut left = captured.strip_prefix(&[PREFERENCES]).unwrap_or(captured);
    while let Some((_, rest)) = cut_member(left) {
        left = rest;
    }
    let rest = left.strip_prefix(&[END])?;
    Some((&captured[..captured.len() - rest.len()], rest))
}

fn cut_member(captured: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = captured.strip_prefix(&[MEMBER])?.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}

fn length_prefix(bytes: &[u8]) -> [u8; LENGTH_BYTES] {
    (bytes.len() as u64).to_be_bytes()
}
