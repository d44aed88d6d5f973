//! Large bodies: how they reach clients of every kind, sent by the kernel from files or by the gateway from the heap.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Larder, Random, ScriptedOrigin, Setup, wait};

use super::real_clients::Secured;
use crate::LARDER;
use crate::cache::basics::{asking, bare, with};

const MIB: usize = 1 << 20;

/// An origin with a different body under each `/SEED/BYTES`; with `?chunked`, its length is unknown until its end.
fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let fields = "Cache-Control: max-age=600\r\nETag: \"a\"\r\n";
        let target = exchange.request.target().to_owned();
        let body = body_of(target.trim_end_matches("?chunked"));
        match target.ends_with("?chunked") {
            true => exchange.chunked_head(fields).chunk(body).last_chunk(""),
            false => exchange.respond("200 OK", fields, body),
        };
    })
}

fn body_of(target: &str) -> Vec<u8> {
    let (seed, bytes) = target[1..].split_once('/').expect("a seed and a size");
    Random::new(seed.parse().expect("a number")).bytes(bytes.parse().expect("a number"))
}

fn file_bytes(larder: &Larder) -> u64 {
    larder.metric("larder_store_file_bytes", &[]) as u64
}

/// Removed or evicted bytes count as pinned until their last reader is gone.
fn wait_until_nothing_is_pinned(larder: &Larder) {
    wait::until_true("nothing is pinned", || larder.metric("larder_store_bytes", &["pinned"]) == 0.0);
}

/// A body that a plain HTTP/1.1 client requests first goes into files, and other clients get copies from there. All of them get
/// the same bytes, whole and in parts, while the body is being stored and afterwards.
#[test]
fn every_client_gets_every_byte() {
    const WAYS: [(&str, &str); 4] = [
        ("http", "--http1.1"),
        ("http", "--http2-prior-knowledge"),
        ("https", "--http1.1"),
        ("https", "--http2"),
    ];
    let origin = origin();
    let both = Secured::start(&origin, "[store]\nmemory = \"256MiB\"\n", &["a.example"]);
    let sizes = [3 * MIB + 12_345, 2 * MIB, 256 << 10, 64 << 10, (64 << 10) - 1];
    for (number, bytes) in sizes.into_iter().enumerate() {
        let target = format!("/{number}/{bytes}");
        let body = body_of(&target);
        let before = file_bytes(&both.larder);
        // In reverse order, HTTP/2 comes first, and nothing goes into files.
        for (suffix, ways) in [("", [0, 1, 2, 3]), ("?chunked", [3, 2, 1, 0])] {
            for way in ways.map(|index| WAYS[index]) {
                for turn in 0..2 {
                    let got = both.body(way, &format!("{target}{suffix}"), &[]);
                    assert!(got == body, "{way:?} {target}{suffix} turn {turn}: {} bytes", got.len());
                }
                for (first, last) in [(0, 0), (MIB - 1, MIB), (100_000, 199_999), (10, bytes - 1)] {
                    let last = last.min(bytes - 1);
                    let range = format!("{}-{last}", first.min(last));
                    let got = both.body(way, &format!("{target}{suffix}"), &["--range", &range]);
                    assert!(got == body[first.min(last)..=last], "{way:?} {target} {range}");
                }
            }
        }
        let whole_bytes = (bytes / MIB * MIB) as u64;
        let expected = if (64 << 10..MIB).contains(&bytes) { bytes as u64 } else { whole_bytes };
        assert_eq!(file_bytes(&both.larder) - before, expected, "in files for {target}");
    }
    for target in origin.received().iter().map(|request| request.target().to_owned()) {
        assert_eq!(origin.count(&target), 2, "once for each scheme: {target}");
    }
}

/// A client far behind another one gets its bytes, even if they have been evicted and their memory reused.
#[test]
fn an_evicted_body_goes_on_to_its_reader() {
    let origin = origin();
    // No limit on the slow client, because the machine may be busy.
    let limits = "[limits]\nwrite_timeout = \"10m\"\nwrite_rate_min = 0\n[store]\nmemory = \"64MiB\"\n";
    let larder = with(&format!("{limits}@site@"), &origin);
    let target = format!("/1/{}", 20 * MIB);
    let body = body_of(&target);
    assert!(larder.get(&target).body == body);
    let mut slow = asking(&larder, &target, "");
    assert_eq!(slow.head().status(), 200);
    let beginning = slow.bytes(100_000);
    assert!(larder.get(&target).body == body, "the slow client doesn't delay another one");
    // A body that is requested more than once replaces others.
    let pinned_bytes = || larder.metric("larder_store_bytes", &["pinned"]);
    for seed in (2..40).take_while(|_| pinned_bytes() == 0.0) {
        let other = format!("/{seed}/{}", 24 * MIB);
        let expected = body_of(&other);
        (0..3).for_each(|_| assert!(larder.get(&other).body == expected));
    }
    assert!(pinned_bytes() > 0.0, "the slow client pins evicted bytes");
    for seed in 50..53 {
        let other = format!("/{seed}/{}", 8 * MIB);
        assert!(larder.get(&other).body == body_of(&other), "in the memory of the evicted body");
    }
    assert!(beginning == body[..100_000] && slow.bytes(body.len() - 100_000) == body[100_000..]);
    wait_until_nothing_is_pinned(&larder);
}

