//! The PROXY protocol: accepted and refused headers, in one piece and in several.

use http1::proxy_protocol::{
    ClientTransport, ProxiedPeer, ProxyHeader, ProxyProtocolError as Error, parse_proxy_header,
};
use proptest::prelude::*;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

type Outcome = Result<Option<ProxyHeader>, Error>;

fn tcp(source: &str, destination: &str, bytes: usize) -> Outcome {
    let peer =
        ProxiedPeer::Tcp { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
    Ok(Some(ProxyHeader { peer, transport: ClientTransport::Unsaid, bytes }))
}

fn header(peer: ProxiedPeer, bytes: usize) -> Outcome {
    Ok(Some(ProxyHeader { peer, transport: ClientTransport::Unsaid, bytes }))
}

/// Checks that a header has the same result in one piece, byte by byte, and followed by other
/// bytes.
fn check(bytes: &[u8], expected: Outcome) {
    assert_eq!(parse_proxy_header(bytes), expected, "{}", bytes.escape_ascii());
    let first =
        (0..=bytes.len()).map(|end| parse_proxy_header(&bytes[..end])).find(|outcome| *outcome != Ok(None));
    assert_eq!(first.unwrap_or(Ok(None)), expected, "{} byte by byte", bytes.escape_ascii());
    if expected != Ok(None) {
        let followed = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse_proxy_header(&followed), expected, "{} followed", bytes.escape_ascii());
    }
}

fn v2(version_command: u8, family: u8, length: u16, payload: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[version_command, family], &length.to_be_bytes(), payload].concat()
}

#[test]
fn version_1() {
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 65535 0\r\n", tcp("1.2.3.4:65535", "5.6.7.8:0", 36));
    check(b"PROXY TCP6 ::1 2001:db8::1 1 443\r\n", tcp("[::1]:1", "[2001:db8::1]:443", 34));
    check(b"PROXY UNKNOWN\r\n", header(ProxiedPeer::Unknown, 15));
    check(b"PROXY UNKNOWN what ever\r\n", header(ProxiedPeer::Unknown, 25));
    let longest = [b"PROXY UNKNOWN ".as_slice(), &[b'f'; 91], b"\r\n"].concat();
    check(&longest, header(ProxiedPeer::Unknown, 107));
    check(&[b"PROXY UNKNOWN ".as_slice(), &[b'f'; 93]].concat(), Err(Error::HeaderTooLong));
    check(b"", Ok(None));
    check(b"PROXY TCP4 1.2.3.4", Ok(None));
    check(b"GET / HTTP/1.1\r\n", Err(Error::MissingSignature));
    check(b"proxy TCP4 1.2.3.4 5.6.7.8 1 2\r\n", Err(Error::MissingSignature));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", Err(Error::MalformedLine));
    check(b"PROXY \r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP5 1.2.3.4 5.6.7.8 1 2\r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4 \xff 5.6.7.8 1 2\r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n", Err(Error::MalformedLine));
    check(b"PROXY TCP4 ::1 ::1 1 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP4 1.2.3.04 5.6.7.8 1 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", Err(Error::InvalidAddress));
    check(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\r\n", Err(Error::InvalidAddress));
}

#[test]
fn version_2() {
    let v4: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 1, 187];
    check(&v2(0x21, 0x11, 12, v4), tcp("1.2.3.4:80", "5.6.7.8:443", 28));
    let v6 = [&[0x20; 16][..], &[0; 15], &[1, 0, 1, 0, 2]].concat();
    check(&v2(0x21, 0x21, 36, &v6), tcp("[2020:2020:2020:2020:2020:2020:2020:2020]:1", "[::1]:2", 52));
    let extended = [v4, &[4, 0, 2, 9, 9, 1, 0, 0]].concat();
    check(&v2(0x21, 0x11, 20, &extended), tcp("1.2.3.4:80", "5.6.7.8:443", 36));
    let with_tls =
        |value: &[u8]| [v4, &[4, 0, 0, 0x20, 0, u8::try_from(value.len()).unwrap()], value].concat();
    let over_tls = tcp("1.2.3.4:80", "5.6.7.8:443", 39)
        .map(|header| header.map(|header| ProxyHeader { transport: ClientTransport::Tls, ..header }));
    check(&v2(0x21, 0x11, 23, &with_tls(&[1, 0, 0, 0, 0])), over_tls);
    check(&v2(0x21, 0x11, 23, &with_tls(&[0, 0, 0, 0, 0])), tcp("1.2.3.4:80", "5.6.7.8:443", 39));
    check(&v2(0x21, 0x11, 22, &with_tls(&[1, 0, 0, 0])), Err(Error::MalformedExtension));
    check(&v2(0x20, 0x11, 23, &with_tls(&[1, 0, 0, 0, 0])), header(ProxiedPeer::Local, 39));
    check(&v2(0x20, 0x00, 0, b""), header(ProxiedPeer::Local, 16));
    check(&v2(0x20, 0x11, 3, b"any"), header(ProxiedPeer::Local, 19));
    check(&v2(0x21, 0x00, 3, b"any"), header(ProxiedPeer::Unknown, 19));
    check(&v2(0x21, 0x12, 12, v4), header(ProxiedPeer::Unknown, 28));
    check(&v2(0x21, 0x31, 216, &[0; 216]), header(ProxiedPeer::Unix, 232));
    check(SIGNATURE, Ok(None));
    check(&v2(0x21, 0x11, 12, &v4[..11]), Ok(None));
    check(&v2(0x11, 0x11, 12, v4), Err(Error::UnsupportedVersion));
    check(&v2(0x22, 0x11, 12, v4), Err(Error::UnknownCommand));
    check(&v2(0x21, 0x13, 12, v4), Err(Error::UnknownFamily));
    check(&v2(0x21, 0x41, 12, v4), Err(Error::UnknownFamily));
    check(&v2(0x21, 0x11, 11, &v4[..11]), Err(Error::TruncatedAddresses));
    check(&v2(0x21, 0x21, 12, v4), Err(Error::TruncatedAddresses));
    check(&v2(0x21, 0x11, 4081, b""), Err(Error::HeaderTooLong));
    check(&v2(0x21, 0x11, 14, &[v4, &[4, 0]].concat()), Err(Error::MalformedExtension));
    check(&v2(0x21, 0x11, 16, &[v4, &[4, 0, 2, 9]].concat()), Err(Error::MalformedExtension));
    check(b"\r\n\r\n\0\r\nQUIX", Err(Error::MissingSignature));
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        start in prop_oneof![Just(&b"PROXY TCP4 "[..]), Just(SIGNATURE), Just(&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"[..])],
        rest in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let bytes = [start, &rest].concat();
        let first = (0..=bytes.len())
            .map(|end| parse_proxy_header(&bytes[..end]))
            .find(|outcome| *outcome != Ok(None));
        prop_assert_eq!(first.unwrap_or(Ok(None)), parse_proxy_header(&bytes));
    }
}
