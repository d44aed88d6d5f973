//! `Forwarded` (RFC 7239) and `X-Forwarded-For`: the hops of a request.
//!
//! Each hop appends an element on the right, so the fields are parsed from the right: text that a client has sent on
//! the left, even an unclosed quotation, doesn't change how the elements of proxies after it are parsed. Parsing ends
//! at the first malformed element, because the sender of the elements before it is unknown.

use core::net::{IpAddr, Ipv6Addr};
use std::borrow::Cow;

use crate::fields::{FieldLine, is_token_byte, trim};

/// One element: a proxy's description of the connection on which it got the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop<'a> {
    /// The client of the connection (`for`).
    pub node: Option<Node>,
    /// The address at which the proxy accepted the connection (`by`), if it can be parsed. No decision depends on it.
    pub by: Option<Node>,
    /// The `Host` of the request.
    pub host: Option<Cow<'a, [u8]>>,
    /// The scheme of the request.
    pub proto: Option<Cow<'a, [u8]>>,
}

/// An end of a connection, with its port if given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// The port.
    pub port: Option<NodePort>,
}

/// The name of an end of a connection.
//= RFC 7239 section 6: node identifiers
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeName {
    /// An address. An IPv4-mapped address becomes an IPv4 address.
    Address(IpAddr),
    /// `unknown`.
    Unknown,
    /// A name that only its proxy understands, including the leading `_`.
    Obfuscated(String),
}

/// The port of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePort {
    /// A number.
    Number(u16),
    /// A name that only its proxy understands, including the leading `_`.
    Obfuscated(String),
}

/// The field that the hops were read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `X-Forwarded-For`, which takes precedence.
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
}

impl Source {
    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// The reason why the list of hops ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The field has no further elements.
    Complete,
    /// The next element is malformed.
    Malformed,
    /// The limit is reached.
    Limit,
}

/// The hops of a request, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hops<'a> {
    /// The field that contains them.
    pub source: Source,
    /// The nearest hops.
    pub nearest: Vec<Hop<'a>>,
    /// The reason why the list ends.
    pub end: End,
}

impl<'a> Hops<'a> {
    /// Parses the nearest hops of a header section. If there is an `X-Forwarded-For`, `Forwarded` is ignored: senders
    /// that write the former often pass the client's `Forwarded` on.
    pub fn read(section: &'a [FieldLine<'a>], hops_max: usize) -> Self {
        let told = Self::of(Source::XForwardedFor, section, hops_max);
        if told.nearest.is_empty() && told.end == End::Complete {
            return Self::of(Source::Forwarded, section, hops_max);
        }
        told
    }

    fn of(source: Source, section: &'a [FieldLine<'a>], hops_max: usize) -> Self {
        let lines = section.iter().rev().filter(|(name, _)| name.eq_ignore_ascii_case(source.name()));
        let mut elements = lines.flat_map(|(_, value)| FromTheRight { source, rest: Some(value) });
        let mut nearest = Vec::new();
        let end = loop {
            match elements.next() {
                None => break End::Complete,
                Some(_) if nearest.len() == hops_max => break End::Limit,
                Some(None) => break End::Malformed,
                Some(Some(hop)) => nearest.push(hop),
            }
        };
        Self { source, nearest, end }
    }
}

/// Iterator over the elements of one value, from the right. Returns `None` for a malformed element; elements left of it can't be trusted.
struct FromTheRight<'a> {
    source: Source,
    rest: Option<&'a [u8]>,
}

impl<'a> FromTheRight<'a> {
    /// Cuts off and returns the last element; returns `None` if a quotation has no beginning.
    fn cut(&mut self, value: &'a [u8]) -> Option<&'a [u8]> {
        let start = match self.source {
            // This field has no quotations that could contain a comma.
            Source::XForwardedFor => memchr::memrchr(b',', value).map_or(0, |comma| comma + 1),
            Source::Forwarded => last_element_start(value)?,
        };
        self.rest = start.checked_sub(1).map(|comma| &value[..comma]);
        Some(trim(&value[start..]))
    }
}

impl<'a> Iterator for FromTheRight<'a> {
    type Item = Option<Hop<'a>>;

    //= RFC 9110 section 5.6.1.2: recipients parse and ignore empty list elements
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let value = self.rest.take()?;
            match (self.cut(value), self.source) {
                (Some(b""), _) => {}
                (Some(text), Source::XForwardedFor) => return Some(address_hop(text)),
                (Some(text), Source::Forwarded) => return Some(element(text)),
                (None, _) => return Some(None),
            }
        }
    }
}

