//! Random requests for a changing file at an erratic origin server: each response is one that the file permits.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use testkit::{End, Exchange, Random, Response, ScriptedOrigin, Setup};

use super::ranges::parts::part_of;
use crate::LARDER;

#[test]
fn answers_are_what_the_file_permits() {
    for seed in 1..=SEEDS {
        converse(seed, &|setup| setup);
    }
}

/// Stored responses are in a tier that forgets, fails, and doesn't answer.
#[cfg(feature = "test-store")]
#[test]
fn answers_are_what_the_file_permits_over_a_tier_that_fails() {
    let behaviours = [
        "evicting_permille=200",
        "unreachable_permille=100",
        "silent_permille=100,deadline_ms=5",
        "latency_ms=1,evicting_permille=100,unreachable_permille=50,silent_permille=50,deadline_ms=5",
    ];
    let check = |behaviour: &str| {
        for seed in 1..=SEEDS {
            let store = format!("seed={seed},{behaviour}");
            converse(seed, &|setup| setup.environment("LARDER_TEST_STORE", &store));
        }
    };
    thread::scope(|scope| behaviours.map(|behaviour| _ = scope.spawn(move || check(behaviour))));
}

const SEEDS: u64 = 6;
const REQUESTS: usize = 300;
/// Paths of each kind: few, so that many requests find a partly stored response.
const PATHS: usize = 12;

fn converse(seed: u64, set: &dyn Fn(Setup) -> Setup) {
    let file = Arc::new(Mutex::new(File { version: 1, moods: Random::new(seed + 1000) }));
    let served = Arc::clone(&file);
    let origin = ScriptedOrigin::start(move |exchange| answer(exchange, &served));
    let larder = set(Setup::origin(LARDER, &origin.url())).start();
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    let mut story = Vec::new();
    for number in 0..REQUESTS {
        if random.below(12) == 0 {
            file.lock().expect("no holder of this lock panics").version += 1;
        }
        let current = file.lock().expect("no holder of this lock panics").version;
        let request = Request::random(&mut random, current);
        let response = larder.ask(request.method, &request.path, &request.fields());
        let judged = request.judge(&response, current, &mut seen);
        story.push(format!("{number}: {request:?}, {:?}: {:?}", response.end, response.head));
        if let Err(problem) = judged {
            story.retain(|told| told.contains(&format!("{:?}", request.path)));
            panic!("seed {seed}: {problem}\n{}", story.join("\n"));
        }
    }
}

/// The file at the origin.
struct File {
    version: usize,
    moods: Random,
}

/// The contents by version: some span several segments, one is empty.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let length = |version: usize| [300_000, 10, 150_000, 70_000, 0, 65_536, 65_537, 1][version % 8];
    let byte = |version: usize, index: usize| (index * 31 + index / 251 + version * 17) as u8;
    let content = |version| (0..length(version)).map(|index| byte(version, index)).collect();
    (0..100).map(content).collect()
});

fn tag(version: usize) -> String {
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
    let lists = |name: &str| exchange.request.field(name) == tag(version);
    if lists("if-none-match") {
        exchange.head("304 Not Modified", &fields);
        return;
    }
    let may_be_part = exchange.request.field("if-range").is_empty() || lists("if-range");
    let range = exchange.request.field("range").to_owned();
    let body = &CONTENTS[version];
    if range.is_empty() || !may_be_part || mood == 0 || exchange.request.method() != "GET" {
        send(exchange, "200 OK", &fields, body, mood);
    } else if let Some(part) = part_of(&range, body.len()) {
        let place = format!("Content-Range: bytes {}-{}/{}\r\n", part.start, part.end - 1, body.len());
        send(exchange, "206 Partial Content", &format!("{fields}{place}"), &body[part], mood);
    } else {
        let fields = format!("Content-Range: bytes */{}\r\nETag: {}\r\n", body.len(), tag(version));
        exchange.respond("416 Range Not Satisfiable", &fields, "");
    }
}

/// Sends a response in one of several framings; sometimes the connection ends before the content does.
fn send(exchange: &mut Exchange<'_>, status: &str, fields: &str, body: &[u8], mood: usize) {
    let is_get = exchange.request.method() == "GET";
    if mood == 1 && is_get {
        exchange.head(status, &format!("{fields}Transfer-Encoding: chunked\r\n"));
        body.chunks(10_000).for_each(|chunk| _ = exchange.chunk(chunk));
        exchange.last_chunk("");
    } else if mood == 2 && is_get && body.len() > 1 {
        exchange.head(status, &format!("{fields}Content-Length: {}\r\n", body.len()));
        exchange.send(&body[..body.len() / 2]).close();
    } else {
        exchange.respond(status, fields, body);
    }
}

