//! Content codings that a gateway applies to responses: which client gets which (RFC 9110 section 12.5.3), which
//! responses may have one (sections 7.7 and 8.4), and the effect on entity tags (section 8.8.3.3).
//!
//! The origin has one representation and tags it. An encoded form is another representation with another tag: `"a"` becomes `W/"a+gzip"`.
//! The tag is weak, because compressing the same content again may give other bytes: with another level, in a newer version, or from other
//! pieces. The origin's tag can be derived from the tag of a form, so that clients can validate and change a response in any coding
//! ([`with_tags_of_origin`]).

use crate::codes::reason_codes;
use crate::negotiation::{Codings, Dimension, Preferences};
use crate::{EntityTag, EntityTags, FieldLine, RequestFacts, Rules, entity_tag::Strength, fields};

/// A content coding that the gateway can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// All codings, ordered by compression for the time that it takes, best first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Returns the name in `Accept-Encoding` and `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the coding of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| coding.name() == name)
    }
}

reason_codes! {
    /// The reason why a response was not encoded.
    pub enum NotEncoded {
        Status = "status", "RFC 9110 section 6.4.1", "A response with this status has no content, or a part of one.";
        Encoded = "encoded", "RFC 9110 section 8.4", "The origin has encoded it already.";
        NoTransform = "no-transform", "RFC 9111 section 5.2.2.6", "The request or the response says `no-transform`.";
        ContentType = "content-type", "RFC 9110 section 8.3", "Its `Content-Type` is missing or not in `content_types`.";
        Small = "small", "RFC 9110 section 8.6", "It is smaller than `bytes_min`.";
        Digest = "digest", "RFC 9530 section 2", "One of its fields describes these exact bytes, such as `Content-Digest`.";
        Range = "range", "RFC 9110 section 14.2", "The request has a range, which counts the bytes of the origin's response.";
        NotAccepted = "not-accepted", "RFC 9110 section 12.5.3", "`Accept-Encoding` of the request has none of `codings`, or prefers `identity`.";
        Personal = "personal", "", "It is personal: meant for one client, and may contain a secret (`personal`).";
        NoGain = "no-gain", "", "Encoding doesn't make it smaller.";
        Busy = "busy", "", "The limit on concurrent compressions (`limits.compressions_max`) or one client's share of it is reached, or the store has no memory for one more.";
    }
}

/// Conditions under which responses may be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressible {
    /// Offered codings, the best first.
    pub codings: Vec<Coding>,
    /// Media types that compress well.
    pub content_types: ContentTypes,
    /// Minimum length of a body in bytes: encoding a smaller one saves no packet.
    pub bytes_min: u64,
}

/// A set of media types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentTypes {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// One type, such as `text/css`.
    Exactly(Box<str>),
    /// A class, such as `text/` for `text/*`.
    Class(Box<str>),
    /// A suffix, such as `+json` for `*/*+json`.
    Suffix(Box<str>),
    /// All types: `*/*`.
    Any,
}

/// An event stream is a sequence of messages, each of which must arrive as it is sent: only its own name matches it,
/// not a pattern.
const EVENT_STREAM: &str = "text/event-stream";

/// Maximum length of a type name in bytes; real names are shorter.
const TYPE_BYTES_MAX: usize = 127;

impl ContentTypes {
    /// Parses media types such as `text/html`, and the patterns `text/*`, `*/*+json` and `*/*`.
    ///
    /// # Errors
    ///
    /// Returns the first text that is neither a type nor a pattern.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, &'t str> {
        let patterns = texts.into_iter().map(|text| Pattern::parse(text).ok_or(text));
        Ok(Self { patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// Returns whether the set contains the type in a value of `Content-Type`.
    fn have(&self, value: &[u8]) -> bool {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        let name = fields::trim(&value[..end]);
        let mut lower = [0; TYPE_BYTES_MAX];
        let Some(lower) = lower.get_mut(..name.len()) else { return false };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        std::str::from_utf8(lower).is_ok_and(|name| self.patterns.iter().any(|pattern| pattern.fits(name)))
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (class, name) = text.split_once('/')?;
        let is_token = |part: &str| fields::is_token(part.as_bytes()) && !part.contains('*');
        match (class, name, name.strip_prefix('*')) {
            ("*", "*", _) => Some(Self::Any),
            ("*", _, Some(suffix)) if suffix.starts_with('+') && is_token(suffix) => {
                Some(Self::Suffix(suffix.into()))
            }
            (class, "*", _) if is_token(class) => Some(Self::Class(format!("{class}/").into())),
            (class, name, None) if is_token(class) && is_token(name) => Some(Self::Exactly(text.into())),
            _ => None,
        }
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Exactly(known) => name == &**known,
            Self::Class(class) => name.starts_with(&**class) && name != EVENT_STREAM,
            Self::Suffix(suffix) => name.ends_with(&**suffix),
            Self::Any => name != EVENT_STREAM,
        }
    }
}

impl Compressible {
    /// Checks whether a response may be encoded for some client. If so, `Accept-Encoding` selects among its forms.
    ///
    /// # Errors
    ///
    /// Returns the reason why it may not.
    //= RFC 9110 section 7.7: content stays under no-transform
    //= RFC 9111 section 5.2.2.6: no-transform
    pub fn may_encode<'a>(
        &self,
        status: u16,
        response: impl Iterator<Item = FieldLine<'a>>,
        bytes: Option<u64>,
        rules: &Rules,
    ) -> Result<(), NotEncoded> {
        if matches!(status, 100..=199 | 204..=206 | 304) {
            return Err(NotEncoded::Status);
        }
        let content_type = content_type(response, rules)?;
        let is_listed = matches!(content_type, ContentType::Is(value) if self.content_types.have(value));
        match bytes {
            _ if !is_listed => Err(NotEncoded::ContentType),
            Some(bytes) if bytes < self.bytes_min => Err(NotEncoded::Small),
            _ => Ok(()),
        }
    }

