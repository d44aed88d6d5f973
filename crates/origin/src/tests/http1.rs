//! HTTP/1.1 messages: sent, accepted and refused.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http1::ResponseFraming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::scripted::*;
use crate::settings::{Credentials, OriginAddress};
use crate::{Interim, OriginError, RequestBody};

/// How the server ends the connection after its response.
#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    Hold,
}

async fn answer(method: Method, response: &str, end: End) -> Result<Whole, OriginError> {
    let mut script = vec![REQUEST, write(response)];
    script.extend(match end {
        End::Close => None,
        End::Reset => Some(Step::Reset),
        End::Hold => Some(Step::Hold),
    });
    let server = Scripted::start(vec![script]).await;
    fetch(&origin(&config(server.address)), request(method, RequestBody::Empty)).await
}

//= RFC 9112 section 8: an incomplete response is recorded as incomplete
//= RFC 9112 section 8: what the close ends is complete if its header section is
//= RFC 9112 section 6.3: message body length of a response
//= RFC 9112 section 6.3: a response ended by the close of the connection
//= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
//= RFC 9110 section 15.4.5: a 304 ends with its header section
#[tokio::test]
async fn complete_bodies_are_told_from_truncated_ones() {
    let cases: &[(&str, End, Result<&str, &str>)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", End::Hold, Ok("hello")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", End::Hold, Ok("")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", End::Close, Err("http-response-incomplete")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", End::Reset, Err("http-response-incomplete")),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            End::Hold,
            Ok("hello"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            End::Close,
            Err("http-response-incomplete"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            End::Close,
            Err("http-response-incomplete"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            End::Reset,
            Err("http-response-incomplete"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
            End::Hold,
            Err("http-response-incomplete"),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", End::Close, Ok("hello")),
        ("HTTP/1.0 200 OK\r\n\r\nhello", End::Close, Ok("hello")),
        ("HTTP/1.1 200 OK\r\n\r\nhello", End::Reset, Err("http-response-incomplete")),
        ("HTTP/1.1 204 No Content\r\n\r\n", End::Hold, Ok("")),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", End::Hold, Ok("")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", End::Hold, Ok("hello")),
    ];
    for (response, end, expected) in cases {
        let got = answer(Method::GET, response, *end).await;
        let got = got.as_ref().map(|whole| whole.body.as_str()).map_err(OriginError::reason);
        assert_eq!(got, *expected, "{response:?}");
    }
}

//= RFC 9112 section 6.3: invalid Content-Length
//= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
//= RFC 9110 section 15.2.2: 101 only answers a request that asked for an upgrade
#[tokio::test]
async fn broken_heads_are_errors() {
    let cases: &[(&str, End, &str)] = &[
        ("", End::Close, "connection-terminated"),
        ("", End::Reset, "connection-terminated"),
        ("HTTP/1.1 200 OK\r\nContent-Le", End::Close, "connection-terminated"),
        // HTTP/0.9 has no head at all.
        ("<html>hello</html>", End::Close, "http-protocol-error"),
        ("HTTP/1.1 abc OK\r\n\r\n", End::Close, "http-protocol-error"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            End::Hold,
            "http-protocol-error",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello", End::Hold, "http-protocol-error"),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", End::Hold, "http-protocol-error"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", End::Hold, "http-protocol-error"),
    ];
    for (response, end, expected) in cases {
        let got = answer(Method::GET, response, *end).await;
        assert_eq!(got.unwrap_err().reason(), *expected, "{response:?}");
    }
}

#[tokio::test]
async fn heads_over_the_limits_are_errors() {
    let many = "x: y\r\n".repeat(201);
    let long = "y".repeat(200 * 1024);
    for lines in [many, format!("x: {long}\r\n")] {
        let got = answer(Method::GET, &format!("HTTP/1.1 200 OK\r\n{lines}\r\n"), End::Hold).await;
        assert_eq!(got.unwrap_err().reason(), "http-protocol-error");
    }
}

//= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
//= RFC 9112 section 5.1: a proxy removes whitespace before the colon of a response's field
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
//= RFC 9110 section 7.6.1: fields for all recipients are not named
//= RFC 9110 section 7.6.1: known connection-specific fields are removed
#[tokio::test]
async fn fields_are_cleaned() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("Folded: a\r\n  b\r\n", "folded", Some("a b")),
        ("Spaced : a\r\n", "spaced", Some("a")),
        ("Latin: caf\u{e9}\r\n", "latin", Some("caf\u{e9}")),
        ("Connection: x-hop, keep-alive\r\nX-Hop: 1\r\n", "x-hop", None),
        ("Connection: x-hop\r\n", "connection", None),
        ("Keep-Alive: timeout=5\r\n", "keep-alive", None),
        ("Upgrade: h2c\r\n", "upgrade", None),
        ("Connection: cache-control\r\nCache-Control: no-store\r\n", "cache-control", Some("no-store")),
    ];
    for (lines, name, expected) in cases {
        let response = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n");
        let got = answer(Method::GET, &response, End::Hold).await.unwrap();
        let value = got.fields.get(*name).map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap());
        assert_eq!(value.as_deref(), *expected, "{lines:?}");
    }
}

