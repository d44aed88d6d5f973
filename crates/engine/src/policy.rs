//! Eviction policies: Redis' `maxmemory-policy`, and S3-FIFO.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The keys that may be evicted, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No eviction: writes that don't fit are refused.
    NoEviction,
    /// S3-FIFO (Yang and others, SOSP 2023): new keys use a tenth of the memory until further accesses
    /// promote them to the other nine tenths. A key that was evicted too early returns to the nine tenths.
    #[default]
    AllKeysS3Fifo,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    /// The key with the earliest expiry is evicted first.
    VolatileTtl,
}

/// An unknown policy name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown policy {name:?}: expected one of {}", Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy {
    name: String,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 9] = [
        Self::NoEviction,
        Self::AllKeysS3Fifo,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllKeysS3Fifo => "allkeys-s3fifo",
            Self::AllKeysLru => "allkeys-lru",
            Self::AllKeysLfu => "allkeys-lfu",
            Self::AllKeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// Returns whether some keys are never evicted.
    #[must_use]
    pub fn keeps_keys(self) -> bool {
        self == Self::NoEviction || self.is_volatile()
    }

    /// Returns whether only keys with an expiry may be evicted.
    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl)
    }

    /// Returns whether items count their accesses as LFU requires.
    #[must_use]
    pub fn is_lfu(self) -> bool {
        matches!(self, Self::AllKeysLfu | Self::VolatileLfu)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::Policy;

    /// An engine stores its policy as an index.
    #[test]
    fn each_has_its_place_among_all() {
        assert!(Policy::ALL.iter().enumerate().all(|(place, policy)| *policy as usize == place));
    }
}
