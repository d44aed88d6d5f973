//! How responses are compressed on their way out.

use caching::compression::{Coding, Compressible};

/// How responses are compressed on their way out.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Which responses, and in which codings.
    pub compressible: Compressible,
    /// How much time is spent on it.
    pub levels: Levels,
    /// What becomes of responses that are for one client alone.
    pub personal: PersonalResponses,
}

/// How much time is spent on compressing, in the numbers that each coding has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 19.
    pub zstd: u8,
    /// 0 to 11.
    pub br: u8,
    /// 1 to 9.
    pub gzip: u8,
}

/// What becomes of responses that are for one client alone. What is compressed tells by its length how much of it repeats
/// what the client sent: whoever makes a browser send requests, and sees how long the encrypted answers are, guesses secrets in them
/// letter by letter (BREACH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalResponses {
    /// They go as they came.
    AsTheyCame,
    /// They are compressed like others.
    Compressed,
}

impl Levels {
    /// That of a coding.
    pub fn of(self, coding: Coding) -> u8 {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.br,
            Coding::Gzip => self.gzip,
        }
    }
}
