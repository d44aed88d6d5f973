//! Origins that send invalid bytes: the client of the request gets the expected outcome, and no other client gets any of the bytes.

use testkit::{Client, End, Larder, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// A response that a cache must never match to a request.
const POISON: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\npoison";

/// Name, fate of the origin's connection, outcome for the client, bytes of the origin. An outcome is a status and the body, or `broken` for
/// a 200 with a body that is cut short, or `bad` for a 502 after invalid bytes. `\n` is CRLF.
struct Case {
    name: &'static str,
    closes: bool,
    outcome: String,
    wire: String,
}

fn cases(table: &'static str) -> Vec<Case> {
    let bytes = |text: &str| {
        let heads = text
            .replace("@five@", "@ok@Content-Length: 5\\n")
            .replace("@chunks@", "@ok@Transfer-Encoding: chunked\\n")
            .replace("@ok@", "HTTP/1.1 200 OK\\n");
        heads.replace("\\n", "\r\n").replace("\\r", "\r").replace("\\lf", "\n").replace("\\0", "\0")
    };
    let case = |line: &'static str| {
        let [name, after, outcome, wire] = line.splitn(4, '|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let wire = bytes(wire).replace("@poison@", POISON);
        Case { name, closes: after == "closes", outcome: bytes(outcome), wire }
    };
    table.trim().lines().map(case).collect()
}

/// Checks each case on a connection that serves other requests before and after it.
fn check(method: &'static str, table: &'static str) {
    let origin = ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        let number = target.strip_prefix("/case/").and_then(|number| number.parse::<usize>().ok());
        let Some(number) = number else {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", target);
            return;
        };
        let case = &cases(table)[number];
        exchange.send(&case.wire);
        if case.closes {
            exchange.close();
        }
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (number, Case { name, outcome, .. }) in cases(table).into_iter().enumerate() {
        let mut client = larder.client();
        let before = format!("/before/{number}");
        assert_eq!(client.get(&before).text(), before, "{name}");
        judge(name, &client.ask(method, &format!("/case/{number}"), ""), &outcome);
        for round in 0..4 {
            // The first round uses the same client connection, the others use new ones.
            let after = format!("/after/{number}/{}", round / 2);
            let response = if round == 0 { again(&mut client, &larder, &after) } else { larder.get(&after) };
            assert_eq!((response.status(), response.text()), (200, after), "after {name}");
        }
    }
}

/// Bytes that an origin sends before a request, such as a 408 or an attack, answer no request. A Unix socket delivers them as soon as they
/// are sent.
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
            outcome.recv_timeout(wait::DEADLINE).expect("the origin continues");
            let next = larder.get("/next");
            assert_eq!((next.status(), next.text().as_str()), (200, "/next"), "{early:?}, round {round}");
        }
    }
}