/// Returns the start of the last element: after the last comma outside of this element's quotations.
fn last_element_start(value: &[u8]) -> Option<usize> {
    let mut end = value.len();
    loop {
        match memchr::memrchr2(b',', b'"', &value[..end]) {
            None => return Some(0),
            Some(at) if value[at] == b',' => return Some(at + 1),
            Some(close) => end = opening_quote(value, close)?,
        }
    }
}

/// Returns the quote that opens the quotation ending at `close`.
fn opening_quote(value: &[u8], close: usize) -> Option<usize> {
    if is_escaped(value, close) {
        return None;
    }
    let mut end = close;
    loop {
        end = memchr::memrchr(b'"', &value[..end])?;
        if !is_escaped(value, end) {
            return Some(end);
        }
    }
}

fn is_escaped(value: &[u8], at: usize) -> bool {
    value[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Parses an element of `X-Forwarded-For`: a node, which some proxies put in quotes.
fn address_hop<'a>(text: &[u8]) -> Option<Hop<'a>> {
    let bare = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
    Some(Hop { node: Some(Node::parse(bare)?), ..Hop::default() })
}

/// Parses an element of `Forwarded`.
//= RFC 7239 section 4: Forwarded
fn element(text: &[u8]) -> Option<Hop<'_>> {
    let (mut hop, mut rest) = (Hop::default(), text);
    let mut seen = Vec::new();
    loop {
        rest = trim(rest);
        if !rest.is_empty() && rest[0] != b';' {
            let name;
            (name, rest) = token(rest)?;
            let value;
            (value, rest) = pair_value(rest.strip_prefix(b"=")?)?;
            //= RFC 7239 section 4: each parameter at most once
            if seen.iter().any(|known: &&[u8]| known.eq_ignore_ascii_case(name)) {
                return None;
            }
            seen.push(name);
            hop.take(name, value)?;
            rest = trim(rest);
        }
        match rest.split_first() {
            None => return (!seen.is_empty()).then_some(hop),
            Some((b';', behind)) => rest = behind,
            Some(_) => return None,
        }
    }
}

impl<'a> Hop<'a> {
    /// Takes a parameter; unknown ones are ignored.
    fn take(&mut self, name: &[u8], value: Cow<'a, [u8]>) -> Option<()> {
        match () {
            () if name.eq_ignore_ascii_case(b"for") => self.node = Some(Node::parse(&value)?),
            () if name.eq_ignore_ascii_case(b"by") => self.by = Node::parse(&value),
            () if name.eq_ignore_ascii_case(b"host") => self.host = Some(value),
            () if name.eq_ignore_ascii_case(b"proto") => self.proto = Some(value),
            () => {}
        }
        Some(())
    }
}

fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Splits a value from the text after it.
fn pair_value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    if let Some(quoted) = text.strip_prefix(b"\"") {
        return quoted_value(quoted);
    }
    // Many proxies omit the quotes around a port or an IPv6 address. Colons and brackets are no separators.
    let is_value_byte = |byte: u8| is_token_byte(byte) || b":[]".contains(&byte);
    let end = text.iter().position(|byte| !is_value_byte(*byte)).unwrap_or(text.len());
    (end > 0).then(|| (Cow::Borrowed(&text[..end]), &text[end..]))
}

/// Splits the text before the closing quote, without escapes, from the text after it.
//= RFC 9110 section 5.6.4: a quoted-pair stands for the octet behind the backslash
fn quoted_value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let (mut plain, mut start, mut at) = (Vec::new(), 0, 0);
    loop {
        match *text.get(at)? {
            b'"' => break,
            b'\\' => {
                plain.extend_from_slice(&text[start..at]);
                text.get(at + 1).filter(|byte| is_text_byte(**byte))?;
                start = at + 1;
                at += 2;
            }
            byte if is_text_byte(byte) => at += 1,
            _ => return None,
        }
    }
    let behind = &text[at + 1..];
    if start == 0 {
        return Some((Cow::Borrowed(&text[..at]), behind));
    }
    plain.extend_from_slice(&text[start..at]);
    Some((Cow::Owned(plain), behind))
}

fn is_text_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

impl Node {
    /// Returns a node with an address and no port.
    pub fn of(address: IpAddr) -> Self {
        Self { name: NodeName::Address(address.to_canonical()), port: None }
    }