    /// Returns whether the whole response may have encoded forms, as far as the fields of a 304 or of a part show.
    pub fn whole_may_be_encoded<'a>(
        &self,
        response: impl Iterator<Item = FieldLine<'a>>,
        rules: &Rules,
    ) -> bool {
        let of_whole = response.filter(|(name, _)| !name.eq_ignore_ascii_case("content-range"));
        match content_type(of_whole, rules) {
            Ok(ContentType::NotSaid) => true,
            Ok(ContentType::Is(value)) => self.content_types.have(value),
            Ok(ContentType::Unclear) | Err(_) => false,
        }
    }

    /// Selects the coding of an encodable response for a client.
    ///
    /// # Errors
    ///
    /// Returns the reason why the client gets an unencoded response.
    //= RFC 9110 section 12.5.3: Accept-Encoding
    //= RFC 9111 section 5.2.1.6: no-transform of the request
    pub fn choose(&self, facts: &RequestFacts, request: &[FieldLine<'_>]) -> Result<Coding, NotEncoded> {
        if facts.has_range {
            return Err(NotEncoded::Range);
        }
        if fields::values(request, "cache-control").any(says_no_transform) {
            return Err(NotEncoded::NoTransform);
        }
        self.preferred(request).ok_or(NotEncoded::NotAccepted)
    }

    /// Returns the coding with the greatest weight for the client; among equal ones, the first that is offered. Returns
    /// `None` if the client prefers `identity`, accepts none of the offered codings, or sends no preference, as do many
    /// clients that can't decode any.
    fn preferred(&self, request: &[FieldLine<'_>]) -> Option<Coding> {
        let preferences = Preferences::parse(Dimension::Encoding, request, Codings::ALL)?;
        let weighted = self
            .codings
            .iter()
            .map(|coding| (*coding, preferences.weight_of_coding(coding.name().as_bytes())));
        let best = weighted.reduce(|best, next| if next.1 > best.1 { next } else { best });
        let (coding, weight) = best.filter(|(_, weight)| *weight > 0)?;
        (weight >= preferences.weight_of_coding(b"identity")).then_some(coding)
    }
}

enum ContentType<'a> {
    NotSaid,
    Is(&'a [u8]),
    /// More than one type, which counts as no type.
    Unclear,
}

/// Returns the media type of a response, unless one of its fields forbids encoding.
fn content_type<'a>(
    response: impl Iterator<Item = FieldLine<'a>>,
    rules: &Rules,
) -> Result<ContentType<'a>, NotEncoded> {
    let mut content_type = ContentType::NotSaid;
    for (name, value) in response {
        match judge(name, value, rules) {
            Said::Nothing => {}
            Said::ContentType => {
                content_type = match content_type {
                    ContentType::NotSaid => ContentType::Is(value),
                    ContentType::Is(_) | ContentType::Unclear => ContentType::Unclear,
                }
            }
            Said::Forbids(reason) => return Err(reason),
        }
    }
    Ok(content_type)
}

/// The effect of a response field on encoding.
enum Said {
    Nothing,
    ContentType,
    Forbids(NotEncoded),
}

/// Compares lengths first, which rules out most names. Targeted fields have the directives of `Cache-Control`.
fn judge(name: &str, value: &[u8], rules: &Rules) -> Said {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        6 | 11 | 14 if is_digest(name) => Said::Forbids(NotEncoded::Digest),
        7 if is("trailer") && announces_digest(value) => Said::Forbids(NotEncoded::Digest),
        12 if is("content-type") => Said::ContentType,
        13 if is("content-range") => Said::Forbids(NotEncoded::Status),
        16 if is("content-encoding") && is_encoded(value) => Said::Forbids(NotEncoded::Encoded),
        _ if is_control(name, rules) && says_no_transform(value) => Said::Forbids(NotEncoded::NoTransform),
        _ => Said::Nothing,
    }
}

