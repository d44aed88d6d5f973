//! Replies in the protocol that the client chose.

/// Version of the protocol, as HELLO chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    Resp2,
    Resp3,
}

impl Version {
    /// As HELLO says it.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to what is to be sent.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) version: Version,
}

impl Reply<'_> {
    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `text` begins with the code, such as `ERR`. Line ends would begin another reply: they become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    pub(crate) fn double(&mut self, number: f64) {
        let text = number.to_string();
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// A count, which no memory has above 2^63.
    pub(crate) fn count(&mut self, number: usize) {
        self.integer(number as i64);
    }

    #[inline]
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        resp::append_bulk(self.out, bytes);
    }

    /// The line before a bulk string.
    pub(crate) fn announce(&mut self, length: usize) {
        self.length(b'$', length);
    }

    pub(crate) fn null(&mut self) {
        let bytes: &[u8] = if self.version == Version::Resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Nothing, where a list was asked for.
    pub(crate) fn null_array(&mut self) {
        let bytes: &[u8] = if self.version == Version::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(bytes);
    }

    /// Followed by as many replies: a message that nobody has asked for.
    pub(crate) fn push(&mut self, length: usize) {
        self.length(if self.version == Version::Resp3 { b'>' } else { b'*' }, length);
    }

    /// Followed by as many replies.
    pub(crate) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Followed by twice as many replies, keys and values.
    pub(crate) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', pairs * 2),
            Version::Resp3 => self.length(b'%', pairs),
        }
    }

    /// Followed by as many replies, all different.
    pub(crate) fn set(&mut self, length: usize) {
        self.length(if self.version == Version::Resp3 { b'~' } else { b'*' }, length);
    }

    /// Text for people: told as such where the protocol can.
    pub(crate) fn text(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.line(kind, itoa::Buffer::new().format(length).as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}
