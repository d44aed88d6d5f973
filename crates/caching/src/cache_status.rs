//! `Cache-Status` (RFC 9211): what a cache did with a request, as a member of a structured field.

use crate::codes::reason_codes;
use crate::{decimal, fields};

/// How this cache names itself in `Cache-Status`: printable ASCII, not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheName {
    /// As written into the field, a token or a quoted string.
    serialized: Box<[u8]>,
}

/// Why a name cannot stand in `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheNameInvalid {
    /// Empty.
    #[error("the name of the cache is empty")]
    Empty,
    /// Anything but printable ASCII.
    #[error("the name of the cache holds something other than printable ASCII")]
    NotPrintable,
}

impl CacheName {
    /// A token where the name is one, otherwise a string.
    ///
    /// # Errors
    ///
    /// When the name is empty or not printable ASCII.
    pub fn new(name: &str) -> Result<Self, CacheNameInvalid> {
        if name.is_empty() {
            return Err(CacheNameInvalid::Empty);
        }
        if !name.bytes().all(is_printable) {
            return Err(CacheNameInvalid::NotPrintable);
        }
        let mut serialized = Vec::new();
        write_token_or_string(name.as_bytes(), &mut serialized);
        Ok(Self { serialized: serialized.into() })
    }
}

reason_codes! {
    /// The values of `fwd`.
    //= RFC 9211 section 2.2: fwd
    pub enum FwdReason {
        Bypass = "bypass", "RFC 9211 section 2.2", "A rule, or the kind of request, keeps it away from the cache.";
        Method = "method", "RFC 9211 section 2.2", "The method asks to be forwarded.";
        UriMiss = "uri-miss", "RFC 9211 section 2.2", "Nothing is stored for this URL.";
        VaryMiss = "vary-miss", "RFC 9211 section 2.2", "Something is stored for this URL, but not for these nominated fields (`Vary`).";
        Miss = "miss", "RFC 9211 section 2.2", "Nothing stored fits.";
        Request = "request", "RFC 9211 section 2.2", "The request's directives or conditions ask for the origin's answer.";
        Stale = "stale", "RFC 9211 section 2.2", "The stored response is stale.";
        Partial = "partial", "RFC 9211 section 2.2", "The stored response is incomplete.";
    }
}

/// Where the response came from. `hit` and `fwd` exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A stored response, without the origin server.
    Hit,
    /// The request went to the origin server.
    Forwarded {
        /// Why.
        reason: FwdReason,
        /// What the origin server answered, where it differs from what the client gets.
        status: Option<u16>,
        /// Whether the response was stored.
        stored: bool,
        /// Whether the request shared the forward of another.
        collapsed: bool,
    },
    /// The cache made the response itself.
    Generated,
}

/// One member of `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Where the response came from.
    pub outcome: Outcome,
    /// What is left of its lifetime in seconds, negative when stale.
    pub ttl_s: Option<i64>,
    /// The key, where it may be shown. What is not printable ASCII is percent-encoded.
    pub key: Option<&'a [u8]>,
    /// More about it, in this cache's own words.
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// Appends the member. Allocates in `out` only.
    //= RFC 9211 section 2: a member per cache, with parameters
    //= RFC 9211 section 2: as much as possible
    pub fn write(&self, name: &CacheName, out: &mut Vec<u8>) {
        //= RFC 9211 section 2: a String or Token names the cache
        out.extend_from_slice(&name.serialized);
        self.write_outcome(out);
        //= RFC 9211 section 2.4: ttl
        if let Some(ttl_s) = self.ttl_s {
            out.extend_from_slice(b"; ttl=");
            write_integer(ttl_s, out);
        }
        if let Some(key) = self.key {
            out.extend_from_slice(b"; key=");
            write_string(key, out);
        }
        //= RFC 9211 section 2.8: detail
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            write_token_or_string(detail.as_bytes(), out);
        }
    }

    //= RFC 9211 section 2.1: hit
    //= RFC 9211 section 2.1: either hit or fwd
    //= RFC 9211 section 2.3: fwd-status
    //= RFC 9211 section 2.5: stored
    //= RFC 9211 section 2.6: collapsed
    fn write_outcome(&self, out: &mut Vec<u8>) {
        match self.outcome {
            Outcome::Hit => out.extend_from_slice(b"; hit"),
            Outcome::Generated => {}
            Outcome::Forwarded { reason, status, stored, collapsed } => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(reason.as_str().as_bytes());
                if let Some(status) = status {
                    out.extend_from_slice(b"; fwd-status=");
                    write_integer(i64::from(status), out);
                }
                if stored {
                    out.extend_from_slice(b"; stored");
                }
                if collapsed {
                    out.extend_from_slice(b"; collapsed");
                }
            }
        }
    }
}

/// The largest integer of a structured field.
//= RFC 9651 section 4.1: what the types allow
const INTEGER_MAX: i64 = 999_999_999_999_999;

fn write_integer(number: i64, out: &mut Vec<u8>) {
    let number = number.clamp(-INTEGER_MAX, INTEGER_MAX);
    if number < 0 {
        out.push(b'-');
    }
    decimal::push(number.unsigned_abs(), out);
}

fn write_token_or_string(text: &[u8], out: &mut Vec<u8>) {
    if is_structured_token(text) { out.extend_from_slice(text) } else { write_string(text, out) }
}

//= RFC 9651 section 4.1: what the types allow
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            byte if is_printable(byte) => out.push(byte),
            byte => out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]),
        }
    }
    out.push(b'"');
}

/// `sf-token` of RFC 9651, which begins with a letter or `*` and may hold `:` and `/`.
fn is_structured_token(text: &[u8]) -> bool {
    let [first, rest @ ..] = text else { return false };
    (first.is_ascii_alphabetic() || *first == b'*')
        && rest.iter().all(|byte| fields::is_token_byte(*byte) || matches!(byte, b':' | b'/'))
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

fn hex_digit(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printable() {
        assert_eq!(CacheName::new(""), Err(CacheNameInvalid::Empty));
        assert_eq!(CacheName::new("a\nb"), Err(CacheNameInvalid::NotPrintable));
        assert_eq!(CacheName::new("caché"), Err(CacheNameInvalid::NotPrintable));
    }
}