    /// Parses a node: an IPv6 address in brackets, or any other name, with or without a port. An IPv6 address without
    /// brackets, which is common in `X-Forwarded-For`, has no port.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        if let Ok(address) = text.parse() {
            return Some(Self::of(address));
        }
        if let Some(bracketed) = text.strip_prefix('[') {
            let (address, behind) = bracketed.split_once(']')?;
            let port =
                if behind.is_empty() { None } else { Some(NodePort::parse(behind.strip_prefix(':')?)?) };
            return Some(Self { port, ..Self::of(address.parse::<Ipv6Addr>().ok()?.into()) });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(NodePort::parse(port)?)),
            None => (text, None),
        };
        Some(Self { name: NodeName::parse(name)?, port })
    }

    /// Returns the address, if the node has one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.name {
            NodeName::Address(address) => Some(address),
            NodeName::Unknown | NodeName::Obfuscated(_) => None,
        }
    }

    /// Writes the node as in `X-Forwarded-For`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.name {
            NodeName::Address(address) if address.is_ipv6() && self.port.is_some() => {
                out.extend_from_slice(format!("[{address}]").as_bytes());
            }
            NodeName::Address(address) => out.extend_from_slice(address.to_string().as_bytes()),
            NodeName::Unknown => out.extend_from_slice(b"unknown"),
            NodeName::Obfuscated(name) => out.extend_from_slice(name.as_bytes()),
        }
        match &self.port {
            None => {}
            Some(NodePort::Number(port)) => out.extend_from_slice(format!(":{port}").as_bytes()),
            Some(NodePort::Obfuscated(port)) => out.extend_from_slice(format!(":{port}").as_bytes()),
        }
    }

    /// Writes the node as a parameter value of `Forwarded`.
    pub fn write_as_value(&self, out: &mut Vec<u8>) {
        let is_ipv6 = self.address().is_some_and(|address| address.is_ipv6());
        if !is_ipv6 && self.port.is_none() {
            return self.write(out);
        }
        let brackets: [&[u8]; 2] =
            if is_ipv6 && self.port.is_none() { [b"\"[", b"]\""] } else { [b"\"", b"\""] };
        out.extend_from_slice(brackets[0]);
        self.write(out);
        out.extend_from_slice(brackets[1]);
    }
}

impl NodeName {
    fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("unknown") {
            return Some(Self::Unknown);
        }
        let address = text.parse().map(Self::Address).ok();
        address.or_else(|| is_obfuscated(text).then(|| Self::Obfuscated(text.to_owned())))
    }
}

impl NodePort {
    fn parse(text: &str) -> Option<Self> {
        let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        match is_number {
            true => text.parse().map(Self::Number).ok(),
            false => is_obfuscated(text).then(|| Self::Obfuscated(text.to_owned())),
        }
    }
}

