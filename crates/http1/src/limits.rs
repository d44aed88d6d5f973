//! Limits for one request.

/// Maximum length of a method in bytes. The longest registered method has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Upper bounds for one request, checked while its bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of the head in bytes: a leading empty line, the request line, the field lines and the empty line.
    /// A larger head gets a 431.
    pub head_bytes_max: usize,
    /// Maximum length of the request target in bytes. A longer target gets a 414.
    pub target_bytes_max: usize,
    /// Maximum number of field lines in the head. More lines get a 431. Values above [`Limits::FIELDS_CEILING`] count
    /// as that ceiling.
    pub fields_max: usize,
    /// Maximum size of all chunk extensions in a body, in bytes. They are counted over all chunks, because with a
    /// limit per chunk a client could send any number of ignored bytes.
    pub chunk_extension_bytes_max: usize,
    /// Maximum size of the trailer section of a body in bytes, including its closing empty line.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// Maximum number of field lines of a head or a trailer section, whatever the value of `fields_max`: field lines
    /// are first parsed into an array of this length on the stack.
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