#[test]
fn a_client_that_leaves_in_the_middle_holds_no_memory() {
    let origin = origin();
    let larder = bare(&origin);
    let target = format!("/1/{}", 20 * MIB);
    let body = body_of(&target);
    assert!(larder.get(&target).body == body);
    for _ in 0..4 {
        let mut client = asking(&larder, &target, "");
        assert!(client.head().status() == 200 && client.bytes(MIB) == body[..MIB]);
        client.reset();
    }
    assert!(larder.get(&target).body == body);
    let purged = larder.ask_admin("POST", &format!("/purge?url=http://test.example{target}"), "");
    assert_eq!(purged.status(), 200, "{}", purged.text());
    wait_until_nothing_is_pinned(&larder);
    assert_eq!(file_bytes(&larder), 0, "their memory is freed");
}

#[test]
fn large_bodies_are_on_the_heap_without_files() {
    let origin = origin();
    for limit in ["ulimit -f 1000000", "ulimit -n 25"] {
        let folder = tempfile::tempdir().unwrap();
        let limited = folder.path().join("limited");
        // Inherited files are closed so that the limit leaves the same number on every machine.
        let closed = "for file in /proc/$$/fd/*; do n=${file##*/}; [ $n -lt 3 ] || eval \"exec $n>&-\"; done";
        fs::write(&limited, format!("#!/bin/bash\n{closed}\n{limit}\nexec {LARDER} \"$@\"\n")).unwrap();
        fs::set_permissions(&limited, fs::Permissions::from_mode(0o755)).unwrap();
        let binary = limited.display().to_string();
        let larder = Setup::origin(&binary, &origin.url()).arguments(&["--workers", "1"]).start();
        let target = format!("/1/{}", 3 * MIB);
        for _ in 0..2 {
            assert!(larder.get(&target).body == body_of(&target), "{limit}");
        }
        assert!(larder.metric("larder_store_bytes", &["stored"]) > 3e6, "{limit}");
        assert_eq!(file_bytes(&larder), 0, "{limit}");
        let told = larder.stderr() + &larder.stdout();
        assert!(told.contains("sent without sendfile"), "{told}");
    }
}

/// The only worker keeps serving small hits while clients load large bodies at full speed.
#[test]
fn large_downloads_leave_turns_to_small_hits() {
    const LARGE_CLIENTS: usize = 4;
    const HITS: usize = 200;
    let origin = origin();
    let arguments = ["--workers", "1", "--memory", "512MiB"];
    let larder = Setup::origin(LARDER, &origin.url()).arguments(&arguments).start();
    let (large, small) = (format!("/1/{}", 64 * MIB), "/2/100");
    larder.get(&large);
    larder.get(small);
    let (stopped, loaded) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loaders: Vec<_> = (0..LARGE_CLIENTS)
        .map(|_| {
            let (stopped, loaded) = (Arc::clone(&stopped), Arc::clone(&loaded));
            let (mut client, large) = (larder.client(), large.clone());
            thread::spawn(move || load(&mut client, &large, &stopped, &loaded))
        })
        .collect();
    wait::until_true("all are loading", || loaded.load(Ordering::Acquire) > 4 << 20);
    let mut client = larder.client();
    let mut between: Vec<u64> = (0..HITS)
        .map(|_| {
            let before = loaded.load(Ordering::Acquire);
            assert!(client.get(small).is_hit());
            loaded.load(Ordering::Acquire) - before
        })
        .collect();
    stopped.store(true, Ordering::Release);
    loaders.into_iter().for_each(|loader| loader.join().expect("every byte arrived"));
    between.sort_unstable();
    let median = between[HITS / 2];
    assert!(median < (LARGE_CLIENTS * 8 * MIB) as u64, "{median} bytes were sent before a small hit");
}

/// Loads a body repeatedly and discards it.
fn load(client: &mut Client, target: &str, stopped: &AtomicBool, loaded: &AtomicU64) {
    while !stopped.load(Ordering::Acquire) {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        let mut left: usize =
            client.head().fields.one("content-length").expect("a length").parse().expect("a number");
        while left > 0 {
            let step = left.min(MIB);
            client.bytes(step);
            loaded.fetch_add(step as u64, Ordering::AcqRel);
            left -= step;
        }
    }
}
