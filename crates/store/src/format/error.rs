//! Why bytes are not what was asked for, or cannot be written.

/// Why bytes are not the record or segment that was asked for, or why one cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// They do not begin as ours do.
    #[error("not a frame of Larder")]
    NotOurs,
    /// Another version of Larder wrote them.
    #[error("version {0} is not known")]
    UnknownVersion(u8),
    /// More than the limit of their kind.
    #[error("{bytes} bytes are more than {bytes_max}")]
    TooLong {
        /// What they declare, or would be.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// There are not as many as they declare.
    #[error("the length is another than what is declared")]
    Length,
    /// The checksum is another.
    #[error("the checksum is wrong")]
    Checksum,
    /// There is no tag, or one of somebody who does not know the secret.
    #[error("the authentication tag is missing or wrong")]
    Unauthenticated,
    /// Older versions of Larder had a use for it.
    #[error("of a form that is no longer used")]
    Reserved,
    /// They are of another key, fill, index or kind than was asked for.
    #[error("something else than what was asked for")]
    Other,
    /// A rule of the format does not hold.
    #[error("{0}")]
    Invalid(&'static str),
}

/// What to do about bytes that are not what was asked for. It is a miss in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: somebody else can use them.
    Leave,
    /// They can be replaced, and nothing is wrong.
    Replace,
    /// Count and remove them.
    Corrupt,
    /// Count and tell, apart from what is corrupt.
    Forged,
}

impl FormatError {
    /// What to do.
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
