//! Laws of the protocols: what an answer is does not depend on how its bytes were cut.

use std::time::Instant;

use proptest::prelude::*;

use super::codec::Codec;
use super::exchange::{Answer, Malformed, Pending, Sink, Then};
use super::h1::H1;
use super::h2::H2;
use super::hpack;
use super::load::{HttpLoad, Protocol, Target};
use super::prepare::{self, Prepared};
use super::response::Tags;

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    first_bytes: Vec<usize>,
    answers: Vec<(usize, Answer)>,
    tags: Vec<(usize, Vec<u8>)>,
}

impl Sink for Seen {
    fn answered(&mut self, pending: Pending, answer: Answer) {
        self.answers.push((pending.request, answer));
    }

    fn first_byte(&mut self, pending: Pending) {
        self.first_bytes.push(pending.request);
    }

    fn entity_tag(&mut self, request: usize, tag: &[u8]) {
        self.tags.push((request, tag.to_vec()));
    }
}

/// What a connection made of bytes that came in these pieces, and of its end.
fn read(mut codec: impl Codec, pieces: &[&[u8]]) -> (Seen, Result<Then, Malformed>, Vec<Pending>) {
    let mut seen = Seen::default();
    for piece in pieces {
        match codec.receive(piece, &mut seen, &mut Vec::new()) {
            Ok(Then::GoOn) => {}
            end => return (seen, end, codec.give_up()),
        }
    }
    codec.end(&mut seen);
    (seen, Ok(Then::GoOn), codec.give_up())
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).filter(|piece| !piece.is_empty()).collect()
}

fn pending(request: usize, at: Instant) -> Pending {
    Pending { request, since: at, sent: at }
}

fn prepared(protocol: Protocol, method: &str) -> Prepared {
    let target = Target { method: method.into(), ..Target::at("http://h/").expect("a URL") };
    let mut load = HttpLoad::of(vec![target.clone()]);
    load.protocol = protocol;
    prepare::request(&target, &load, 0).expect("it can be sent")
}

fn h1(requests: usize, at: Instant) -> H1 {
    let mut codec = H1::new(requests, Tags::Kept);
    let (get, head) = (
        prepared(Protocol::Http1 { pipelining: 1 }, "GET"),
        prepared(Protocol::Http1 { pipelining: 1 }, "HEAD"),
    );
    for request in 0..requests {
        let prepared = if request % 4 == 3 { &head } else { &get };
        codec.begin(pending(request, at), prepared, None, &mut Vec::new());
    }
    codec
}

fn h2(requests: usize, at: Instant) -> H2 {
    let protocol = Protocol::Http2 { streams: requests };
    let mut codec = H2::new(requests, 0);
    codec.receive(&frame(4, 0, 0, &[]), &mut Seen::default(), &mut Vec::new()).expect("settings");
    for request in 0..requests {
        codec.begin(pending(request, at), &prepared(protocol, "GET"), None, &mut Vec::new());
    }
    codec
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Answers of every kind, whole and spoilt.
fn h1_answer() -> impl Strategy<Value = Vec<u8>> {
    let kinds = proptest::sample::select(vec![
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: W/\"b\"\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\n\r\nup to the end",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "nonsense\r\n\r\n",
    ]);
    kinds.prop_map(|text| text.as_bytes().to_vec())
}

fn h2_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0_u32..4).prop_map(|number| number * 2 + 1);
    prop_oneof![
        4 => stream.clone().prop_map(|id| frame(1, 5, id, &[0x88])),
        2 => stream.clone().prop_map(|id| frame(1, 4, id, &[0x8d, 0x0f, 0x0d, 1, b'5'])),
        2 => stream.clone().prop_map(|id| frame(0, 1, id, b"hello")),
        1 => stream.clone().prop_map(|id| frame(0, 9, id, &[2, b'x', 0, 0])),
        1 => stream.clone().prop_map(|id| frame(1, 0x2d, id, &[1, 0, 0, 0, 0, 9, 0x8b, 0])),
        1 => stream.clone().prop_map(|id| [frame(1, 1, id, &[0x88]), frame(9, 4, id, &[0x54, 1, b'x'])].concat()),
        1 => stream.prop_map(|id| frame(3, 0, id, &[0, 0, 0, 8])),
        1 => Just(frame(6, 0, 0, b"12345678")),
        1 => Just(frame(8, 0, 0, &[0, 0, 1, 0])),
        1 => Just(frame(4, 0, 0, &[0, 3, 0, 0, 0, 100])),
        1 => Just(frame(250, 3, 7, b"unknown")),
        1 => Just(frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])),
        1 => Just(frame(5, 4, 1, b"push")),
    ]
}

