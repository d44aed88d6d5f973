//! Errors of decoding and encoding.

/// Reason why bytes aren't the requested record or segment, or why one can't be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes don't begin with the mark of Larder.
    #[error("not written by Larder")]
    NotOurs,
    /// The bytes were written by another version of Larder.
    #[error("version {0} is not known")]
    UnknownVersion(u8),
    /// The frame exceeds the limit of its kind.
    #[error("{bytes} bytes exceed the limit of {bytes_max}")]
    TooLong {
        /// Declared or encoded length.
        bytes: usize,
        /// Limit on the length.
        bytes_max: usize,
    },
    /// The length differs from the declared one.
    #[error("the length differs from the declared one")]
    Length,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// The tag is missing, or was made without the secret.
    #[error("the authentication tag is missing or wrong")]
    Unauthenticated,
    /// The form is reserved, because older versions of Larder wrote it.
    #[error("obsolete form")]
    Reserved,
    /// The key, fill, index or kind differs from the requested one.
    #[error("not the requested record or segment")]
    Other,
    /// A rule of the format is broken.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Treatment of bytes that aren't the requested ones. They count as a miss in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Leave them, because another instance can use them.
    Leave,
    /// Replace them; this isn't an error.
    Replace,
    /// Count them as corrupt and remove them.
    Corrupt,
    /// Count them as forged and log the event.
    Forged,
}

impl FormatError {
    /// Returns the action to take.
    pub fn meaning(&self) -> Meaning {
        match self {
            Self::UnknownVersion(_) => Meaning::Leave,
            Self::Other | Self::Reserved => Meaning::Replace,
            Self::Unauthenticated => Meaning::Forged,
            Self::NotOurs | Self::TooLong { .. } | Self::Length | Self::Checksum | Self::Invalid(_) => {
                Meaning::Corrupt
            }
        }
    }
}
