//! One buffer of each kind for all exchanges of a thread: a connection that waits or is idle has none.

use std::cell::Cell;

use bytes::BytesMut;

/// A larger buffer isn't kept for the next exchange.
const KEPT_BYTES_MAX: usize = 128 * 1024;

thread_local! {
    static INPUT: Cell<BytesMut> = Cell::default();
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An empty buffer with room for so many bytes.
pub(super) fn take_input(room: usize) -> BytesMut {
    let mut input = INPUT.take();
    // Takes back what pieces that were cut off it have used, unless one of them still exists.
    input.reserve(room);
    input
}

/// Keeps a buffer for the next who reads, if nothing is in it.
pub(super) fn give_input(input: &mut BytesMut) {
    if input.is_empty() {
        let input = std::mem::take(input);
        if (1..=KEPT_BYTES_MAX).contains(&input.capacity()) {
            INPUT.set(input);
        }
    }
}

/// An empty buffer to write a head into.
pub(super) fn take_output() -> Vec<u8> {
    OUTPUT.take()
}

/// Keeps a buffer for the next who writes.
pub(super) fn give_output(output: &mut Vec<u8>) {
    let mut output = std::mem::take(output);
    if (1..=KEPT_BYTES_MAX).contains(&output.capacity()) {
        output.clear();
        OUTPUT.set(output);
    }
}
