//! A queue that delivers each byte after a fixed delay, however many bytes it contains.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// Pieces in transit, in order. One side puts pieces in, and the other takes them out.
#[derive(Default)]
pub(crate) struct DelayLine {
    state: Mutex<State>,
    changed: Condvar,
}

/// Bytes that arrived together.
pub(crate) struct Piece {
    pub(crate) came: Instant,
    /// Bytes; empty if the sender has closed.
    pub(crate) bytes: Vec<u8>,
}

/// Error: the line is closed.
pub(crate) struct Closed;

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    bytes: usize,
    is_closed: bool,
}

impl DelayLine {
    /// Adds a piece that has just arrived; waits while `room` bytes or more are in transit.
    pub(crate) fn put(&self, bytes: Vec<u8>, room: usize) -> Result<(), Closed> {
        let came = Instant::now();
        let state = self.changed.wait_while(self.state(), |state| !state.is_closed && state.bytes >= room);
        let mut state = state.expect("no holder of this lock panics");
        if state.is_closed {
            return Err(Closed);
        }
        state.bytes += bytes.len();
        state.pieces.push_back(Piece { came, bytes });
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the oldest piece immediately; the caller decides when to deliver it.
    pub(crate) fn take(&self) -> Result<Piece, Closed> {
        let state =
            self.changed.wait_while(self.state(), |state| !state.is_closed && state.pieces.is_empty());
        let mut state = state.expect("no holder of this lock panics");
        let piece = state.pieces.pop_front().filter(|_| !state.is_closed).ok_or(Closed)?;
        state.bytes -= piece.bytes.len();
        self.changed.notify_all();
        Ok(piece)
    }

    /// Closes the line: no more pieces are put in or taken out.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}
