//! Buffers of a thread, one of each kind for all its exchanges: a connection that waits or is idle has none.

use std::cell::Cell;

use bytes::BytesMut;

/// Largest buffer that is kept for the next exchange.
const KEPT_BYTES_MAX: usize = 128 * 1024;

thread_local! {
    static INPUT: Cell<BytesMut> = Cell::default();
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns an empty buffer with this much room.
pub(crate) fn take_input(room: usize) -> BytesMut {
    let mut input = INPUT.take();
    // Recovers the memory of pieces that were cut off, unless one of them still exists.
    input.reserve(room);
    input
}

/// Keeps an empty buffer for the next reader.
pub(crate) fn give_input(input: &mut BytesMut) {
    if input.is_empty() {
        let input = std::mem::take(input);
        if (1..=KEPT_BYTES_MAX).contains(&input.capacity()) {
            INPUT.set(input);
        }
    }
}

/// Returns an empty buffer to write a head into.
pub(crate) fn take_output() -> Vec<u8> {
    OUTPUT.take()
}

/// Keeps a buffer for the next writer.
pub(crate) fn give_output(output: &mut Vec<u8>) {
    let mut output = std::mem::take(output);
    if (1..=KEPT_BYTES_MAX).contains(&output.capacity()) {
        output.clear();
        OUTPUT.set(output);
    }
}
