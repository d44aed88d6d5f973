//! Memory at its limit, for a short time; `soak.rs` has the long one. And what a stored response takes.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use testkit::{Client, Larder, ScriptedOrigin, Setup, wait};

use crate::LARDER;
use crate::cache::pressure;

#[test]
fn memory_stays_within_its_limit() {
    pressure::run(Duration::from_secs(20), 32 << 20);
}

/// The budget of `make compare WHAT=overhead`, which stores ten times as many: head, key and table are in it.
const OVERHEAD_BYTES_MAX: f64 = 600.0;
const BODY_BYTES: usize = 1024;
const RESPONSES_BEFORE: u32 = 2000;
const RESPONSES: u32 = 10_000;
const CLIENTS: u32 = 4;

/// `docs/internals/requests.md` has the parts.
#[test]
fn a_stored_response_takes_little_beyond_its_body() {
    let body = vec![b'a'; BODY_BYTES];
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\n\
            Cache-Control: max-age=3600\r\nETag: \"one\"\r\n";
        exchange.respond("200 OK", fields, &body);
    });
    let config = format!("workers = 1\n[[site]]\nname = \"compare\"\norigin = \"{}\"\n", origin.url());
    let larder = Setup::config(LARDER, &config).start();
    fill(larder.address(), "before", RESPONSES_BEFORE);
    let before = Held::by(&larder);
    fill(larder.address(), "stored", RESPONSES);
    let stored = larder.metric("larder_store_entries", &[]);
    assert_eq!(stored, f64::from(RESPONSES_BEFORE + RESPONSES));
    let counted = Held::by(&larder).counted - before.counted;
    assert!(counted <= OVERHEAD_BYTES_MAX, "the store counts {counted} bytes for each");
    // What the fills have freed goes back to the system soon.
    wait::until_true("the memory of responses is within the budget, and within what is counted", || {
        let resident = Held::by(&larder).resident - before.resident;
        eprintln!("{resident} bytes beyond the body are resident, {counted} counted");
        resident <= OVERHEAD_BYTES_MAX && resident <= counted * 1.1
    });
}

/// Bytes for each of the responses that are counted here, beyond their bodies.
struct Held {
    resident: f64,
    counted: f64,
}

impl Held {
    fn by(larder: &Larder) -> Self {
        let each = |bytes: f64| bytes / f64::from(RESPONSES);
        let stored = larder.metric("larder_store_entries", &[]);
        let bodies = stored * BODY_BYTES as f64;
        Self {
            resident: each(larder.resident_bytes() as f64 - bodies),
            counted: each(larder.metric("larder_store_bytes", &[]) - bodies),
        }
    }
}

fn fill(address: SocketAddr, name: &str, responses: u32) {
    let ask = |of: u32| {
        let mut client = Client::connect(address);
        for number in (of..responses).step_by(CLIENTS as usize) {
            assert_eq!(client.get(&format!("/1k/{name}-{number}")).body.len(), BODY_BYTES);
        }
    };
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || ask(client));
        }
    });
}
