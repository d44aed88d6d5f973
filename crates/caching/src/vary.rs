//! `Vary` (RFC 9111 section 4.1): the nominated fields of a stored response, the values that they had
//! in the request it answered, and whether another request has the same.
//!
//! Values are compared after what section 4.1 permits: lines of one field are combined, whitespace
//! around commas outside quoted strings does not count. A field that is absent matches only an absent one.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use crate::{FieldLine, fields};

/// More nominated fields than this make a response unusable for other requests.
pub const NOMINATED_FIELDS_MAX: usize = 16;

/// Why no later request can match a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum VaryUnusable {
    /// `Vary: *`
    #[error("Vary is *")]
    Any,
    /// A member is no field name.
    #[error("a member of Vary is no field name")]
    InvalidName,
    /// More than [`NOMINATED_FIELDS_MAX`].
    #[error("Vary nominates more than {NOMINATED_FIELDS_MAX} fields")]
    TooMany,
}

/// [`NominatedFields::parse`] without the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarySummary {
    /// The response answers every request for its key.
    NothingNominated,
    /// It answers requests with the same nominated fields.
    Nominates,
    /// It answers no other request.
    Unusable(VaryUnusable),
}

/// The field names that a response nominates with `Vary`: lower case, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NominatedFields {
    /// Joined by commas, which no name contains.
    names: Box<str>,
}

impl NominatedFields {
    /// Reads `Vary` of a response.
    //= RFC 9111 section 4.1: a member * always fails to match
    //= RFC 9110 section 12.5.5: Vary
    pub fn parse(response: &[FieldLine<'_>]) -> Result<Self, VaryUnusable> {
        let names = collect_names(response)?;
        let mut names: Vec<String> = names.into_iter().map(str::to_ascii_lowercase).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Self { names: names.join(",").into() })
    }

    /// From names joined by commas, as [`Self::as_str`] gives them.
    pub fn from_joined(names: &str) -> Self {
        Self { names: names.into() }
    }

    /// The names joined by commas: equal exactly when the nominated fields are.
    pub fn as_str(&self) -> &str {
        &self.names
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.split(',').filter(|name| !name.is_empty())
    }

    /// Whether nothing is nominated, so that every request matches.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Takes the nominated values out of a request.
    pub fn capture(&self, request: Selecting<'_>) -> NominatedValues {
        let mut bytes = Vec::new();
        let _ = self.encode(request, &mut |piece| {
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        NominatedValues { bytes: bytes.into() }
    }

    /// Whether `request` has the values that were captured. Does not allocate.
    pub fn matches(&self, captured: &NominatedValues, request: Selecting<'_>) -> bool {
        let mut left = &captured.bytes[..];
        let flow = self.encode(request, &mut |piece| match left.strip_prefix(piece) {
            Some(rest) => {
                left = rest;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        });
        flow.is_continue() && left.is_empty()
    }

    /// Appends bytes that are the same for two requests exactly when the nominated fields and their
    /// values are. Does not allocate but in `out`.
    pub fn write_variant_key(&self, request: Selecting<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&length_prefix(self.names.as_bytes()));
        out.extend_from_slice(self.names.as_bytes());
        let _ = self.encode(request, &mut |piece| {
            out.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
    }

    /// The captured values for people: each name with its members in quotes, or `absent`.
    pub fn describe(&self, captured: &NominatedValues) -> Vec<(String, String)> {
        let mut rest = &captured.bytes[..];
        let mut text_of = |_: &str| {
            let mut members = Vec::new();
            while let Some((member, after)) = split_member(rest) {
                members.push(String::from_utf8_lossy(member).into_owned());
                rest = after;
            }
            rest = rest.get(1..).unwrap_or_default();
            if members.is_empty() { "absent".to_owned() } else { format!("\"{}\"", members.join(", ")) }
        };
        self.names().map(|name| (name.to_owned(), text_of(name))).collect()
    }

    /// Gives `sink` the captured form piece by piece: per name its members, each marked and
    /// length-prefixed, then an end mark. An absent field has no member, an empty one an empty member.
    //= RFC 9111 section 4.1: whitespace does not count
    //= RFC 9111 section 4.1: field lines are combined
    //= RFC 9111 section 4.1: absent matches absent only
    fn encode(
        &self,
        request: Selecting<'_>,
        sink: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for name in self.names() {
            for member in fields::values(request.source(name), name).flat_map(fields::Members::new) {
                sink(&[MEMBER])?;
                sink(&length_prefix(member))?;
                sink(member)?;
            }
            sink(&[END])?;
        }
        ControlFlow::Continue(())
    }
}

/// The values that the nominated fields had in the request that a stored response answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NominatedValues {
    bytes: Box<[u8]>,
}

impl NominatedValues {
    /// From bytes that [`Self::as_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// For the same nominated fields, equal exactly when the values are.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The request fields that choose among stored responses: those of the request, or in their place
/// normalised ones, such as an `Accept-Encoding` reduced to what makes a difference.
#[derive(Clone, Copy, Debug)]
pub struct Selecting<'a> {
    request: &'a [FieldLine<'a>],
    normalised: &'a [FieldLine<'a>],
}

impl<'a> Selecting<'a> {
    /// The fields as the request has them.
    pub fn as_sent(request: &'a [FieldLine<'a>]) -> Self {
        Self { request, normalised: &[] }
    }

    /// A name that occurs in `normalised` has its value there, whatever the request says.
    //= RFC 9111 section 4.1: normalization with identical semantics
    pub fn normalised(request: &'a [FieldLine<'a>], normalised: &'a [FieldLine<'a>]) -> Self {
        Self { request, normalised }
    }

    fn source(&self, name: &str) -> &'a [FieldLine<'a>] {
        if fields::contains(self.normalised, name) { self.normalised } else { self.request }
    }
}

/// What `Vary` of a response comes to. Does not allocate.
pub(crate) fn summarize(response: &[FieldLine<'_>]) -> VarySummary {
    match collect_names(response) {
        Ok(names) if names.is_empty() => VarySummary::NothingNominated,
        Ok(_) => VarySummary::Nominates,
        Err(unusable) => VarySummary::Unusable(unusable),
    }
}

const MEMBER: u8 = 1;
const END: u8 = 0;

type Names<'a> = SmallVec<[&'a str; NOMINATED_FIELDS_MAX]>;

/// The distinct members of `Vary`, as written. `*` wins over every other fault.
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

/// The first member of captured values, and what comes after it.
fn split_member(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[MEMBER, ref prefix @ ..], rest) = bytes.split_first_chunk::<9>()? else { return None };
    let length = u64::from_be_bytes(*prefix);
    rest.split_at_checked(usize::try_from(length).ok()?)
}

fn length_prefix(bytes: &[u8]) -> [u8; 8] {
    (bytes.len() as u64).to_be_bytes()
}
