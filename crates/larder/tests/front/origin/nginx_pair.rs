//! nginx with real files, asked directly and through the gateway: what comes must be the same, byte by byte.

use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use testkit::{Larder, Nginx, Random, Response, Setup};

use super::same_answer::{ask, differences};
use crate::LARDER;

const CONFIG: &str = r#"
[store]
memory = "@memory@"
[[site]]
name = "files"
origin = "@origin@"
[[site.rule]]
object_bytes_max = "1GiB"
"#;

/// Configuration of nginx for the files: lifetimes, and gzip with Vary for text.
const DIRECTIVES: &str = "add_header Cache-Control max-age=3600;
        gzip on;
        gzip_vary on;
        gzip_proxied any;
        gzip_min_length 100;
        gzip_types text/plain text/css;";

/// Files as sites have them, one of them large.
pub(crate) struct Files {
    nginx: Nginx,
    larder: Larder,
    paths: Vec<String>,
}

impl Files {
    pub(crate) fn start(large_bytes: usize, memory: &str) -> Self {
        let nginx = Nginx::start(DIRECTIVES);
        let mut paths = Vec::new();
        let mut random = Random::new(2);
        let mut write = |name: &str, content: &[u8]| {
            let path = nginx.root().join(name);
            fs::write(&path, content).expect("a file in the folder of nginx");
            // A date of this second would be a weak validator, and no good for If-Range.
            let file = File::options().write(true).open(&path).expect("the file is there");
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).expect("it is our file");
            paths.push(format!("/{name}"));
        };
        let text: String = (0..3000).map(|line| format!("Line {line}, much like the others.\n")).collect();
        write("index.html", format!("<!doctype html><title>x</title><pre>{text}</pre>").as_bytes());
        write("style.css", text.as_bytes());
        write("short.txt", b"short");
        write("empty.txt", b"");
        write("text.txt", text.as_bytes());
        write("image.png", &random.bytes(150_000));
        write("odd-size.bin", &random.bytes((1 << 20) + 1));
        write("large.bin", &random.bytes(large_bytes));
        let config = CONFIG.replace("@origin@", &nginx.url()).replace("@memory@", memory);
        let larder = Setup::config(LARDER, &config).start();
        Self { nginx, larder, paths }
    }

    /// Every file in every way, twice; the second round is answered without nginx.
    pub(crate) fn check(&mut self) {
        self.round();
        let before = self.nginx.settled_log();
        assert!(!before.is_empty(), "the log of nginx is read");
        let asked_directly = self.round();
        let log = self.nginx.settled_log();
        let forwarded = log.len() - before.len() - asked_directly;
        assert_eq!(forwarded, 0, "the second round reached the origin: {:#?}", &log[before.len()..]);
    }

    /// Says how many requests went to nginx directly.
    fn round(&self) -> usize {
        let mut asked = 0;
        for path in &self.paths {
            for coding in ["", "Accept-Encoding: gzip\r\n"] {
                asked += self.compare_all(path, coding);
            }
        }
        asked
    }

    fn compare_all(&self, path: &str, coding: &str) -> usize {
        let whole = self.compare("GET", path, coding);
        let size = whole.body.len();
        let is_coded = whole.head.fields.has("content-encoding");
        let (tag, date) = (whole.field("etag").to_owned(), whole.field("last-modified").to_owned());
        let mut requests = vec![
            ("HEAD", String::new()),
            ("GET", format!("If-None-Match: {tag}\r\n")),
            ("GET", "If-None-Match: \"other\"\r\n".to_owned()),
            ("GET", format!("If-Modified-Since: {date}\r\n")),
            ("GET", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned()),
        ];
        // nginx codes on the fly and can't send parts of that; a cache can, because it has the bytes.
        if !is_coded && size > 0 {
            let (middle, end) = (size / 2, size - 1);
            requests.extend([
                ("GET", "Range: bytes=0-0\r\n".to_owned()),
                ("GET", format!("Range: bytes={middle}-{end}\r\n")),
                ("GET", "Range: bytes=-3\r\n".to_owned()),
                ("GET", format!("Range: bytes={size}-\r\n")),
                ("GET", format!("Range: bytes=0-1,{middle}-{middle},-2\r\n")),
                ("GET", format!("Range: bytes=1-3\r\nIf-Range: {tag}\r\n")),
                ("GET", "Range: bytes=1-3\r\nIf-Range: \"other\"\r\n".to_owned()),
                ("GET", format!("Range: bytes=1-3\r\nIf-Range: {date}\r\n")),
            ]);
        }
        for (method, fields) in &requests {
            self.compare(method, path, &format!("{coding}{fields}"));
        }
        requests.len() + 1
    }

    /// Both answers are the same; gives the one of the gateway.
    fn compare(&self, method: &str, path: &str, fields: &str) -> Response {
        let direct = ask(self.nginx.address(), method, path, fields);
        let cached = ask(self.larder.address(), method, path, fields);
        let found = differences(fields, &direct, &cached);
        assert_eq!(
            found, [""; 0],
            "{method} {path} {fields:?}\nnginx: {:?}\nlarder: {:?}",
            direct.head, cached.head
        );
        cached
    }
}
