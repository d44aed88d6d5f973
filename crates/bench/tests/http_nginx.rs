//! The HTTP load on nginx, as an independent implementation of HTTP/2 and TLS.

use std::time::Duration;

use bench::http::{HttpLoad, LoadError, Protocol, Reuse, Session, Trust, Until, run};
use bench::result::{Errors, Run};
use testkit::{Authority, Nginx, Port};

/// nginx with a second address for TLS, or for HTTP/2 without TLS.
struct Server {
    _nginx: Nginx,
    port: Port,
    authority: Authority,
}

impl Server {
    fn start(listen: &str) -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        let identity = authority.identity(&["localhost", "127.0.0.1"]);
        let nginx = Nginx::start(&format!(
            "listen {} {listen};
             ssl_certificate {};
             ssl_certificate_key {};
             keepalive_requests 100;
             location / {{ return 200 'hello'; }}",
            port.address(),
            identity.certificate.display(),
            identity.key.display(),
        ));
        Self { _nginx: nginx, port, authority }
    }

    fn load(&self, scheme: &str, protocol: Protocol) -> HttpLoad {
        let url = format!("{scheme}://{}/", self.port.address());
        let mut load = HttpLoad::of_urls(&[url]).expect("a URL");
        load.tls.trust = Trust::File(self.authority.file());
        load.timeout = Duration::from_secs(20);
        (load.connections, load.until, load.protocol) = (3, Until::Requests(1000), protocol);
        load
    }
}

#[track_caller]
fn check(load: &HttpLoad) -> Run {
    let run = run(load, &mut ()).expect("the load runs");
    assert_eq!((run.requests, run.errors), (1000, Errors::default()), "{run:?}");
    assert_eq!(
        run.outcomes.iter().map(|outcome| outcome.name.as_str()).collect::<Vec<_>>(),
        ["200"],
        "{run:?}"
    );
    // nginx closes each connection after a hundred requests.
    assert!(run.reconnects >= 7, "{run:?}");
    run
}

const H2: Protocol = Protocol::Http2 { streams: 10 };
const H1: Protocol = Protocol::Http1 { pipelining: 1 };

#[test]
fn http2_goes_over_tls_and_without() {
    check(&Server::start("http2").load("http", H2));
    check(&Server::start("ssl http2").load("https", H2));
}

#[test]
fn http2_has_methods_fields_and_bodies() {
    let server = Server::start("http2");
    let mut load = server.load("http", Protocol::Http2 { streams: 1 });
    load.targets[0].method = "PUT".into();
    load.targets[0].fields = vec![("X-Long".into(), "v".repeat(3000))];
    load.targets[0].body = vec![b'b'; 16_000].into();
    check(&load);
}

#[test]
fn tls_verifies_and_resumes() {
    let server = Server::start("ssl");
    for session in [Session::Resumed, Session::AlwaysNew] {
        let mut load = server.load("https", H1);
        load.tls.session = session;
        check(&load);
        load.reuse = Reuse::OnePerRequest;
        load.until = Until::Requests(20);
        let run = run(&load, &mut ()).expect("the load runs");
        assert_eq!((run.requests, run.errors), (20, Errors::default()), "{run:?}");
    }
    let mut load = server.load("https", H1);
    load.tls.trust = Trust::System;
    match run(&load, &mut ()) {
        Err(LoadError::Unreachable { source, .. }) => {
            assert!(source.to_string().contains("UnknownIssuer"), "{source}");
        }
        other => panic!("an unknown authority was trusted: {other:?}"),
    }
    load.tls.trust = Trust::Anyone;
    check(&load);
}

#[test]
fn a_server_without_http2_is_told() {
    let server = Server::start("");
    match run(&server.load("http", H2), &mut ()) {
        Err(LoadError::Unreachable { .. }) => {}
        other => panic!("it spoke HTTP/2: {other:?}"),
    }
}