/// The last version seen, by path.
type Seen = HashMap<String, usize>;

/// One client's request.
#[derive(Debug)]
struct Request {
    method: &'static str,
    path: String,
    range: Option<String>,
    if_range: Option<usize>,
    if_none_match: Option<usize>,
    reload: bool,
}

impl Request {
    fn random(random: &mut Random, current: usize) -> Self {
        let kinds = ["fresh", "fresh", "fresh", "checked", "stale", "private"];
        let kind = kinds[random.below(kinds.len())];
        let one_in = |count: usize, random: &mut Random| random.below(count) == 0;
        let some_version = |random: &mut Random| current.saturating_sub(random.below(3));
        Self {
            method: if one_in(8, random) { "HEAD" } else { "GET" },
            path: format!("/{kind}/{}", random.below(PATHS)),
            range: (!one_in(6, random)).then(|| random_range(random)),
            if_range: one_in(5, random).then(|| some_version(random)),
            if_none_match: one_in(7, random).then(|| some_version(random)),
            reload: one_in(10, random),
        }
    }

    fn fields(&self) -> String {
        let mut fields = String::new();
        let mut push = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(fields, "{name}: {value}\r\n");
            }
        };
        push("Range", self.range.clone());
        push("If-Range", self.if_range.map(tag));
        push("If-None-Match", self.if_none_match.map(tag));
        push("Cache-Control", self.reload.then(|| "no-cache".to_owned()));
        fields
    }

    //= RFC 9110 section 14.1.2: byte ranges
    fn part(&self, version: usize) -> Option<Range<usize>> {
        part_of(self.range.as_deref()?, CONTENTS[version].len())
    }

    /// Checks that the response is one that the file permits.
    fn judge(&self, response: &Response, current: usize, seen: &mut Seen) -> Result<(), String> {
        let status = response.status();
        let version = match response.field("etag") {
            "" => current,
            etag => etag.trim_matches(['"', 'v']).parse().map_err(|_| format!("no tag: {etag}"))?,
        };
        if status != 416 {
            self.judge_version(version, current, seen)?;
        }
        // Content that was cut short, or that this client didn't get, may not be stored.
        let is_kept = response.is_hit() || response.cache_status().contains("; stored");
        if is_kept && matches!(status, 200 | 206) && self.method == "GET" && response.end == End::Complete {
            seen.insert(self.path.clone(), version);
        }
        match status {
            200 => self.judge_content(response, &CONTENTS[version]),
            206 if self.method == "GET" => self.judge_part(response, version),
            304 if self.if_none_match == Some(version) => Ok(()),
            416 if self.method == "GET" => self.judge_unsatisfiable(response, current, seen),
            other => Err(format!("status {other}")),
        }
    }

    fn judge_version(&self, version: usize, current: usize, seen: &Seen) -> Result<(), String> {
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
    fn judge_part(&self, response: &Response, version: usize) -> Result<(), String> {
        if self.if_range.is_some_and(|named| named != version) {
            return Err(format!("a part of {version}"));
        }
        let part = self.part(version).ok_or("an unrequested part")?;
        let body = &CONTENTS[version];
        let expected = format!("bytes {}-{}/{}", part.start, part.end - 1, body.len());
        if response.field("content-range") != expected {
            return Err(format!("Content-Range, expected {expected}"));
        }
        self.judge_content(response, &body[part])
    }

    fn judge_unsatisfiable(&self, response: &Response, current: usize, seen: &Seen) -> Result<(), String> {
        let before = seen.get(&self.path).copied().unwrap_or(1);
        let oldest = if self.may_be_old() { before } else { current };
        let is_so = |version: usize| {
            let told = format!("bytes */{}", CONTENTS[version].len());
            self.range.is_some() && self.part(version).is_none() && response.field("content-range") == told
        };
        let is_reason = (oldest..=current).any(is_so);
        if is_reason { Ok(()) } else { Err("no reason for 416".to_owned()) }
    }
}

fn random_range(random: &mut Random) -> String {
    let offset = |random: &mut Random| match random.below(4) {
        0 => random.below(12),
        1 => 65_530 + random.below(12),
        _ => random.below(200_000),
    };
    let first = offset(random);
    match random.below(6) {
        0 => format!("bytes={first}-"),
        1 => format!("bytes=-{}", random.below(100)),
        2 => format!("bytes=-{}", offset(random)),
        _ => format!("bytes={first}-{}", first + offset(random)),
    }
}
