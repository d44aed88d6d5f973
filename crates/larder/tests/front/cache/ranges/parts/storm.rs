//! Many clients request ranges of a resource that changes and is purged meanwhile, and whose origin cuts responses
//! short.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::{End, Exchange, Larder, Random, Response, ScriptedOrigin, Setup, wait};

use super::{Content, OnRange, answer, part_of};

const BYTES: usize = 700_000;
const TAGS: [&str; 4] = ["\"0\"", "\"1\"", "\"2\"", "\"3\""];
const CLIENTS: u64 = 6;
const REQUESTS: usize = 120;

/// All versions of the resource, each with its own tag, and the index of the current one.
pub(crate) struct Storm {
    bodies: Vec<Vec<u8>>,
    current: AtomicUsize,
    answers: AtomicUsize,
}

/// How the responses ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) complete: usize,
    pub(crate) broken: usize,
    pub(crate) hits: usize,
    pub(crate) assembled: usize,
}

impl Storm {
    /// Runs the storm against a gateway.
    pub(crate) fn run(binary: &str) -> Ends {
        let bodies = (0..TAGS.len() as u64).map(|seed| Random::new(seed).bytes(BYTES)).collect();
        let storm = Arc::new(Self { bodies, current: AtomicUsize::new(0), answers: AtomicUsize::new(0) });
        let served = Arc::clone(&storm);
        let origin = ScriptedOrigin::start(move |exchange| served.answer(exchange));
        let larder = Setup::origin(binary, &origin.url()).start();
        // A part is stored first, so that missing bytes must be fetched regardless of the order of clients.
        let part = "Range: bytes=100-199\r\n";
        wait::until_true("a part is stored", || larder.ask("GET", "/", part).is_hit());
        let (storm, larder) = (&storm, &larder);
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|seed| scope.spawn(move || storm.client(larder, seed))).collect();
            let all = clients.into_iter().map(|client| client.join().expect("the client is content"));
            all.reduce(|sum, ends| Ends {
                complete: sum.complete + ends.complete,
                broken: sum.broken + ends.broken,
                hits: sum.hits + ends.hits,
                assembled: sum.assembled + ends.assembled,
            })
            .expect("there are clients")
        })
    }

    /// Answers a request; every ninth response is cut short.
    fn answer(&self, exchange: &mut Exchange<'_>) {
        let version = self.current.load(Ordering::Acquire);
        let breaks = self.answers.fetch_add(1, Ordering::AcqRel) % 9 == 8;
        let on_range = if breaks { OnRange::Half } else { OnRange::Answer };
        let content = Content { etag: TAGS[version], on_range, ..Content::new(self.bodies[version].clone()) };
        answer(exchange, &content.shared());
    }

    fn client(&self, larder: &Larder, seed: u64) -> Ends {
        let mut random = Random::new(100 + seed);
        let mut ends = Ends::default();
        for number in 0..REQUESTS {
            // Now and then the first client changes the resource, and the second purges it.
            match (seed, number % 20) {
                (0, 19) => drop(self.current.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)),
                (1, 9) => drop(larder.ask_admin("POST", "/purge", "{\"url\": \"http://test.example/\"}")),
                _ => {}
            }
            let (first, other) = (random.below(BYTES), random.below(BYTES));
            let fields = match random.below(5) {
                0 => String::new(),
                1 => format!("Range: bytes={first}-\r\n"),
                2 => format!("Range: bytes=-{}\r\n", other + 1),
                _ => format!("Range: bytes={}-{}\r\n", first.min(other), first.max(other)),
            };
            self.check(&larder.ask("GET", "/", &fields), &fields, &mut ends);
        }
        ends
    }

    /// Checks that all bytes are those of the version that the tag names, at the position that the response
    /// states.
    fn check(&self, response: &Response, fields: &str, ends: &mut Ends) {
        let what = format!("{fields:?} -> {:?} {:?}", response.head, response.end);
        let version: usize = response.field("etag").trim_matches('"').parse().expect(&what);
        let body = &self.bodies[version];
        let expected = match (response.status(), response.field("content-range")) {
            (200, "") => &body[..],
            (206, range) => {
                let range = range.strip_prefix("bytes ").and_then(|range| range.split('/').next());
                &body[part_of(&format!("bytes={}", range.expect(&what)), BYTES).expect(&what)]
            }
            _ => panic!("{what}"),
        };
        match response.end {
            End::Complete => {
                assert!(response.body == expected, "other bytes: {what}");
                ends.complete += 1;
            }
            _ => {
                assert!(expected.starts_with(&response.body), "other bytes before the break: {what}");
                ends.broken += 1;
            }
        }
        ends.hits += usize::from(response.is_hit());
        ends.assembled += usize::from(response.cache_status().contains("fwd=partial"));
    }
}

fn next(version: usize) -> Option<usize> {
    Some((version + 1) % TAGS.len())
}
