//! Origins whose bytes are wrong: what the client of the request gets, and that nobody else gets any of it.

use testkit::{Client, End, Larder, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// A response that a cache must never believe to be the answer to a request.
const POISON: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\npoison";

/// Outcome for the client.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Whole(u16, &'static str),
    /// The head came, the body broke off.
    Broken(u16),
    /// 502, because what came can't be understood.
    Bad,
}
use Outcome::{Bad, Broken, Whole};

/// Fate of the origin's connection after its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Open,
    Close,
}
use After::{Close, Open};

type Case = (&'static str, &'static str, After, Outcome);

/// Each answer to a request on a connection that others used before and will use after it.
fn check(method: &'static str, cases: &'static [Case]) {
    let origin = ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        let number = target.strip_prefix("/case/").and_then(|number| number.parse::<usize>().ok());
        let Some((_, wire, after, _)) = number.and_then(|number| cases.get(number)) else {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", target);
            return;
        };
        exchange.send(wire.replace("@poison@", POISON));
        if *after == Close {
            exchange.close();
        }
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (number, (name, _, _, expected)) in cases.iter().enumerate() {
        let mut client = larder.client();
        let before = format!("/before/{number}");
        assert_eq!(client.get(&before).text(), before, "{name}");
        let response = client.ask(method, &format!("/case/{number}"), "");
        judge(name, &response, *expected);
        for round in 0..4 {
            // The first on the same connection of the client, the others on new ones.
            let after = format!("/after/{number}/{}", round / 2);
            let response = if round == 0 { again(&mut client, &larder, &after) } else { larder.get(&after) };
            assert_eq!((response.status(), response.text()), (200, after), "after {name}");
        }
    }
}

