//! Responses: their heads, the end of their bodies, and refusals, for every split of the bytes.

mod drive_responses;

mod damage;

use damage::damage;
use drive_responses::{Event, events};
use http1::{Asked, Input, Limits, LineSpace, ResponseReader};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const LIMITS: Limits = Limits {
    head_bytes_max: 220,
    target_bytes_max: 0,
    fields_max: 6,
    chunk_extension_bytes_max: 24,
    trailer_bytes_max: 48,
};

/// The bytes of a connection until it closes, and the expected description.
type Row<'a> = (&'a str, &'a str);

fn check(asked: Asked, rows: &[Row<'_>]) {
    for &(bytes, expected) in rows {
        assert_eq!(outcome(bytes.as_bytes(), asked), expected, "{bytes:?}");
        assert_same_under_splits(bytes.as_bytes(), asked, &[]).unwrap();
    }
}

/// `status reason framing coding persistence [name=value|..] data, data..` for each response, separated by `; `.
fn outcome(bytes: &[u8], asked: Asked) -> String {
    let told = events(bytes, &[], asked, &LIMITS).into_iter().map(|event| match event {
        Event::Head(head) => head,
        Event::Data(data) => data.escape_ascii().to_string(),
        Event::Trailer(name, value) => format!("{name}={}", value.escape_ascii()),
        Event::End => "end".into(),
        Event::CutOff => "cut off".into(),
        Event::HeadRefused(error) => format!("{error:?}"),
        Event::BodyRefused(error) => error.reason().into(),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Checks every split into two pieces, into single bytes, and at the given cuts.
fn assert_same_under_splits(bytes: &[u8], asked: Asked, cuts: &[Index]) -> Result<(), TestCaseError> {
    let expected = events(bytes, &[], asked, &LIMITS);
    for cut in 0..bytes.len() {
        prop_assert_eq!(&events(bytes, &[cut], asked, &LIMITS), &expected, "cut at {}", cut);
    }
    let every: Vec<usize> = (0..bytes.len()).collect();
    prop_assert_eq!(&events(bytes, &every, asked, &LIMITS), &expected, "byte by byte");
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    prop_assert_eq!(&events(bytes, &cuts, asked, &LIMITS), &expected, "cuts at {:?}", cuts);
    Ok(())
}

//= RFC 9112 section 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]
#[test]
fn status_lines() {
    check(
        Asked::Content,
        &[
            (
                "HTTP/1.1 204 No Content\r\n\r\n",
                "204 \"No Content\" Http11 None None KeepAlive bytes=27 []; end",
            ),
            ("HTTP/1.1 204 \r\n\r\n", "204 \"\" Http11 None None KeepAlive bytes=17 []; end"),
            ("HTTP/1.1 204\r\n\r\n", "204 \"\" Http11 None None KeepAlive bytes=16 []; end"),
            ("HTTP/1.0 204 Odd one\r\n\r\n", "204 \"Odd one\" Http10 None None Close bytes=24 []; end"),
            ("HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n", HEAD_999),
            // The tokenizer returns an empty phrase for such bytes.
            ("HTTP/1.1 204 Sch\u{f6}n\r\n\r\n", "204 \"\" Http11 None None KeepAlive bytes=23 []; end"),
            ("<html>hello</html>", "InvalidVersion"),
            ("HTTP/2.0 200 OK\r\n\r\n", "InvalidVersion"),
            ("HTTP/1.2 200 OK\r\n\r\n", "InvalidVersion"),
            ("HTTP/1.1 abc OK\r\n\r\n", "MalformedStatusLine"),
            ("HTTP/1.1 99 OK\r\n\r\n", "MalformedStatusLine"),
            ("HTTP/1.1 099 OK\r\n\r\n", "MalformedStatusLine"),
            ("HTTP/1.1 2000 OK\r\n\r\n", "MalformedStatusLine"),
            ("HTTP/1.1 200 O\rK\r\n\r\n", "MalformedStatusLine"),
            ("HTTP/1.1 200 O", "cut off"),
            ("", ""),
        ],
    );
}

const HEAD_999: &str = "999 \"\" Http11 Length(0) None KeepAlive bytes=36 [Content-Length=0]; end";

/// Checks the parsed lines of a 204 with these lines.
fn check_lines(rows: &[Row<'_>]) {
    for &(lines, expected) in rows {
        let bytes = format!("HTTP/1.1 204 N\r\n{lines}\r\n");
        let got = outcome(bytes.as_bytes(), Asked::Content);
        let got = got.split_once('[').map_or(got.as_str(), |(_, fields)| fields);
        assert_eq!(got.strip_suffix("]; end").unwrap_or(got), expected, "{lines:?}");
        assert_same_under_splits(bytes.as_bytes(), Asked::Content, &[]).unwrap();
    }
}

//= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
//= RFC 9112 section 5.1: a proxy removes whitespace before the colon of a response's field
#[test]
fn field_lines() {
    check_lines(&[
        ("A: b\r\na:c\r\n", "A=b|a=c"),
        ("A:  b c \t\r\n", "A=b c"),
        ("A:\r\n", "A="),
        ("A: b\r\n  c\r\n\td \r\nE: f\r\n", "A=b c d|E=f"),
        ("A : b\r\n", "A=b"),
        ("A: caf\u{e9}\r\n", "A=caf\\xc3\\xa9"),
        ("A: b\nC: d\r\n", "A=b|C=d"),
        ("A: b\rc\r\n", "InvalidFieldValue"),
        ("A: b\0\r\n", "InvalidFieldValue"),
        ("A\r\n", "InvalidFieldName"),
        (": b\r\n", "InvalidFieldName"),
        ("A(: b\r\n", "InvalidFieldName"),
        ("A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n", "A=b|A=b|A=b|A=b|A=b|A=b"),
        ("A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n", "TooManyFields"),
        (&format!("A: {}\r\n", "b".repeat(210)), "HeadTooLarge"),
    ]);
}

/// Checks framing, coding, persistence and decoded body of a response with these lines and this body.
fn check_framing(status: &str, asked: Asked, rows: &[(&str, &str, &str)]) {
    for &(lines, body, expected) in rows {
        let bytes = format!("HTTP/1.1 {status} X\r\n{lines}\r\n{body}");
        let got = outcome(bytes.as_bytes(), asked);
        let says = got.split_once(" Http11 ").map_or(got.as_str(), |(_, says)| says);
        let (framing, rest) = says.split_once(" bytes=").unwrap_or((says, "]"));
        let rest = rest.split_once(']').map_or("", |(_, rest)| rest);
        assert_eq!(format!("{framing}{rest}"), expected, "{lines:?} {body:?}");
        assert_same_under_splits(bytes.as_bytes(), asked, &[]).unwrap();
    }
}

//= RFC 9112 section 6.3: message body length of a response
//= RFC 9112 section 6.3: a response ended by the close of the connection
//= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
//= RFC 9112 section 6.3: invalid Content-Length
#[test]
fn lengths() {
    check_framing(
        "200",
        Asked::Content,
        &[
            ("Content-Length: 2\r\n", "ok", "Length(2) None KeepAlive; ok; end"),
            ("Content-Length: 2\r\n", "okHTTP", "Length(2) None KeepAlive; ok; end; cut off"),
            ("Content-Length: 2\r\n", "o", "Length(2) None KeepAlive; o; cut off"),
            ("Content-Length: 0\r\n", "", "Length(0) None KeepAlive; end"),
            ("Content-Length: 2, 2\r\nContent-Length: 2\r\n", "ok", "Length(2) None KeepAlive; ok; end"),
            ("Content-Length: 2\r\nContent-Length: 3\r\n", "ok", "DifferingContentLengths"),
            ("Content-Length: 2,3\r\n", "ok", "DifferingContentLengths"),
            ("Content-Length: +2\r\n", "ok", "InvalidContentLength"),
            ("Content-Length:\r\n", "ok", "InvalidContentLength"),
            ("Content-Length: 2,\r\n", "ok", "InvalidContentLength"),
            ("Content-Length: 18446744073709551616\r\n", "ok", "InvalidContentLength"),
            ("", "ok", "UntilClose None KeepAlive; ok; end"),
            ("Connection: close\r\n", "ok", "UntilClose None Close; ok; end"),
        ],
    );
}

//= RFC 9112 section 6.3: a response whose final coding is not chunked ends with the connection
//= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
//= RFC 9112 section 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
#[test]
fn transfer_codings() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    check_framing(
        "200",
        Asked::Content,
        &[
            (chunked, "2\r\nok\r\n0\r\n\r\n", "Chunked Chunked KeepAlive; ok; end"),
            (chunked, "2\r\nok\r\n0\r\nA: b\r\n\r\n", "Chunked Chunked KeepAlive; ok; A=b; end"),
            (chunked, "2  \r\nok\r\n0 \r\n\r\n", "Chunked Chunked KeepAlive; ok; end"),
            (chunked, "2 ;a b\"\r\nok\r\n0;\r\n\r\n", "Chunked Chunked KeepAlive; ok; end"),
            (
                chunked,
                "2;aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
                "Chunked Chunked KeepAlive; chunk-extension-too-large",
            ),
            (chunked, "2;a\nok\r\n0\r\n\r\n", "Chunked Chunked KeepAlive; invalid-chunk-extension"),
            (chunked, "2 2\r\n", "Chunked Chunked KeepAlive; invalid-chunk-extension"),
            (chunked, " 2\r\n", "Chunked Chunked KeepAlive; invalid-chunk-size"),
            (chunked, "zz\r\n", "Chunked Chunked KeepAlive; invalid-chunk-size"),
            (chunked, "2\nok", "Chunked Chunked KeepAlive; invalid-chunk-size"),
            (chunked, "2\r\nokay", "Chunked Chunked KeepAlive; ok; missing-chunk-end"),
            (chunked, "2\r\nok\r\n0\r\n", "Chunked Chunked KeepAlive; ok; cut off"),
            (
                "Transfer-Encoding: Chunked\r\nContent-Length: x\r\n",
                "0\r\n\r\n",
                "Chunked ChunkedWithLength KeepAlive; end",
            ),
            ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", "Chunked Unknown KeepAlive; end"),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
                "Chunked Unknown KeepAlive; end",
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
                "Chunked Unknown KeepAlive; end",
            ),
            ("Transfer-Encoding: identity\r\n", "ok", "UntilClose Unknown KeepAlive; ok; end"),
            ("Transfer-Encoding: chunked, gzip\r\n", "ok", "UntilClose Unknown KeepAlive; ok; end"),
        ],
    );
}

//= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
//= RFC 9112 section 9.3: persistence
#[test]
fn old_versions() {
    check(
        Asked::Content,
        &[
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "TransferEncodingInHttp10"),
            (
                "HTTP/1.0 204 N\r\nConnection: keep-alive\r\n\r\n",
                "204 \"N\" Http10 None None KeepAlive bytes=42 [Connection=keep-alive]; end",
            ),
            (
                "HTTP/1.0 204 N\r\nConnection: close, keep-alive\r\n\r\n",
                "204 \"N\" Http10 None None Close bytes=49 [Connection=close, keep-alive]; end",
            ),
        ],
    );
}

//= RFC 9110 section 15.4.5: a 304 ends with its header section
//= RFC 9110 section 9.3.2: HEAD is GET without content
//= RFC 9110 section 15.2: a 1xx response ends with its header section
#[test]
fn responses_without_a_body() {
    let rows = [("Content-Length: 5\r\n", "", "None None KeepAlive; end")];
    check_framing("204", Asked::Content, &rows);
    check_framing("304", Asked::Content, &rows);
    check_framing("200", Asked::Head, &rows);
    check_framing("200", Asked::Head, &[("Content-Length: x\r\n", "", "None None KeepAlive; end")]);
    let interims = "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 N\r\n\r\n";
    let [first, second] = [
        "100 \"C\" Http11 None None KeepAlive bytes=18 []",
        "103 \"E\" Http11 None None KeepAlive bytes=37 [Content-Length=5]",
    ];
    let last = "204 \"N\" Http11 None None KeepAlive bytes=18 []; end";
    check(Asked::Content, &[(interims, &format!("{first}; {second}; {last}"))]);
}

//= RFC 9110 section 7.6.1: connection options are case-insensitive
#[test]
fn nominations() {
    let rows = [
        ("", false),
        ("Connection: Keep-Alive\r\n", false),
        ("Connection: keep-alive, Upgrade\r\n", false),
        ("Connection: close\r\n", true),
        ("Connection: keep-alive\r\nCONNECTION: X-Hop\r\n", true),
        ("Connection: ,\r\n", false),
    ];
    for (lines, expected) in rows {
        let bytes = format!("HTTP/1.1 204 N\r\n{lines}\r\n");
        let mut space = LineSpace::default();
        let read = ResponseReader::default().read(
            bytes.as_bytes(),
            Input::Open,
            Asked::Content,
            &LIMITS,
            &mut space,
        );
        assert_eq!(read.unwrap().unwrap().nominates_fields, expected, "{lines:?}");
    }
}

fn responses() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![Just("HTTP/1.1 200 OK"), Just("HTTP/1.1 404 "), Just("HTTP/1.1 103 Hints")];
    let field = prop_oneof![
        Just("Date: x"),
        Just("Connection: keep-alive"),
        Just("X:\t\u{e9} "),
        Just("Y: a\r\n b"),
        Just("Z : c")
    ];
    let body = prop_oneof![
        Just("Content-Length: 0\r\n\r\n"),
        Just("Content-Length: 3\r\n\r\nabc"),
        Just("Content-Length: 3, 3\r\n\r\nabc"),
        Just("Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n"),
        Just("Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n2\r\nbc\r\n0\r\nT: u\r\n\r\n"),
        Just("\r\nabc"),
    ];
    (line, vec(field, 0..4), body).prop_map(|(line, fields, body)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        format!("{line}\r\n{fields}{body}").into_bytes()
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![9 => Just(Asked::Content), 1 => Just(Asked::Head)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_connections(
        responses in vec(responses(), 1..3),
        asked in asked(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let bytes = responses.concat();
        let told = events(&bytes, &[], asked, &LIMITS);
        prop_assert!(matches!(told.first(), Some(Event::Head(_))), "{:?}", told);
        assert_same_under_splits(&bytes, asked, &cuts)?;
    }

    #[test]
    fn damaged_connections(
        responses in vec(responses(), 1..3),
        asked in asked(),
        damage in damage(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let mut bytes = responses.concat();
        damage.apply(&mut bytes);
        assert_same_under_splits(&bytes, asked, &cuts)?;
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..64), cuts in vec(any::<Index>(), 0..8)) {
        assert_same_under_splits(&bytes, Asked::Content, &cuts)?;
    }
}
