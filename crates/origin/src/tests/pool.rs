//! Reuse of connections, and retries.

use std::io::{self, BufRead as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use super::scripted::*;
use crate::settings::{AddressFamily, Credentials, OriginAddress, OriginConfig, OriginProtocol};
use crate::{BodyFrame, OriginError, RequestBody, Upstream, Upstreams};

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("not reached: {what}");
}

/// Sends two requests one after the other, and returns the number of connections used.
async fn connections_of_two(script: Vec<Step>, change: impl FnOnce(&mut OriginConfig)) -> usize {
    let server = Scripted::start(vec![script, answers(&[OK])]).await;
    let mut config = config(server.address);
    change(&mut config);
    let origin = origin(&config);
    fetch(&origin, get()).await.unwrap();
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    server.connections()
}

//= RFC 9112 section 6.3: bytes after the response are not its
#[tokio::test]
async fn connections_are_used_again_only_when_clean() {
    let chunked_and_length =
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let cases: &[(&str, usize)] = &[
        (OK, 1),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        ("HTTP/1.1 204 No Content\r\n\r\n", 1),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 1),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 2),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 2),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA", 2),
        (chunked_and_length, 2),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 2),
    ];
    for (response, expected) in cases {
        assert_eq!(connections_of_two(answers(&[response, OK]), |_| {}).await, *expected, "{response:?}");
    }
}

