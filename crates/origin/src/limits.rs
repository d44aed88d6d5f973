//! Sizes of responses, and of the pieces that need no room in the budget.

/// Maximum number of header field lines in a response.
pub const FIELDS_MAX: usize = 200;
/// Maximum size of a response head, in bytes.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Largest piece of content, in bytes, that needs no room in the budget: one piece at a time for each exchange is within the
/// memory that the process needs beside the budget.
pub const UNCHARGED_PIECE_BYTES_MAX: usize = 16 * 1024 + 1;
/// Room for a read of a large body.
pub(crate) const INPUT_BYTES_MAX: usize = 128 * 1024;
/// Bytes of a body that are charged on their way: the room of a read, and the piece of an earlier one.
pub const ARRIVING_BYTES_MAX: usize = 2 * INPUT_BYTES_MAX;
