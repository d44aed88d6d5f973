//! Property tests of the protocols: an answer doesn't depend on how its bytes were cut into reads.

use std::time::Instant;

use proptest::prelude::*;

use super::codec::{Answer, HttpCodec, Sink};
use super::h1::H1;
use super::h2::H2;
use super::load::{HttpLoad, Protocol, Target};
use super::prepare::{self, Prepared};
use crate::drive::{Codec as _, Malformed, Pending, Then};

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    first_bytes: Vec<usize>,
    answers: Vec<(usize, Answer)>,
}

impl Sink for Seen {
    fn answered(&mut self, pending: Pending, answer: Answer) {
        self.answers.push((pending.request, answer));
    }

    fn first_byte(&mut self, pending: Pending) {
        self.first_bytes.push(pending.request);
    }
}

/// Returns the results of a connection that reads these pieces, and then the end of the stream.
fn read(mut codec: impl HttpCodec, pieces: &[&[u8]]) -> (Seen, Result<Then, Malformed>, Vec<Pending>) {
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

/// Sorts the answers, because answers that one piece completes arrive in any order.
fn in_order<T>((mut seen, then, rest): (Seen, T, Vec<Pending>)) -> (Seen, T, Vec<Pending>) {
    seen.answers.sort_by_key(|(request, _)| *request);
    seen.first_bytes.sort_unstable();
    (seen, then, rest)
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).filter(|piece| !piece.is_empty()).collect()
}

fn pending(request: usize, at: Instant) -> Pending {
    Pending { request, answers: 1, since: at, sent: at }
}

fn prepared(protocol: Protocol, method: &str) -> Prepared {
    let target = Target { method: method.into(), ..Target::at("http://h/").expect("a URL") };
    let mut load = HttpLoad::of(vec![target.clone()]);
    load.protocol = protocol;
    prepare::request(&target, &load, 0).expect("it can be sent")
}

fn h1(requests: usize, at: Instant) -> H1 {
    let mut codec = H1::new(requests);
    let (get, head) = (
        prepared(Protocol::Http1 { pipelining: 1 }, "GET"),
        prepared(Protocol::Http1 { pipelining: 1 }, "HEAD"),
    );
    for request in 0..requests {
        let prepared = if request % 4 == 3 { &head } else { &get };
        codec.begin(pending(request, at), prepared, &mut Vec::new());
    }
    codec
}

fn h2(requests: usize, at: Instant) -> H2 {
    let protocol = Protocol::Http2 { streams: requests };
    let mut codec = H2::new(requests);
    codec.open(&mut Vec::new());
    codec.receive(&frame(4, 0, 0, &[]), &mut Seen::default(), &mut Vec::new()).expect("settings");
    for request in 0..requests {
        codec.begin(pending(request, at), &prepared(protocol, "GET"), &mut Vec::new());
    }
    codec.flush(&mut Vec::new());
    codec
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Answers of every kind, whole and corrupted.
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

/// Frames of a conforming server: each stream is answered once, in any order.
fn h2_frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let answer = |id: u32| {
        prop_oneof![
            Just(frame(1, 5, id, &[0x88])),
            Just([frame(1, 4, id, &[0x8d, 0x0f, 0x0d, 1, b'5']), frame(0, 1, id, b"hello")].concat()),
            Just([frame(1, 4, id, &[0x88]), frame(0, 9, id, &[2, b'x', 0, 0])].concat()),
            Just([frame(1, 1, id, &[0x88]), frame(9, 4, id, &[0x10, 1, b'x', 1, b'y'])].concat()),
            Just(frame(3, 0, id, &[0, 0, 0, 8])),
        ]
    };
    let others =
        vec![frame(6, 0, 0, b"12345678"), frame(8, 0, 0, &[0, 0, 1, 0]), frame(250, 3, 7, b"unknown")];
    let others = proptest::sample::subsequence(others, 0..=3);
    let answers = [answer(1), answer(3), answer(5), answer(7)];
    (answers, others).prop_map(|(answers, others)| [answers.into(), others].concat()).prop_shuffle()
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
        frames in h2_frames(),
        cuts in proptest::collection::vec(0_usize..1000, 0..40),
    ) {
        let (bytes, at) = (frames.concat(), Instant::now());
        let whole = in_order(read(h2(4, at), &[&bytes]));
        prop_assert_eq!(&in_order(read(h2(4, at), &cut(&bytes, &cuts))), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&in_order(read(h2(4, at), &single)), &whole);
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
    let (seen, then, rest) = in_order(read(h2(3, Instant::now()), &[&bytes.concat()]));
    assert_eq!(seen.answers, [(0, Answer::Status(200)), (1, Answer::Status(404)), (2, Answer::Reset)]);
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
fn other_protocols_are_told() {
    let (_, then, rest) = read(h2(2, Instant::now()), &[b"HTTP/1.1 400 Bad Request\r\n\r\n"]);
    assert!(then.is_err() && rest.len() == 2, "{then:?}");
}
