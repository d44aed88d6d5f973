//! What lies under a cache key as bytes for other processes, and back: `docs/design/record-format.md`.
//!
//! Written are inputs, never results: what was seen of each response and of its request. Who reads them decides anew, by
//! rules of its own, and has nothing of a response that it would not have stored.
//!
//! Pure but for the room that is reserved in the budget. The tier is asked by others, in these steps:
//!
//! 1. [`decode`] the primary record.
//! 2. Load the responses that lie [`Decoded::apart`], and [`Decoded::add_apart`] each that was there.
//! 3. Load the segments of [`Decoded::small_bodies`].
//! 4. [`Decoded::entry`] makes what lies under the key in memory.
//!
//! And the other way round: [`encode`], put the segments, put the responses apart, put the primary record.

mod bodies;
mod decode;
mod encode;
mod judge;

pub(crate) use self::decode::{Decoded, Reader, decode};
pub(crate) use self::encode::{
    Encoded, LastWord, Merge, Ours, SegmentBytes, Writing, encode, may_hold, nothing, with_word,
};

#[cfg(test)]
pub(crate) mod tests;
