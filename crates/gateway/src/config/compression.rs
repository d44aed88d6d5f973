//! Compression of responses on their way out.

use caching::compression::{Coding, Compressible};

/// Compression of responses on their way out.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Responses to compress, and codings.
    pub compressible: Compressible,
    /// Effort for each coding.
    pub levels: Levels,
    /// Treatment of responses that are for one client alone.
    pub personal: PersonalResponses,
}

/// Effort spent on compression, as the level of each coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 19.
    pub zstd: u8,
    /// 0 to 11.
    pub br: u8,
    /// 1 to 9.
    pub gzip: u8,
}

/// Treatment of responses that are for one client alone. The length of a compressed response shows how much of it repeats the
/// request: an attacker who makes a browser send requests, and sees the length of the encrypted responses, can guess secrets in
/// them letter by letter (BREACH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalResponses {
    /// Sent as received.
    AsTheyCame,
    /// Compressed like others.
    Compressed,
}

impl Levels {
    /// Level of a coding.
    pub fn of(self, coding: Coding) -> u8 {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.br,
            Coding::Gzip => self.gzip,
        }
    }
}