/// Returns whether the text matches `"_" 1*( ALPHA / DIGIT / "." / "_" / "-")`.
//= RFC 7239 section 6.3: obfuscated identifiers
fn is_obfuscated(text: &str) -> bool {
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() > 1 && text.starts_with('_') && text.bytes().all(is_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hops as text, in the order of the field, and the reason why the list ends.
    fn read(name: &str, values: &[&str], hops_max: usize) -> (Vec<String>, End) {
        let lines: Vec<FieldLine<'_>> = values.iter().map(|value| (name, value.as_bytes())).collect();
        let hops = Hops::read(&lines, hops_max);
        (hops.nearest.iter().rev().map(written).collect(), hops.end)
    }

    fn written(hop: &Hop<'_>) -> String {
        let mut text = Vec::new();
        for (name, node) in [("for", &hop.node), ("by", &hop.by)] {
            if let Some(node) = node {
                text.extend_from_slice(format!("{name}=").as_bytes());
                node.write_as_value(&mut text);
                text.push(b';');
            }
        }
        for (name, value) in [("host", &hop.host), ("proto", &hop.proto)] {
            if let Some(value) = value {
                text.extend_from_slice(format!("{name}={};", String::from_utf8_lossy(value)).as_bytes());
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn check(values: &[&str], expected: &[&str], end: End) {
        let expected: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(read("Forwarded", values, 8), (expected, end), "{values:?}");
    }

    #[test]
    fn elements_of_the_grammar() {
        use End::Complete;
        check(&[], &[], Complete);
        check(&["", ",, ,"], &[], Complete);
        check(&["for=192.0.2.1"], &["for=192.0.2.1;"], Complete);
        check(
            &["For=\"[2001:db8::1]:4711\" ; BY=_hidden", "for=unknown, for=\"_x:_p\""],
            &["for=\"[2001:db8::1]:4711\";by=_hidden;", "for=unknown;", "for=\"_x:_p\";"],
            Complete,
        );
        check(
            &["proto=https;host=a.example;by=192.0.2.9"],
            &["by=192.0.2.9;host=a.example;proto=https;"],
            Complete,
        );
        check(&[";;for=192.0.2.1;;by=edge"], &["for=192.0.2.1;"], Complete);
        check(&["for=192.0.2.1;own=\"a, b; for=1\""], &["for=192.0.2.1;"], Complete);
        check(&[r#"host="a\"\\b";proto=http"#], &[r#"host=a"\b;proto=http;"#], Complete);
        check(&[r#"for="192\.0.2.1:8\0""#], &["for=\"192.0.2.1:80\";"], Complete);
        // Values without the required quotes.
        check(
            &["for=192.0.2.1:80, for=[2001:db8::1]"],
            &["for=\"192.0.2.1:80\";", "for=\"[2001:db8::1]\";"],
            Complete,
        );
        check(&["for=\"::ffff:192.0.2.1\""], &["for=192.0.2.1;"], Complete);
    }

    #[test]
    fn nothing_left_of_what_is_malformed_is_read() {
        for malformed in [
            "for=a",
            "for=",
            "for",
            "=a",
            "for=192.0.2.1 x",
            "for =192.0.2.1",
            "for= 192.0.2.1",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.256",
            "for=\"[192.0.2.1]\"",
            "for=\"[2001:db8::1]4711\"",
            "for=\"[2001:db8::1\"",
            "for=\"192.0.2.1:65536\"",
            "for=\"192.0.2.1:\"",
            "for=\"192.0.2.1:123456\"",
            "for=_",
            "for=\"_a b\"",
            "for=\"192.0.2.1",
            "for=\"192.0.2.1\\\"",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "own=\"\u{1}\"",
            ";",
            "\"",
            "\\",
        ] {
            let values = [&format!("for=192.0.2.7, {malformed}, for=192.0.2.2")[..], "for=192.0.2.3"];
            check(&values, &["for=192.0.2.2;", "for=192.0.2.3;"], End::Malformed);
        }
    }

    /// Regression test: `;` and `,` in a quotation were parsed as separators, and a client's quotation as part of a proxy's element.
    #[test]
    fn quotations_of_a_client_reach_no_further_than_its_own_elements() {
        let of_proxy = "for=192.0.2.2;proto=http";
        let read = ["for=192.0.2.2;proto=http;"];
        check(&[r#"x="a;for=6.6.6.6;proto=https", for=192.0.2.2;proto=http"#], &["", read[0]], End::Complete);
        check(&[r#"for=6.6.6.6;x=", for=192.0.2.2;proto=http"#], &read, End::Malformed);
        check(&[r#"for=6.6.6.6;x="\, for=192.0.2.2;proto=http"#], &read, End::Malformed);
        check(&["for=6.6.6.6;x=\"", of_proxy], &read, End::Malformed);
        let quoting = r#"for=6.6.6.6;x=", for="[2001:db8::1]:4711";host=";y=""#;
        check(&[quoting], &[r#"for="[2001:db8::1]:4711";host=;y=;"#], End::Malformed);
    }

    #[test]
    fn addresses_alone() {
        let check = |value: &str, expected: &[&str], end: End| {
            let expected: Vec<String> = expected.iter().map(|text| format!("for={text};")).collect();
            assert_eq!(read("X-Forwarded-For", &[value], 8), (expected, end), "{value}");
        };
        check("192.0.2.1,, 192.0.2.2:80 ,", &["192.0.2.1", "\"192.0.2.2:80\""], End::Complete);
        check(
            "2001:db8::1, [2001:db8::2], [2001:db8::3]:1",
            &["\"[2001:db8::1]\"", "\"[2001:db8::2]\"", "\"[2001:db8::3]:1\""],
            End::Complete,
        );
        check("unknown, \"192.0.2.1\", _x", &["unknown", "192.0.2.1", "_x"], End::Complete);
        check("192.0.2.1, evil, 192.0.2.2", &["192.0.2.2"], End::Malformed);
        check("\"6.6.6.6, 192.0.2.1\", 192.0.2.2", &["192.0.2.2"], End::Malformed);
    }

    #[test]
    fn so_many_hops_are_read_of_one_field() {
        let all = ["192.0.2.1, 192.0.2.2", "192.0.2.3"];
        for (hops_max, expected, end) in
            [(1, 1, End::Limit), (2, 2, End::Limit), (3, 3, End::Complete), (4, 3, End::Complete)]
        {
            let (hops, told) = read("X-Forwarded-For", &all, hops_max);
            assert_eq!((hops.len(), told), (expected, end), "{hops_max}");
            assert_eq!(hops.last().map(String::as_str), Some("for=192.0.2.3;"));
        }
        let both: [FieldLine<'_>; 2] =
            [("forwarded", b"for=192.0.2.1;proto=https"), ("x-forwarded-for", b"192.0.2.2")];
        let hops = Hops::read(&both, 8);
        assert_eq!(
            (hops.source, hops.nearest.len(), &hops.nearest[0].proto),
            (Source::XForwardedFor, 1, &None)
        );
        let empty: [FieldLine<'_>; 2] = [("x-forwarded-for", b" ,"), ("forwarded", b"for=192.0.2.1")];
        assert_eq!(Hops::read(&empty, 8).source, Source::Forwarded);
    }
}
