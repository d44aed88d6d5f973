//! Names of keys on the server, as specified in `docs/internals/remote-tier.md`.

use std::fmt;

use resp::hash_slot;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::settings::Word;
use crate::address::is_of_fleet;
use crate::backing::Version;
use crate::{FillId, SegmentId};

/// Digest of a key: the first half of its SHA-256. A collision takes 2^64 attempts, and only causes misses, because the record has the full
/// key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 16]);

/// Names of one tier.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Word,
}

/// Subject of an operation, which determines the node of a cluster that receives the operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Key(&'a [u8]),
    Fill(FillId),
    Log,
}

/// Meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Record(Digest),
    Log,
    /// A name that isn't followed.
    Other,
}

impl Digest {
    pub(super) fn of(key: &[u8]) -> Self {
        let whole = digest(&SHA256, key);
        Self(*whole.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    fn parse(hex: &[u8]) -> Option<Self> {
        let digits: &[u8; 32] = hex.try_into().ok()?;
        let text = std::str::from_utf8(digits).ok().filter(|text| !text.contains('+'))?;
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns the cluster slot of a record and its lease.
pub(super) fn slot_of_record(digest: Digest) -> u16 {
    hash_slot(digest.to_string().as_bytes())
}

/// Returns an unpredictable id, for a lease or a log.
pub(super) fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    SystemRandom::new().fill(&mut id).expect("the OS provides random numbers");
    id
}

/// Returns the version of a record: the first eight bytes of its SHA-256. By chance, two records under one key share a version in one of
/// 2^64 pairs. An attacker needs 2^32 attempts for a pair, and must know the times and ids that the storing instance will write into them.
pub(super) fn version_of(bytes: &[u8]) -> Version {
    let whole = digest(&SHA256, bytes);
    Version(u64::from_be_bytes(*whole.as_ref().first_chunk().expect("SHA-256 has 32 bytes")))
}

impl Names {
    pub(super) fn new(prefix: &Word) -> Self {
        Self { prefix: prefix.clone() }
    }

    pub(super) fn record(&self, digest: Digest) -> String {
        format!("{}r:{{{digest}}}", self.prefix.as_str())
    }

    /// Returns the name of the record under a key. The records of a fleet are in the cluster slot of the log, so an instance that reaches
    /// the log also reaches them.
    pub(super) fn record_of(&self, key: &[u8], digest: Digest) -> String {
        match is_of_fleet(key) {
            true => format!("{0}m:{{{0}log}}:{digest}", self.prefix.as_str()),
            false => self.record(digest),
        }
    }

    /// Returns the cluster slot of a place.
    pub(super) fn slot(&self, place: Place<'_>) -> u16 {
        match place {
            Place::Key(key) if is_of_fleet(key) => self.log_slot(),
            Place::Key(key) => slot_of_record(Digest::of(key)),
            Place::Fill(FillId { process, sequence }) => {
                hash_slot(format!("{process:016x}{sequence:016x}").as_bytes())
            }
            Place::Log => self.log_slot(),
        }
    }

    pub(super) fn log_slot(&self) -> u16 {
        hash_slot(self.log().as_bytes())
    }

    /// Returns the name of the lease on a key, in the cluster slot of the record.
    pub(super) fn lease_of(&self, key: &[u8], digest: Digest) -> String {
        match is_of_fleet(key) {
            true => format!("{0}l:{{{0}log}}:{digest}", self.prefix.as_str()),
            false => format!("{}l:{{{digest}}}", self.prefix.as_str()),
        }
    }

    /// Returns the name of a segment. All segments of a fill are in one cluster slot.
    pub(super) fn segment(
        &self,
        SegmentId { fill: FillId { process, sequence }, index }: SegmentId,
    ) -> String {
        format!("{}s:{{{process:016x}{sequence:016x}}}:{index}", self.prefix.as_str())
    }

    pub(super) fn log(&self) -> String {
        format!("{}log", self.prefix.as_str())
    }

    /// Returns the name that is written before replicas are waited for.
    pub(super) fn replicated(&self) -> String {
        format!("{0}replicated:{{{0}log}}", self.prefix.as_str())
    }

    /// Returns a name under which nothing is ever stored.
    pub(super) fn probe(&self) -> String {
        format!("{}probe", self.prefix.as_str())
    }

    /// Returns such a name in a cluster slot that a node owns.
    pub(super) fn probe_in(&self, owns: impl Fn(u16) -> bool) -> String {
        let mut names = (0..PROBES_MAX).map(|number| format!("{}:{number}", self.probe()));
        names.find(|name| owns(hash_slot(name.as_bytes()))).unwrap_or_else(|| self.probe())
    }

    /// Returns the meaning of a name that the server reports.
    pub(super) fn meaning(&self, name: &[u8]) -> Named {
        let Some(rest) = name.strip_prefix(self.prefix.as_str().as_bytes()) else { return Named::Other };
        if rest == b"log" {
            return Named::Log;
        }
        let of_key = rest.strip_prefix(b"r:{").and_then(|rest| rest.strip_suffix(b"}"));
        let of_fleet = || {
            let rest = rest.strip_prefix(b"m:{")?.strip_prefix(self.prefix.as_str().as_bytes())?;
            rest.strip_prefix(b"log}:")
        };
        let hex = of_key.or_else(of_fleet);
        hex.and_then(Digest::parse).map_or(Named::Other, Named::Record)
    }
}

/// Maximum number of names that are tried for a node; one with few slots may have none of them.
const PROBES_MAX: u16 = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::LIST;

    fn names() -> Names {
        Names::new(&Word::new("larder:").unwrap())
    }

    #[test]
    fn names_are_as_the_page_says() {
        let digest = Digest::of(b"abc");
        let fill = FillId { process: 0xab, sequence: 7 };
        for (name, expected) in [
            (names().record(digest), "larder:r:{ba7816bf8f01cfea414140de5dae2223}"),
            (names().lease_of(b"abc", digest), "larder:l:{ba7816bf8f01cfea414140de5dae2223}"),
            (names().segment(SegmentId { fill, index: 3 }), "larder:s:{00000000000000ab0000000000000007}:3"),
            (names().log(), "larder:log"),
        ] {
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn what_is_named_can_be_told() {
        let digest = Digest::of(&[0, 13, 10, 255]);
        let fill = FillId { process: 1, sequence: 2 };
        for (name, expected) in [
            (names().record(digest), Named::Record(digest)),
            (names().log(), Named::Log),
            (names().record_of(LIST, Digest::of(LIST)), Named::Record(Digest::of(LIST))),
            (names().lease_of(b"abc", digest), Named::Other),
            (names().lease_of(LIST, digest), Named::Other),
            (names().segment(SegmentId { fill, index: 0 }), Named::Other),
            (names().probe(), Named::Other),
            ("other:log".to_owned(), Named::Other),
            ("larder:r:{+a7816bf8f01cfea414140de5dae222}".to_owned(), Named::Other),
            ("larder:r:{}".to_owned(), Named::Other),
            (String::new(), Named::Other),
        ] {
            assert_eq!(names().meaning(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn versions_tell_bytes_apart() {
        assert_eq!(version_of(b"abc"), Version(0xba78_16bf_8f01_cfea));
        assert_ne!(version_of(b"abc"), version_of(b"abd"));
    }
}