//= RFC 9112 section 4: the reason phrase means nothing
#[tokio::test]
async fn reason_phrases_are_kept() {
    for (line, expected) in [
        ("200 OK", &b"OK"[..]),
        ("200 Fine", b"Fine"),
        ("200 ", b""),
        ("413 Payload Too Large", b"Payload Too Large"),
        ("413 Content Too Large", b"Content Too Large"),
        ("299 ", b""),
        // The tokenizer discards a phrase with such bytes.
        ("200 Sch\u{f6}n", b""),
    ] {
        let head = format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n");
        let server = Scripted::start(vec![answers(&[&head])]).await;
        let response = send(&origin(&config(server.address)), get()).await.unwrap();
        assert_eq!(response.reason.as_deref(), Some(expected), "{line}");
    }
}

//= RFC 9112 section 6.3: a response whose final coding is not chunked ends with the connection
#[tokio::test]
async fn transfer_codings_other_than_chunked_are_marked() {
    let cases: &[(&str, bool, ResponseFraming)] = &[
        ("chunked", false, ResponseFraming::Chunked),
        ("Chunked", false, ResponseFraming::Chunked),
        ("gzip, chunked", true, ResponseFraming::Chunked),
        ("foo", true, ResponseFraming::UntilClose),
        ("identity", true, ResponseFraming::UntilClose),
    ];
    for (coding, unknown, framing) in cases {
        let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
        let server = Scripted::start(vec![vec![REQUEST, Step::Write(response.into_bytes())]]).await;
        let got = send(&origin(&config(server.address)), get()).await.unwrap();
        assert_eq!((got.unknown_transfer_coding, got.body.framing()), (*unknown, *framing), "{coding}");
        assert!(!map(&got.fields).contains_key("transfer-encoding"));
    }
}

//= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
#[tokio::test]
async fn a_length_beside_a_transfer_coding_is_removed() {
    for coding in ["chunked", "gzip, chunked"] {
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        );
        let got = answer(Method::GET, &response, End::Hold).await.unwrap();
        assert!(!got.fields.contains_key("content-length"), "{coding}: {:?}", got.fields);
        assert_eq!(got.body, "ok", "{coding}");
    }
}

//= RFC 9110 section 9.3.2: HEAD is GET without content
//= RFC 9112 section 6.3: message body length of a response
#[tokio::test]
async fn head_responses_have_no_body_and_keep_the_length() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let got = answer(Method::HEAD, response, End::Hold).await.unwrap();
    assert_eq!((got.body.as_str(), got.fields["content-length"].to_str().unwrap()), ("", "5"));
}

//= RFC 9110 section 10.1.4: TE needs the TE connection option
#[tokio::test]
//= RFC 9112 section 3.2: Host is the first field
async fn requests_are_sent_as_configured() {
    let ok = [OK];
    let server = Scripted::start(vec![answers(&ok)]).await;
    let mut config = config(server.address);
    config.base_path = "/base".to_owned();
    config.host_override = Some(HeaderValue::from_static("inner.example"));
    config.credentials = Some(Credentials(HeaderValue::from_static("Basic secret")));
    config.fixed_fields = vec![(HeaderName::from_static("x-fixed"), HeaderValue::from_static("1"))];
    let mut request = get();
    request.fields.push("x-fixed", b"from client");
    request.fields.push("authorization", b"Bearer client");
    request.fields.push("connection", b"close");
    request.accepts_trailers = true;
    fetch(&origin(&config), request).await.unwrap();
    let seen = server.seen(0);
    assert!(seen.starts_with("GET /base/path?query HTTP/1.1\r\nhost: inner.example\r\n"), "{seen}");
    for line in ["x-fixed: 1", "authorization: Basic secret", "te: trailers", "connection: TE"] {
        assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line} in {seen}");
    }
    assert!(!seen.contains("client") && !seen.contains("content-length"), "{seen}");
}

//= RFC 9110 section 8.6: Content-Length 0 where the method gives content a meaning
#[tokio::test]
async fn request_bodies_are_framed() {
    let channel = || {
        let (mut sender, body) = RequestBody::channel(4, None);
        tokio::spawn(async move {
            sender.send_data(Bytes::from_static(b"piece")).await.unwrap();
            sender.finish(None).await.unwrap();
        });
        body
    };
    let full = || RequestBody::Full(Bytes::from_static(b"whole"));
    let cases: Vec<(Method, RequestBody, &'static [u8], &str)> = vec![
        (Method::POST, full(), b"whole", "content-length: 5\r\n"),
        (Method::POST, channel(), b"piece", "content-length: 5\r\n"),
        (Method::GET, channel(), b"piece", "content-length: 5\r\n"),
        (Method::POST, RequestBody::Empty, b"\r\n\r\n", "content-length: 0\r\n"),
        (Method::DELETE, RequestBody::Empty, b"\r\n\r\n", "DELETE /path"),
    ];
    for (method, body, end, expected) in cases {
        let server = Scripted::start(vec![vec![Step::Until(end), write(OK)]]).await;
        fetch(&origin(&config(server.address)), request(method, body)).await.unwrap();
        assert!(server.seen(0).contains(expected), "{}", server.seen(0));
    }
}

