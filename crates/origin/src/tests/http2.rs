//! HTTP/2 exchanges with an in-process server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use tokio::net::TcpListener;

use super::scripted::*;
use crate::settings::{OriginConfig, OriginProtocol, OriginTimeouts};
use crate::{Interim, OriginError, RequestBody};

/// Behaviour of the server on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Answer,
    Hints,
    Trailers,
    Echo,
    Refuse,
    ResetInBody,
    /// Ends the stream before `Content-Length` is reached.
    ShortBody,
    Nothing,
}

/// A server with a list of behaviours, one for each stream; it answers all further streams, and limits
/// concurrent streams.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

impl Server {
    async fn start(acts: &'static [Act], streams_max: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let streams = Arc::new(AtomicUsize::new(0));
        let (connected, opened) = (Arc::clone(&connections), Arc::clone(&streams));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                connected.fetch_add(1, Ordering::Relaxed);
                let opened = Arc::clone(&opened);
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    builder.max_concurrent_streams(streams_max);
                    let mut connection = builder.handshake::<_, Bytes>(socket).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let index = opened.fetch_add(1, Ordering::Relaxed);
                        let act = acts.get(index).copied().unwrap_or(Act::Answer);
                        tokio::spawn(perform(act, request, respond));
                    }
                });
            }
        });
        Self { address, connections, streams }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn config(&self) -> OriginConfig {
        let mut config = config(self.address);
        config.servers[0].endpoint.protocol = OriginProtocol::Http2;
        config
    }
}

async fn perform(act: Act, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let length = |bytes: u64| Response::builder().header("content-length", bytes).body(()).unwrap();
    let ok = Bytes::from_static(b"ok");
    match act {
        Act::Answer => respond.send_response(length(2), false).unwrap().send_data(ok, true).unwrap(),
        Act::Hints => {
            let hints = Response::builder().status(103).header("link", "<a>").body(()).unwrap();
            respond.send_informational(hints).unwrap();
            respond.send_response(length(2), false).unwrap().send_data(ok, true).unwrap();
        }
        Act::Trailers => {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(ok, false).unwrap();
            stream
                .send_trailers(HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("1"))]))
                .unwrap();
        }
        Act::Echo => {
            let head = format!("{} {:?} ", request.uri(), request.headers().get("content-length"));
            let mut body = request.into_body();
            let mut echo = head.into_bytes();
            while let Some(Ok(data)) = body.data().await {
                body.flow_control().release_capacity(data.len()).unwrap();
                echo.extend_from_slice(&data);
            }
            respond.send_response(Response::new(()), false).unwrap().send_data(echo.into(), true).unwrap();
        }
        Act::Refuse => respond.send_reset(Reason::REFUSED_STREAM),
        Act::ResetInBody => {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(ok, false).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            stream.send_reset(Reason::NO_ERROR);
        }
        Act::ShortBody => respond.send_response(length(3), false).unwrap().send_data(ok, true).unwrap(),
        Act::Nothing => std::future::pending().await,
    }
}

#[tokio::test]
async fn exchanges_share_one_connection() {
    let server = Server::start(&[], 100).await;
    let origin = origin(&server.config());
    let (a, b) = tokio::join!(fetch(&origin, get()), fetch(&origin, get()));
    let c = fetch(&origin, get()).await.unwrap();
    assert_eq!(
        (a.unwrap().body, b.unwrap().body, c.body),
        ("ok".to_owned(), "ok".to_owned(), "ok".to_owned())
    );
    assert_eq!((server.connections(), origin.stats().connections_opened), (1, 1));
}

