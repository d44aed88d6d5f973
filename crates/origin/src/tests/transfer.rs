//! Bodies in both directions at the same time, in pieces of any size, over one HTTP/1.1 connection.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::scripted::*;
use crate::{BodyFrame, OriginError, RequestBody};

/// Returns bytes that depend on their position.
fn pattern(bytes: usize) -> String {
    (0..bytes).map(|at| char::from(b'a' + (at % 23) as u8)).collect()
}

fn chunked(body: &str, chunk_bytes: usize) -> String {
    let mut wire = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.as_bytes().chunks(chunk_bytes) {
        wire.push_str(&format!("{:x}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap()));
    }
    wire + "0\r\n\r\n"
}

#[tokio::test]
async fn bodies_of_any_size_arrive_whole() {
    for bytes in [1, 2047, 2049, 16_000, 16_384, 70_000, 1_000_000] {
        let body = pattern(bytes);
        let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n{body}");
        let responses = [length, chunked(&body, 1000), chunked(&body, 30_011)];
        let mut script: Vec<Step> =
            responses.iter().flat_map(|response| [REQUEST, write(response)]).collect();
        script.extend([REQUEST, write(&format!("HTTP/1.1 200 OK\r\n\r\n{body}"))]);
        let server = Scripted::start(vec![script]).await;
        let origin = origin(&config(server.address));
        for kind in ["length", "small chunks", "large chunks", "until close"] {
            assert!(fetch(&origin, get()).await.unwrap().body == body, "{bytes}, {kind}");
        }
        assert_eq!(server.connections(), 1, "{bytes}");
    }
}

#[tokio::test]
async fn heads_arrive_in_pieces() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&config(listener.local_addr().unwrap()));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        read_until(&mut stream, b"\r\n\r\n").await;
        for byte in
            "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nC: d\r\nContent-Length: 2\r\n\r\nok".bytes()
        {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut hints = Vec::new();
    let response = origin.send(get(), &TIMEOUTS, &mut |interim| hints.push(map(&interim.fields)), None).await;
    let whole = whole(response.unwrap()).await.unwrap();
    assert_eq!((whole.body.as_str(), &whole.fields["c"]), ("ok", &HeaderValue::from_static("d")));
    assert_eq!(
        hints,
        [HeaderMap::from_iter([(HeaderName::from_static("a"), HeaderValue::from_static("b"))])]
    );
}

/// The origin answers before it has read the request; the rest is still sent.
#[tokio::test]
async fn an_answer_may_come_before_the_end_of_the_request() {
    let first = vec![REQUEST, write(OK), Step::Until(b"0\r\n\r\n"), REQUEST, write(OK), Step::Hold];
    let server = Scripted::start(vec![first, answers(&[OK])]).await;
    let origin = origin(&config(server.address));
    let (mut sender, body) = RequestBody::channel(1, None);
    let response = fetch(&origin, request(Method::POST, body)).await.unwrap();
    assert_eq!(response.body, "ok");
    // The first connection is still busy, so this request needs a new one.
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    assert_eq!(server.connections(), 2);
    sender.send_data(Bytes::from_static(b"piece")).await.unwrap();
    sender.finish(None).await.unwrap();
    while !server.seen(0).ends_with("5\r\npiece\r\n0\r\n\r\n") {
        tokio::task::yield_now().await;
    }
}

/// The origin may have read the rest, or may parse it as the next request.
#[tokio::test]
async fn a_connection_whose_request_ends_after_its_response_is_not_used_again() {
    let first = vec![REQUEST, write(OK), Step::Until(b"0\r\n\r\n"), Step::Hold];
    let server = Scripted::start(vec![first, answers(&[OK])]).await;
    let origin = origin(&config(server.address));
    let (sender, body) = RequestBody::channel(1, None);
    assert_eq!(fetch(&origin, request(Method::POST, body)).await.unwrap().body, "ok");
    sender.finish(None).await.unwrap();
    while !server.seen(0).ends_with("0\r\n\r\n") {
        tokio::task::yield_now().await;
    }
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    assert_eq!(server.connections(), 2);
}

/// A request that is cut short after the answer must not look complete to the origin either.
#[tokio::test]
async fn a_request_that_breaks_off_after_its_answer_is_cut_off() {
    let server = Scripted::start(vec![vec![REQUEST, write(OK), Step::Until(b"never"), Step::Hold]]).await;
    let origin = origin(&config(server.address));
    let (mut sender, body) = RequestBody::channel(1, None);
    let response = send(&origin, request(Method::POST, body)).await.unwrap();
    sender.send_data(Bytes::from_static(b"piece")).await.unwrap();
    drop(sender);
    assert_eq!(whole(response).await.unwrap().body, "ok");
    while !server.seen(0).ends_with("5\r\npiece\r\n") {
        tokio::task::yield_now().await;
    }
    assert!(!server.seen(0).contains("0\r\n\r\n"));
}

/// An origin that refuses a large upload answers, and closes without reading the rest.
#[tokio::test]
async fn a_refusal_in_the_middle_of_the_request_is_heard() {
    let refusal = "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    let server = Scripted::start(vec![vec![REQUEST, write(refusal), Step::Hold]]).await;
    let origin = origin(&config(server.address));
    let (mut sender, body) = RequestBody::channel(1, Some(64 << 20));
    let upload =
        tokio::spawn(async move { while sender.send_data(Bytes::from(vec![0; 1 << 20])).await.is_ok() {} });
    let got = fetch(&origin, request(Method::POST, body)).await.unwrap();
    assert_eq!((got.status, got.body.as_str()), (413, "no"));
    upload.abort();
}

//= RFC 9110 section 6.6.2: Trailer names what may come
//= RFC 9110 section 6.5.1: limitations on use of trailers
#[tokio::test]
async fn announced_trailers_go_along() {
    let server = Scripted::start(vec![vec![Step::Until(b"0\r\nx-sum: 1\r\n\r\n"), write(OK)]]).await;
    let (mut sender, body) = RequestBody::channel(2, None);
    let mut request = request(Method::POST, body);
    request.fields.push("trailer", b"X-Sum, Content-Length");
    let lines = [("x-sum", "1"), ("x-other", "2"), ("content-length", "9")];
    let typed = lines.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    sender.send_data(Bytes::from_static(b"piece")).await.unwrap();
    sender.finish(Some(HeaderMap::from_iter(typed))).await.unwrap();
    assert_eq!(fetch(&origin(&config(server.address)), request).await.unwrap().body, "ok");
    assert!(server.seen(0).ends_with("\r\n\r\n5\r\npiece\r\n0\r\nx-sum: 1\r\n\r\n"), "{}", server.seen(0));
}

/// After a 101 in the middle of a request, the start of the new protocol is unknown.
#[tokio::test]
async fn an_upgrade_before_the_end_of_the_request_is_refused() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    let server = Scripted::start(vec![vec![REQUEST, write(switched), Step::Hold]]).await;
    let (_sender, body) = RequestBody::channel(1, None);
    let mut request = request(Method::POST, body);
    request.upgrade = Some(HeaderValue::from_static("echo"));
    let got = fetch(&origin(&config(server.address)), request).await;
    assert_eq!(got.unwrap_err().reason(), "http-protocol-error");
}

