//! Which fields belong to one connection and end there (RFC 9110 section 7.6.1).

use crate::{FieldLine, fields};

/// Tells connection-specific fields from the others in one header section.
#[derive(Clone, Copy, Debug)]
pub struct HopByHop<'a> {
    section: &'a [FieldLine<'a>],
    nominates: Nominates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nominates {
    Nothing,
    Options,
}

impl<'a> HopByHop<'a> {
    /// For the fields of this section, as received.
    pub fn of(section: &'a [FieldLine<'a>]) -> Self {
        // Keep-alive is nominated more often than all others, and connection-specific without that.
        let is_nomination = |option: &[u8]| !option.eq_ignore_ascii_case(b"keep-alive");
        let nominates = match fields::members(section, "connection").any(is_nomination) {
            true => Nominates::Options,
            false => Nominates::Nothing,
        };
        Self { section, nominates }
    }

    /// Whether a field of this name must not be forwarded or stored.
    //= RFC 9110 section 7.6.1: fields named in Connection are removed with it
    //= RFC 9110 section 7.6.1: known connection-specific fields are removed
    pub fn contains(&self, name: &str) -> bool {
        is_connection_specific(name) || self.is_nominated(name)
    }

    /// A sender must not nominate a field meant for all recipients. Some such nominations would rob the
    /// message of its routing, its framing or its caching directives: they are ignored.
    fn is_nominated(&self, name: &str) -> bool {
        self.nominates == Nominates::Options
            && !is_one_of(&NEVER_NOMINATED, name)
            && fields::members(self.section, "connection")
                .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Whether a field is connection-specific by its name alone. Costs a comparison of lengths for most names.
#[inline]
pub fn is_connection_specific(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is("te"),
        7 => is("upgrade"),
        10 => is("connection") || is("keep-alive"),
        14 => is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

/// Whether a field speaks to the next proxy only, which is this one: it is neither forwarded nor stored.
//= RFC 9111 section 3.1: fields of a proxy are not stored
pub fn is_for_this_proxy(name: &str) -> bool {
    is_one_of(&FOR_THIS_PROXY, name)
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

const FOR_THIS_PROXY: [&str; 3] = ["proxy-authenticate", "proxy-authentication-info", "proxy-authorization"];
//= RFC 9110 section 7.6.1: fields for all recipients are not named
const NEVER_NOMINATED: [&str; 4] = ["host", "content-length", "content-range", "cache-control"];

#[cfg(test)]
mod tests {
    use super::*;

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
        for name in ["X-End", "Cache-Control", "Content-Length", "Trailer", "Proxy-Authenticate"] {
            assert!(!hop_by_hop.contains(name), "{name}");
        }
        assert!(!HopByHop::of(&[]).contains("x-hop"));
        assert!(is_for_this_proxy("Proxy-Authenticate"));
    }
}
