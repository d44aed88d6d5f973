//! The gateway in front of Debian's nginx with real files.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use testkit::{End, Larder, Nginx, Random, Response, Setup, run};

use crate::LARDER;

/// Starts nginx with a file of `mebibytes` MiB, each with its own number, and a gateway with this memory. Returns them with the file's
/// path.
fn large_file(mebibytes: u64, memory: &str) -> (Nginx, Larder, PathBuf) {
    let nginx = Nginx::start("expires 1h;");
    let path = nginx.root().join("large.bin");
    let mut file = BufWriter::new(File::create(&path).expect("a file in the folder of nginx"));
    let mut block = Random::new(9).bytes(MIB as usize);
    for number in 0..mebibytes {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block).expect("room on the disk");
    }
    file.flush().expect("room on the disk");
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", nginx.url());
    let rule = "[[site.rule]]\nobject_bytes_max = \"1GiB\"\n";
    let larder = Setup::config(LARDER, &format!("[store]\nmemory = \"{memory}\"\n{site}{rule}")).start();
    (nginx, larder, path)
}

/// Requests a range of the file, and asserts a complete 206.
#[track_caller]
fn part(larder: &Larder, first: u64, last: u64) -> Response {
    let part = larder.ask("GET", "/large.bin", &format!("Range: bytes={first}-{last}\r\n"));
    assert_eq!((part.status(), part.end), (206, End::Complete), "{:?}", part.head);
    assert_eq!(part.body.len() as u64, last - first + 1);
    part
}

fn digest(path: &Path) -> String {
    let output = run("sha256sum", [path]).succeeded();
    output.text().split(' ').next().expect("a digest").to_owned()
}

/// Ranges requested from nginx, and the total number of bytes that it sent.
fn sent(lines: &[String]) -> (Vec<&str>, u64) {
    let columns = lines.iter().map(|line| line.rsplit(' '));
    let columns =
        columns.map(|mut columns| (columns.next().expect("bytes"), columns.next().expect("a range")));
    let bytes = columns.clone().map(|(bytes, _)| bytes.parse::<u64>().expect(bytes)).sum();
    (columns.map(|(_, range)| range.trim_start_matches("bytes=")).collect(), bytes)
}

const MIB: u64 = 1 << 20;

/// A large file with some stored ranges: a request for the whole file fetches no byte twice.
//= RFC 9111 section 3.3: completing by a range request
#[test]
fn holes_of_a_large_file_are_filled() {
    const FILE_BYTES: u64 = 200 * MIB;
    const PARTS: [(u64, u64); 4] = [
        (3 * MIB, 17 * MIB - 1),
        (50 * MIB + 12_345, 50 * MIB + 23_456),
        (90 * MIB - 7, 120 * MIB + 99),
        (FILE_BYTES - 1000, FILE_BYTES - 1),
    ];
    let (mut nginx, larder, path) = large_file(FILE_BYTES / MIB, "1GiB");
    for (first, last) in PARTS {
        part(&larder, first, last);
        assert!(part(&larder, first, last).is_hit());
    }
    let parts = nginx.settled_log();
    let stored_bytes: u64 = PARTS.iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(sent(&parts).1, stored_bytes, "{parts:?}");
    let whole = larder.folder().join("whole.bin");
    let fetch = || {
        let file = whole.display().to_string();
        let host = "Host: test.example";
        run("curl", ["-sf", "-H", host, "-o", &file, &larder.url("/large.bin")]).succeeded();
        digest(&whole)
    };
    let expected = digest(&path);
    assert_eq!(fetch(), expected);
    let log = nginx.settled_log();
    let (ranges, fetched_bytes) = sent(&log[parts.len()..]);
    assert_eq!(fetched_bytes, FILE_BYTES - stored_bytes, "only the holes: {ranges:?}");
    assert_eq!(ranges.len(), PARTS.len(), "one request per hole: {ranges:?}");
    assert_eq!(fetch(), expected, "from the store");
    assert_eq!(nginx.settled_log().len(), log.len(), "without nginx");
}

/// A hole too large for the store isn't stored, and the stored parts stay.
#[test]
fn a_hole_larger_than_the_store() {
    let (_nginx, larder, path) = large_file(40, "32MiB");
    let body = fs::read(path).expect("the file is there");
    let first = || part(&larder, 100, 99_999);
    let large = part(&larder, 0, 29_999_999);
    assert!(large.body == body[..30_000_000] && large.cache_status().contains("object-too-large"));
    assert!(first().cache_status().contains("stored"), "a smaller part is still stored");
    for _ in 0..2 {
        let whole = larder.get("/large.bin");
        assert_eq!((whole.status(), whole.end), (200, End::Complete), "{:?}", whole.head);
        assert!(whole.body == body && whole.cache_status().contains("fwd=partial"), "{:?}", whole.head);
        assert!(first().is_hit(), "the stored part is still usable");
    }
    assert!(part(&larder, 200_000, 30_000_000).body == body[200_000..=30_000_000] && first().is_hit());
}
