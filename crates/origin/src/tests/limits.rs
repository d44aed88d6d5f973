//! Time limits, and the limit on requests in flight.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;

use super::scripted::*;
use crate::settings::OriginTimeouts;
use crate::{OriginError, RequestBody};

const SHORT: Duration = Duration::from_millis(40);

#[tokio::test]
async fn each_time_limit_ends_the_exchange() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    let silent = || vec![REQUEST, Step::Hold];
    let stalls = || vec![REQUEST, write(head), Step::Hold];
    let interim = || vec![REQUEST, write("HTTP/1.1 103 Early Hints\r\n\r\n"), Step::Hold];
    let interims =
        |count: usize| vec![REQUEST, write(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count)), Step::Hold];
    let first_byte = OriginTimeouts { first_byte: SHORT, ..TIMEOUTS };
    let between = OriginTimeouts { between_bytes: SHORT, ..TIMEOUTS };
    let total = OriginTimeouts { total: Some(SHORT), ..TIMEOUTS };
    let cases = [
        (silent(), first_byte, OriginError::FirstByteTimeout),
        (interim(), first_byte, OriginError::FirstByteTimeout),
        (interims(3), first_byte, OriginError::FirstByteTimeout),
        (interims(4), TIMEOUTS, OriginError::InterimResponses { max: 3 }),
        (silent(), total, OriginError::TotalTimeout),
        (stalls(), between, OriginError::BetweenBytesTimeout),
        (stalls(), total, OriginError::TotalTimeout),
    ];
    for (script, timeouts, expected) in cases {
        let server = Scripted::start(vec![script]).await;
        let origin = origin(&config(server.address));
        let got = match origin.send(get(), &timeouts, &mut |_| {}, None).await {
            Ok(response) => whole(response).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(got, expected);
        let stats = origin.stats();
        assert_eq!((stats.errors[expected.reason()], stats.requests_in_flight, stats.retries), (1, 0, 0));
    }
}

#[tokio::test]
async fn connections_that_are_not_accepted_time_out() {
    // A listener with a full queue: further connections wait.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(tokio::time::timeout(SHORT, tokio::net::TcpStream::connect(address)).await);
    }
    let timeouts = OriginTimeouts { connect: SHORT, ..TIMEOUTS };
    let got = origin(&config(address)).send(get(), &timeouts, &mut |_| {}, None).await;
    assert_eq!(got.unwrap_err(), OriginError::ConnectTimeout);
}

// The limit on the first byte applies to the origin: a slow upload from a client doesn't use it up.
#[tokio::test]
async fn the_first_byte_limit_waits_for_slow_uploads() {
    let server = Scripted::start(vec![vec![Step::Until(b"0\r\n\r\n"), write(OK)]]).await;
    let (mut sender, body) = RequestBody::channel(1, None);
    let upload = tokio::spawn(async move {
        for _ in 0..4 {
            tokio::time::sleep(SHORT).await;
            sender.send_data(Bytes::from_static(b"piece")).await.unwrap();
        }
        sender.finish(None).await.unwrap();
    });
    let timeouts = OriginTimeouts { first_byte: SHORT, ..TIMEOUTS };
    let began = Instant::now();
    let got =
        origin(&config(server.address)).send(request(Method::POST, body), &timeouts, &mut |_| {}, None).await;
    assert_eq!(whole(got.unwrap()).await.unwrap().body, "ok");
    assert!(began.elapsed() >= SHORT * 4);
    upload.await.unwrap();
}

#[tokio::test]
async fn an_origin_that_does_not_read_the_upload_times_out() {
    let server = Scripted::start(vec![vec![REQUEST, Step::Stall]]).await;
    let (mut sender, body) = RequestBody::channel(1, None);
    tokio::spawn(async move { while sender.send_data(Bytes::from(vec![0_u8; 1 << 20])).await.is_ok() {} });
    let timeouts = OriginTimeouts { first_byte: SHORT, ..TIMEOUTS };
    let got =
        origin(&config(server.address)).send(request(Method::POST, body), &timeouts, &mut |_| {}, None).await;
    assert_eq!(got.unwrap_err(), OriginError::FirstByteTimeout);
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused() {
    let server = Scripted::start(vec![vec![REQUEST, Step::Hold], answers(&[OK])]).await;
    let mut config = config(server.address);
    config.admission.requests_in_flight_max = 1;
    config.admission.queue_max = 1;
    config.admission.queue_timeout = SHORT;
    let origin = origin(&config);
    let slow = OriginTimeouts { first_byte: SHORT * 3, ..TIMEOUTS };
    let mut ignore_first = |_| {};
    let first = origin.send(get(), &slow, &mut ignore_first, None);
    let others = async {
        while origin.stats().requests_in_flight == 0 {
            tokio::task::yield_now().await;
        }
        let (queued, full) = tokio::join!(fetch(&origin, get()), fetch(&origin, get()));
        assert_eq!(queued.unwrap_err(), OriginError::QueueTimeout);
        assert_eq!(full.unwrap_err(), OriginError::QueueFull);
    };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!(first.unwrap_err(), OriginError::FirstByteTimeout);
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    assert_eq!((origin.stats().requests_queued, origin.stats().requests_in_flight), (0, 0));
}

#[tokio::test]
async fn a_place_is_held_until_the_body_has_ended() {
    let server = Scripted::start(vec![answers(&[OK, OK])]).await;
    let mut config = config(server.address);
    config.admission.requests_in_flight_max = 1;
    let origin = origin(&config);
    let first = send(&origin, get()).await.unwrap();
    let second = fetch(&origin, get());
    let (first, second) = tokio::join!(whole(first), second);
    assert_eq!((first.unwrap().body, second.unwrap().body), ("ok".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn refused_connections_are_told_apart() {
    let gone = Scripted::start(vec![]).await.address;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_ne!(gone, closed);
    let error = fetch(&origin(&config(closed)), get()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_unreachable()), ("connection-refused", true));
}

#[tokio::test]
async fn connections_come_from_the_local_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(listener.local_addr().unwrap());
    config.servers[0].endpoint.local_address = Some("127.0.0.9".parse().unwrap());
    let origin = origin(&config);
    let (_, peer) = tokio::select! {
        accepted = listener.accept() => accepted.unwrap(),
        _ = fetch(&origin, get()) => panic!("no answer was sent"),
    };
    assert_eq!(peer.ip().to_string(), "127.0.0.9");
}