//= RFC 9113 section 5.1.2: the peer's limit on concurrent streams
#[tokio::test]
async fn more_streams_than_the_peer_allows_take_more_connections() {
    let server = Server::start(&[Act::Answer, Act::Nothing], 1).await;
    let origin = origin(&server.config());
    fetch(&origin, get()).await.unwrap();
    let slow = OriginTimeouts { first_byte: Duration::from_millis(100), ..TIMEOUTS };
    let mut ignore = |_| {};
    let held = origin.send(get(), &slow, &mut ignore, None);
    let other = async {
        while server.streams.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        fetch(&origin, get()).await.unwrap()
    };
    let (held, other) = tokio::join!(held, other);
    assert_eq!((held.unwrap_err(), other.body.as_str()), (OriginError::FirstByteTimeout, "ok"));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn interim_responses_and_trailers_arrive() {
    let server = Server::start(&[Act::Hints, Act::Trailers], 100).await;
    let origin = origin(&server.config());
    let mut seen: Vec<Interim> = Vec::new();
    let response = origin.send(get(), &TIMEOUTS, &mut |interim| seen.push(interim), None).await.unwrap();
    assert_eq!(whole(response).await.unwrap().body, "ok");
    assert_eq!(
        (seen.len(), seen[0].status.as_u16(), map(&seen[0].fields)["link"].to_str().unwrap()),
        (1, 103, "<a>")
    );
    let with_trailers = fetch(&origin, get()).await.unwrap();
    assert_eq!((with_trailers.body.as_str(), with_trailers.trailers.unwrap().len()), ("ok", 1));
}

//= RFC 9113 section 8.3.1: request pseudo-header fields
#[tokio::test]
async fn request_bodies_arrive_whole() {
    let server = Server::start(&[Act::Echo; 4], 100).await;
    let origin = origin(&server.config());
    let full = RequestBody::Full(Bytes::from_static(b"whole"));
    let got = fetch(&origin, request(Method::POST, full)).await.unwrap();
    assert_eq!(got.body, "http://example.org/path?query Some(\"5\") whole");
    let (mut sender, body) = RequestBody::channel(1, None);
    tokio::spawn(async move {
        for _ in 0..40 {
            sender.send_data(Bytes::from(vec![b'x'; 10_000])).await.unwrap();
        }
        sender.finish(None).await.unwrap();
    });
    let got = fetch(&origin, request(Method::POST, body)).await.unwrap();
    assert_eq!(got.body.len(), "http://example.org/path?query None ".len() + 400_000);
    let (sender, body) = RequestBody::channel(1, None);
    drop(sender);
    let got = fetch(&origin, request(Method::POST, body)).await;
    assert_eq!(got.unwrap_err(), OriginError::RequestBody);
}

#[tokio::test]
async fn bodies_cut_short_are_errors() {
    for act in [&[Act::ResetInBody], &[Act::ShortBody]] {
        let server = Server::start(act, 100).await;
        let origin = origin(&server.config());
        assert_eq!(fetch(&origin, get()).await.unwrap_err(), OriginError::BodyTruncated);
        assert_eq!(
            (fetch(&origin, get()).await.unwrap().body.as_str(), origin.stats().requests_in_flight),
            ("ok", 0)
        );
    }
}

//= RFC 9113 section 8.7: REFUSED_STREAM and streams above GOAWAY's last identifier were not processed
#[tokio::test]
async fn refused_streams_are_sent_again_whatever_the_method() {
    for refusals in [&[Act::Refuse][..], &[Act::Refuse; 6]] {
        let server = Server::start(refusals, 100).await;
        let origin = origin(&server.config());
        let full = RequestBody::Full(Bytes::from_static(b"whole"));
        assert_eq!(fetch(&origin, request(Method::POST, full)).await.unwrap().body, "ok");
        assert_eq!((origin.stats().retries, server.connections()), (refusals.len() as u64, 1));
    }
}

#[tokio::test]
async fn a_request_that_is_always_refused_ends_after_the_time_for_a_connection() {
    let server = Server::start(&[Act::Refuse; 1_000], 100).await;
    let origin = origin(&server.config());
    let impatient = OriginTimeouts { connect: Duration::from_secs(1), ..TIMEOUTS };
    let got = origin.send(get(), &impatient, &mut |_| {}, None).await;
    assert_eq!(got.unwrap_err(), OriginError::StreamRefused);
    assert!((2..15).contains(&server.streams.load(Ordering::Relaxed)));
}

/// Regression: a new connection got too many streams, because its peer had not announced its limit
/// yet.
//= RFC 9113 section 5.1.2: the peer's limit on concurrent streams
#[tokio::test]
async fn no_stream_is_opened_before_the_peer_has_said_how_many() {
    let server = Server::start(&[], 2).await;
    let origin = origin(&server.config());
    let post = || request(Method::POST, RequestBody::Full(Bytes::from_static(b"whole")));
    let crowd = futures_util::future::join_all((0..20).map(|_| fetch(&origin, post()))).await;
    assert!(crowd.into_iter().all(|got| got.unwrap().body == "ok"));
    assert_eq!((origin.stats().retries, server.streams.load(Ordering::Relaxed)), (0, 20));
}

/// Starts a server whose first connection ends as scripted; the next connection is answered.
async fn server_that_goes(going: Vec<Step>) -> OriginConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (first, second) = (Scripted::start(vec![going]).await, Server::start(&[], 100).await);
    tokio::spawn(async move {
        for backend in [first.address, second.address] {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut backend = tokio::net::TcpStream::connect(backend).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut backend).await });
        }
        std::future::pending::<()>().await;
    });
    let mut config = config(address);
    config.servers[0].endpoint.protocol = OriginProtocol::Http2;
    config
}

#[tokio::test]
async fn streams_above_the_last_of_goaway_are_sent_again() {
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    /// HEADERS of the first stream, with END_STREAM and END_HEADERS.
    const REQUEST: &[u8] = b"\x01\x05\0\0\0\x01";
    let preface = || Step::Until(b"SM\r\n\r\n");
    let at_once = vec![preface(), Step::Write([SETTINGS, GOAWAY].concat()), Step::Hold];
    let in_between = vec![
        preface(),
        Step::Write(SETTINGS.to_vec()),
        Step::Until(REQUEST),
        Step::Write(GOAWAY.to_vec()),
        Step::Hold,
    ];
    // A connection that ends before it is ready is not counted as opened.
    for (going, opened) in [(at_once, 1), (in_between, 2)] {
        let origin = origin(&server_that_goes(going).await);
        let got = fetch(&origin, request(Method::POST, RequestBody::Empty)).await;
        assert_eq!(got.unwrap().body, "ok");
        assert_eq!((origin.stats().retries, origin.stats().connections_opened), (1, opened));
    }
}

#[tokio::test]
async fn a_connection_that_stopped_answering_gets_no_more_streams() {
    let server = Server::start(&[Act::Nothing], 100).await;
    let origin = origin(&server.config());
    let slow = OriginTimeouts { first_byte: Duration::from_millis(40), ..TIMEOUTS };
    let got = origin.send(get(), &slow, &mut |_| {}, None).await;
    assert_eq!(got.unwrap_err(), OriginError::FirstByteTimeout);
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    assert_eq!(server.connections(), 2);
}
