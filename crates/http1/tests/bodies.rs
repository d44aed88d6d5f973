//! Bodies: the position of the data and the end, and refusals. Each row names the rule that it tests.

mod drive;

use http1::{BodyDecoder, Decoded, Framing, Limits};

/// Rule, bytes after the head, and the expected data, trailers and rest, or else the refusal.
type Row<'a> = (&'a str, &'a [u8], &'a str);

fn limits() -> Limits {
    Limits { chunk_extension_bytes_max: 16, trailer_bytes_max: 32, fields_max: 3, ..Limits::default() }
}

/// Formats the outcome: `data+data [name=value|...] then rest`, `400 invalid-chunk-size` or `incomplete`.
fn outcome(framing: Framing, bytes: &[u8]) -> String {
    let mut decoder = BodyDecoder::new(framing, &limits());
    let mut data = Vec::new();
    let mut consumed = 0;
    loop {
        let rest = &bytes[consumed..];
        let decoded = match decoder.decode(rest) {
            Ok(decoded) => decoded,
            Err(error) => return format!("{} {}", error.status(), error.reason()),
        };
        consumed += decoded.consumed();
        match decoded {
            Decoded::Data(range) => data.push(rest[range].escape_ascii().to_string()),
            Decoded::NeedMore { .. } => return "incomplete".into(),
            Decoded::End { .. } => break,
        }
    }
    let trailers = decoder.trailers().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
    let trailers = trailers.collect::<Vec<_>>().join("|");
    format!("{} [{trailers}] then {}", data.join("+"), bytes[consumed..].escape_ascii())
}