#[tokio::test]
async fn without_idle_connections_each_request_opens_one() {
    let keep_alive_off = |config: &mut OriginConfig| config.servers[0].endpoint.pool.idle_connections_max = 0;
    assert_eq!(connections_of_two(answers(&[OK, OK]), keep_alive_off).await, 2);
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_costs_the_connection() {
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    let server = Scripted::start(vec![answers(&[long]), answers(&[OK])]).await;
    let origin = origin(&config(server.address));
    let mut first = send(&origin, get()).await.unwrap();
    assert!(matches!(first.body.frame().await, Some(Ok(BodyFrame::Data(_)))));
    drop(first);
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    assert_eq!((server.connections(), origin.stats().requests_in_flight), (2, 0));
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let server = Scripted::start(vec![answers(&[OK]), answers(&[OK])]).await;
    let mut config = config(server.address);
    config.servers[0].endpoint.pool.idle_timeout = Duration::from_millis(30);
    let origin = origin(&config);
    fetch(&origin, get()).await.unwrap();
    assert_eq!(origin.stats().connections_idle, 1);
    until("closed", || origin.stats().connections_idle == 0 && origin.stats().connections_open == 0).await;
    fetch(&origin, get()).await.unwrap();
    assert_eq!(server.connections(), 2);
    until("closed again", || origin.stats().connections_open == 0).await;
}

/// Script of a connection that closes when the second request arrives.
fn dies_on_second() -> Vec<Step> {
    vec![REQUEST, write(OK), REQUEST]
}

#[tokio::test]
async fn a_dead_kept_connection_is_retried_once_where_allowed() {
    let full = || RequestBody::Full(Bytes::from_static(b"x\r\n\r\n"));
    let channel = || {
        let (mut sender, body) = RequestBody::channel(1, None);
        tokio::spawn(async move {
            sender.send_data(Bytes::from_static(b"x")).await?;
            let trailers = [(HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))];
            sender.finish(Some(trailers.into_iter().collect())).await
        });
        body
    };
    let empty = || {
        let (sender, body) = RequestBody::channel(1, None);
        tokio::spawn(sender.finish(None));
        body
    };
    let closed = Err("connection-terminated");
    type Case = (Method, RequestBody, Vec<Step>, Result<u16, &'static str>);
    let cases: Vec<Case> = vec![
        (Method::GET, RequestBody::Empty, answers(&[OK]), Ok(200)),
        (Method::PUT, full(), answers(&[OK]), Ok(200)),
        (Method::DELETE, RequestBody::Empty, answers(&[OK]), Ok(200)),
        (Method::POST, RequestBody::Empty, answers(&[OK]), closed),
        (Method::PATCH, full(), answers(&[OK]), closed),
        (Method::PUT, empty(), answers(&[OK]), Ok(200)),
        (Method::PUT, channel(), answers(&[OK]), closed),
        // The new connection closes too: there is no third attempt.
        (Method::GET, RequestBody::Empty, vec![REQUEST], closed),
    ];
    for (method, body, second, expected) in cases {
        let server = Scripted::start(vec![dies_on_second(), second, answers(&[OK])]).await;
        let origin = origin(&config(server.address));
        fetch(&origin, get()).await.unwrap();
        let got = fetch(&origin, request(method.clone(), body)).await;
        let got = got.as_ref().map(|whole| whole.status).map_err(OriginError::reason);
        assert_eq!(got, expected, "{method}");
        assert!(server.connections() <= 2);
    }
}

/// Each attempt has the fields that the policy sets exactly once.
#[tokio::test]
async fn a_second_attempt_says_what_the_first_did() {
    let server = Scripted::start(vec![dies_on_second(), answers(&[OK])]).await;
    let mut config = config(server.address);
    config.base_path = "/base".to_owned();
    config.host_override = Some(HeaderValue::from_static("inner.example"));
    config.credentials = Some(Credentials(HeaderValue::from_static("Basic c2VjcmV0")));
    config.fixed_fields = vec![(HeaderName::from_static("x-fixed"), HeaderValue::from_static("1"))];
    let origin = origin(&config);
    let asked = || {
        let mut request = get();
        request.fields.push("authorization", b"Bearer client");
        request.fields.push("x-other", b"2");
        request
    };
    fetch(&origin, asked()).await.unwrap();
    fetch(&origin, asked()).await.unwrap();
    assert_eq!((server.connections(), origin.stats().retries), (2, 1));
    let head = "GET /base/path?query HTTP/1.1\r\nhost: inner.example\r\nx-other: 2\r\nx-fixed: 1\r\n\
                authorization: Basic c2VjcmV0\r\n\r\n";
    assert_eq!((server.seen(0), server.seen(1)), (head.repeat(2), head.to_owned()));
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_not_retried() {
    let server = Scripted::start(vec![vec![REQUEST], answers(&[OK])]).await;
    let origin = origin(&config(server.address));
    assert_eq!(fetch(&origin, get()).await.unwrap_err(), OriginError::ClosedBeforeResponse);
    assert_eq!((server.connections(), origin.stats().retries), (1, 0));
    assert_eq!(origin.stats().errors.get("connection-terminated"), Some(&1));
}

#[tokio::test]
async fn equal_configurations_share_connections_and_unused_ones_go() {
    let server = Scripted::start(vec![answers(&[OK, OK])]).await;
    let upstreams = Upstreams::new(Handle::current());
    let first = upstreams.upstream(&config(server.address));
    fetch(&first, get()).await.unwrap();
    let again = upstreams.upstream(&config(server.address));
    fetch(&again, get()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    drop((first, again));
    until("closed", || upstreams.stats()[0].1.connections_open == 0).await;
    let stats = &upstreams.stats()[0];
    assert_eq!((stats.0.as_str(), stats.1.connections_opened, stats.1.connections_reused), ("origin", 1, 1));
    assert_eq!(stats.1.connections_idle, 0);
}

/// Whether kept connections survive a reload depends on the changed settings.
#[tokio::test]
async fn connections_stay_while_their_endpoint_does() {
    type Change = fn(&mut OriginConfig);
    let policy: [(&str, Change); 5] = [
        ("base_path", |config| config.base_path = "/other".to_owned()),
        ("host_override", |config| config.host_override = Some(HeaderValue::from_static("inner.example"))),
        ("credentials", |config| {
            config.credentials = Some(Credentials(HeaderValue::from_static("Basic c2VjcmV0")));
        }),
        ("fixed_fields", |config| {
            config.fixed_fields = vec![(HeaderName::from_static("x-fixed"), HeaderValue::from_static("1"))];
        }),
        ("admission", |config| config.admission.requests_in_flight_max = 1),
    ];
    let endpoint: [(&str, Change); 6] = [
        ("name", |config| config.name = "other".to_owned()),
        ("address", |config| {
            let OriginAddress::Tcp { host, .. } = &mut config.servers[0].endpoint.address else {
                unreachable!()
            };
            *host = "localhost".to_owned();
        }),
        ("protocol", |config| config.servers[0].endpoint.protocol = OriginProtocol::Auto),
        ("address_family", |config| config.servers[0].endpoint.address_family = AddressFamily::Ipv4),
        ("local_address", |config| {
            config.servers[0].endpoint.local_address = Some("127.0.0.1".parse().unwrap())
        }),
        ("idle_timeout", |config| config.servers[0].endpoint.pool.idle_timeout = Duration::from_secs(20)),
    ];
    let check = async |what: &str, change: Change, connections: usize| {
        let server = Scripted::start(vec![answers(&[OK, OK, OK]), answers(&[OK])]).await;
        let upstreams = Upstreams::new(Handle::current());
        let before = upstreams.upstream(&config(server.address));
        fetch(&before, get()).await.unwrap();
        let mut changed = config(server.address);
        change(&mut changed);
        let after = upstreams.upstream(&changed);
        assert!(!Arc::ptr_eq(&before, &after), "{what}");
        drop(before);
        fetch(&after, get()).await.unwrap();
        assert_eq!(server.connections(), connections, "{what}");
    };
    for (what, change) in policy {
        check(what, change, 1).await;
    }
    for (what, change) in endpoint {
        check(what, change, 2).await;
    }
}

/// Requests in flight still count after a change of limits. The new limits hold once they are in force.
#[tokio::test]
async fn a_change_of_policy_does_not_let_more_in() {
    type Change = fn(&mut OriginConfig);
    let changes: [(&str, Change, usize); 4] = [
        ("base_path", |config| config.base_path = "/other".to_owned(), 0),
        ("queue_timeout", |config| config.admission.queue_timeout = Duration::from_secs(1), 0),
        ("fewer", |config| config.admission.requests_in_flight_max = 1, 0),
        ("more", |config| config.admission.requests_in_flight_max = 4, 2),
    ];
    for (what, change, more) in changes {
        let server = Scripted::start(vec![answers(&[OK]); 5]).await;
        let mut limited = config(server.address);
        (limited.admission.requests_in_flight_max, limited.admission.queue_max) = (2, 0);
        limited.admission.client_share_percent = 100;
        let upstreams = Upstreams::new(Handle::current());
        let before = upstreams.upstream(&limited);
        let mut in_flight = vec![send(&before, get()).await.unwrap(), send(&before, get()).await.unwrap()];
        let mut changed = limited.clone();
        change(&mut changed);
        let after = upstreams.upstream(&changed);
        assert_eq!(send(&after, get()).await.unwrap_err(), OriginError::QueueFull, "{what}: not in force");
        upstreams.take_effect(&after);
        for _ in 0..more {
            in_flight.push(send(&after, get()).await.unwrap());
        }
        assert_eq!(send(&after, get()).await.unwrap_err(), OriginError::QueueFull, "{what}");
        in_flight.clear();
        assert_eq!(fetch(&after, get()).await.unwrap().body, "ok", "{what}");
    }
}

/// Starts a worker: a thread with its own runtime that makes one request, then drives its connection until a signal
/// stops it.
fn worker_with_kept_connection(origin: Arc<Upstream>) -> (oneshot::Sender<()>, thread::JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let worker = thread::spawn(move || {
        runtime().block_on(async move {
            fetch(&origin, get()).await.unwrap();
            ready.send(()).unwrap();
            let _ = stopped.await;
        });
    });
    is_ready.recv().unwrap();
    (stop, worker)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a server on a separate thread, with the runtime for name look-ups.
fn server(scripts: Vec<Vec<Step>>) -> (Handle, Scripted) {
    let (started, is_started) = mpsc::sync_channel(1);
    thread::spawn(move || {
        runtime().block_on(async move {
            started.send((Handle::current(), Scripted::start(scripts).await)).unwrap();
            std::future::pending::<()>().await;
        });
    });
    is_started.recv().unwrap()
}

/// Workers spawn their exchanges, so the futures have to be `Send`.
#[test]
fn sending_is_send() {
    fn check<T: Send>(_: T) {}
    let (background, server) = server(Vec::new());
    let origin = Upstreams::new(background).upstream(&config(server.address));
    check(origin.send(get(), &TIMEOUTS, &mut |_| {}, None));
    check(async { send(&origin, get()).await.unwrap().body.frame().await.is_some() });
}

#[test]
fn workers_borrow_each_others_idle_connections() {
    let (background, server) = server(vec![answers(&[OK, OK])]);
    let origin = Upstreams::new(background).upstream(&config(server.address));
    let (stop, worker) = worker_with_kept_connection(Arc::clone(&origin));
    runtime().block_on(async {
        assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
        assert_eq!(origin.stats().connections_idle, 1);
    });
    assert_eq!((server.connections(), origin.stats().connections_reused), (1, 1));
    drop(stop);
    worker.join().unwrap();
}

/// Answers one request on each of two connections. After a signal, it runs `unasked` on the first connection, and
/// then closes the channel.
fn serve_unasked(listener: UnixListener, told: mpsc::Receiver<()>, unasked: fn(&mut UnixStream)) {
    let answer = |stream: &mut UnixStream| {
        let lines = io::BufReader::new(&mut *stream).lines().map(Result::unwrap);
        assert!(lines.take_while(|line| !line.is_empty()).count() > 1);
        stream.write_all(OK.as_bytes()).unwrap();
    };
    thread::spawn(move || {
        let mut first = listener.accept().unwrap().0;
        answer(&mut first);
        told.recv().unwrap();
        unasked(&mut first);
        drop(told);
        answer(&mut listener.accept().unwrap().0);
    });
}

/// The worker that drives the connection is busy, so no event has reported the bytes that arrived on it.
//= RFC 9112 section 6.3: bytes after the response are not its
#[test]
fn what_comes_unasked_is_noticed_before_an_event_tells_of_it() {
    const POISON: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let cases: [fn(&mut UnixStream); 2] =
        [|stream| stream.write_all(POISON).unwrap(), |stream| stream.shutdown(Shutdown::Write).unwrap()];
    for unasked in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("origin.sock");
        let (tell, told) = mpsc::sync_channel(0);
        serve_unasked(UnixListener::bind(&path).unwrap(), told, unasked);
        let (background, server) = server(Vec::new());
        let mut config = config(server.address);
        config.servers[0].endpoint.address = OriginAddress::Unix(path);
        let origin = Upstreams::new(background).upstream(&config);
        let home = runtime();
        home.block_on(async { fetch(&origin, get()).await.unwrap() });
        tell.send(()).unwrap();
        tell.send(()).unwrap_err();
        runtime().block_on(async { assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok") });
        assert_eq!((origin.stats().connections_opened, origin.stats().retries), (2, 0));
    }
}

#[test]
fn connections_of_a_stopped_worker_are_not_used() {
    let (background, server) = server(vec![answers(&[OK]), answers(&[OK])]);
    let origin = Upstreams::new(background).upstream(&config(server.address));
    let (stop, worker) = worker_with_kept_connection(Arc::clone(&origin));
    drop(stop);
    worker.join().unwrap();
    runtime().block_on(async { assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok") });
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_worker_that_stops_in_the_middle_of_a_borrowed_response_truncates_it() {
    let partial = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
    let (background, server) = server(vec![answers(&[OK, partial])]);
    let origin = Upstreams::new(background).upstream(&config(server.address));
    let (stop, worker) = worker_with_kept_connection(Arc::clone(&origin));
    runtime().block_on(async {
        let mut response = send(&origin, get()).await.unwrap();
        assert!(matches!(response.body.frame().await, Some(Ok(BodyFrame::Data(_)))));
        drop(stop);
        worker.join().unwrap();
        let next = response.body.frame().await;
        assert_eq!(next.unwrap().unwrap_err(), OriginError::BodyTruncated);
    });
}
