//! What one request may cost before it is refused.

/// The longest method that is taken. The longest registered one has 17 bytes.
pub const METHOD_BYTES_MAX: usize = 32;

/// Upper bounds for one request, checked while its bytes arrive, never after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the head: a leading empty line, the request line, the field lines and the empty line. Over it: 431.
    pub head_bytes_max: usize,
    /// Bytes of the request target. Over it: 414.
    pub target_bytes_max: usize,
    /// Field lines of the head. Over it: 431. Values above [`Limits::FIELDS_CEILING`] act as that.
    pub fields_max: usize,
    /// Bytes of chunk extensions in one whole body. Counted over all its chunks, because a limit for each chunk
    /// lets a client send any amount of bytes that nobody reads.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of the trailer section of one body, its closing empty line included.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// The most field lines that a head or a trailer section can have, whatever `fields_max` says: field lines are
    /// first read into an array of this length on the stack.
    pub const FIELDS_CEILING: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            target_bytes_max: 8 * 1024,
            fields_max: 100,
            chunk_extension_bytes_max: 4 * 1024,
            trailer_bytes_max: 8 * 1024,
        }
    }
}