/// Bytes that arrive on an idle connection must not be parsed as the answer to the next request.
//= RFC 9112 section 6.3: bytes after the response are not its
#[tokio::test]
async fn an_answer_that_nobody_asked_for_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&config(listener.local_addr().unwrap()));
    let (answered, is_answered) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, b"\r\n\r\n").await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        is_answered.await.unwrap();
        stream.write_all(OK.replace("ok", "no").as_bytes()).await.unwrap();
        let (mut next, _) = listener.accept().await.unwrap();
        read_until(&mut next, b"\r\n\r\n").await;
        next.write_all(OK.as_bytes()).await.unwrap();
    });
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    answered.send(()).unwrap();
    while origin.stats().connections_open > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
}

#[tokio::test]
async fn a_body_is_given_piece_by_piece_as_it_comes() {
    let begun = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst";
    let server = Scripted::start(vec![vec![REQUEST, write(begun)]]).await;
    let mut response = send(&origin(&config(server.address)), get()).await.unwrap();
    let Some(Ok(BodyFrame::Data(data))) = response.body.frame().await else { panic!("the first piece") };
    assert_eq!(data, "first");
    for _ in 0..2 {
        let next = response.body.frame().await;
        assert_eq!(next.unwrap().unwrap_err(), OriginError::BodyTruncated);
    }
}
