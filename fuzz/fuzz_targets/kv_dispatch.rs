//! Plays any bytes as a script for several clients of an in-memory server. Each command gets one complete reply, which
//! is the same for every split of the bytes. Clients that track or watch keys are notified of every change, and the
//! invariants of the engine hold.
//!
//! The first byte selects how the bytes are split and how lines become requests (see `Form`). The other bytes are a
//! scenario as in `conformance/resp`, with times; `dispatch/script.rs` parses it.

#![no_main]

mod dispatch;

use dispatch::{Form, Play};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, script)) = input.split_first() else { return };
    if dispatch::is_harmful(script) {
        return;
    }
    let form = Form::of(first);
    let whole = Play::new(script, Form { piece_bytes: usize::MAX, ..form }).run();
    let split = Play::new(script, form).run();
    // Buffers count towards the memory limit, so the split of the bytes affects which keys are evicted.
    if !dispatch::depends_on_chance_or_clock(script) && !whole.has_evicted && !split.has_evicted {
        assert_eq!(whole.text(), split.text());
    }
});
