//! Random conversations about a file that changes, with an origin server that knows ranges and conditions but is not
//! always in the mood: whatever is stored, combined and completed on the way, each answer is one that the file permits.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use testkit::{Client, End, Exchange, Response, ScriptedOrigin, Setup};

use crate::LARDER;

#[test]
fn answers_are_what_the_file_permits() {
    for seed in 1..=SEEDS {
        converse(seed, &|setup| setup);
    }
}

/// Where what is stored lies in a tier that forgets, fails, and does not answer.
#[cfg(feature = "test-store")]
#[test]
fn answers_are_what_the_file_permits_over_a_tier_that_fails() {
    for seed in 1..=SEEDS {
        for behaviour in [
            "evicting_permille=200",
            "unreachable_permille=100",
            "silent_permille=100,deadline_ms=5",
            "latency_ms=1,evicting_permille=100,unreachable_permille=50,silent_permille=50,deadline_ms=5",
        ] {
            let store = format!("seed={seed},{behaviour}");
            converse(seed, &|setup| setup.environment("LARDER_TEST_STORE", &store));
        }
    }
}

const SEEDS: u64 = 6;
const REQUESTS: usize = 300;
/// Of each kind. Few requests for each, so that many find something stored in part.
const PATHS: u64 = 12;

fn converse(seed: u64, set: &dyn Fn(Setup) -> Setup) {
    let file = Arc::new(Mutex::new(File { version: 1, moods: Dice::new(seed + 1000) }));
    let served = Arc::clone(&file);
    let origin = ScriptedOrigin::start(move |exchange| answer(exchange, &served));
    let larder = set(Setup::origin(LARDER, &origin.url())).start();
    let mut dice = Dice::new(seed);
    let mut seen = Seen::default();
    let mut story = Vec::new();
    for number in 0..REQUESTS {
        if dice.one_in(12) {
            file.lock().expect("no holder of this lock panics").version += 1;
        }
        let current = file.lock().expect("no holder of this lock panics").version;
        let request = Request::random(&mut dice, current);
        let mut client = Client::connect(larder.address());
        let response = client.ask(request.method, &request.path, &request.fields());
        let judged = request.judge(&response, current, &mut seen);
        story.push(format!("{number}: {request:?}, {:?}: {:?}", response.end, response.head));
        if let Err(problem) = judged {
            story.retain(|told| told.contains(&format!("{:?}", request.path)));
            panic!("seed {seed}: {problem}\n{}", story.join("\n"));
        }
    }
}

/// Small numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The file at the origin.
struct File {
    version: u64,
    moods: Dice,
}

/// Some lengths reach over several segments, one is empty.
fn length(version: u64) -> u64 {
    [300_000, 10, 150_000, 70_000, 0, 65_536, 65_537, 1][version as usize % 8]
}

fn content(version: u64) -> Vec<u8> {
    (0..length(version)).map(|index| (index * 31 + index / 251 + version * 17) as u8).collect()
}

fn tag(version: u64) -> String {
    format!("\"v{version}\"")
}

fn answer(exchange: &mut Exchange<'_>, file: &Mutex<File>) {
    let (version, mood) = {
        let mut file = file.lock().expect("no holder of this lock panics");
        (file.version, file.moods.below(12))
    };
    let control = match exchange.request.target().split('/').nth(1) {
        Some("fresh") => "max-age=3600",
        Some("checked") => "no-cache",
        Some("stale") => "max-age=0",
        _ => "no-store",
    };
    let fields = format!("ETag: {}\r\nCache-Control: {control}\r\n", tag(version));
    let lists =
        |name: &str| exchange.request.field(name).split(',').any(|member| member.trim() == tag(version));
    if lists("if-none-match") {
        exchange.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
        return;
    }
    let may_be_part = exchange.request.field("if-range").is_empty() || lists("if-range");
    let range = Range::parse(exchange.request.field("range")).filter(|_| may_be_part && mood != 0);
    let range = range.filter(|_| exchange.request.method() == "GET");
    let body = content(version);
    let Some(range) = range else { return whole(exchange, &fields, &body, mood) };
    match range.of(body.len() as u64) {
        Some((first, last)) => {
            let fields = format!("{fields}Content-Range: bytes {first}-{last}/{}\r\n", body.len());
            send(exchange, "206 Partial Content", &fields, &body[first as usize..=last as usize], mood);
        }
        None => {
            let fields = format!("Content-Range: bytes */{}\r\nETag: {}\r\n", body.len(), tag(version));
            exchange.respond("416 Range Not Satisfiable", &fields, "");
        }
    }
}