fn check(framing: Framing, rows: &[Row<'_>]) {
    for &(rule, bytes, expected) in rows {
        assert_eq!(outcome(framing, bytes), expected, "{rule}: {}", bytes.escape_ascii());
        check_splits(framing, bytes);
    }
}

/// Decodes the same body in two pieces with every split, and byte by byte.
fn check_splits(framing: Framing, bytes: &[u8]) {
    let head: &[u8] = match framing {
        Framing::Chunked => b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        Framing::Length(_) => b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
        Framing::None => b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    let whole = [head, bytes].concat();
    let expected = drive::events(&whole, &[], &limits());
    for cut in 0..whole.len() {
        assert_eq!(drive::events(&whole, &[cut], &limits()), expected, "{} at {cut}", whole.escape_ascii());
    }
    let every: Vec<usize> = (0..whole.len()).collect();
    assert_eq!(drive::events(&whole, &every, &limits()), expected, "{}", whole.escape_ascii());
}

#[test]
fn no_body() {
    check(Framing::None, &[("RFC 9112 6.3", b"", " [] then "), ("RFC 9112 6.3", b"GET", " [] then GET")]);
}

//= RFC 9112 section 6.3: message body length
#[test]
fn length() {
    check(
        Framing::Length(5),
        &[
            ("RFC 9112 6.2", b"hello", "hello [] then "),
            ("RFC 9112 6.2", b"helloGET", "hello [] then GET"),
            ("RFC 9112 8", b"hell", "incomplete"),
        ],
    );
    assert_eq!(outcome(Framing::Length(0), b"GET"), " [] then GET");
}

//= RFC 9112 section 7.1: chunked transfer coding
//= RFC 9112 section 7.1: chunk-size = 1*HEXDIG, without overflow
#[test]
fn chunks() {
    check(
        Framing::Chunked,
        &[
            ("RFC 9112 7.1", b"0\r\n\r\n", " [] then "),
            ("RFC 9112 7.1", b"5\r\nhello\r\n0\r\n\r\nGET", "hello [] then GET"),
            ("RFC 9112 7.1", b"5\r\nhello\r\nA\r\n0123456789\r\n00\r\n\r\n", "hello+0123456789 [] then "),
            (
                "RFC 9112 7.1",
                b"000a\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n",
                "\\r\\n\\r\\n\\r\\n\\r\\n\\r\\n [] then ",
            ),
            ("RFC 9112 8", b"5\r\nhello\r\n", "incomplete"),
            ("RFC 9112 8", b"5\r\nhello\r\n0\r\n", "incomplete"),
            ("RFC 9112 7.1", b"\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"+5\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"-5\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"0x5\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"5_0\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"g\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b" 5\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b";a\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"5\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"5\rhello", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"5\r\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1", b"ffffffffffffffff\r\n", "incomplete"),
            ("RFC 9112 7.1", b"10000000000000000\r\n", "400 chunk-size-overflow"),
            ("RFC 9112 7.1", b"00000000000000005\r\n", "400 chunk-size-overflow"),
            ("RFC 9112 7.1", b"5\r\nhello0\r\n\r\n", "400 missing-chunk-end"),
            ("RFC 9112 7.1", b"5\r\nhello\n0\r\n\r\n", "400 missing-chunk-end"),
            ("RFC 9112 7.1", b"5\r\nhello\r0\r\n\r\n", "400 missing-chunk-end"),
            ("RFC 9112 7.1", b"5\r\nhello!\r\n0\r\n\r\n", "400 missing-chunk-end"),
            ("RFC 9112 7.1", b"5\r\nhello\r\n\r\n0\r\n\r\n", "400 invalid-chunk-size"),
        ],
    );
}

//= RFC 9112 section 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
#[test]
fn chunk_extensions() {
    check(
        Framing::Chunked,
        &[
            ("RFC 9112 7.1.1", b"1;a\r\nx\r\n0;b\r\n\r\n", "x [] then "),
            ("RFC 9112 7.1.1", b"1;a=b;c=\"d\"\r\nx\r\n0\r\n\r\n", "x [] then "),
            ("RFC 9112 7.1.1", b"1 ;\ta = \"\\\";\" ; b\r\nx\r\n0\r\n\r\n", "x [] then "),
            ("RFC 9112 7.1.1", b"1;a=\"\xff\"\r\nx\r\n0\r\n\r\n", "x [] then "),
            ("RFC 9112 7.1.1", b"1;\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a=\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;=b\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a;;b\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1 \r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1 5\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a \r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a b\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a\nx\r\n0\r\n\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a\rx\r\n0\r\n\r\n", "400 invalid-chunk-size"),
            ("RFC 9112 7.1.1", b"1;a=\"\n\"\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a=\"\r\n\"\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a=\"b\r\nx\r\n0\r\n\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a=\"\\\0\"\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;a=\"b\"c\r\n", "400 invalid-chunk-extension"),
            ("RFC 9112 7.1.1", b"1;34567890123456\r\nx\r\n0\r\n\r\n", "x [] then "),
            ("RFC 9112 7.1.1", b"1;345678901234567\r\n", "incomplete"),
            ("RFC 9112 7.1.1", b"1;3456789012345678\r\n", "400 chunk-extension-too-large"),
            ("RFC 9112 7.1.1", b"1;34567890\r\nx\r\n1;3456789\r\n", "400 chunk-extension-too-large"),
        ],
    );
}

//= RFC 9112 section 7.1.2: chunked trailer section
//= RFC 9110 section 6.5.1: limitations on use of trailers
#[test]
fn trailers() {
    check(
        Framing::Chunked,
        &[
            ("RFC 9112 7.1.2", b"0\r\nA: b\r\n\r\nGET", " [A=b] then GET"),
            ("RFC 9112 7.1.2", b"0\r\nA:\r\nb:  c d\t\r\n\r\n", " [A=|b=c d] then "),
            ("RFC 9110 6.5.1", b"0\r\nContent-Length: 9\r\nA: b\r\n\r\n", " [A=b] then "),
            ("RFC 9110 6.5.1", b"0\r\nTransfer-Encoding: x\r\n\r\n", " [] then "),
            ("RFC 9110 6.5.1", b"0\r\nhOST: x\r\n\r\n", " [] then "),
            ("RFC 9112 7.1.2", b"0\r\nA: b\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nA: b\r\n\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\n\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nA: b\r\n c\r\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nA : b\r\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nA: b\rc\r\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nA: \0\r\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\nGET / HTTP/1.1\r\n\r\n", "400 invalid-trailer"),
            ("RFC 9112 7.1.2", b"0\r\n\rA: b\r\n\r\n", "400 invalid-trailer"),
            (
                "RFC 9112 7.1.2",
                b"0\r\nA: 4567890123456789012345678\r\n\r\n",
                " [A=4567890123456789012345678] then ",
            ),
            ("RFC 9112 7.1.2", b"0\r\nA: 45678901234567890123456789\r\n\r\n", "431 trailer-too-large"),
            ("RFC 9112 7.1.2", b"0\r\nA: 456789012345678901234567890123", "431 trailer-too-large"),
            ("RFC 9112 7.1.2", b"0\r\na:\r\nb:\r\nc:\r\n\r\n", " [a=|b=|c=] then "),
            ("RFC 9112 7.1.2", b"0\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n", "431 trailer-too-large"),
        ],
    );
}

#[test]
fn remaining_is_known_by_content_length_only() {
    let mut decoder = BodyDecoder::new(Framing::Length(5), &limits());
    assert_eq!(decoder.remaining(), Some(5));
    assert_eq!(decoder.decode(b"hel"), Ok(Decoded::Data(0..3)));
    assert_eq!(decoder.remaining(), Some(2));
    assert_eq!(decoder.decode(b""), Ok(Decoded::NeedMore { consumed: 0 }));
    assert_eq!(decoder.decode(b"lo!"), Ok(Decoded::Data(0..2)));
    assert!(decoder.is_complete());
    assert_eq!(decoder.decode(b"!"), Ok(Decoded::End { consumed: 0 }));
    assert_eq!(BodyDecoder::new(Framing::Chunked, &limits()).remaining(), None);
}