/// An origin that answers before it has the whole request: the client gets the response, and neither side treats the rest of the body as a
/// request.
//= RFC 9112 section 9.3: persistence
#[test]
fn answers_before_the_request_is_whole() {
    for closes in [false, true] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let target = exchange.request.target().to_owned();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", &target);
            if exchange.request.method() == "POST" && closes {
                exchange.close();
            }
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        for size in [10_usize, 100_000] {
            let mut client = larder.client();
            client.send(format!("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
            let response = client.response_to("POST");
            assert_eq!((response.status(), response.text().as_str()), (200, "/early"), "{closes} {size}");
            // The gateway may have closed the connection instead of reading the rest.
            let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(size);
            let _ = client.try_send(&smuggled.as_bytes()[..size]);
            assert_eq!(again(&mut client, &larder, "/next").text(), "/next", "{closes} {size}");
            assert_eq!(larder.get("/other").text(), "/other", "{closes} {size}");
        }
        assert_eq!(origin.count("/smuggled"), 0, "{closes}");
    }
}

/// Sends a request on the client's connection if it is still open, or else on a new one.
fn again(client: &mut Client, larder: &Larder, target: &str) -> Response {
    let asked = client.try_send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
    asked.and_then(|()| client.try_response_to("GET")).unwrap_or_else(|_| larder.get(target))
}

#[track_caller]
fn judge(name: &str, response: &Response, outcome: &str) {
    let (status, is_cut) = (response.status(), response.end == End::Truncated);
    match outcome {
        "broken" => assert_eq!((status, is_cut), (200, true), "{name}: {:?}", response.text()),
        "bad" => assert_eq!(status, 502, "{name}: {:?}", response.head),
        _ => {
            let (code, body) = outcome.split_once(' ').unwrap_or((outcome, ""));
            assert_eq!((status.to_string().as_str(), response.text().as_str()), (code, body), "{name}");
            assert!(!is_cut, "{name}");
        }
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

const MORE_BYTES: &str = r"
more than Content-Length         | open   | 200 hello | @five@\nhello and more
a response behind Content-Length | open   | 200 hello | @five@\nhello@poison@
a response behind no content     | open   | 200       | @ok@Content-Length: 0\n\n@poison@
a response behind 204            | open   | 204       | HTTP/1.1 204 No Content\n\n@poison@
content behind 204               | open   | 204       | HTTP/1.1 204 No Content\nContent-Length: 5\n\nhello
chunks behind 204                | open   | 204       | HTTP/1.1 204 No Content\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n
a response behind 304            | open   | bad       | HTTP/1.1 304 Not Modified\n\n@poison@
content behind 304               | open   | bad       | HTTP/1.1 304 Not Modified\nContent-Length: 5\n\nhello
a response behind the last chunk | open   | 200 hello | @chunks@\n5\nhello\n0\n\n@poison@
line ends behind the content     | open   | 200 hello | @five@\nhello\n\n
";

const MORE_BYTES_TO_HEAD: &str = r"
content behind HEAD    | open   | 200 | @five@\nhello
a response behind HEAD | open   | 200 | @five@\n@poison@
chunks behind HEAD     | open   | 200 | @chunks@\n5\nhello\n0\n\n
";

const FRAMING: &str = r"
unknown coding              | closes | 200 to the end | @ok@Transfer-Encoding: x-odd\n\nto the end
unknown coding and a length | closes | 200 to the end | @ok@Transfer-Encoding: x-odd\nContent-Length: 2\n\nto the end
chunked is not last         | closes | 200 5\nhello\n | @ok@Transfer-Encoding: chunked, x-odd\n\n5\nhello\n
chunked over another        | open   | 200 hello      | @ok@Transfer-Encoding: x-odd, chunked\n\n5\nhello\n0\n\n
chunked and a length        | open   | 200 hello      | @ok@Content-Length: 3\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n
chunked in HTTP/1.0         | closes | bad            | HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n
two equal lengths           | open   | 200 hello      | @five@Content-Length: 5\n\nhello
a list of equal lengths     | open   | 200 hello      | @ok@Content-Length: 5, 5\n\nhello
two lengths                 | open   | bad            | @five@Content-Length: 6\n\nhello!
a list of lengths           | open   | bad            | @ok@Content-Length: 5, 6\n\nhello!
a negative length           | open   | bad            | @ok@Content-Length: -5\n\nhello
a length with a sign        | open   | bad            | @ok@Content-Length: +5\n\nhello
a length in words           | open   | bad            | @ok@Content-Length: five\n\nhello
an empty length             | open   | bad            | @ok@Content-Length:\n\nhello
a length beyond 64 bits     | open   | bad            | @ok@Content-Length: 99999999999999999999\n\nhello
less than Content-Length    | closes | broken         | @ok@Content-Length: 6\n\nhello
a chunk without size        | open   | broken         | @chunks@\nxyz\nhello\n0\n\n
a chunk that is too long    | open   | broken         | @chunks@\n5\nhello and more\n0\n\n
a chunk beyond 64 bits      | open   | broken         | @chunks@\n5\nhello\n10000000000000000\n
no last chunk               | closes | broken         | @chunks@\n5\nhello\n
a trailer without a colon   | open   | broken         | @chunks@\n5\nhello\n0\nodd\n\n
trailers that frame         | open   | 200 hello      | @chunks@\n5\nhello\n0\nContent-Length: 3\n\n
";

const HEADS: &str = r"
no HTTP at all                 | open   | bad                    | SSH-2.0-OpenSSH_9.2\n
another protocol's status line | open   | bad                    | ICY 200 OK\n\n
a version that does not exist  | open   | bad                    | HTTP/3.1 200 OK\nContent-Length: 0\n\n
a status of two digits         | open   | bad                    | HTTP/1.1 20 OK\nContent-Length: 0\n\n
a status of four digits        | open   | bad                    | HTTP/1.1 2000 OK\nContent-Length: 0\n\n
a status below 100             | open   | bad                    | HTTP/1.1 099 OK\nContent-Length: 0\n\n
a status line without a reason | open   | 200 hello              | HTTP/1.1 200\nContent-Length: 5\n\nhello
a name with a space            | open   | bad                    | @ok@Odd Name: x\nContent-Length: 5\n\nhello
an empty name                  | open   | bad                    | @ok@: x\nContent-Length: 5\n\nhello
a line without a colon         | open   | bad                    | @ok@odd\nContent-Length: 5\n\nhello
NUL in a value                 | open   | bad                    | @ok@X: a\0b\nContent-Length: 5\n\nhello
CR in a value                  | open   | bad                    | @ok@X: a\rb\nContent-Length: 5\n\nhello
whitespace before the colon    | open   | 200 hello              | @ok@Content-Length : 5\n\nhello
a folded value                 | open   | 200 hello              | @ok@X: a\n b\nContent-Length: 5\n\nhello
bare LF                        | open   | 200 hello              | HTTP/1.1 200 OK\lfContent-Length: 5\lf\lfhello
half a head                    | closes | bad                    | @ok@Content-
nothing                        | closes | 502 502 Bad Gateway\lf |
interim responses alone        | closes | bad                    | HTTP/1.1 103 Early Hints\n\nHTTP/1.1 103 Early Hints\n\n
";

const CONNECTION_OPTIONS: &str = r#"
upper case                    | closes | 200 hello | @ok@Connection: CLOSE\nContent-Length: 5\n\nhello
said to close, and does not   | open   | 200 hello | @ok@Connection: close\nContent-Length: 5\n\nhello@poison@
in a list                     | open   | 200 hello | @ok@Connection: , x-odd ,close,\nContent-Length: 5\n\nhello@poison@
in a second line              | open   | 200 hello | @ok@Connection: x-odd\nConnection: close\nContent-Length: 5\n\nhello@poison@
both                          | open   | 200 hello | @ok@Connection: close, keep-alive\nContent-Length: 5\n\nhello@poison@
names the framing             | open   | 200 hello | @ok@Connection: Content-Length\nContent-Length: 5\n\nhello
names itself                  | open   | 200 hello | @ok@Connection: Connection, Transfer-Encoding\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n
no token                      | open   | 200 hello | @ok@Connection: "close" (x), =;\nContent-Length: 5\n\nhello
keeps HTTP/1.0 alive          | open   | 200 hello | HTTP/1.0 200 OK\nConnection: keep-alive\nContent-Length: 5\n\nhello
keeps HTTP/1.0 without length | closes | 200 hello | HTTP/1.0 200 OK\nConnection: keep-alive\n\nhello
"#;
