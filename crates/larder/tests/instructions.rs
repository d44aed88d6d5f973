//! The cost of a request in instructions and allocations, compared with the committed figures in `instructions.toml` and,
//! for the kv server, `instructions_kv.toml`: `make instructions`.
//!
//! Times differ from machine to machine and from run to run; instructions hardly do. Each case runs in its own process.
//! The process first handles the requests of all cases a few times, and then the requests of its own case many times. The
//! cost of a process without a case is subtracted, and the difference divided by the number of requests, so start, end
//! and first requests don't count. Requests run in lockstep on one connection, so that each of them takes exactly one
//! wake-up, one read and one write.

mod callgrind;
mod counted_commands;
mod figures;

use std::env;
use std::sync::LazyLock;

use testkit::{Client, Larder, ScriptedOrigin};

use self::callgrind::http2::Http2;
use self::callgrind::{Counts, Sites};
use self::figures::Figure;

/// The measured build. The binary that is built with this test can't be used, because it has the checks of debug builds.
static LARDER: LazyLock<String> =
    LazyLock::new(|| env::var("LARDER").expect("scripts/instructions names a binary of profile fast"));
/// After this number of requests, buffers have reached their final sizes, and caches are filled.
const FIRST_REQUESTS: u64 = 64;
const COUNTED_REQUESTS: u64 = 16_384;
/// A start with many sites takes many instructions. With fewer requests, the difference between two starts would distort
/// the result.
const COUNTED_REQUESTS_OF_SITES: u64 = 8 * COUNTED_REQUESTS;

/// A request that is sent repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// A target, field lines, the status of the response, and how many requests are sent before a response is read.
    Http1 {
        target: &'static str,
        fields: &'static str,
        status: u16,
        at_once: u64,
    },
    Http2 {
        target: &'static str,
    },
}

const fn one(target: &'static str, fields: &'static str, status: u16) -> Ask {
    Ask::Http1 { target, fields, status, at_once: 1 }
}

const HIT: Ask = one("/plain", "", 200);
const CASES: [(&str, Ask); 6] = [
    ("hit", HIT),
    ("hit-vary", one("/vary", "Accept-Encoding: gzip\r\n", 200)),
    ("hit-304", one("/plain", "If-None-Match: \"1\"\r\n", 304)),
    ("hit-pipelined", Ask::Http1 { target: "/plain", fields: "", status: 200, at_once: 16 }),
    ("hit-http2", Ask::Http2 { target: "/plain" }),
    ("miss", one("/unstored", "", 200)),
];

/// The same hit in configurations whose sites have a host each: one site, and many sites.
const HIT_OF_ONE: (&str, Sites) = ("hit-1-host", Sites::Named(1));
const HIT_OF_MANY: (&str, Sites) = ("hit-10000-hosts", Sites::Named(10_000));
/// Largest extra cost of a hit with many sites.
const SITES_PERCENT_MAX: f64 = 2.0;

#[test]
fn requests_cost_what_is_committed() {
    let origin = origin();
    let url = origin.url();
    let nothing = counts_of(&url, Sites::AnyHost, None);
    let mut figures = figures::of_all(&CASES, |ask| figure(&url, Sites::AnyHost, nothing, ask));
    // These cases run one at a time, because a start with many sites takes seconds under callgrind.
    for (case, sites) in [HIT_OF_ONE, HIT_OF_MANY] {
        let nothing = counts_of(&url, sites, None);
        figures.insert(case.to_owned(), figure(&url, sites, nothing, HIT));
    }
    figures::judge(figures::GATEWAY, &figures);
    let [one, many] = [HIT_OF_ONE, HIT_OF_MANY].map(|(case, _)| figures[case].instructions as f64);
    let percent = 100.0 * (many - one) / one;
    assert!(percent <= SITES_PERCENT_MAX, "with many sites a hit costs {percent:.2} % more than with one");
}

fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        if exchange.request.target() == "/unstored" {
            // The response is sent in one piece, so that the gateway gets it with one read.
            let fields = "Content-Type: text/html\r\nCache-Control: no-store\r\nContent-Length: 69";
            exchange.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{}", "a".repeat(69)));
            return;
        }
        let vary = if exchange.request.target() == "/vary" { "Vary: Accept-Encoding\r\n" } else { "" };
        let fields = format!(
            "Cache-Control: max-age=86400\r\nContent-Type: text/html\r\nETag: \"1\"\r\n\
             Last-Modified: Sat, 21 Nov 2026 00:00:00 GMT\r\n{vary}"
        );
        // The body is small, because copying many bytes is one instruction on some processors, and thousands on others.
        exchange.respond("200 OK", &fields, "a".repeat(69));
    })
}

fn figure(origin: &str, sites: Sites, nothing: Counts, ask: Ask) -> Figure {
    figures::per_request(counts_of(origin, sites, Some(ask)), nothing, counted_requests(sites))
}

const fn counted_requests(sites: Sites) -> u64 {
    match sites {
        Sites::AnyHost => COUNTED_REQUESTS,
        Sites::Named(_) => COUNTED_REQUESTS_OF_SITES,
    }
}

/// Measures a whole process that handles the first requests, and then the requests of one case.
fn counts_of(origin: &str, sites: Sites, counted: Option<Ask>) -> Counts {
    let larder = callgrind::start(&LARDER, origin, sites);
    let mut connections: Vec<Connection> =
        CASES.iter().map(|(_, ask)| Connection::open(&larder, *ask)).collect();
    connections.iter_mut().for_each(|connection| connection.ask(FIRST_REQUESTS));
    for connection in connections.iter_mut().filter(|connection| Some(connection.ask) == counted) {
        connection.ask(counted_requests(sites));
    }
    drop(connections);
    callgrind::finish(larder)
}

struct Connection {
    ask: Ask,
    client: Protocol,
}

enum Protocol {
    Http1(Client),
    Http2(Http2),
}

impl Connection {
    fn open(larder: &Larder, ask: Ask) -> Self {
        let client = match ask {
            Ask::Http1 { .. } => Protocol::Http1(larder.client()),
            Ask::Http2 { target } => Protocol::Http2(Http2::connect(larder.address(), target)),
        };
        Self { ask, client }
    }

    fn ask(&mut self, requests: u64) {
        match (&mut self.client, self.ask) {
            (Protocol::Http1(client), Ask::Http1 { target, fields, status, at_once }) => {
                let request = format!(
                    "GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: instructions\r\nAccept: */*\r\n{fields}\r\n"
                );
                let together = request.repeat(usize::try_from(at_once).expect("it is small"));
                for _ in 0..requests / at_once {
                    client.send(&together);
                    for _ in 0..at_once {
                        assert_eq!(client.response().status(), status, "{target}");
                    }
                }
            }
            (Protocol::Http2(client), _) => (0..requests).for_each(|_| client.ask()),
            (Protocol::Http1(_), Ask::Http2 { .. }) => unreachable!("opened for what it asks"),
        }
    }
}
