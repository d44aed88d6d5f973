//! Memory at its limit, for a short time; `soak.rs` has the long one.

mod pressure;

use std::time::Duration;

#[test]
fn memory_stays_within_its_limit() {
    pressure::run(Duration::from_secs(20), 32 << 20);
}