fn whole(exchange: &mut Exchange<'_>, fields: &str, body: &[u8], mood: u64) {
    send(exchange, "200 OK", fields, body, mood);
}

/// In one of several framings; sometimes the connection ends before the content does.
fn send(exchange: &mut Exchange<'_>, status: &str, fields: &str, body: &[u8], mood: u64) {
    let is_get = exchange.request.method() == "GET";
    if mood == 1 && is_get {
        exchange.send(format!("HTTP/1.1 {status}\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"));
        body.chunks(10_000).for_each(|chunk| {
            exchange.chunk(chunk);
        });
        exchange.last_chunk("");
    } else if mood == 2 && is_get && body.len() > 1 {
        exchange.send(format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len()));
        exchange.send(&body[..body.len() / 2]).close();
    } else {
        exchange.respond(status, fields, body);
    }
}

/// One byte range as it is asked for.
#[derive(Clone, Copy, Debug)]
enum Range {
    Between(u64, u64),
    From(u64),
    Last(u64),
}

impl Range {
    fn parse(value: &str) -> Option<Self> {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Some(Self::Between(first, last)),
            (Ok(first), Err(_)) if last.is_empty() => Some(Self::From(first)),
            (Err(_), Ok(last)) if first.is_empty() => Some(Self::Last(last)),
            _ => None,
        }
    }

    //= RFC 9110 section 14.1.2: byte ranges
    fn of(self, length: u64) -> Option<(u64, u64)> {
        let (first, last) = match self {
            Self::Between(first, last) => (first, last),
            Self::From(first) => (first, u64::MAX),
            Self::Last(0) => return None,
            Self::Last(count) => (length.saturating_sub(count), u64::MAX),
        };
        (first < length).then(|| (first, last.min(length - 1)))
    }

    fn value(self) -> String {
        match self {
            Self::Between(first, last) => format!("bytes={first}-{last}"),
            Self::From(first) => format!("bytes={first}-"),
            Self::Last(count) => format!("bytes=-{count}"),
        }
    }
}

/// The version that came last, by path.
type Seen = HashMap<String, u64>;

/// What one client asks for.
#[derive(Debug)]
struct Request {
    method: &'static str,
    path: String,
    range: Option<Range>,
    if_range: Option<u64>,
    if_none_match: Option<u64>,
    reload: bool,
}

impl Request {
    fn random(dice: &mut Dice, current: u64) -> Self {
        let kinds = ["fresh", "fresh", "fresh", "checked", "stale", "private"];
        let kind = kinds[dice.below(kinds.len() as u64) as usize];
        let some_version = |dice: &mut Dice| Some(current.saturating_sub(dice.below(3)));
        Self {
            method: if dice.one_in(8) { "HEAD" } else { "GET" },
            path: format!("/{kind}/{}", dice.below(PATHS)),
            range: if dice.one_in(6) { None } else { Some(random_range(dice)) },
            if_range: if dice.one_in(5) { some_version(dice) } else { None },
            if_none_match: if dice.one_in(7) { some_version(dice) } else { None },
            reload: dice.one_in(10),
        }
    }

