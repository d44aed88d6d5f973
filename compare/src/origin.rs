//! The origin server that every peer caches from: few responses, the same bytes for everybody, and a count of requests
//! that tells whether a peer answered from its cache.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use bench::origin::{Reply, pass};
use parking_lot::Mutex;

/// What a small response says.
pub(crate) const SMALL_BODY: &str = "Hello, larder!";

/// The validator of every response.
pub(crate) const ETAG: &str = "\"one\"";

/// The running origin server; it ends with the program.
pub(crate) struct Origin {
    origin: bench::origin::Origin,
    /// When requests for `/hot` came: these are few, for they are what gets through a cache.
    hot: Arc<Mutex<Vec<Instant>>>,
}

/// A response of the origin.
#[derive(Debug, PartialEq)]
struct Resource {
    body: Vec<u8>,
    cache_control: &'static str,
    vary: Option<&'static str>,
    /// Before the head.
    delay: Duration,
}

impl Origin {
    /// # Errors
    /// When it can't listen.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let hot = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&hot);
        let reply = move |path: &str, _| {
            if path.starts_with("/hot") {
                shared.lock().push(Instant::now());
            }
            Reply::Parts(vec![respond(path)])
        };
        let origin = bench::origin::Origin::start(reply).context("the origin can't listen")?;
        Ok(Self { origin, hot })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.origin.requests()
    }

    /// When requests for `/hot` came since the last call.
    pub(crate) fn take_hot(&self) -> Vec<Instant> {
        std::mem::take(&mut self.hot.lock())
    }
}

/// The body of the response at `path`, or nothing when there is none.
pub(crate) fn body_of(path: &str) -> Option<Vec<u8>> {
    Some(resource(path)?.body)
}

/// The whole response to a request for `path`.
fn respond(path: &str) -> Vec<u8> {
    let Some(resource) = resource(path) else {
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    };
    if !resource.delay.is_zero() {
        pass(resource.delay);
    }
    let vary = resource.vary.map_or(String::new(), |vary| format!("Vary: {vary}\r\n"));
    let head = format!(
        "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nCache-Control: {}\r\nETag: {ETAG}\r\n{vary}\r\n",
        httpdate::fmt_http_date(SystemTime::now()),
        resource.body.len(),
        resource.cache_control,
    );
    [head.as_bytes(), &resource.body].concat()
}

fn resource(path: &str) -> Option<Resource> {
    let first = path.trim_start_matches('/').split(['/', '?']).next()?;
    let small = Resource {
        body: SMALL_BODY.as_bytes().to_vec(),
        cache_control: "max-age=3600",
        vary: None,
        delay: Duration::ZERO,
    };
    Some(match first {
        "small" => small,
        "vary" => Resource { vary: Some("Accept-Encoding"), ..small },
        "1k" => Resource { body: text(1 << 10), ..small },
        "10k" => Resource { body: text(10 << 10), ..small },
        "64k" => Resource { body: text(64 << 10), ..small },
        "1m" => Resource { body: text(1 << 20), ..small },
        "text" => Resource { body: prose(20 << 10), ..small },
        "forward" if path.ends_with("/text") => {
            Resource { body: prose(20 << 10), cache_control: "no-store", ..small }
        }
        "forward" => Resource { cache_control: "no-store", ..small },
        "slow" => Resource { delay: Duration::from_millis(200), ..small },
        "hot" => Resource { cache_control: "max-age=1", delay: Duration::from_millis(50), ..small },
        _ => return None,
    })
}

/// Text that repeats only after a prime number of bytes, so that a part at the wrong place is seen.
fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + u8::try_from(at % 251 % 26).unwrap_or_default()).collect()
}

/// Words in no order, which a page of text is as hard to compress as.
fn prose(bytes: usize) -> Vec<u8> {
    const WORDS: &str =
        "larder keeps responses fresh for the clients of an origin server that answers slowly today and";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut seed: u64 = 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let drawn = seed >> 33;
        let number = format!(" {drawn} ");
        text.push_str(words[drawn as usize % words.len()]);
        // Numbers, as pages have them.
        text.push_str(if drawn.is_multiple_of(16) { &number } else { " " });
    }
    text.truncate(bytes);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{body_of, respond};

    #[test]
    fn bodies_have_the_length_of_their_name() {
        let cases = [
            ("/forward/text", 20_480),
            ("/small", 14),
            ("/vary?x", 14),
            ("/1k/77", 1024),
            ("/64k", 65_536),
            ("/text", 20_480),
            ("/1m", 1_048_576),
        ];
        for (path, bytes) in cases {
            assert_eq!(body_of(path).map(|body| body.len()), Some(bytes), "{path}");
        }
        assert_eq!(body_of("/other"), None);
    }

    #[test]
    fn a_response_says_how_long_it_may_be_kept() {
        for (path, line) in
            [("/small", "max-age=3600"), ("/forward/1", "no-store"), ("/vary", "Vary: Accept-Encoding")]
        {
            assert!(String::from_utf8_lossy(&respond(path)).contains(line), "{path}");
        }
    }
}