/// Bytes that an origin sends before a request answer nobody: a farewell, or an attack. Through a Unix socket,
/// which has what was sent as soon as it was sent.
//= RFC 9112 section 6.3: bytes after the response are not its
#[test]
fn bytes_before_a_request() {
    const FAREWELL: &str = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for early in [POISON, FAREWELL, "\r\n", "x"] {
        let (told, outcome) = std::sync::mpsc::sync_channel(1);
        let folder = tempfile::tempdir().expect("a folder");
        let origin = ScriptedOrigin::start_unix(&folder.path().join("origin"), move |exchange| {
            let target = exchange.request.target().to_owned();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", &target);
            if target == "/first" {
                exchange.send(early);
                told.send(()).expect("the test waits");
            }
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        for round in 0..20 {
            assert_eq!(larder.get("/first").text(), "/first");
            outcome.recv_timeout(wait::DEADLINE).expect("the origin goes on");
            let next = larder.get("/next");
            assert_eq!((next.status(), next.text().as_str()), (200, "/next"), "{early:?}, round {round}");
        }
    }
}

/// An origin that answers before it has the whole request: the client gets the answer, and what is left of the body
/// is no request of its own, on neither side.
//= RFC 9112 section 9.3: persistence
#[test]
fn answers_before_the_request_is_whole() {
    for after in [Open, Close] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let target = exchange.request.target().to_owned();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", &target);
            if exchange.request.method() == "POST" && after == Close {
                exchange.close();
            }
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        for size in [10_usize, 100_000] {
            let mut client = larder.client();
            client.send(format!("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
            let response = client.response_to("POST");
            assert_eq!((response.status(), response.text().as_str()), (200, "/early"), "{after:?} {size}");
            // It may have closed instead of taking what is not needed any more.
            let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(size);
            let _ = client.try_send(&smuggled.as_bytes()[..size]);
            assert_eq!(again(&mut client, &larder, "/next").text(), "/next", "{after:?} {size}");
            assert_eq!(larder.get("/other").text(), "/other", "{after:?} {size}");
        }
        assert_eq!(origin.count("/smuggled"), 0, "{after:?}");
    }
}

/// On the connection of before where it is still there.
fn again(client: &mut Client, larder: &Larder, target: &str) -> Response {
    let asked = client.try_send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
    asked.and_then(|()| client.try_response_to("GET")).unwrap_or_else(|_| larder.get(target))
}

#[track_caller]
fn judge(name: &str, response: &Response, expected: Outcome) {
    let seen = (response.status(), response.text());
    match expected {
        Whole(status, body) => {
            assert_eq!(seen, (status, body.to_owned()), "{name}");
            assert_ne!(response.end, End::Truncated, "{name}");
        }
        Broken(status) => {
            assert_eq!((response.status(), response.end), (status, End::Truncated), "{name}: {:?}", seen.1);
        }
        Bad => assert_eq!(response.status(), 502, "{name}: {:?}", response.head),
    }
}

//= RFC 9112 section 6.3: bytes after the response are not its
//= RFC 9112 section 6.3: message body length of a response
#[test]
fn more_bytes_than_the_message_has() {
    check("GET", MORE_BYTES);
    check("HEAD", MORE_BYTES_TO_HEAD);
}

//= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
//= RFC 9112 section 6.3: Transfer-Encoding and Content-Length
//= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
//= RFC 9112 section 6.3: a response whose final coding is not chunked ends with the connection
//= RFC 9112 section 6.3: invalid Content-Length
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
//= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
#[test]
fn framing_that_contradicts_itself() {
    check("GET", FRAMING);
}

//= RFC 9112 section 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]
//= RFC 9112 section 5.1: a proxy removes whitespace before the colon of a response's field
//= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
#[test]
fn heads_that_are_wrong() {
    check("GET", HEADS);
}

//= RFC 9110 section 7.6.1: connection options are case-insensitive
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
#[test]
fn odd_connection_options() {
    check("GET", CONNECTION_OPTIONS);
}

const MORE_BYTES: &[Case] = &[
    (
        "more than Content-Length",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
        Open,
        Whole(200, "hello"),
    ),
    (
        "a response behind Content-Length",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "a response behind no content",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n@poison@",
        Open,
        Whole(200, ""),
    ),
    ("a response behind 204", "HTTP/1.1 204 No Content\r\n\r\n@poison@", Open, Whole(204, "")),
    ("content behind 204", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", Open, Whole(204, "")),
    (
        "chunks behind 204",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Open,
        Whole(204, ""),
    ),
    ("a response behind 304", "HTTP/1.1 304 Not Modified\r\n\r\n@poison@", Open, Bad),
    ("content behind 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    (
        "a response behind the last chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "line ends behind the content",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n",
        Open,
        Whole(200, "hello"),
    ),
];

const MORE_BYTES_TO_HEAD: &[Case] = &[
    ("content behind HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Open, Whole(200, "")),
    ("a response behind HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n@poison@", Open, Whole(200, "")),
    (
        "chunks behind HEAD",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Open,
        Whole(200, ""),
    ),
];

const FRAMING: &[Case] = &[
    (
        "unknown coding",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: x-odd\r\n\r\nto the end",
        Close,
        Whole(200, "to the end"),
    ),
    (
        "unknown coding and a length",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: x-odd\r\nContent-Length: 2\r\n\r\nto the end",
        Close,
        Whole(200, "to the end"),
    ),
    (
        "chunked is not last",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, x-odd\r\n\r\n5\r\nhello\r\n",
        Close,
        Whole(200, "5\r\nhello\r\n"),
    ),
    (
        "chunked over another",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: x-odd, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Open,
        Whole(200, "hello"),
    ),
    (
        "chunked and a length",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Open,
        Whole(200, "hello"),
    ),
    (
        "chunked in HTTP/1.0",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Close,
        Bad,
    ),
    (
        "two equal lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    (
        "a list of equal lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", Open, Bad),
    ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!", Open, Bad),
    ("a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", Open, Bad),
    ("a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", Open, Bad),
    ("a length in words", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello", Open, Bad),
    ("an empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello", Open, Bad),
    (
        "a length beyond 64 bits",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
        Open,
        Bad,
    ),
    ("less than Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", Close, Broken(200)),
    (
        "a chunk without size",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
        Open,
        Broken(200),
    ),
    (
        "a chunk that is too long",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello and more\r\n0\r\n\r\n",
        Open,
        Broken(200),
    ),
    (
        "a chunk beyond 64 bits",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10000000000000000\r\n",
        Open,
        Broken(200),
    ),
    (
        "no last chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        Close,
        Broken(200),
    ),
    (
        "a trailer without a colon",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nodd\r\n\r\n",
        Open,
        Broken(200),
    ),
    (
        "trailers that frame",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
        Open,
        Whole(200, "hello"),
    ),
];

const HEADS: &[Case] = &[
    ("no HTTP at all", "SSH-2.0-OpenSSH_9.2\r\n", Open, Bad),
    ("another protocol's status line", "ICY 200 OK\r\n\r\n", Open, Bad),
    ("a version that does not exist", "HTTP/3.1 200 OK\r\nContent-Length: 0\r\n\r\n", Open, Bad),
    ("a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", Open, Bad),
    ("a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", Open, Bad),
    ("a status below 100", "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", Open, Bad),
    (
        "a status line without a reason",
        "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    ("a name with a space", "HTTP/1.1 200 OK\r\nOdd Name: x\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    ("an empty name", "HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    ("a line without a colon", "HTTP/1.1 200 OK\r\nodd\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    ("NUL in a value", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    ("CR in a value", "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 5\r\n\r\nhello", Open, Bad),
    (
        "whitespace before the colon",
        "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    (
        "a folded value",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    ("bare LF", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", Open, Whole(200, "hello")),
    ("half a head", "HTTP/1.1 200 OK\r\nContent-", Close, Bad),
    ("nothing", "", Close, Whole(502, "502 Bad Gateway\n")),
    (
        "interim responses alone",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
        Close,
        Bad,
    ),
];

const CONNECTION_OPTIONS: &[Case] = &[
    (
        "upper case",
        "HTTP/1.1 200 OK\r\nConnection: CLOSE\r\nContent-Length: 5\r\n\r\nhello",
        Close,
        Whole(200, "hello"),
    ),
    (
        "said to close, and does not",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "in a list",
        "HTTP/1.1 200 OK\r\nConnection: , x-odd ,close,\r\nContent-Length: 5\r\n\r\nhello@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "in a second line",
        "HTTP/1.1 200 OK\r\nConnection: x-odd\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "both",
        "HTTP/1.1 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 5\r\n\r\nhello@poison@",
        Open,
        Whole(200, "hello"),
    ),
    (
        "names the framing",
        "HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    (
        "names itself",
        "HTTP/1.1 200 OK\r\nConnection: Connection, Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Open,
        Whole(200, "hello"),
    ),
    (
        "no token",
        "HTTP/1.1 200 OK\r\nConnection: \"close\" (x), =;\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    (
        "keeps HTTP/1.0 alive",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
        Open,
        Whole(200, "hello"),
    ),
    (
        "keeps HTTP/1.0 without length",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello",
        Close,
        Whole(200, "hello"),
    ),
];