// A truncated upload must not look complete to the origin.
#[tokio::test]
async fn an_incomplete_request_body_breaks_the_forward_off() {
    for (length, arrived) in [(None, 5), (Some(10), 5), (None, 100_000), (Some(200_000), 100_000)] {
        let server = Scripted::start(vec![vec![REQUEST, Step::Until(b"\0"), write(OK)]]).await;
        let (mut sender, body) = RequestBody::channel(4, length);
        sender.send_data(Bytes::from(vec![b'a'; arrived])).await.unwrap();
        drop(sender);
        let got = fetch(&origin(&config(server.address)), request(Method::POST, body)).await;
        assert_eq!(got.unwrap_err(), OriginError::RequestBody, "{length:?}");
        // A small body that is cut short does not reach the origin at all: the gateway waits for
        // the whole body first.
        assert_eq!(server.connections(), usize::from(arrived == 100_000), "{length:?}");
        assert!(server.connections() == 0 || !server.seen(0).contains("\r\n0\r\n"));
    }
}

#[tokio::test]
async fn targets_that_would_be_cut_are_refused() {
    let server = Scripted::start(vec![answers(&[OK])]).await;
    for path in ["/a#b", "/a b", "", "a"] {
        let mut request = get();
        request.path_and_query = path.to_owned();
        let got = fetch(&origin(&config(server.address)), request).await;
        assert_eq!(got.unwrap_err().reason(), "http-request-error", "{path}");
    }
    assert_eq!(server.connections(), 0);
}

//= RFC 9110 section 15.2: informational responses
//= RFC 8297 section 2: several 103
#[tokio::test]
async fn interim_responses_are_handed_over_in_order() {
    let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\nConnection: x\r\n\r\n\
                HTTP/1.1 102 Processing\r\n\r\n";
    let server = Scripted::start(vec![answers(&[&format!("{head}{OK}")])]).await;
    let mut seen: Vec<Interim> = Vec::new();
    let origin = origin(&config(server.address));
    let response = origin.send(get(), &TIMEOUTS, &mut |interim| seen.push(interim), None).await.unwrap();
    assert_eq!(whole(response).await.unwrap().body, "ok");
    let statuses: Vec<u16> = seen.iter().map(|interim| interim.status.as_u16()).collect();
    assert_eq!(statuses, [100, 103, 102]);
    assert_eq!(
        map(&seen[1].fields),
        HeaderMap::from_iter([(http::header::LINK, HeaderValue::from_static("<a>"))])
    );
}

#[tokio::test]
async fn trailers_come_after_the_body() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n";
    let got = answer(Method::GET, response, End::Hold).await.unwrap();
    assert_eq!((got.body.as_str(), &got.trailers.unwrap()["x-sum"]), ("ok", &HeaderValue::from_static("1")));
}

#[tokio::test]
async fn upgrades_give_the_raw_connection() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    let script = vec![REQUEST, write(switched), Step::Until(b"ping"), write("pong")];
    let server = Scripted::start(vec![script]).await;
    let origin = origin(&config(server.address));
    let mut request = get();
    request.upgrade = Some(HeaderValue::from_static("echo"));
    let response = send(&origin, request).await.unwrap();
    assert_eq!(
        (response.status.as_u16(), &map(&response.fields)["upgrade"]),
        (101, &HeaderValue::from_static("echo"))
    );
    let mut tunnel = response.upgraded.unwrap();
    tunnel.io().write_all(b"ping").await.unwrap();
    let mut read = String::from_utf8(std::mem::take(&mut tunnel.early)).unwrap();
    let in_use = || (origin.stats().requests_in_flight, origin.stats().tunnels_open);
    assert_eq!(in_use(), (0, 1), "tunnels have their own limit");
    tunnel.io().read_to_string(&mut read).await.unwrap();
    drop(tunnel);
    assert_eq!((read.as_str(), in_use()), ("firstpong", (0, 0)));
    assert!(
        server.seen(0).contains("connection: upgrade\r\n") && server.seen(0).contains("upgrade: echo\r\n")
    );
}

#[tokio::test]
async fn unix_sockets_are_origins_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("origin.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, b"\r\n\r\n").await;
        stream.write_all(OK.as_bytes()).await.unwrap();
    });
    let mut config = config("127.0.0.1:1".parse().unwrap());
    config.servers[0].endpoint.address = OriginAddress::Unix(path);
    assert_eq!(fetch(&origin(&config), get()).await.unwrap().body, "ok");
}
