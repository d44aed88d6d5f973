//! A realistic site, crawled from its first page. Each page is requested in every way, from the origin server and twice through the
//! gateway.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use testkit::{Larder, Random, RealServer, Response, Setup};

use crate::LARDER;
use crate::origin::same_answer::{ask, differences};

const CODINGS: [&str; 5] = [
    "",
    "Accept-Encoding: gzip\r\n",
    "Accept-Encoding: gzip, deflate, br, zstd\r\n",
    "Accept-Encoding: gzip;q=0, identity\r\n",
    "Accept-Encoding: identity;q=0.5, gzip;q=1.0\r\n",
];

pub(crate) struct Crawl {
    origin: SocketAddr,
    larder: Larder,
    /// Differences, each with the first request that showed it.
    found: BTreeMap<String, String>,
    asked: usize,
    hits: usize,
}

impl Crawl {
    /// Writes the files of a site, and starts a gateway in front of the server.
    pub(crate) fn of(server: &RealServer) -> Self {
        Self::through(server, Setup::origin(LARDER, &server.url()))
    }

    /// The same, with HTTP/2 between gateway and server.
    pub(crate) fn over_http2(server: &RealServer) -> Self {
        let url = server.url();
        let origin = format!("[[origin]]\nname = \"o\"\nurl = \"{url}\"\nprotocol = \"http2\"\n");
        let config = format!("{origin}[[site]]\nname = \"a\"\norigin = \"o\"\n");
        Self::through(server, Setup::config(LARDER, &config))
    }

    fn through(server: &RealServer, setup: Setup) -> Self {
        write_site(&server.root());
        let larder = setup.start();
        Self { origin: server.address(), larder, found: BTreeMap::new(), asked: 0, hits: 0 }
    }

    /// Crawls all pages that the first page leads to, and the given paths.
    pub(crate) fn run(mut self, more: &[&str]) {
        let mut waiting: VecDeque<String> = ["/"].iter().chain(more).map(|path| (*path).to_owned()).collect();
        let mut seen: BTreeSet<String> = waiting.iter().cloned().collect();
        while let Some(path) = waiting.pop_front() {
            let page = ask(self.origin, "GET", &path, "");
            self.compare_page(&path);
            let links = links(&page, &path).into_iter().filter(|link| seen.insert(link.clone()));
            waiting.extend(links.collect::<Vec<_>>());
        }
        let (found, asked) = (self.found.len(), self.asked);
        assert!(found == 0, "{found} differences in {asked} requests: {:#?}", self.found);
        assert!(seen.len() > 20, "the pages were found: {seen:?}");
        assert!(self.hits * 4 > self.asked, "{} hits for {asked} requests: the cache takes part", self.hits);
    }

    fn compare_page(&mut self, path: &str) {
        for coding in CODINGS {
            let whole = ask(self.origin, "GET", path, coding);
            for (method, fields) in requests(&whole) {
                self.compare(method, path, &format!("{coding}{fields}"));
            }
        }
        for coding in &CODINGS[..2] {
            self.compare_cold(path, coding);
        }
    }

    /// Sends each request as the first for its URL, followed by a GET for the whole page.
    fn compare_cold(&mut self, path: &str, coding: &str) {
        let whole = ask(self.origin, "GET", path, coding);
        let delimiter = if path.contains('?') { '&' } else { '?' };
        for (number, (method, fields)) in requests(&whole).iter().enumerate() {
            // All servers ignore this parameter.
            let cold = format!("{path}{delimiter}cold={}-{number}", coding.len());
            self.compare(method, &cold, &format!("{coding}{fields}"));
            self.compare("GET", &cold, coding);
        }
    }

    /// The first round may be a miss, and the second uses the stored result.
    fn compare(&mut self, method: &str, path: &str, fields: &str) {
        let direct = ask(self.origin, method, path, fields);
        for round in ["first", "second"] {
            let cached = ask(self.larder.address(), method, path, fields);
            self.judge(&direct, &cached, &format!("{round} {method} {path} {fields:?}"));
        }
    }

    fn judge(&mut self, direct: &Response, cached: &Response, request: &str) {
        self.asked += 1;
        self.hits += usize::from(cached.is_hit() || cached.cache_status().contains("fwd-status=304"));
        if is_missed_match(direct, cached, request) {
            return;
        }
        let found = differences(request, direct, cached);
        let cache_status = cached.cache_status();
        for what in found {
            // One example of each kind is enough to read.
            let kind = what.split(&['"', '['][..]).next().unwrap_or_default().to_owned();
            self.found.entry(kind).or_insert_with(|| format!("{request} [{cache_status}]: {what}"));
        }
    }
}

/// Returns whether the origin failed to match its own tag: Apache doesn't recognise tags changed by its mod_deflate.
fn is_missed_match(direct: &Response, cached: &Response, request: &str) -> bool {
    let tag = direct.field("etag").trim_matches('"');
    let is_asked_for = request.contains("If-None-Match") && !tag.is_empty() && request.contains(tag);
    is_asked_for && matches!(direct.status(), 200 | 206) && cached.status() == 304
}

