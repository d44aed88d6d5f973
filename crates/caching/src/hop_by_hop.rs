//! Fields that end at the next recipient (RFC 9110 section 7.6.1): those of a connection, those for a proxy, and those
//! that `Connection` names. All parts of Larder use this module, for requests and responses, for forwarding and
//! storing.

use crate::{FieldLine, fields};

/// Distinguishes the hop-by-hop fields of one header section.
#[derive(Clone, Copy, Debug)]
pub struct HopByHop<'a> {
    section: &'a [FieldLine<'a>],
    nominates: Nominates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nominates {
    Nothing,
    Fields,
}

impl<'a> HopByHop<'a> {
    /// Reads `Connection` of this section, as received.
    pub fn of(section: &'a [FieldLine<'a>]) -> Self {
        let nominates = match nominated_in(section).next() {
            Some(_) => Nominates::Fields,
            None => Nominates::Nothing,
        };
        Self { section, nominates }
    }

    /// Returns whether a field of this name must not be forwarded or stored.
    //= RFC 9110 section 7.6.1: fields named in Connection are removed with it
    pub fn contains(&self, name: &str) -> bool {
        ends_here(name) || self.is_nominated(name)
    }

    fn is_nominated(&self, name: &str) -> bool {
        self.nominates == Nominates::Fields
            && nominated_in(self.section).any(|nominated| nominated.eq_ignore_ascii_case(name.as_bytes()))
    }
}

fn nominated_in<'a>(section: &'a [FieldLine<'a>]) -> impl Iterator<Item = &'a [u8]> {
    fields::values(section, "connection").flat_map(nominated)
}

/// Returns the fields that a line of `Connection` names.
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
pub fn nominated(connection: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Options are tokens: a quote can't contain a comma.
    let options = connection.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    options.filter(|option| !option.is_empty() && may_be_nominated(option))
}

/// Returns whether the option may be a field name. A sender must not nominate a field meant for all recipients. A nomination is ignored if
/// it would remove the routing, the framing or the caching directives of the message (a `no-store` response would become cacheable).
/// `Keep-Alive` is the field nominated most often, and is always hop-by-hop.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
fn may_be_nominated(option: &[u8]) -> bool {
    let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
    match option.len() {
        4 => !is(b"host"),
        10 => !is(b"keep-alive"),
        13 => !is(b"content-range") && !is(b"cache-control"),
        14 => !is(b"content-length"),
        _ => true,
    }
}

/// Returns whether a field is hop-by-hop by its name alone: it belongs to a connection, or is meant for the next proxy,
/// which is this one. For most names, this costs two comparisons of lengths.
#[inline]
pub fn ends_here(name: &str) -> bool {
    is_connection_specific(name) || is_for_this_proxy(name.as_bytes())
}

/// Returns whether a field belongs to one connection by its name alone.
//= RFC 9110 section 7.6.1: known connection-specific fields are removed
#[inline]
pub fn is_connection_specific(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"http2-settings"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}

//= RFC 9111 section 3.1: fields of a proxy are not stored
#[inline]
fn is_for_this_proxy(name: &[u8]) -> bool {
    match name.len() {
        18 => name.eq_ignore_ascii_case(b"proxy-authenticate"),
        19 => name.eq_ignore_ascii_case(b"proxy-authorization"),
        25 => name.eq_ignore_ascii_case(b"proxy-authentication-info"),
        _ => false,
    }
}

/// Returns whether each sender writes this field itself, regardless of the received value: the host it connects to, and
/// the length it sends.
#[inline]
pub fn is_written_by_sender(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    match name.len() {
        4 => name.eq_ignore_ascii_case(b"host"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 9111 section 3.1: fields of a proxy are not stored
    //= RFC 9110 section 7.6.1: fields named in Connection are removed with it
    //= RFC 9110 section 7.6.1: known connection-specific fields are removed
    //= RFC 9110 section 7.6.1: fields for all recipients are not named
    #[test]
    fn nominated_and_known_fields() {
        let section: &[FieldLine<'_>] =
            &[("Connection", b"close, X-Hop"), ("connection", b"x-other, Cache-Control")];
        let hop_by_hop = HopByHop::of(section);
        for name in ["Connection", "TE", "keep-alive", "Proxy-Connection", "Upgrade", "x-hop", "X-Other"] {
            assert!(hop_by_hop.contains(name), "{name}");
        }
        for name in ["X-End", "Cache-Control", "Content-Length", "Trailer"] {
            assert!(!hop_by_hop.contains(name), "{name}");
        }
        assert!(!HopByHop::of(&[]).contains("x-hop"));
        for name in ["Proxy-Authenticate", "proxy-authentication-info", "Proxy-Authorization"] {
            assert!(ends_here(name) && hop_by_hop.contains(name) && !is_connection_specific(name), "{name}");
        }
        assert!(["Host", "content-length"].iter().all(is_written_by_sender));
        assert!(!["Content-Type", "TE", "Age"].iter().any(is_written_by_sender));
    }

    //= RFC 9110 section 7.6.1: fields for all recipients are not named
    #[test]
    fn what_a_line_nominates() {
        let check = |line: &str, expected: &[&str]| {
            let named: Vec<_> = nominated(line.as_bytes()).map(String::from_utf8_lossy).collect();
            assert_eq!(named, expected, "{line}");
        };
        check("", &[]);
        check("keep-alive", &[]);
        check("Keep-Alive, X-Hop ,,\tclose", &["X-Hop", "close"]);
        check("Host, Content-Length, content-range, CACHE-CONTROL, Range", &["Range"]);
        // Options are not quoted strings.
        check("\"a, X-Hop, b\"", &["\"a", "X-Hop", "b\""]);
    }
}
