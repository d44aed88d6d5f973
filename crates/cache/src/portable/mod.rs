//! Portable format of the records under cache keys, for other processes: `docs/internals/record-format.md`.
//!
//! Records contain inputs, never results: the facts of each response and its request. A reader makes all decisions again under its own
//! rules, and skips responses that it would not have stored.
//!
//! This module has no I/O. Its only side effect is a reservation of budget. Callers query the tier, in these steps:
//!
//! 1. [`decode`] the primary record.
//! 2. Load the responses stored [`Decoded::apart`], and [`Decoded::add_apart`] each one found.
//! 3. Load the segments of [`Decoded::small_bodies`].
//! 4. [`Decoded::entry`] creates the record for memory.
//!
//! To write: [`encode`], write the segments, write the responses stored apart, then write the primary record.

mod bodies;
mod decode;
mod encode;
mod judge;

#[cfg(test)]
mod tests;

pub use self::decode::{Decoded, Reader, decode};
pub use self::encode::{
    Encoded, Merge, ReleaseNote, SegmentBytes, Writing, encode, may_hold, nothing, with_word,
};
