//! Limits for one request.

/// The longest accepted method. The longest registered one has 17 bytes.
pub const METHOD_BYTES_MAX: usize = 32;

/// Upper bounds for one request, checked while its bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the head: a leading empty line, the request line, the field lines and the empty line. Beyond it: 431.
    pub head_bytes_max: usize,
    /// Bytes of the request target. Beyond it: 414.
    pub target_bytes_max: usize,
    /// Field lines of the head. Beyond it: 431. Values above [`Limits::FIELDS_CEILING`] act as that.
    pub fields_max: usize,
    /// Bytes of chunk extensions in one whole body. Counted over all chunks, because with a limit for each chunk a
    /// client could send any number of ignored bytes.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of the trailer section of one body, including its closing empty line.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// Most field lines of a head or a trailer section, whatever `fields_max` says: field lines are first parsed into
    /// an array of this length on the stack.
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
