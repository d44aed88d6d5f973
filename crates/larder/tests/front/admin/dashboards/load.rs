//! Clients and origins that produce data for all metrics that the dashboards show.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::{Client, Exchange, Response, ScriptedOrigin, converse};

use crate::admin::steady_clients::{Repeated, Work};

/// Addresses on which a gateway listens.
#[derive(Clone, Copy)]
pub(crate) struct Gateway {
    pub(crate) clients: SocketAddr,
    /// Address that accepts only a balancer, which doesn't exist here.
    pub(crate) for_balancer: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// Pause between two rounds: long enough for Prometheus and its targets on two cores.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause for clients of hosts that may become slow: each has its own thread, so that no other client waits.
const LONG_PAUSE: Duration = Duration::from_millis(200);
/// More than the slow origin handles at a time.
const SLOW_HOSTS: [&str; 5] = ["slow", "slow", "slow", "slow", "far"];

pub(crate) fn start(gateways: &[Gateway], kv: SocketAddr) -> Repeated {
    let mut works: Vec<Work> = vec![every(PAUSE, move |round| round_of_kv(kv, round))];
    works.extend(gateways.iter().copied().map(|gateway| every(PAUSE, move |round| gateway.round(round))));
    let first = gateways[0];
    works.extend(SLOW_HOSTS.iter().enumerate().map(|(client, host)| {
        every(LONG_PAUSE, move |round| {
            first.ask_host(host, "GET", &format!("/pages/{client}-{round}"), "");
        })
    }));
    Repeated::start(works)
}

fn every(pause: Duration, round: impl Fn(usize) + Send + 'static) -> Work {
    Box::new(move |number| {
        round(number);
        thread::park_timeout(pause);
        true
    })
}

impl Gateway {
    fn round(self, round: usize) {
        for page in 0..8 {
            self.ask("GET", &format!("/pages/{}", page % 4), "Accept-Encoding: gzip\r\n");
        }
        for target in ["/none", "/private", "/stale", "/old", &format!("/pages/new-{round}")] {
            self.ask("GET", target, "");
        }
        let part = format!("/parts/{}", round / 2);
        self.ask("GET", &part, "Range: bytes=0-9\r\n");
        self.ask("GET", &part, "Range: bytes=5-14\r\n");
        for host in ["group", "guarded"] {
            self.ask_host(host, "GET", &format!("/pages/{round}"), "");
        }
        (0..3).for_each(|_| self.ask("GET", "/budget/warm", ""));
        for target in ["/news/1", "/news/2", "/news/3"] {
            self.ask_host("news", "GET", target, "");
        }
        for page in [round % 4, round] {
            self.ask_host("full", "GET", &format!("/pages/{page}"), "");
        }
        if round.is_multiple_of(10) {
            self.odd(round);
        }
    }

