//! Heads: accepted ones with their parsed form, and refused ones with their status. Each row cites the rule.

mod drive;

use http1::{EMPTY_LINE, Head, Limits, parse_head};

/// Rule, bytes, expected result.
type Row<'a> = (&'a str, &'a [u8], &'a str);

/// The form of an expected result: `GET Origin x / Http11 None KeepAlive`, or `400 bare-line-feed`.
fn outcome(bytes: &[u8], limits: &Limits) -> String {
    let mut lines = [EMPTY_LINE; Limits::FIELDS_CEILING];
    match parse_head(bytes, limits, &mut lines) {
        Ok(None) => "incomplete".into(),
        Ok(Some(head)) => brief(&head),
        Err(error) => format!("{} {}", error.status(), error.reason()),
    }
}

fn brief(head: &Head<'_, '_>) -> String {
    let Head { method, form, authority, path_and_query, version, framing, persistence, .. } = head;
    format!(
        "{method} {form:?} {} {path_and_query} {version:?} {framing:?} {persistence:?}",
        authority.as_str()
    )
}

/// Checks each row, with all bytes in one piece and one by one.
fn check(rows: &[Row<'_>], whole: impl Fn(&[u8]) -> Vec<u8>) {
    let limits = Limits::default();
    for &(rule, bytes, expected) in rows {
        let head = whole(bytes);
        assert_eq!(outcome(&head, &limits), expected, "{rule}: {}", head.escape_ascii());
        let one_by_one: Vec<usize> = (0..head.len()).collect();
        assert_eq!(
            drive::events(&head, &one_by_one, &limits),
            drive::events(&head, &[], &limits),
            "{rule}: {}",
            head.escape_ascii()
        );
    }
}

fn check_heads(rows: &[Row<'_>]) {
    check(rows, <[u8]>::to_vec);
}

/// Checks rows of request lines, without line end, completed by `Host: x`.
fn check_request_lines(rows: &[Row<'_>]) {
    check(rows, |line| [line, b"\r\nHost: x\r\n\r\n"].concat());
}

/// Checks rows of field lines after `POST / HTTP/1.1` and `Host: x`, without the last line end.
fn check_field_lines(rows: &[Row<'_>]) {
    check(rows, |lines| [b"POST / HTTP/1.1\r\nHost: x\r\n", lines, b"\r\n\r\n"].concat());
}

const NO_BODY: &str = "POST Origin x / Http11 None KeepAlive";
const CHUNKED: &str = "POST Origin x / Http11 Chunked KeepAlive";

//= RFC 9112 section 2.2: message parsing
//= RFC 9112 section 2.2: ignore at least one empty line before the request line
//= RFC 9112 section 2.2: whitespace between the start line and the first field
#[test]
fn line_ends() {
    check_heads(&[
        ("RFC 9112 2.1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET Origin x / Http11 None KeepAlive"),
        ("RFC 9112 2.1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest", "GET Origin x / Http11 None KeepAlive"),
        ("RFC 9112 2.1", b"GET / HTTP/1.1\r\nHost: x\r\n", "incomplete"),
        ("RFC 9112 2.1", b"", "incomplete"),
        ("RFC 9112 2.2", b"\r\nGET / HTTP/1.0\r\n\r\n", "GET Origin  / Http10 None Close"),
        ("RFC 9112 2.2", b"\r", "incomplete"),
        ("RFC 9112 2.2", b"\r\n\r\nGET / HTTP/1.0\r\n\r\n", "400 invalid-method"),
        ("RFC 9112 2.2", b"\nGET / HTTP/1.0\r\n\r\n", "400 bare-line-feed"),
        ("RFC 9112 2.2", b"\rGET / HTTP/1.0\r\n\r\n", "400 bare-carriage-return"),
        ("RFC 9112 2.2", b"GET / HTTP/1.0\n\n", "400 bare-line-feed"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\nHost: x\r\n\r\n", "400 bare-line-feed"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\nHost: x\n\r\n", "400 bare-line-feed"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\nHost: x\r\n\n", "400 bare-line-feed"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\rHost: x\r\n\r\n", "400 bare-carriage-return"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", "400 bare-carriage-return"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\nHost: x\r\r\n\r\n", "400 bare-carriage-return"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\nA\rB: x\r\n\r\n", "400 bare-carriage-return"),
        ("RFC 9112 2.2", b" GET / HTTP/1.1\r\nHost: x\r\n\r\n", "400 invalid-method"),
        ("RFC 9112 2.2", b"\tGET / HTTP/1.1\r\nHost: x\r\n\r\n", "400 invalid-method"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", "400 whitespace-before-first-field"),
        ("RFC 9112 2.2", b"GET / HTTP/1.1\r\n\tA: b\r\nHost: x\r\n\r\n", "400 whitespace-before-first-field"),
        ("RFC 9112 3: TLS on a plain port", b"\x16\x03\x01\x02\x00\x01", "400 invalid-method"),
    ]);
}

//= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
//= RFC 9112 section 2.3: HTTP-version = HTTP-name "/" DIGIT "." DIGIT
//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
#[test]
fn request_lines() {
    check_request_lines(&[
        ("RFC 9112 3", b"GET /", "400 malformed-request-line"),
        ("RFC 9112 3: HTTP/0.9", b"GET / ", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET  / HTTP/1.1", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET /  HTTP/1.1", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET / HTTP/1.1 ", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET / x HTTP/1.1", "400 malformed-request-line"),
        ("RFC 9112 3", b"GET\t/\tHTTP/1.1", "400 invalid-method"),
        ("RFC 9112 3", b"GET /\tHTTP/1.1", "400 malformed-request-line"),
        ("RFC 9112 3.1", b"G(T / HTTP/1.1", "400 invalid-method"),
        ("RFC 9112 3.1", b"G\0T / HTTP/1.1", "400 invalid-method"),
        ("RFC 9112 3.1", b"G\x80T / HTTP/1.1", "400 invalid-method"),
        ("RFC 9112 3.1", b"get / HTTP/1.1", "get Origin x / Http11 None KeepAlive"),
        ("RFC 9112 3.1", b"M-SEARCH / HTTP/1.1", "M-SEARCH Origin x / Http11 None KeepAlive"),
        ("RFC 9112 3", b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1", "501 method-too-long"),
        ("RFC 9112 2.3", b"GET / HTTP/1.0", "GET Origin x / Http10 None Close"),
        ("RFC 9112 2.3", b"GET / http/1.1", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTP/1", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTP/1.10", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTP/11.1", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTP/+1.1", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTPS/1.1", "400 invalid-version"),
        ("RFC 9112 2.3", b"GET / HTTP/1.2", "505 unsupported-version"),
        ("RFC 9112 2.3", b"GET / HTTP/0.9", "505 unsupported-version"),
        ("RFC 9112 2.3", b"GET / HTTP/2.0", "505 unsupported-version"),
        ("RFC 9112 2.3", b"PRI * HTTP/2.0", "505 unsupported-version"),
    ]);
}

//= RFC 9112 section 3.2: request target
//= RFC 9112 section 3.2.2: absolute-form
//= RFC 9112 section 3.2.3: authority-form is only used for CONNECT, and has host and port
//= RFC 9112 section 3.2.4: asterisk-form is only used for a server-wide OPTIONS
//= RFC 9112 section 3.2.4: an empty path in OPTIONS means asterisk-form
//= RFC 9110 section 4.2.4: userinfo in URIs is deprecated
#[test]
fn targets() {
    check_request_lines(&[
        (
            "RFC 9112 3.2.1",
            b"GET /a//b/../c?d=%2F&e HTTP/1.1",
            "GET Origin x /a//b/../c?d=%2F&e Http11 None KeepAlive",
        ),
        ("RFC 9112 3.2.1", b"GET /a|{b}\"? HTTP/1.1", "GET Origin x /a|{b}\"? Http11 None KeepAlive"),
        ("RFC 9112 3.2.1", b"GET //evil/ HTTP/1.1", "GET Origin x //evil/ Http11 None KeepAlive"),
        ("RFC 9112 3.2.1", b"GET /http://a/ HTTP/1.1", "GET Origin x /http://a/ Http11 None KeepAlive"),
        ("RFC 9112 3.2", b"GET /a#b HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET http://x/a#b HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET /a?b#c HTTP/1.1", "400 invalid-target"),
        ("RFC 3986 2", b"GET /<b> HTTP/1.1", "400 invalid-target"),
        ("RFC 3986 2", b"GET /a?b> HTTP/1.1", "400 invalid-target"),
        ("RFC 3986 2", b"GET /a?\"b\" HTTP/1.1", "400 invalid-target"),
        ("RFC 3986 2", b"GET /`a` HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET /\0 HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET /\x7f HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET /\x80 HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET /\xc3\xa9 HTTP/1.1", "400 invalid-target"),
        ("RFC 9112 3.2", b"GET a/b HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2", b"GET ?a HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.2", b"GET http://x/a?b HTTP/1.1", "GET Absolute x /a?b Http11 None KeepAlive"),
        ("RFC 9112 3.2.2", b"GET HTTPS://X:443/ HTTP/1.1", "GET Absolute X:443 / Http11 None KeepAlive"),
        ("RFC 9112 3.2.2", b"GET http://x HTTP/1.1", "GET Absolute x / Http11 None KeepAlive"),
        ("RFC 9112 3.2.2", b"GET http://x?a HTTP/1.1", "GET Absolute x ?a Http11 None KeepAlive"),
        ("RFC 9112 3.2.2", b"GET http://y/ HTTP/1.1", "400 host-mismatch"),
        ("RFC 9112 3.2.2", b"GET http://x:8080/ HTTP/1.1", "400 host-mismatch"),
        ("RFC 9112 3.2.2", b"GET https://x:80/ HTTP/1.1", "400 host-mismatch"),
        ("RFC 9110 4.2.4", b"GET http://user@x/ HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9110 4.2.1", b"GET http:/// HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9110 4.2.1", b"GET http://:80/ HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9112 3.2.2", b"GET http:\\\\x/ HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.2", b"GET http://x\\@y/ HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9112 3.2.2", b"GET ftp://x/ HTTP/1.1", "400 unsupported-scheme"),
        ("RFC 9112 3.2.3", b"CONNECT x:443 HTTP/1.1", "400 host-mismatch"),
        ("RFC 9112 3.2.3", b"CONNECT x HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9112 3.2.3", b"CONNECT u@x:443 HTTP/1.1", "400 invalid-target-authority"),
        ("RFC 9112 3.2.3", b"CONNECT / HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.3", b"CONNECT http://x/ HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.3", b"CONNECT * HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.3", b"GET x:443 HTTP/1.1", "400 target-form-not-allowed"),
        ("RFC 9112 3.2.4", b"OPTIONS * HTTP/1.1", "OPTIONS Asterisk x * Http11 None KeepAlive"),
        ("RFC 9112 3.2.4", b"OPTIONS http://x HTTP/1.1", "OPTIONS Absolute x * Http11 None KeepAlive"),
        ("RFC 9112 3.2.4", b"OPTIONS / HTTP/1.1", "OPTIONS Origin x / Http11 None KeepAlive"),
        ("RFC 9112 3.2.4", b"GET * HTTP/1.1", "400 target-form-not-allowed"),
    ]);
}

//= RFC 9112 section 3.2: 400 for HTTP/1.1 without Host
//= RFC 9112 section 3.2: 400 for more than one Host line
//= RFC 9112 section 3.2: 400 for an invalid Host
//= RFC 9112 section 3.2.2: absolute-form and Host
//= RFC 9112 section 3.3: reconstructing the target URI
#[test]
fn hosts() {
    check_heads(&[
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\n\r\n", "400 missing-host"),
        ("RFC 9112 3.2", b"GET http://x/ HTTP/1.1\r\n\r\n", "400 missing-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.0\r\n\r\n", "GET Origin  / Http10 None Close"),
        ("RFC 9112 3.2.2", b"GET http://x/ HTTP/1.0\r\n\r\n", "GET Absolute x / Http10 None Close"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "400 several-hosts"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x\r\nhOST: y\r\n\r\n", "400 several-hosts"),
        ("RFC 9112 3.2", b"GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", "400 several-hosts"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x, y\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x,y\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: http://x\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x:80a\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x:65536\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: x%2ey\r\n\r\n", "400 invalid-host"),
        ("RFC 9112 3.2", b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", "400 invalid-host"),
        (
            "RFC 9112 3.2",
            b"GET / HTTP/1.1\r\nHost: \t x:81 \t\r\n\r\n",
            "GET Origin x:81 / Http11 None KeepAlive",
        ),
        (
            "RFC 9112 3.2",
            b"GET / HTTP/1.1\r\nHost:[::1]:81\r\n\r\n",
            "GET Origin [::1]:81 / Http11 None KeepAlive",
        ),
        ("RFC 9112 3.3", b"GET / HTTP/1.1\r\nHost: \r\n\r\n", "400 empty-host"),
        ("RFC 9112 3.3", b"GET / HTTP/1.0\r\nHost:\r\n\r\n", "400 empty-host"),
        ("RFC 9112 3.3", b"GET http://x/ HTTP/1.1\r\nHost:\r\n\r\n", "400 empty-host"),
        ("RFC 9112 3.3", b"OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", "OPTIONS Asterisk  * Http11 None KeepAlive"),
        (
            "RFC 9112 3.2.2",
            b"GET http://x:80/ HTTP/1.1\r\nHost: X\r\n\r\n",
            "GET Absolute x:80 / Http11 None KeepAlive",
        ),
        (
            "RFC 9112 3.2.2",
            b"GET http://x/ HTTP/1.1\r\nHost: x:80\r\n\r\n",
            "GET Absolute x / Http11 None KeepAlive",
        ),
        ("RFC 9112 3.2.2", b"GET http://x/ HTTP/1.1\r\nHost: x:443\r\n\r\n", "400 host-mismatch"),
        ("RFC 9112 3.2.2", b"GET http://x/ HTTP/1.0\r\nHost: y\r\n\r\n", "400 host-mismatch"),
        (
            "RFC 9112 3.2.3",
            b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n",
            "CONNECT Authority x:443  Http11 None KeepAlive",
        ),
    ]);
}

//= RFC 9112 section 5: field-line = field-name ":" OWS field-value OWS
//= RFC 9112 section 5.1: no whitespace is allowed between the field name and colon
//= RFC 9112 section 5.2: obsolete line folding
//= RFC 9110 section 5.5: field values
//= RFC 9110 section 5.6.2: tokens
#[test]
fn field_lines() {
    check_field_lines(&[
        ("RFC 9112 5", b"no colon", "400 missing-colon"),
        ("RFC 9112 5.1", b"A : b", "400 whitespace-before-colon"),
        ("RFC 9112 5.1", b"A\t: b", "400 whitespace-before-colon"),
        ("RFC 9112 5.1", b"Content-Length : 5", "400 whitespace-before-colon"),
        ("RFC 9112 5.1", b": b", "400 invalid-field-name"),
        ("RFC 9112 5.1", b"A B: b", "400 invalid-field-name"),
        ("RFC 9112 5.1", b"A\0: b", "400 invalid-field-name"),
        ("RFC 9112 5.1", b"A\xe9: b", "400 invalid-field-name"),
        ("RFC 9112 5.1", b"(A): b", "400 invalid-field-name"),
        ("RFC 9112 5.2", b"A: b\r\n c", "400 obsolete-line-folding"),
        ("RFC 9112 5.2", b"A: b\r\n\tc: d", "400 obsolete-line-folding"),
        ("RFC 9112 5.2", b"A: b\r\n ", "400 obsolete-line-folding"),
        ("RFC 9110 5.5", b"A: b\0c", "400 invalid-field-value"),
        ("RFC 9110 5.5", b"A: b\x08c", "400 invalid-field-value"),
        ("RFC 9110 5.5", b"A: b\x0bc", "400 invalid-field-value"),
        ("RFC 9110 5.5", b"A: \x7f", "400 invalid-field-value"),
        ("RFC 9110 5.5", b"A: b\tc \x80\xff", NO_BODY),
        ("RFC 9110 5.5", b"A:", NO_BODY),
        ("RFC 9110 5.6.2", b"!#$%&'*+-.^_`|~09azAZ: x", NO_BODY),
    ]);
}

//= RFC 9110 section 8.6: Content-Length = 1*DIGIT
//= RFC 9112 section 6.3: invalid Content-Length
//= RFC 9112 section 6.3: Transfer-Encoding and Content-Length
#[test]
fn content_lengths() {
    check_field_lines(&[
        ("RFC 9112 6.2", b"Content-Length: 0", "POST Origin x / Http11 Length(0) KeepAlive"),
        ("RFC 9112 6.2", b"content-length: 0005", "POST Origin x / Http11 Length(5) KeepAlive"),
        (
            "RFC 9112 6.2",
            b"Content-Length: 18446744073709551615",
            "POST Origin x / Http11 Length(18446744073709551615) KeepAlive",
        ),
        ("RFC 9112 6.2", b"Content-Length: 18446744073709551616", "400 content-length-overflow"),
        ("RFC 9112 6.2", b"Content-Length: 99999999999999999999999", "400 content-length-overflow"),
        ("RFC 9110 8.6", b"Content-Length:", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: +5", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: -5", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: 0x5", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: 5 5", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: 5_0", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: 5.0", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: \"5\"", "400 invalid-content-length"),
        ("RFC 9110 8.6", b"Content-Length: \xd9\xa5", "400 invalid-content-length"),
        ("RFC 9112 6.3", b"Content-Length: 5\r\nContent-Length: 6", "400 several-content-lengths"),
        ("RFC 9112 6.3", b"Content-Length: 5\r\nContent-Length: 5", "400 several-content-lengths"),
        ("RFC 9112 6.3", b"Content-Length: 5, 5", "400 several-content-lengths"),
        ("RFC 9112 6.3", b"Content-Length: 5,", "400 several-content-lengths"),
        (
            "RFC 9112 6.3",
            b"Content-Length: 5\r\nTransfer-Encoding: chunked",
            "400 content-length-with-transfer-encoding",
        ),
        (
            "RFC 9112 6.3",
            b"Transfer-Encoding: chunked\r\nContent-Length: 0",
            "400 content-length-with-transfer-encoding",
        ),
        (
            "RFC 9112 6.3",
            b"Transfer-Encoding: identity\r\nContent-Length: 5",
            "400 content-length-with-transfer-encoding",
        ),
    ]);
}

//= RFC 9112 section 6.1: chunked is applied once, and last; 501 for codings that are not understood
//= RFC 9112 section 6.3: 400 where chunked is not the final coding
//= RFC 9112 section 7.1: the chunked coding does not define any parameters
#[test]
fn transfer_encodings() {
    check_field_lines(&[
        ("RFC 9112 6.1", b"Transfer-Encoding: chunked", CHUNKED),
        ("RFC 9112 6.1", b"transfer-encoding:\tCHUNKED ", CHUNKED),
        ("RFC 9112 6.1", b"Transfer-Encoding: gzip, chunked", "501 unknown-transfer-coding"),
        (
            "RFC 9112 6.1",
            b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            "501 unknown-transfer-coding",
        ),
        ("RFC 9112 6.1", b"Transfer-Encoding: identity, chunked", "501 unknown-transfer-coding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: chunked, chunked", "400 chunked-repeated"),
        ("RFC 9112 6.1", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "400 chunked-repeated"),
        ("RFC 9112 6.3", b"Transfer-Encoding: chunked, gzip", "400 chunked-not-final"),
        (
            "RFC 9112 6.3",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "400 chunked-not-final",
        ),
        ("RFC 9112 6.3", b"Transfer-Encoding: gzip", "400 chunked-not-final"),
        ("RFC 9112 6.3", b"Transfer-Encoding: identity", "400 chunked-not-final"),
        ("RFC 9112 6.3", b"Transfer-Encoding: xchunked", "400 chunked-not-final"),
        ("RFC 9112 6.3", b"Transfer-Encoding: chunkedx", "400 chunked-not-final"),
        ("RFC 9112 6.1", b"Transfer-Encoding:", "400 invalid-transfer-encoding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: ,chunked", "400 invalid-transfer-encoding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: chunked,", "400 invalid-transfer-encoding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: \"chunked\"", "400 invalid-transfer-encoding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: chunked chunked", "400 invalid-transfer-encoding"),
        ("RFC 9112 6.1", b"Transfer-Encoding: \x0bchunked", "400 invalid-field-value"),
        ("RFC 9112 7.1", b"Transfer-Encoding: chunked;a=b", "400 invalid-transfer-encoding"),
        ("RFC 9112 7.1", b"Transfer-Encoding: chunked;", "400 invalid-transfer-encoding"),
    ]);
}

/// CVE-2026-2835: an HTTP/1.0 request with Transfer-Encoding was framed one way and forwarded another way.
//= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
#[test]
fn http10_te() {
    check_heads(&[
        (
            "RFC 9112 6.1",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400 transfer-encoding-in-http10",
        ),
        (
            "RFC 9112 6.1",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: identity\r\nConnection: keep-alive\r\n\r\n",
            "400 transfer-encoding-in-http10",
        ),
        (
            "RFC 9112 6.1",
            b"POST / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400 transfer-encoding-in-http10",
        ),
    ]);
}

//= RFC 9112 section 9.3: persistence
#[test]
fn persistence() {
    check_heads(&[
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n",
            "GET Origin x / Http11 None Close",
        ),
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: foo,, close ,bar\r\n\r\n",
            "GET Origin x / Http11 None Close",
        ),
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
            "GET Origin x / Http11 None Close",
        ),
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: closed\r\n\r\n",
            "GET Origin x / Http11 None KeepAlive",
        ),
        ("RFC 9112 9.3", b"GET / HTTP/1.0\r\n\r\n", "GET Origin  / Http10 None Close"),
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
            "GET Origin  / Http10 None KeepAlive",
        ),
        (
            "RFC 9112 9.3",
            b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
            "GET Origin  / Http10 None Close",
        ),
    ]);
}

/// Version, field lines, expected upgrade, expects_continue, accepts_trailers.
type FlagRow<'a> = (&'a str, &'a str, Option<&'a str>, bool, bool);

//= RFC 9110 section 7.8: ignore Upgrade without the connection option, and in HTTP/1.0
//= RFC 9110 section 7.6.1: connection options are case-insensitive
//= RFC 9110 section 10.1.4: TE: trailers
//= RFC 9110 section 10.1.1: ignore the expectation in HTTP/1.0; 417 for others
#[test]
fn connection_flags() {
    let rows: &[FlagRow<'_>] = &[
        ("1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", Some("websocket"), false, false),
        ("1.1", "Upgrade: websocket\r\n", None, false, false),
        ("1.1", "Connection: upgrade\r\n", None, false, false),
        ("1.0", "Connection: Upgrade\r\nUpgrade: websocket\r\n", None, false, false),
        ("1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n", None, true, false),
        ("1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n", None, false, false),
        ("1.1", "Expect: 100-continue\r\n", None, false, false),
        ("1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n", None, false, false),
        ("1.0", "Expect: miracles\r\n", None, false, false),
        ("1.1", "TE: Trailers\r\n", None, false, true),
        ("1.1", "TE: gzip;q=0.5, trailers\r\n", None, false, true),
        ("1.1", "TE: gzip\r\n", None, false, false),
    ];
    for &(version, lines, upgrade, expects_continue, accepts_trailers) in rows {
        let bytes = format!("POST / HTTP/{version}\r\nHost: x\r\n{lines}\r\n");
        let mut storage = [EMPTY_LINE; 10];
        let head = parse_head(bytes.as_bytes(), &Limits::default(), &mut storage).unwrap().unwrap();
        assert_eq!(head.upgrade, upgrade.map(str::as_bytes), "{bytes}");
        assert_eq!(head.expects_continue, expects_continue, "{bytes}");
        assert_eq!(head.accepts_trailers, accepts_trailers, "{bytes}");
        assert_eq!(head.bytes, bytes.len());
    }
}

//= RFC 9110 section 10.1.1: ignore the expectation in HTTP/1.0; 417 for others
#[test]
fn expectations() {
    check_field_lines(&[
        ("RFC 9110 10.1.1", b"Expect: miracles", "417 unsupported-expectation"),
        ("RFC 9110 10.1.1", b"Expect: 100-continue, miracles", "417 unsupported-expectation"),
        ("RFC 9110 10.1.1", b"Expect: 100-continue=1", "417 unsupported-expectation"),
    ]);
}

/// The options in `Connection`, and whether they name fields to remove, or else the refusal.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn nominations() {
    for (options, expected) in [
        ("keep-alive", Ok(false)),
        ("close, Upgrade", Ok(false)),
        ("", Ok(false)),
        ("x-own", Ok(true)),
        ("TE", Ok(true)),
        ("HTTP2-Settings, upgrade", Ok(true)),
        ("X-Forwardes, Viaduct", Ok(true)),
        ("contents, iffy, second", Ok(true)),
        ("keep-alive, Cookie", Err("end-to-end-field-nominated")),
        ("AUTHORIZATION", Err("end-to-end-field-nominated")),
        ("host", Err("end-to-end-field-nominated")),
        ("cache-control", Err("end-to-end-field-nominated")),
        ("x-own,,range", Err("end-to-end-field-nominated")),
        ("If-None-Match", Err("end-to-end-field-nominated")),
        ("content-length", Err("end-to-end-field-nominated")),
        ("Accept-Encoding", Err("end-to-end-field-nominated")),
        ("Sec-Fetch-Mode", Err("end-to-end-field-nominated")),
        ("X-Forwarded-For", Err("end-to-end-field-nominated")),
        ("x-own, Via", Err("end-to-end-field-nominated")),
        ("CDN-Loop", Err("end-to-end-field-nominated")),
    ] {
        for lines in [format!("Connection: {options}"), format!("Connection: close\r\nconnection: {options}")]
        {
            let bytes = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n");
            let mut storage = [EMPTY_LINE; 10];
            let parsed = parse_head(bytes.as_bytes(), &Limits::default(), &mut storage);
            let found = parsed.map(|head| head.unwrap().nominates_fields).map_err(|error| error.reason());
            assert_eq!(found, expected, "{lines}");
        }
    }
}

/// Every limit applies before the end of the head arrives, but not one byte or line too early.
//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
//= RFC 6585 section 5: 431 for large fields
#[test]
fn limits() {
    let limits = Limits { head_bytes_max: 100, target_bytes_max: 20, fields_max: 3, ..Limits::default() };
    let target = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(bytes - 1));
    let padded = |bytes: usize| format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "a".repeat(bytes - 23));
    let rows = [
        ("RFC 9112 3", target(20), format!("GET Origin x /{} Http11 None KeepAlive", "a".repeat(19))),
        ("RFC 9112 3", target(21), "414 target-too-long".into()),
        ("RFC 9112 3", format!("GET /{}", "a".repeat(20)), "414 target-too-long".into()),
        ("RFC 9112 3", format!("GET /{}", "a".repeat(19)), "incomplete".into()),
        ("RFC 9110 5.4", padded(100), "GET Origin  / Http10 None Close".into()),
        ("RFC 9110 5.4", padded(101), "431 head-too-large".into()),
        ("RFC 9110 5.4", padded(101)[..101].into(), "431 head-too-large".into()),
        ("RFC 9110 5.4", padded(103)[..100].into(), "incomplete".into()),
        (
            "RFC 9110 5.4",
            "GET / HTTP/1.0\r\na:\r\na:\r\na:\r\n\r\n".into(),
            "GET Origin  / Http10 None Close".into(),
        ),
        ("RFC 9110 5.4", "GET / HTTP/1.0\r\na:\r\na:\r\na:\r\na:\r\n".into(), "431 too-many-fields".into()),
    ];
    for (rule, bytes, expected) in &rows {
        assert_eq!(&outcome(bytes.as_bytes(), &limits), expected, "{rule}: {bytes}");
    }
}

#[test]
fn the_ceiling_of_fields_holds_whatever_the_limit_says() {
    let limits = Limits { fields_max: usize::MAX, ..Limits::default() };
    let head = |lines: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a:\r\n".repeat(lines));
    assert_eq!(outcome(head(Limits::FIELDS_CEILING).as_bytes(), &limits), "GET Origin  / Http10 None Close");
    assert_eq!(outcome(head(Limits::FIELDS_CEILING + 1).as_bytes(), &limits), "431 too-many-fields");
}

#[test]
fn storage_that_is_too_short_is_too_many_fields() {
    let mut lines = [EMPTY_LINE; 1];
    let error =
        parse_head(b"GET / HTTP/1.0\r\na:\r\nb:\r\n\r\n", &Limits::default(), &mut lines).unwrap_err();
    assert_eq!(error.reason(), "too-many-fields");
}

#[test]
fn values_come_in_order_and_trimmed() {
    let bytes = b"GET / HTTP/1.0\r\nCookie:  a \r\nX: y\r\ncookie:\tb\r\n\r\n";
    let mut lines = [EMPTY_LINE; 4];
    let head = parse_head(bytes, &Limits::default(), &mut lines).unwrap().unwrap();
    assert_eq!(head.values("COOKIE").collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(head.fields[1], ("X", &b"y"[..]));
}