    fn fields(&self) -> String {
        let mut fields = String::new();
        let mut push = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(fields, "{name}: {value}\r\n");
            }
        };
        push("Range", self.range.map(Range::value));
        push("If-Range", self.if_range.map(tag));
        push("If-None-Match", self.if_none_match.map(tag));
        push("Cache-Control", self.reload.then(|| "no-cache".to_owned()));
        fields
    }

    /// Whether the answer is one that the file permits.
    fn judge(&self, response: &Response, current: u64, seen: &mut Seen) -> Result<(), String> {
        let status = response.status();
        let version = match response.field("etag") {
            "" => current,
            etag => etag.trim_matches(['"', 'v']).parse().map_err(|_| format!("no tag: {etag}"))?,
        };
        if status != 416 {
            self.judge_version(version, current, seen)?;
        }
        // Content that broke off, or that this client did not get, need not have been stored.
        let is_kept = response.is_hit() || response.cache_status().contains("; stored");
        if is_kept && matches!(status, 200 | 206) && self.method == "GET" && response.end == End::Complete {
            seen.insert(self.path.clone(), version);
        }
        match status {
            200 => self.judge_content(response, &content(version)),
            206 if self.method == "GET" => self.judge_part(response, version),
            304 if self.if_none_match == Some(version) => Ok(()),
            416 if self.method == "GET" => self.judge_unsatisfiable(response, current, seen),
            other => Err(format!("status {other}")),
        }
    }

    fn judge_version(&self, version: u64, current: u64, seen: &Seen) -> Result<(), String> {
        if version > current {
            return Err(format!("version {version} is not there yet"));
        }
        if !self.may_be_old() && version != current {
            return Err(format!("version {version} in place of {current}"));
        }
        let before = seen.get(&self.path).copied().unwrap_or_default();
        if version >= before { Ok(()) } else { Err(format!("version {version} after {before}")) }
    }

    fn may_be_old(&self) -> bool {
        self.path.starts_with("/fresh") && !self.reload
    }

    fn judge_content(&self, response: &Response, expected: &[u8]) -> Result<(), String> {
        if self.method == "HEAD" {
            let length = response.field("content-length");
            let is_right = length.is_empty() || length == expected.len().to_string();
            return if is_right { Ok(()) } else { Err(format!("a length of {length}")) };
        }
        let is_right = match response.end {
            End::Truncated => expected.starts_with(&response.body),
            End::Complete | End::Closed => expected == response.body,
        };
        if is_right { Ok(()) } else { Err(format!("wrong content, {} bytes", response.body.len())) }
    }

    //= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
    //= RFC 9110 section 14.2: 206 or 416
    fn judge_part(&self, response: &Response, version: u64) -> Result<(), String> {
        if self.if_range.is_some_and(|named| named != version) {
            return Err(format!("a part of {version}"));
        }
        let body = content(version);
        let range = self.range.and_then(|range| range.of(body.len() as u64));
        let (first, last) = range.ok_or("a part that nobody asked for")?;
        let expected = format!("bytes {first}-{last}/{}", body.len());
        if response.field("content-range") != expected {
            return Err(format!("Content-Range, expected {expected}"));
        }
        self.judge_content(response, &body[first as usize..=last as usize])
    }

    fn judge_unsatisfiable(&self, response: &Response, current: u64, seen: &Seen) -> Result<(), String> {
        let before = seen.get(&self.path).copied().unwrap_or(1);
        let oldest = if self.may_be_old() { before } else { current };
        let is_so = |version: &u64| {
            let length = length(*version);
            let is_told = response.field("content-range") == format!("bytes */{length}");
            is_told && self.range.is_some_and(|range| range.of(length).is_none())
        };
        if (oldest..=current).any(|version| is_so(&version)) {
            Ok(())
        } else {
            Err("no reason for 416".to_owned())
        }
    }
}

fn random_range(dice: &mut Dice) -> Range {
    let offset = |dice: &mut Dice| match dice.below(4) {
        0 => dice.below(12),
        1 => 65_530 + dice.below(12),
        _ => dice.below(200_000),
    };
    let first = offset(dice);
    match dice.below(6) {
        0 => Range::From(first),
        1 => Range::Last(dice.below(100)),
        2 => Range::Last(offset(dice)),
        _ => Range::Between(first, first + offset(dice)),
    }
}