    fn odd(self, round: usize) {
        self.ask("GET", &format!("/broken/{round}"), "");
        self.ask("GET", &format!("/gone/{round}"), "");
        self.ask("POST", "/pages/0", "Content-Length: 0\r\n");
        self.ask("GET", "/", "Host: another\r\n");
        send(self.for_balancer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let purge = "POST /purge?url=http://test.example/pages/1 HTTP/1.1\r\nHost: localhost\r\n\
                     Content-Length: 0\r\nConnection: close\r\n\r\n";
        send(self.admin, purge);
        // Exceeds limits that protect the origin, but too rarely for an alert.
        if round.is_multiple_of(20) {
            self.ask("GET", "/limited", "");
            self.ask("POST", "/sizes", "Content-Length: 2\r\n");
            for target in ["/budget/@", "/sizes/@", "/pages/@.css", "/gone/default/@"] {
                self.ask("GET", &target.replace('@', &round.to_string()), "");
            }
        }
    }

    fn ask(self, method: &str, target: &str, fields: &str) {
        self.ask_host("test", method, target, fields);
    }

    /// Sends a request to a site, and ignores the response.
    pub(crate) fn ask_host(self, host: &str, method: &str, target: &str, fields: &str) {
        let fields = format!("Host: {host}.example\r\nConnection: close\r\n{fields}");
        send(self.clients, &format!("{method} {target} HTTP/1.1\r\n{fields}\r\n"));
    }
}

/// Sends a request. Returns no response if the server or its origin is down, which the dashboards show too.
fn send(address: SocketAddr, request: &str) -> Option<Response> {
    let mut client = Client::over(TcpStream::connect(address).ok()?);
    client.try_send(request).ok()?;
    client.try_response_to("GET").ok()
}

fn round_of_kv(address: SocketAddr, round: usize) {
    if TcpStream::connect(address).is_err() {
        return;
    }
    let lines = "SET k v\nGET k\nGET none\nMGET k none\nINCR count\nINCR k\nEXPIRE k 100\nNOTACOMMAND\n";
    let lines = format!("SET key-{round} value EX 1\n{lines}").replace('\n', "\r\n");
    converse(address, lines.as_bytes(), usize::MAX);
}

const MINUTE: &str = "Cache-Control: max-age=60\r\n";
const STALE: &str = "Cache-Control: max-age=1, stale-while-revalidate=60\r\n";

pub(crate) fn origin() -> ScriptedOrigin {
    let count = AtomicUsize::new(0);
    ScriptedOrigin::start(move |exchange| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let target = exchange.request.target().to_owned();
        match target.split('/').nth(1).unwrap_or_default() {
            "none" => exchange.respond("404 Not Found", "Cache-Control: no-store\r\n", "none"),
            "private" => exchange.respond("200 OK", "Cache-Control: private\r\n", "yours"),
            "stale" => exchange.respond("200 OK", STALE, number.to_string()),
            "old" => revalidated(exchange),
            "parts" => part(exchange),
            "broken" => {
                exchange.head("200 OK", &format!("{MINUTE}Content-Length: 10\r\n")).send("half ").close()
            }
            "gone" => exchange.close(),
            "large" => exchange.respond("200 OK", MINUTE, [b'x'; 256 << 10]),
            _ => exchange.respond("200 OK", &format!("{MINUTE}Content-Type: text/html\r\n"), "a page"),
        };
    })
}

/// An origin whose responses are storable while `is_cacheable` is true.
pub(crate) fn origin_of_news(is_cacheable: &Arc<AtomicBool>) -> ScriptedOrigin {
    let is_cacheable = Arc::clone(is_cacheable);
    ScriptedOrigin::start(move |exchange| {
        let directive = if is_cacheable.load(Ordering::Relaxed) { "max-age=1" } else { "no-store" };
        exchange.respond("200 OK", &format!("Cache-Control: {directive}\r\n"), "news");
    })
}

fn revalidated<'a, 'b>(exchange: &'a mut Exchange<'b>) -> &'a mut Exchange<'b> {
    let fields = "Cache-Control: no-cache\r\nETag: \"1\"\r\n";
    match exchange.request.field("if-none-match").contains("\"1\"") {
        true => exchange.respond("304 Not Modified", fields, ""),
        false => exchange.respond("200 OK", fields, "as ever"),
    }
}

/// Responds with twenty bytes, or a part of them.
fn part<'a, 'b>(exchange: &'a mut Exchange<'b>) -> &'a mut Exchange<'b> {
    let fields = format!("{MINUTE}ETag: \"1\"\r\n");
    let whole = "01234567890123456789";
    let range = exchange.request.field("range").strip_prefix("bytes=").and_then(|range| {
        let (first, last) = range.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    match range {
        Some((first, last)) => {
            let fields = format!("{fields}Content-Range: bytes {first}-{last}/20\r\n");
            exchange.respond("206 Partial Content", &fields, &whole[first..=last])
        }
        None => exchange.respond("200 OK", &fields, whole),
    }
}
