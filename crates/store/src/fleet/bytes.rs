//! Encoding of the records of a fleet.

use twox_hash::XxHash3_64;

use super::{InstanceId, ListId};
use crate::backing::{LogCursor, LogId, LogOffset};

/// Maximum number of instances that share a tier, whose list must fit into a record.
pub const MEMBERS_MAX: usize = 1_000;
/// Maximum length of the name of an instance in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Record of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the instance.
    pub id: InstanceId,
    /// Position up to which it has read the log.
    pub read: LogCursor,
    /// Name that the operator gave the instance.
    pub name: Box<str>,
}

/// Position in the record of an instance that has left. No log is that long, so no other instance waits
/// for it.
pub(super) const HAS_LEFT: LogCursor = LogCursor { id: LogId([0; 16]), offset: LogOffset(u64::MAX) };

/// Error for bytes that aren't a fleet record in a version known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a fleet record of this version of Larder")]
pub struct FormatError;

impl Member {
    /// Returns whether the instance has announced that it is leaving.
    pub(super) fn has_left(&self) -> bool {
        self.read == HAS_LEFT
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MEMBER.to_vec();
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.read.id.0);
        bytes.extend_from_slice(&self.read.offset.0.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        sealed(bytes)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let rest = unsealed(bytes)?.strip_prefix(MEMBER).ok_or(FormatError)?;
        let (id, rest) = rest.split_first_chunk().ok_or(FormatError)?;
        let (log, rest) = rest.split_first_chunk().ok_or(FormatError)?;
        let (offset, rest) = rest.split_first_chunk().ok_or(FormatError)?;
        let text = std::str::from_utf8(rest).map_err(|_| FormatError)?;
        let is_name = text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
        let read = LogCursor { id: LogId(*log), offset: LogOffset(u64::from_le_bytes(*offset)) };
        if is_name { Ok(Self { id: InstanceId(*id), read, name: text.into() }) } else { Err(FormatError) }
    }
}

/// Returns a name without control characters, cut to [`NAME_BYTES_MAX`].
pub(super) fn name(text: &str) -> Box<str> {
    let mut name = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if name.len() + character.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(character);
    }
    name.into()
}

/// Encodes the list of all instances.
pub(crate) fn encode_list(id: ListId, ids: &[InstanceId]) -> Vec<u8> {
    let mut bytes = LIST.to_vec();
    bytes.extend_from_slice(&id.begun_by.0);
    bytes.extend_from_slice(&id.count.to_le_bytes());
    ids.iter().for_each(|id| bytes.extend_from_slice(&id.0));
    sealed(bytes)
}

pub(crate) fn decode_list(bytes: &[u8]) -> Result<(ListId, Vec<InstanceId>), FormatError> {
    let rest = unsealed(bytes)?.strip_prefix(LIST).ok_or(FormatError)?;
    let (begun_by, rest) = rest.split_first_chunk().ok_or(FormatError)?;
    let (count, rest) = rest.split_first_chunk().ok_or(FormatError)?;
    let id = ListId { begun_by: InstanceId(*begun_by), count: u32::from_le_bytes(*count) };
    let (ids, rest) = rest.as_chunks();
    if !rest.is_empty() || ids.len() > MEMBERS_MAX {
        return Err(FormatError);
    }
    let ids: Vec<InstanceId> = ids.iter().copied().map(InstanceId).collect();
    Ok((id, ids))
}

/// Appends a checksum, because a flipped bit would let an instance claim to have read further than it has.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

pub(super) fn unsealed(bytes: &[u8]) -> Result<&[u8], FormatError> {
    let (content, checksum) = bytes.split_last_chunk().ok_or(FormatError)?;
    let is_whole = XxHash3_64::oneshot(content) == u64::from_le_bytes(*checksum);
    is_whole.then_some(content).ok_or(FormatError)
}

/// "LAR", version 1, kind.
const MEMBER: &[u8] = b"LAR\x01I\0\0\0";
const LIST: &[u8] = b"LAR\x01M\0\0\0";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_member_comes_back(id: [u8; 16], log: [u8; 16], offset: u64, text in "\\PC{0,80}", noise: Vec<u8>) {
            let read = LogCursor { id: LogId(log), offset: LogOffset(offset) };
            let member = Member { id: InstanceId(id), read, name: name(&text) };
            prop_assert_eq!(Member::decode(&member.encode()), Ok(member));
            // Decoding never panics, whatever the input.
            let _ = (Member::decode(&noise), decode_list(&noise));
        }

        #[test]
        fn a_list_comes_back(begun_by: [u8; 16], count: u32, ids: Vec<[u8; 16]>) {
            let id = ListId { begun_by: InstanceId(begun_by), count };
            let ids: Vec<_> = ids.into_iter().map(InstanceId).collect();
            prop_assert_eq!(decode_list(&encode_list(id, &ids)), Ok((id, ids)));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let long = [LIST, &[0; 20 + 16 * (MEMBERS_MAX + 1)]].concat();
        for bytes in [
            &b""[..],
            b"LAR\x02M\0\0\0",
            b"LAR\x01M\0\0\0xyz",
            b"LAR\x01M\0\0\0sixteen bytes and",
            b"LAR\x01M\0\0\0sixteen bytes at counts",
            &long,
        ] {
            assert_eq!(decode_list(bytes), Err(FormatError));
            assert_eq!(decode_list(&sealed(bytes.to_vec())), Err(FormatError));
        }
        assert_eq!(Member::decode(&sealed(b"LAR\x01I\0\0\0short".to_vec())), Err(FormatError));
    }

    #[test]
    fn no_bit_may_be_another() {
        let read = LogCursor { id: LogId([3; 16]), offset: LogOffset(77) };
        let member = Member { id: InstanceId([1; 16]), read, name: name("a") };
        let list = encode_list(ListId { begun_by: InstanceId([1; 16]), count: 1 }, &[InstanceId([2; 16])]);
        for whole in [member.encode(), list] {
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Member::decode(&damaged), Err(FormatError));
                assert_eq!(decode_list(&damaged), Err(FormatError));
            }
        }
    }
}
