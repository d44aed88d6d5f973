//! `larder kv` and many clients: a small form of what `make soak` does for ten minutes with ten thousand.

mod crowd;

use std::time::Duration;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

#[test]
fn a_thousand_clients_at_the_memory_limit_lose_no_reply() {
    crowd::run(1000, Duration::from_secs(30), 64);
}
