//! Requests of both protocols, whole and split at arbitrary positions.

use proptest::prelude::*;
use resp::separator::{self, EncodeError, Request, RequestError};
use resp::{Begun, DecodeError, Limits, Problem, RequestScanner, encode_command};

const LIMITS: Limits = Limits { depth_max: 1, elements_max: 8, bulk_bytes_max: 64, line_bytes_max: 32 };

type Requests = (Vec<Vec<Vec<u8>>>, Option<DecodeError>);

/// Reads a sequence of requests, first with the bytes up to each cut, then with all bytes.
fn read(bytes: &[u8], cuts: &[usize]) -> Requests {
    let mut scanner = RequestScanner::new(LIMITS);
    let (mut requests, mut begin) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&bytes.len()]) {
        while begin < cut.min(bytes.len()) {
            match scanner.scan(&bytes[begin..cut.min(bytes.len())]) {
                Ok(None) => break,
                Ok(Some(arguments)) => {
                    requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                    begin += arguments.bytes;
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

#[test]
fn requests_are_read() {
    let cases: [(&[u8], &[&[&str]]); 12] = [
        (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[&["GET", "k"]]),
        (b"*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n", &[&[""], &["PING"]]),
        (b"*0\r\n*-1\r\n\r\nPING\r\n", &[&[], &[], &[], &["PING"]]),
        (b"SET  k\t v \r\n", &[&["SET", "k", "v"]]),
        (b"PING\n", &[&["PING"]]),
        (b"SET k \"a b\"\n", &[&["SET", "k", "a b"]]),
        (b"SET k \"\\x41\\n\\\"\\q\\x4\"\n", &[&["SET", "k", "A\n\"qx4"]]),
        (b"SET k 'a\\'\\n'\n", &[&["SET", "k", "a'\\n"]]),
        (b"SET k \"\"\n", &[&["SET", "k", ""]]),
        (b"SET k a\"b c\"\n", &[&["SET", "k", "ab c"]]),
        (b"*2\r\n$3\r\nGET\r\n$1\r", &[]),
        (b"PING", &[]),
    ];
    for (bytes, expected) in cases {
        let expected =
            expected.iter().map(|request| request.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(read(bytes, &[]), (expected.collect(), None), "{}", bytes.escape_ascii());
    }
}

/// Detaches each argument of `SET key 0123456789 NX` in turn.
#[test]
fn an_argument_may_be_kept_elsewhere() {
    let words: [&[u8]; 4] = [b"SET", b"key", b"0123456789", b"NX"];
    let mut request = Vec::new();
    encode_command(&mut request, &words);
    for cut in 0..request.len() {
        let mut scanner = RequestScanner::new(LIMITS);
        assert!(scanner.scan(&request[..cut]).is_ok_and(|found| found.is_none()), "{cut}");
        let Some(Begun { index, at, length }) = scanner.begun() else { continue };
        assert!(at <= cut && cut < at + length + 2, "{cut}");
        let (word, rest) = (&request[at..at + length], &request[at + length..]);
        assert_eq!(word, words[index], "{cut}");
        scanner.detach();
        assert_eq!(scanner.scan(&request[..at]).map(|found| found.is_some()), Ok(false));
        let buffer = [&request[..at], rest].concat();
        let arguments = scanner.scan(&buffer).expect("a request").expect("as a whole");
        assert_eq!(arguments.at(index), Some(&b""[..]), "{cut}");
        let arguments = arguments.with(index, word);
        assert!(arguments.iter().eq(words), "{cut}");
        assert_eq!((arguments.bytes, arguments.bytes_everywhere()), (buffer.len(), request.len()));
        assert_eq!(scanner.begun(), None);
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let limit = LIMITS.elements_max;
    let cases: [(&[u8], usize, Problem); 10] = [
        (b"*x\r\n", 1, Problem::Length),
        (b"*9\r\n", 1, Problem::ElementsOverLimit { limit }),
        (b"*1\r\n:1\r\n", 4, Problem::NotBulk),
        (b"*1\r\n$-1\r\n", 5, Problem::Length),
        (b"*1\r\n$65\r\n", 5, Problem::BulkOverLimit { limit: 64 }),
        (b"*1\r\n$1\r\nab\r\n", 9, Problem::BulkEnd),
        (b"*1\n", 2, Problem::LineEnd),
        (b"GET \"a\n", 4, Problem::Quote),
        (b"GET 'a'b\n", 4, Problem::Quote),
        (b"012345678901234567890123456789012", 32, Problem::LineOverLimit { limit: 32 }),
    ];
    for (bytes, at, problem) in cases {
        assert_eq!(read(bytes, &[]), (vec![], Some(DecodeError { at, problem })), "{}", bytes.escape_ascii());
    }
}

#[test]
fn separator_requests_are_read() {
    let cases: [(&[u8], Result<Request<'_>, RequestError>); 11] = [
        (b"GET k", Ok(Request::Get { key: b"k" })),
        (b"GET k more words", Ok(Request::Get { key: b"k" })),
        (b"DEL k", Ok(Request::Del { key: b"k" })),
        (b"SET k a b\nc", Ok(Request::Set { key: b"k", value: b"a b\nc" })),
        (b"SET k ", Ok(Request::Set { key: b"k", value: b"" })),
        (b"SET k", Err(RequestError::Incomplete)),
        (b"GET ", Err(RequestError::Incomplete)),
        (b"SET  v", Err(RequestError::Incomplete)),
        (b"PING", Err(RequestError::NoSpace)),
        (b"get k", Err(RequestError::UnknownVerb)),
        (b"TTL k", Err(RequestError::UnknownVerb)),
    ];
    for (message, expected) in cases {
        assert_eq!(Request::parse(message), expected, "{}", message.escape_ascii());
    }
}

#[test]
fn separator_messages_end_where_they_end() {
    let bytes = b"GET a\x1fGET b\x1f";
    assert_eq!(separator::message_length(bytes, 0), Some(5));
    assert_eq!(separator::message_length(&bytes[..5], 0), None);
    assert_eq!(separator::message_length(bytes, 5), Some(5), "5 bytes were looked at before");
    assert_eq!(separator::message_length(bytes, 40), None);
}

#[test]
fn separator_can_not_say_everything() {
    let mut out = Vec::new();
    for key in [&b""[..], b"a b", b"a\0", b"a\x1f"] {
        assert_eq!(Request::Get { key }.encode(&mut out), Err(EncodeError::Key), "{}", key.escape_ascii());
    }
    assert_eq!(Request::Set { key: b"k", value: b"\x1f" }.encode(&mut out), Err(EncodeError::Value));
    assert_eq!(separator::encode_reply(&mut out, b"a\0"), Err(EncodeError::Value));
    assert!(out.is_empty(), "nothing is half written");
}

proptest! {
    #[test]
    fn commands_are_read_as_written(
        requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6), 1..4),
        broken in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = Vec::new();
        for request in &requests {
            let arguments: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            encode_command(&mut bytes, &arguments);
        }
        prop_assert_eq!(read(&bytes, &[]), (requests, None));
        if let Some((at, byte)) = broken {
            *at.get_mut(&mut bytes) = byte;
        }
        let each: Vec<usize> = (1..bytes.len()).collect();
        prop_assert_eq!(read(&bytes, &each), read(&bytes, &[]));
    }

    #[test]
    fn separator_requests_are_read_as_written(key in "[!-~]{1,20}", value in "[ -~\n]{0,20}", verb in 0..3) {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let request = match verb {
            0 => Request::Get { key },
            1 => Request::Del { key },
            _ => Request::Set { key, value },
        };
        let mut out = Vec::new();
        request.encode(&mut out).expect("there is nothing in it that can't be said");
        let length = separator::message_length(&out, 0).expect("it is whole");
        prop_assert_eq!((length + 1, Request::parse(&out[..length])), (out.len(), Ok(request)));
    }
}
