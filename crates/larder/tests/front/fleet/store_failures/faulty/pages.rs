//! An origin that counts the versions of each page, and knows every byte of each version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use testkit::{Client, End, Exchange, Random, Response, ScriptedOrigin, sha256};

/// Pages of one host. The last segment of a path is the length of the body, such as `/news/600`.
pub(crate) struct Pages {
    host: &'static str,
    pub(crate) origin: ScriptedOrigin,
    versions: Versions,
    bodies: Arc<Bodies>,
}

/// Bodies already generated, by path and version: generating takes longer than sending.
#[derive(Default)]
struct Bodies(Mutex<HashMap<String, Arc<Vec<u8>>>>);

impl Bodies {
    fn of(&self, host: &str, path: &str, version: u64) -> Arc<Vec<u8>> {
        let mut made = self.0.lock().expect("no holder of this lock panics");
        let body =
            made.entry(format!("{path} {version}")).or_insert_with(|| Arc::new(body(host, path, version)));
        Arc::clone(body)
    }
}

type Versions = Arc<Mutex<HashMap<String, u64>>>;

impl Pages {
    pub(crate) fn of(host: &'static str) -> Self {
        let versions = Versions::default();
        let bodies = Arc::<Bodies>::default();
        let (current, made) = (Arc::clone(&versions), Arc::clone(&bodies));
        let origin = ScriptedOrigin::start(move |exchange| {
            let path = exchange.request.target().to_owned();
            let version = version(&current, &path);
            answer(exchange, version, &made.of(host, &path, version));
        });
        Self { host, origin, versions, bodies }
    }

    pub(crate) fn host(&self) -> &'static str {
        self.host
    }

    pub(crate) fn url(&self) -> String {
        self.origin.url()
    }

    pub(crate) fn version(&self, path: &str) -> u64 {
        version(&self.versions, path)
    }

    pub(crate) fn change(&self, path: &str) -> u64 {
        let mut versions = self.versions.lock().expect("no holder of this lock panics");
        let version = versions.entry(path.to_owned()).or_insert(1);
        *version += 1;
        *version
    }

    /// Requests a page, and returns its version. A wrong response fails the test.
    #[track_caller]
    pub(crate) fn get(&self, client: &mut Client, path: &str) -> Got {
        self.get_with(client, path, "")
    }

    /// Like `get`, with more field lines.
    #[track_caller]
    pub(crate) fn get_with(&self, client: &mut Client, path: &str, fields: &str) -> Got {
        let host = self.host;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        let response = client.response();
        let version = self.check(&response, path);
        Got { version, response }
    }

    /// Returns the version of a page in a response.
    ///
    /// # Panics
    /// If the response isn't a complete version of this page.
    #[track_caller]
    pub(crate) fn check(&self, response: &Response, path: &str) -> u64 {
        let said = || format!("{}{path}: {:?} {:?}", self.host, response.head, response.end);
        assert!(response.status() == 200 && response.end == End::Complete, "{}", said());
        let version = response.field("x-version").parse().expect("a version");
        let expected = self.bodies.of(self.host, path, version);
        assert!(response.body == *expected, "{} has the body {}", said(), sha256(&response.body));
        assert!((1..=self.version(path)).contains(&version), "{}: there is no version {version}", said());
        version
    }
}

pub(crate) struct Got {
    pub(crate) version: u64,
    pub(crate) response: Response,
}

fn version(versions: &Versions, path: &str) -> u64 {
    versions.lock().expect("no holder of this lock panics").get(path).copied().unwrap_or(1)
}

pub(crate) fn body(host: &str, path: &str, version: u64) -> Vec<u8> {
    let length = path.rsplit('/').next().and_then(|length| length.parse().ok()).expect("a length");
    let name = format!("{host}{path} {version}\n");
    let seed = name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut body = name.into_bytes();
    body.extend_from_slice(&Random::new(seed).bytes(length));
    body
}

fn answer(exchange: &mut Exchange<'_>, version: u64, body: &[u8]) {
    let etag = format!("\"{version}\"");
    let fields = format!("Cache-Control: max-age=3600\r\nETag: {etag}\r\nX-Version: {version}\r\n");
    if exchange.request.field("if-none-match") == etag {
        exchange.head("304 Not Modified", &fields);
        return;
    }
    let if_range = exchange.request.field("if-range");
    let is_current = if_range.is_empty() || if_range == etag;
    match part_of(exchange.request.field("range"), body.len()).filter(|_| is_current) {
        Some((first, last)) => {
            let range = format!("{fields}Content-Range: bytes {first}-{last}/{}\r\n", body.len());
            exchange.respond("206 Partial Content", &range, &body[first..=last]);
        }
        None => drop(exchange.respond("200 OK", &fields, body)),
    }
}

fn part_of(range: &str, length: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { length - 1 } else { last.parse::<usize>().ok()?.min(length - 1) };
    Some((first.parse().ok()?, last))
}