proptest! {
    #[test]
    fn cuts_do_not_change_http1_answers(
        answers in proptest::collection::vec(h1_answer(), 1..6),
        cuts in proptest::collection::vec(0_usize..1000, 0..40),
    ) {
        let (bytes, at) = (answers.concat(), Instant::now());
        let whole = read(h1(4, at), &[&bytes]);
        prop_assert_eq!(&read(h1(4, at), &cut(&bytes, &cuts)), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&read(h1(4, at), &single), &whole);
    }

    #[test]
    fn cuts_do_not_change_http2_answers(
        frames in proptest::collection::vec(h2_frame(), 1..12),
        cuts in proptest::collection::vec(0_usize..1000, 0..40),
    ) {
        let (bytes, at) = (frames.concat(), Instant::now());
        let whole = read(h2(4, at), &[&bytes]);
        prop_assert_eq!(&read(h2(4, at), &cut(&bytes, &cuts)), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&read(h2(4, at), &single), &whole);
    }

    #[test]
    fn no_bytes_make_a_protocol_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let at = Instant::now();
        let _ = read(h1(2, at), &[&bytes]);
        let _ = read(h2(2, at), &[&bytes]);
    }
}

#[test]
fn answers_belong_to_requests_in_order() {
    let bytes =
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let (seen, then, rest) = read(h1(3, Instant::now()), &[bytes]);
    assert_eq!(seen.answers, [(0, Answer::Status(200)), (1, Answer::Status(404))]);
    assert_eq!(seen.first_bytes, [0, 1]);
    assert_eq!((then, rest.len()), (Ok(Then::GoOn), 1));
}

#[test]
fn http2_answers_come_in_any_order() {
    let bytes =
        [frame(1, 5, 3, &[0x8d]), frame(1, 4, 1, &[0x88]), frame(3, 0, 5, &[0; 4]), frame(0, 1, 1, b"x")];
    let (seen, then, rest) = read(h2(3, Instant::now()), &[&bytes.concat()]);
    assert_eq!(seen.answers, [(1, Answer::Status(404)), (2, Answer::Reset), (0, Answer::Status(200))]);
    assert_eq!(seen.first_bytes, [1, 0]);
    assert_eq!((then, rest.len()), (Ok(Then::GoOn), 0));
}

#[test]
fn a_server_that_goes_away_leaves_the_rest_to_the_next_connection() {
    let bytes = [frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), frame(1, 5, 1, &[0x88])].concat();
    let (seen, then, rest) = read(h2(3, Instant::now()), &[&bytes]);
    assert_eq!(seen.answers, [(0, Answer::Status(200))]);
    assert_eq!((then, rest.len()), (Ok(Then::Close), 2));
}

#[test]
fn a_status_is_found_however_it_is_written() {
    let cases: [(&[u8], Option<u16>); 10] = [
        (&[0x88], Some(200)),
        (&[0x20, 0x8e, 0x00], Some(500)),
        (&[0x48, 3, b'2', b'0', b'6'], Some(206)),
        (&[0x08, 3, b'3', b'0', b'1'], Some(301)),
        (&[0x18, 3, b'4', b'1', b'8'], Some(418)),
        // RFC 7541 appendix C.6.1 and C.6.2: 302 and 307.
        (&[0x48, 0x82, 0x64, 0x02], Some(302)),
        (&[0x48, 0x83, 0x64, 0x0e, 0xff], Some(307)),
        (&[0x00, 7, b':', b's', b't', b'a', b't', b'u', b's', 3, b'5', b'0', b'3'], Some(503)),
        (&[0x40, 0x85, 0xb8, 0x84, 0x8d, 0x36, 0xa3, 0x82, 0x64, 0x02], Some(302)),
        (&[0x0f, 0x0d, 1, b'5'], None),
    ];
    for (block, expected) in cases {
        assert_eq!(hpack::status(block), Ok(expected), "{block:x?}");
    }
    for broken in [&[0x48, 3, b'2'][..], &[0x48, 3, b'a', b'b', b'c'], &[0x3f, 0xe1, 0x1f]] {
        assert!(hpack::status(broken).is_err(), "{broken:x?}");
    }
}

#[test]
fn every_status_has_its_huffman_code() {
    // Five bits for 0 to 2, six for 3 to 9, as in RFC 7541 appendix B.
    let code = |digit: u32| if digit < 3 { (digit, 5) } else { (0x19 + digit - 3, 6) };
    for status in 100..1000_u32 {
        let (mut bits, mut length) = (0_u32, 0_u32);
        for digit in [status / 100, status / 10 % 10, status % 10] {
            let (code, code_bits) = code(digit);
            (bits, length) = (bits << code_bits | code, length + code_bits);
        }
        let bytes = usize::try_from(length.div_ceil(8)).expect("at most three");
        let padded = (bits << (32 - length)) | (u32::MAX >> length);
        let text =
            [&[0x48, 0x80 | u8::try_from(bytes).expect("at most three")], &padded.to_be_bytes()[..bytes]]
                .concat();
        assert_eq!(hpack::status(&text).map(|status| status.map(u32::from)), Ok(Some(status)));
    }
}