/// Fields about the bytes of a body as the origin sent them, in the header or trailer section.
pub const DIGEST_FIELDS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

fn is_digest(name: &str) -> bool {
    DIGEST_FIELDS.into_iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn announces_digest(trailer: &[u8]) -> bool {
    fields::Members::new(trailer).any(|name| std::str::from_utf8(name).is_ok_and(is_digest))
}

/// Returns whether a field has directives for this cache.
fn is_control(name: &str, rules: &Rules) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is("cache-control") || rules.targeted_fields.iter().any(|field| is(field))
}

fn is_encoded(value: &[u8]) -> bool {
    fields::Members::new(value).any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

fn says_no_transform(value: &[u8]) -> bool {
    fields::Members::new(value).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Returns whether a response that is not stored may contain data of one client: its length must then not reveal that
/// data.
pub fn is_personal<'a>(
    facts: &RequestFacts,
    mut response: impl Iterator<Item = FieldLine<'a>>,
    rules: &Rules,
) -> bool {
    let is_private = |value| {
        fields::Members::new(value).any(|directive| {
            let end = memchr::memchr(b'=', directive).unwrap_or(directive.len());
            directive[..end].eq_ignore_ascii_case(b"private")
        })
    };
    facts.has_credentials
        || response.any(|(name, value)| {
            name.eq_ignore_ascii_case("set-cookie") || (is_control(name, rules) && is_private(value))
        })
}

/// Returns whether a stored response may contain data of one client: other credentials select another response, by its
/// `Vary` or by its key.
pub fn is_stored_for_one<'a>(
    facts: &RequestFacts,
    mut vary: impl Iterator<Item = &'a [u8]>,
    mut keyed: impl Iterator<Item = &'a str>,
    rules: &Rules,
) -> bool {
    let is_credential = |name| std::str::from_utf8(name).is_ok_and(|name| rules.is_credential(name));
    facts.has_credentials
        && (keyed.any(|name| rules.is_credential(name))
            || vary.any(|value| fields::Members::new(value).any(is_credential)))
}

/// Returns the entity tag of a response in a coding, or `None` if the tag stays: a weak tag applies to both forms.
//= RFC 9110 section 8.8.3.3: entity tags vary on content coding
pub fn tag_in(coding: Coding, tag: &[u8]) -> Option<Vec<u8>> {
    let parsed = EntityTag::parse(tag).filter(|tag| tag.strength == Strength::Strong)?;
    Some([b"W/\"", parsed.opaque, b"+", coding.name().as_bytes(), b"\""].concat())
}

/// Returns the origin's tag for the tag of an encoded form, or `None` if it is not the tag of a form.
fn tag_of_origin<'a>(tag: &EntityTag<'a>, codings: &[Coding]) -> Option<&'a [u8]> {
    let before = |coding: &Coding| tag.opaque.strip_suffix(coding.name().as_bytes())?.strip_suffix(b"+");
    codings.iter().find_map(before)
}

/// Returns the value of `If-Match` or `If-None-Match` with the origin's tag added after each tag of an encoded form. Clients with an
/// encoded form can thus validate and change it. Returns `None` if there are none.
//= RFC 9110 section 8.8.3.3: entity tags vary on content coding
pub fn with_tags_of_origin<'a>(lines: impl Iterator<Item = &'a [u8]>, codings: &[Coding]) -> Option<Vec<u8>> {
    let mut value: Vec<u8> = Vec::new();
    let mut added = Vec::new();
    for line in lines {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(line);
        added.extend(EntityTags::new(line).filter_map(|tag| tag_of_origin(&tag, codings)).take(TAGS_MAX));
    }
    for opaque in added.iter().take(TAGS_MAX) {
        value.extend_from_slice(b", \"");
        value.extend_from_slice(opaque);
        value.push(b'"');
    }
    (!added.is_empty()).then_some(value)
}

/// Returns whether a client has named the form of a response in a coding: its 304 then describes that form.
pub fn names_form<'a>(mut lines: impl Iterator<Item = &'a [u8]>, form: &[u8]) -> bool {
    let Some(form) = EntityTag::parse(form) else { return false };
    lines.any(|line| EntityTags::new(line).any(|tag| tag.matches_weakly(&form)))
}

/// Maximum number of tags parsed from a request: a client has few forms of a page.
const TAGS_MAX: usize = 16;

#[cfg(test)]
mod tests;
