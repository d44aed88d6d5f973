//! The grammar of hosts and authorities.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host with an optional port, as in Host, absolute-form and authority-form.
///
/// Deliberately narrower than the grammar of URIs. A registered name consists of letters, digits, `-`, `.`, `_` and
/// `~`: no percent-encoding and no sub-delimiters (such as a comma), which DNS names never have and which parsers
/// interpret differently. No user information, no IPvFuture, no zone identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Authority<'a> {
    text: &'a str,
    host: &'a str,
    port: Option<u16>,
}

impl Authority<'static> {
    /// No authority: an empty `Host:`, or HTTP/1.0 without Host.
    pub const EMPTY: Self = Self { text: "", host: "", port: None };
}

impl<'a> Authority<'a> {
    /// Parses `uri-host [ ":" port ]`. Returns `None` for anything else, including the empty string.
    //= RFC 9110 section 7.2: Host = uri-host [ ":" port ]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let host_length = match bytes.first()? {
            b'[' => ipv6_literal_length(bytes)?,
            _ => registered_name_length(bytes)?,
        };
        let text = core::str::from_utf8(bytes).ok()?;
        let (host, rest) = text.split_at_checked(host_length)?;
        let port = parse_port_part(rest)?;
        Some(Self { text, host, port })
    }

    /// Returns the whole authority as received.
    pub const fn as_str(&self) -> &'a str {
        self.text
    }

    /// Returns the host as received, with letters in any case; an IPv6 address has its brackets.
    pub const fn host(&self) -> &'a str {
        self.host
    }

    /// Returns the port, if any. `example.com:` has none.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether the authority is empty.
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the host as an address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => self.host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        }
    }

    /// Returns whether both authorities name the same server: hosts are compared case-insensitively, and a missing port
    /// counts as `default_port`.
    //= RFC 9110 section 4.2.3: http(s) normalization and comparison
    pub fn same_server(&self, other: &Authority<'_>, default_port: Option<u16>) -> bool {
        self.host.eq_ignore_ascii_case(other.host)
            && self.port.or(default_port) == other.port.or(default_port)
    }
}

/// Maximum length of a registered name in bytes, as in DNS.
const NAME_BYTES_MAX: usize = 255;

fn registered_name_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.iter().position(|&byte| !IS_NAME_BYTE[usize::from(byte)]).unwrap_or(bytes.len());
    (1..=NAME_BYTES_MAX).contains(&length).then_some(length)
}

/// A table, because every byte of the `Host` of each request is checked.
static IS_NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] =
            matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

fn ipv6_literal_length(bytes: &[u8]) -> Option<usize> {
    let end = memchr::memchr(b']', bytes)?;
    let address = core::str::from_utf8(bytes.get(1..end)?).ok()?;
    address.parse::<Ipv6Addr>().is_ok().then_some(end + 1)
}

/// Parses `[ ":" *DIGIT ]`. The outer `None` is a syntax error.
fn parse_port_part(text: &str) -> Option<Option<u16>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.strip_prefix(':')?;
    if digits.is_empty() {
        return Some(None);
    }
    if digits.len() > 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let port = digits.bytes().fold(0_u32, |port, digit| port * 10 + u32::from(digit - b'0'));
    u16::try_from(port).ok().map(Some)
}