/// Methods and fields of all requests for a page.
fn requests(whole: &Response) -> Vec<(&'static str, String)> {
    let (tag, date) = (whole.field("etag"), whole.field("last-modified"));
    let mut requests = vec![
        ("GET", String::new()),
        ("HEAD", String::new()),
        ("GET", "If-None-Match: \"other\"\r\n".to_owned()),
        ("GET", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned()),
    ];
    if whole.head.fields.has("trailer") {
        requests.push(("GET", "TE: trailers\r\nConnection: TE\r\n".to_owned()));
    }
    if !tag.is_empty() {
        requests.push(("GET", format!("If-None-Match: {tag}\r\n")));
        requests.push(("HEAD", format!("If-None-Match: \"other\", {tag}\r\n")));
    }
    if !date.is_empty() {
        requests.push(("GET", format!("If-Modified-Since: {date}\r\n")));
        requests.push(("GET", format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {date}\r\n")));
    }
    if whole.status() == 200 && !whole.body.is_empty() {
        requests.extend(ranges(whole.body.len(), tag, date));
    }
    requests
}

/// Range requests, without ranges that a server must ignore but nginx refuses, such as 5-2.
fn ranges(size: usize, tag: &str, date: &str) -> Vec<(&'static str, String)> {
    let (middle, end) = (size / 2, size - 1);
    let mut fields = vec![
        "Range: bytes=0-0\r\n".to_owned(),
        format!("Range: bytes={middle}-{end}\r\n"),
        format!("Range: bytes={middle}-\r\n"),
        format!("Range: bytes=0-{size}\r\n"),
        "Range: bytes=-3\r\n".to_owned(),
        format!("Range: bytes=-{}\r\n", size + 1),
        format!("Range: bytes={size}-\r\n"),
        "Range: lines=1-2\r\n".to_owned(),
        "Range: bytes=1-3\r\nIf-Range: \"other\"\r\n".to_owned(),
        "Range: bytes=1-3\r\nIf-Range: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(),
    ];
    if size > 1000 {
        // Servers may join ranges that are close to each other.
        fields.push(format!("Range: bytes=0-1,{middle}-{middle},-2\r\n"));
    }
    // Apache's tag of a negotiated page has no closing quote, so a cache can't compare it.
    if tag.ends_with('"') {
        fields.push(format!("Range: bytes=1-3\r\nIf-Range: {tag}\r\n"));
        fields.push(format!("Range: bytes=1-3\r\nIf-None-Match: {tag}\r\n"));
    }
    if !date.is_empty() {
        fields.push(format!("Range: bytes=1-3\r\nIf-Range: {date}\r\n"));
    }
    fields.into_iter().map(|fields| ("GET", fields)).collect()
}

/// Links of a page to its own site.
fn links(page: &Response, path: &str) -> Vec<String> {
    if !page.field("content-type").starts_with("text/html") {
        return Vec::new();
    }
    let text = page.text();
    let starts = ["href=\"", "src=\""];
    let found = starts.iter().flat_map(|start| text.split(start).skip(1));
    let targets = found.filter_map(|rest| rest.split('"').next()).filter(|link| !link.contains("://"));
    let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
    targets
        .map(|link| link.replace("&amp;", "&"))
        .map(|link| if link.starts_with('/') { link } else { format!("{folder}{link}") })
        .collect()
}

/// The files of the site.
fn write_site(root: &Path) {
    let mut random = Random::new(3);
    let text: String = (0..2000).map(|line| format!("Line {line}, much like the others.\n")).collect();
    let index = format!(
        "<!doctype html><title>x</title>{}<pre>{text}</pre>",
        LINKS.map(|link| format!("<a href=\"{}\">x</a>", link.replace('&', "&amp;"))).join("\n")
    );
    for folder in ["sub", "list", "negotiated"] {
        fs::create_dir(root.join(folder)).expect("a new folder");
    }
    let write = |name: &str, content: &[u8]| {
        fs::write(root.join(name), content).expect("a new file");
        make_old(&root.join(name));
    };
    write("index.html", index.as_bytes());
    write("style.css", text.as_bytes());
    write("plain.txt", text.as_bytes());
    write("image.png", &random.bytes(50_000));
    write("large.bin", &random.bytes(2 << 20));
    for (name, content) in [
        ("short.txt", "short"),
        ("empty.txt", ""),
        ("with space.txt", "a space in the name"),
        ("\u{fc}ml\u{e4}ut.txt", "not ASCII in the name"),
        ("100%.txt", "a per cent sign in the name"),
        ("a+b&c=d;e.txt", "queries are made of these characters"),
        ("quote\"and<angle>.txt", "HTML is made of these characters"),
        (".dotfile", "begins with a dot"),
        ("sub/index.html", "<!doctype html><img src=\"../image.png\"><a href=\"deep.txt\">x</a>"),
        ("sub/deep.txt", "deep"),
        ("list/one.txt", "one"),
        ("negotiated/page.html.en", "<!doctype html><title>page</title>"),
        ("negotiated/page.html.de", "<!doctype html><title>Seite</title>"),
    ] {
        write(name, content.as_bytes());
    }
    // Validators of listings and negotiated pages derive from the time of the folder.
    ["sub", "list", "negotiated", ""].iter().for_each(|folder| make_old(&root.join(folder)));
}

/// Sets an old modification time: a date in the current second would be a weak validator, which If-Range doesn't accept.
fn make_old(path: &Path) {
    let file = File::open(path).expect("it is there");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).expect("it is ours");
}

const LINKS: [&str; 20] = [
    "style.css",
    "/style.css?v=2&v=1",
    "/style.css?",
    "plain.txt",
    "short.txt",
    "empty.txt",
    "image.png",
    "large.bin",
    "with%20space.txt",
    "%C3%BCml%C3%A4ut.txt",
    "%c3%bcml%C3%A4ut.txt",
    "100%25.txt",
    "a+b&c=d;e.txt",
    "quote%22and%3Cangle%3E.txt",
    ".dotfile",
    "sub/",
    "sub/index.html",
    "%73hort.txt",
    "//short.txt",
    "missing.html",
];
