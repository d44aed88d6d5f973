//! Whole connections: a client, the gateway, a scripted origin.

mod harness;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use caching::CacheName;
use h2::Reason;
use telemetry::{Metric, Number};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use self::harness::*;
use super::*;
use crate::routing::Routes;

pub(super) use self::harness::{Counted, client, limits};

const OK: Act = Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
const CACHED: Act =
    Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=60\r\nETag: \"1\"\r\n\r\nok");

#[tokio::test]
async fn the_second_request_is_a_hit() {
    let origin = Origin::start(&[("/x", &[CACHED])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    for x_cache in ["MISS", "HIT", "HIT"] {
        let answer = client.get("/x").await;
        assert_eq!((answer.status, &*answer.body, answer.field("x-cache")), (200, "ok", x_cache));
        assert_eq!((answer.field("content-length"), answer.reset), ("2", None));
    }
    assert_eq!(origin.request_count(), 1);
}

#[tokio::test]
async fn hits_that_are_asked_for_together_share_a_write() {
    // The payload of a frame of this size is written from its own memory.
    const LARGER: Act = Act::Write(concat!(
        "HTTP/1.1 200 OK\r\nContent-Length: 320\r\nCache-Control: max-age=60\r\n\r\n",
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
        "01234567890123456789",
    ));
    let origin = Origin::start(&[("/x", &[CACHED]), ("/larger", &[LARGER])]).await;
    let worker = worker(origin.address, limits());
    let mut warm = Client::connect(&worker).await;
    let mut client = RawClient::connect(&worker).await;
    client.until(SETTINGS).await.unwrap();
    for (round, path) in (0..).zip(["/x", "/larger"]) {
        warm.get(path).await;
        let streams = (0..8).map(|index| 1 + 2 * (8 * round + index));
        let requests: Vec<_> = streams.clone().map(|stream| get_frame(stream, "a.example", path)).collect();
        client.send(&requests).await;
        let before = client.writes();
        for stream in streams {
            assert_eq!(client.until(DATA).await.unwrap().stream, stream, "{path}");
        }
        assert_eq!(client.writes() - before, 1, "{path}");
    }
}

#[tokio::test]
async fn a_hit_has_the_head_of_its_own_response() {
    const OTHER: Act = Act::Write(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=90\r\nETag: \"2\"\r\n\r\nother",
    );
    let origin = Origin::start(&[("/x", &[CACHED]), ("/other", &[OTHER])]).await;
    let worker = worker(origin.address, limits());
    let mut client = Client::connect(&worker).await;
    for path in ["/x", "/other"] {
        client.get(path).await;
    }
    for _ in 0..3 {
        for (path, tag, length) in [("/x", "\"1\"", "2"), ("/other", "\"2\"", "5")] {
            let answer = client.get(path).await;
            assert_eq!((answer.status, answer.field("etag")), (200, tag));
            assert_eq!(answer.field("content-length"), length);
            let answer = client.ask("GET", path, &[("if-none-match", tag)]).await;
            assert_eq!((answer.status, answer.field("etag")), (304, tag));
            assert_eq!(answer.field("content-length"), "");
        }
    }
}

#[tokio::test]
async fn the_head_of_a_hit_follows_time_and_configuration() {
    let origin = Origin::start(&[("/x", &[CACHED])]).await;
    let limits = ClientLimits { requests_per_connection_max: u64::MAX, ..limits() };
    let worker = worker(origin.address, limits);
    let mut client = Client::connect(&worker).await;
    client.get("/x").await;
    let first = client.get("/x").await;
    let later = async {
        loop {
            let answer = client.get("/x").await;
            let is_later = |name| answer.field(name) != first.field(name);
            if is_later("age") && is_later("cache-status") {
                return answer;
            }
        }
    };
    let later = tokio::time::timeout(Duration::from_secs(10), later).await.unwrap();
    assert!(later.field("cache-status").starts_with("larder; hit"));
    let live = worker.live();
    let site = live.routes.site("a.example", "/x").unwrap();
    let renamed = ActiveConfig {
        config: live.config.clone(),
        routes: Routes::new(vec![Arc::clone(site)]),
        cache_name: CacheName::new("renamed").unwrap(),
        has_timelines: false,
        tls: Vec::new(),
    };
    worker.shared.live.store(Arc::new(renamed));
    assert!(client.get("/x").await.field("cache-status").starts_with("renamed; hit"));
}

#[tokio::test]
async fn responses_without_content_end_with_their_head() {
    const NO_CONTENT: Act = Act::Write("HTTP/1.1 204 No Content\r\n\r\n");
    let origin = Origin::start(&[("/x", &[CACHED]), ("/none", &[NO_CONTENT])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    client.get("/x").await;
    let cases = [
        ("HEAD", "/x", None, 200, "2"),
        ("GET", "/x", Some("\"1\""), 304, ""),
        ("GET", "/none", None, 204, ""),
        ("HEAD", "/other", None, 502, ""),
    ];
    for (method, path, tag, status, length) in cases {
        let fields: Vec<_> = tag.into_iter().map(|tag| ("if-none-match", tag)).collect();
        let answer = client.ask(method, path, &fields).await;
        assert_eq!(
            (answer.status, answer.ended_with_head, &*answer.body),
            (status, true, ""),
            "{method} {path}"
        );
        if status != 502 {
            assert_eq!(answer.field("content-length"), length, "{method} {path}");
        }
    }
}

//= RFC 9113 section 8.1: an incomplete response ends in RST_STREAM
#[tokio::test]
async fn a_body_that_breaks_off_resets_the_stream() {
    const STORED: Act =
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nCache-Control: max-age=60\r\n\r\nabc");
    const PRIVATE: Act =
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nCache-Control: no-store\r\n\r\nabc");
    const CHUNKED: Act = Act::Write(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: no-store\r\n\r\n3\r\nabc\r\n",
    );
    let origin = Origin::start(&[
        ("/stored", &[STORED, Act::Gate]),
        ("/private", &[PRIVATE, Act::Gate]),
        ("/chunked", &[CHUNKED, Act::Gate]),
    ])
    .await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    for path in ["/stored", "/private", "/chunked"] {
        // Without the gate, the reset could overtake the head, and the client would see only the reset.
        origin.close_gate();
        let (response, _) = client.send.send_request(request("GET", path, &[]), true).unwrap();
        let response = response.await.unwrap();
        origin.open_gate();
        let answer = answer(response).await;
        assert_eq!((answer.status, answer.reset), (200, Some(Reason::INTERNAL_ERROR)), "{path}");
    }
}

#[tokio::test]
async fn trailers_arrive() {
    const TRAILED: Act = Act::Write(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
    );
    let origin = Origin::start(&[("/x", &[TRAILED])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let answer = client.ask("GET", "/x", &[("te", "trailers")]).await;
    assert_eq!((answer.status, &*answer.body), (200, "ok"));
    assert_eq!(answer.trailers.unwrap()["x-sum"], "1");
}

//= RFC 9110 section 15.2: informational responses
#[tokio::test]
async fn interim_responses_come_first() {
    const HINTS: Act = Act::Write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    let origin = Origin::start(&[("/x", &[HINTS, Act::Gate, OK])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let (mut response, _) = client.send.send_request(request("GET", "/x", &[]), true).unwrap();
    let hints = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
    assert_eq!(
        (hints.status().as_u16(), &hints.headers()["link"]),
        (103, &http::HeaderValue::from_static("</a.css>"))
    );
    origin.open_gate();
    assert_eq!(answer(response.await.unwrap()).await.body, "ok");
}

//= RFC 9110 section 15.2.1: 100 tells a client that waits to send its content
//= RFC 9110 section 10.1.1: Expect
#[tokio::test]
async fn a_client_that_waits_for_100_gets_it() {
    let origin = Origin::start(&[("/x", &[Act::Until("data"), OK])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let head = request("POST", "/x", &[("expect", "100-continue")]);
    let (mut response, mut stream) = client.send.send_request(head, false).unwrap();
    let go_on = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
    assert_eq!(go_on.status().as_u16(), 100);
    stream.send_data(Bytes::from_static(b"data"), true).unwrap();
    assert_eq!(answer(response.await.unwrap()).await.status, 200);
}

#[tokio::test]
async fn uploads_reach_the_origin() {
    let origin = Origin::start(&[("/x", &[Act::Until("hello"), OK])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    assert_eq!(client.upload("/x", b"hello", true).await.body, "ok");
    assert!(origin.requests(1).await[0].contains("content-length: 5\r\n"));
}

#[tokio::test]
async fn an_origin_may_answer_before_it_has_read_everything() {
    let origin = Origin::start(&[("/x", &[OK, Act::Hold])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let answer = client.upload("/x", b"begin", false).await;
    assert_eq!((answer.status, &*answer.body, answer.reset), (200, "ok", None));
}

#[tokio::test]
async fn request_bodies_are_limited() {
    let origin = Origin::start(&[("/x", &[Act::Hold])]).await;
    let limits = ClientLimits { body_bytes_max: 4, body_read_timeout: Duration::from_millis(50), ..limits() };
    let mut client = Client::connect(&worker(origin.address, limits)).await;
    for (data, status) in [(&b"too long"[..], 413), (b"slow", 408)] {
        let answer = client.upload("/x", data, false).await;
        assert_eq!((answer.status, answer.reset), (status, None));
    }
}

#[tokio::test]
async fn heads_are_refused_on_their_stream_only() {
    let origin = Origin::start(&[("/x", &[CACHED])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let (long_value, long_path) = ("v".repeat(5000), format!("/{}", "p".repeat(1024)));
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);
    let cases: [Case<'_>; 4] = [
        ("GET", "/x", &[("x-long", &long_value)], 431),
        ("GET", &long_path, &[], 414),
        ("GET", "/x", &[("host", "b.example")], 400),
        ("GET", "/x", &[("host", "a.example")], 200),
    ];
    for (method, path, fields, status) in cases {
        assert_eq!(client.ask(method, path, fields).await.status, status, "{path} {status}");
    }
    assert_eq!(origin.request_count(), 1);
}

//= RFC 9113 section 8.6: HTTP/2 has no 101 (Switching Protocols)
#[tokio::test]
async fn a_101_of_the_origin_is_a_502() {
    const SWITCH: Act =
        Act::Write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    let origin = Origin::start(&[("/x", &[SWITCH])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    assert_eq!(client.ask("GET", "/x", &[]).await.status, 502);
}

//= RFC 9110 section 10.2.1: an empty Allow means that the resource allows no methods
#[tokio::test]
async fn connect_is_not_allowed_anywhere() {
    let origin = Origin::start(&[]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    let answer = client.ask("CONNECT", "", &[]).await;
    assert_eq!(answer.status, 405);
    assert_eq!(answer.fields.get("allow").map(|value| value.as_bytes()), Some(&b""[..]));
}

#[tokio::test]
async fn a_request_without_authority_is_refused() {
    let origin = Origin::start(&[]).await;
    let mut client = RawClient::connect(&worker(origin.address, limits())).await;
    client.send(&[get_frame(1, "", "/x")]).await;
    let response = client.until(HEADERS).await.unwrap();
    // `:status: 400` is entry 12 of the static table.
    assert_eq!((response.stream, response.payload[0]), (1, 0x80 | 12));
}

//= RFC 9113 section 8.2.3: cookie crumbs are joined before they reach anything but HTTP/2
#[tokio::test]
async fn cookie_crumbs_reach_the_origin_in_one_line() {
    let origin = Origin::start(&[("/x", &[OK])]).await;
    let mut client = Client::connect(&worker(origin.address, limits())).await;
    client.ask("GET", "/x", &[("cookie", "a=1"), ("cookie", "b=2")]).await;
    assert!(origin.requests(1).await[0].contains("cookie: a=1; b=2\r\n"));
}

/// CVE-2023-44487, the part that `h2` can detect: requests that are reset before they are accepted.
#[tokio::test]
async fn rapid_reset_ends_the_connection() {
    let origin = Origin::start(&[("/hold", &[Act::Hold])]).await;
    let limits = ClientLimits { http2_resets_max: 4, ..limits() };
    let mut client = RawClient::connect(&worker(origin.address, limits)).await;
    let pairs = (0..32)
        .map(|index| 2 * index + 1)
        .flat_map(|id| [get_frame(id, "a.example", "/hold"), reset_frame(id)]);
    client.send(&pairs.collect::<Vec<_>>()).await;
    let goaway = client.until(GOAWAY).await.unwrap();
    assert_eq!(goaway_code(&goaway), u32::from(Reason::ENHANCE_YOUR_CALM));
    assert!(client.until(HEADERS).await.is_none());
}

/// CVE-2023-44487 at a slower pace: each request reaches the origin before it is reset, and an unsafe one is answered there.
#[tokio::test]
async fn patient_reset_ends_the_connection() {
    let origin = Origin::start(&[("/hold", &[Act::Hold]), ("/later", &[Act::Gate, OK])]).await;
    for (path, encode) in [("/hold", get_frame as fn(u32, &str, &str) -> Vec<u8>), ("/later", post_frame)] {
        let limits = ClientLimits { http2_resets_max: 2, http2_streams_max: 2, ..limits() };
        let worker = worker(origin.address, limits);
        let mut client = RawClient::connect(&worker).await;
        let sent_before = origin.request_count();
        origin.close_gate();
        for index in 0..5 {
            client.send(&[encode(2 * index + 1, "a.example", &format!("{path}?{index}"))]).await;
            origin.requests(sent_before + index as usize + 1).await;
            client.send(&[reset_frame(2 * index + 1)]).await;
        }
        // The server reads the ping after the resets.
        client.ping().await;
        origin.open_gate();
        let counted = || worker.shared.telemetry.sample().value(Metric::ClientErrorsTotal, &["client-reset"]);
        while counted() != Some(Number::Whole(5)) {
            tokio::task::yield_now().await;
        }
        client.send(&[get_frame(11, "a.example", "/hold")]).await;
        let goaway = client.until(GOAWAY).await.unwrap();
        assert_eq!(goaway_code(&goaway), u32::from(Reason::ENHANCE_YOUR_CALM), "{path}");
        assert_eq!(origin.request_count(), sent_before + 5);
    }
}

/// Simulates a page that cancels its polling requests, and loads its files from the cache.
#[tokio::test]
async fn hits_make_up_for_resets() {
    let origin = Origin::start(&[("/hold", &[Act::Hold]), ("/x", &[CACHED])]).await;
    let limits = ClientLimits { http2_resets_max: 2, http2_streams_max: 2, ..limits() };
    let mut client = RawClient::connect(&worker(origin.address, limits)).await;
    for index in 0..10 {
        let stream = 4 * index + 1;
        client.send(&[get_frame(stream, "a.example", &format!("/hold?{index}"))]).await;
        client.send(&[reset_frame(stream), get_frame(stream + 2, "a.example", "/x")]).await;
        assert_eq!(client.until(HEADERS).await.map(|headers| headers.stream), Some(stream + 2));
    }
}

//= RFC 9113 section 6.8: a graceful shutdown
#[tokio::test]
async fn a_drain_says_goaway_and_finishes_what_is_on_its_way() {
    let origin = Origin::start(&[("/x", &[Act::Gate, OK])]).await;
    let worker = worker(origin.address, limits());
    let mut client = RawClient::connect(&worker).await;
    client.send(&[get_frame(1, "a.example", "/x")]).await;
    origin.requests(1).await;
    worker.shared.drain.begin();
    let goaway = client.until(GOAWAY).await.unwrap();
    assert_eq!((goaway_code(&goaway), &goaway.payload[..4]), (0, &0x7fff_ffff_u32.to_be_bytes()[..]));
    let ping = client.until(PING).await.unwrap();
    client.pong(&ping).await;
    let last = client.until(GOAWAY).await.unwrap();
    assert_eq!(&last.payload[..4], &1_u32.to_be_bytes());
    origin.open_gate();
    let response = client.until(HEADERS).await.unwrap();
    assert_eq!((response.stream, response.payload[0]), (1, 0x80 | 8));
    assert!(client.until(GOAWAY).await.is_none_or(|goaway| goaway_code(&goaway) == 0));
}

#[tokio::test]
async fn a_connection_ends_after_its_requests() {
    let origin = Origin::start(&[("/x", &[CACHED])]).await;
    let limits = ClientLimits { requests_per_connection_max: 2, ..limits() };
    let mut client = Client::connect(&worker(origin.address, limits)).await;
    for _ in 0..2 {
        assert_eq!(client.get("/x").await.body, "ok");
    }
    drop(client.send);
    client.connection.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_even_if_the_client_does_not_answer() {
    let worker = worker(SocketAddr::from(([127, 0, 0, 1], 9)), limits());
    let start = Instant::now();
    let mut client = RawClient::connect(&worker).await;
    let goaway = client.until(GOAWAY).await.unwrap();
    assert_eq!((goaway_code(&goaway), start.elapsed().as_secs()), (0, limits().idle_timeout.as_secs()));
    assert!(client.until(HEADERS).await.is_none());
    assert_eq!(start.elapsed().as_secs(), (limits().idle_timeout + GOODBYE).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_preface_is_dropped() {
    let worker = worker(SocketAddr::from(([127, 0, 0, 1], 9)), limits());
    let (near, mut far) = duplex(1024);
    let seat = seat(&worker);
    let served = tokio::spawn(serve(near, worker, client(), seat));
    far.write_all(b"PRI * ").await.unwrap();
    served.await.unwrap();
    far.read_to_end(&mut Vec::new()).await.unwrap();
}

/// The body is 64 MiB; data that the client doesn't read must wait at the origin.
#[tokio::test]
async fn a_stalled_client_holds_the_origin_back_and_is_reset() {
    const BODY_BYTES: usize = 64 << 20;
    const HEAD: Act =
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\nCache-Control: no-store\r\n\r\n");
    let origin = Origin::start(&[("/x", &[HEAD, Act::Flood(BODY_BYTES)])]).await;
    let limits = ClientLimits { write_timeout: Duration::from_millis(300), ..limits() };
    let worker = worker(origin.address, limits);
    let mut client =
        Client::connect_with(&worker, h2::client::Builder::new().initial_window_size(1024)).await;
    let (response, _) = client.send.send_request(request("GET", "/x", &[]), true).unwrap();
    let mut stream = response.await.unwrap().into_body();
    let mut received = 0;
    let error = loop {
        match stream.data().await.unwrap() {
            Ok(data) => received += data.len(),
            Err(error) => break error,
        }
    };
    assert_eq!((received, error.reason()), (1024, Some(Reason::CANCEL)));
    assert!(origin.flooded_bytes() < BODY_BYTES / 2, "{}", origin.flooded_bytes());
}

#[tokio::test(start_paused = true)]
async fn bytes_left_in_the_socket_end_the_connection() {
    let (near, _far) = duplex(4);
    let mut guarded = Corked::new(near, Duration::from_secs(7), Cork::default());
    let start = Instant::now();
    let error = guarded.write_all(b"more than fits").await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (std::io::ErrorKind::TimedOut, 7));
}

#[test]
fn cancelling_everything_once_is_no_attack() {
    let resets = Resets::new(3);
    (0..3).for_each(|_| resets.given_up());
    assert!(!resets.are_too_many());
    resets.given_up();
    assert!(resets.are_too_many());
    resets.answered();
    assert!(!resets.are_too_many());
    (0..9).for_each(|_| resets.answered());
    assert_eq!(resets.balance.load(Ordering::Relaxed), 0);
}
