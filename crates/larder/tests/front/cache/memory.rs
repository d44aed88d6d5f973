//! Memory at its limit, for a short time (`soak.rs` has the long test), and the overhead of a stored response.

use std::thread;
use std::time::Duration;

use testkit::{Larder, ScriptedOrigin, wait};

use super::basics::with;
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

/// `docs/internals/requests.md` lists the parts of the overhead.
#[test]
fn a_stored_response_takes_little_beyond_its_body() {
    let body = vec![b'a'; BODY_BYTES];
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\n\
            Cache-Control: max-age=3600\r\nETag: \"one\"\r\n";
        exchange.respond("200 OK", fields, &body);
    });
    let larder = with("workers = 1\n@site@", &origin);
    fill(&larder, "before", RESPONSES_BEFORE);
    let before = held(&larder);
    fill(&larder, "stored", RESPONSES);
    let stored = larder.metric("larder_store_entries", &[]);
    assert_eq!(stored, f64::from(RESPONSES_BEFORE + RESPONSES));
    let counted = held(&larder)[1] - before[1];
    assert!(counted <= OVERHEAD_BYTES_MAX, "the store counts {counted} bytes for each");
    // Freed memory of the fills is soon returned to the OS.
    wait::until_true("the memory of responses is within the budget and the counted bytes", || {
        let resident = held(&larder)[0] - before[0];
        resident <= OVERHEAD_BYTES_MAX && resident <= counted * 1.1
    });
}

/// Bytes for each of the responses that are counted here, beyond their bodies: resident, and counted by the store.
fn held(larder: &Larder) -> [f64; 2] {
    let bodies = larder.metric("larder_store_entries", &[]) * BODY_BYTES as f64;
    let all = [larder.resident_bytes() as f64, larder.metric("larder_store_bytes", &[])];
    all.map(|bytes| (bytes - bodies) / f64::from(RESPONSES))
}

fn fill(larder: &Larder, name: &str, responses: u32) {
    let ask = |of: u32| {
        let mut client = larder.client();
        for number in (of..responses).step_by(CLIENTS as usize) {
            assert_eq!(client.get(&format!("/1k/{name}-{number}")).body.len(), BODY_BYTES);
        }
    };
    thread::scope(|scope| (0..CLIENTS).for_each(|client| _ = scope.spawn(move || ask(client))));
}
