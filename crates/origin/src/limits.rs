//! What an origin may send at once, and what of it is not counted.

/// Header field lines in a response.
pub const FIELDS_MAX: usize = 200;
/// Bytes of its head.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Pieces of content up to this size need no room in the budget: a piece for each exchange at a time is within what the process
/// needs beside it.
pub const UNCHARGED_PIECE_BYTES_MAX: usize = 16 * 1024 + 1;
/// Room of a read where much comes.
pub(crate) const INPUT_BYTES_MAX: usize = 128 * 1024;
/// Bytes of a body that are counted on their way: the room of a read, and a piece that one has brought.
pub const ARRIVING_BYTES_MAX: usize = 2 * INPUT_BYTES_MAX;
