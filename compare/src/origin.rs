//! The origin server of all peers: a few responses, with the same bytes for every client, and a request count that shows whether a peer
//! answered from its cache.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use bench::pause::pass;
use parking_lot::Mutex;

/// The body of a small response.
pub(crate) const SMALL_BODY: &str = "Hello, larder!";

/// The validator of every response.
pub(crate) const ETAG: &str = "\"one\"";

/// The running origin server. It ends with the program.
pub(crate) struct Origin {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// Arrival times of requests for `/hot`. The list stays short, because caches forward few requests.
    hot: Mutex<Vec<Instant>>,
}

/// A response of the origin.
#[derive(Debug, PartialEq)]
struct Resource {
    body: Vec<u8>,
    cache_control: &'static str,
    vary: Option<&'static str>,
    /// Delay before the head.
    delay: Duration,
}

impl Origin {
    /// # Errors
    /// Returns an error if the origin can't listen.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the origin can't listen")?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&shared);
                // The thread ends when the server exits and its connection closes.
                thread::spawn(move || answer_all(stream, &seen).ok());
            }
        });
        Ok(Self { address, seen })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Arrival times of requests for `/hot` since the last call.
    pub(crate) fn take_hot(&self) -> Vec<Instant> {
        std::mem::take(&mut self.seen.hot.lock())
    }
}

/// Answers the requests of a connection.
fn answer_all(stream: TcpStream, seen: &Seen) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut content_bytes = 0;
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line)?;
            content_bytes = content_length(&line).unwrap_or(content_bytes);
        }
        line.clear();
        io::copy(&mut reader.by_ref().take(content_bytes), &mut io::sink())?;
        seen.requests.fetch_add(1, Ordering::SeqCst);
        if path.starts_with("/hot") {
            seen.hot.lock().push(Instant::now());
        }
        reader.get_mut().write_all(&respond(&path))?;
    }
    Ok(())
}

fn content_length(line: &str) -> Option<u64> {
    let (name, value) = line.split_once(':')?;
    if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
}

/// The body of the response at `path`. `None` if there is no such response.
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

/// Text that repeats only after a prime number of bytes, so that a misplaced part is noticed.
fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + u8::try_from(at % 251 % 26).unwrap_or_default()).collect()
}

/// Words in random order, which compress about as well as a page of text.
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
        // Numbers, as in real pages.
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
