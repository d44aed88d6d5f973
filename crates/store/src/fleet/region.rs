//! The record of a region: how far it has carried the logs of its peers, and how far they have carried its own.

use crate::backing::{LastRecord, LogCursor, LogId, LogOffset};
use crate::purge::SITE_BYTES_MAX;

use super::bytes::{FormatError, sealed, unsealed};

/// Maximum number of peers of a region.
pub const PEERS_MAX: usize = 32;
/// Maximum length of the name of a region in bytes.
pub const REGION_NAME_BYTES_MAX: usize = 64;
/// Maximum length of the reason for which a peer isn't followed, in bytes; longer ones are cut.
pub const REFUSAL_BYTES_MAX: usize = SITE_BYTES_MAX;

/// Record of a region, which its carrier writes into the region's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// Name of the region.
    pub name: Box<str>,
    /// Log of the region.
    pub log: LogId,
    /// State of each peer.
    pub peers: Vec<PeerRecord>,
}

/// A region's record of one of its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// Name of the peer.
    pub name: Box<str>,
    /// The peer's log, as far as this region knows.
    pub log: LogId,
    /// The record of that log up to which all instances of this region have applied the purges.
    pub complete: LastRecord,
    /// Position in this region's log up to which the peer has reported that all of its instances have applied the purges.
    pub confirmed: LogCursor,
    /// Last time at which this region knew all purges of the peer, by the clock of this region's store, in milliseconds since 1970; 0 for
    /// never.
    pub current_at_ms: u64,
    /// Whether the log of the peer is read.
    pub following: Following,
    /// Reason why purges between the regions are pending; empty if they apply.
    pub refusal: Box<str>,
}

/// Whether a region reads the log of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// The log can't be read.
    No = 0,
    /// The log is read.
    Yes = 1,
    /// The log was reset to an earlier state: it is read once it has another id.
    Reset = 2,
}

/// Position in no log.
pub const NOWHERE: LogCursor = LogCursor { id: LogId([0; 16]), offset: LogOffset(0) };

impl RegionRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = REGION.to_vec();
        write_text(&mut bytes, &self.name);
        bytes.extend_from_slice(&self.log.0);
        for peer in &self.peers {
            write_text(&mut bytes, &peer.name);
            bytes.extend_from_slice(&peer.log.0);
            bytes.extend_from_slice(&peer.complete.encode());
            write_cursor(&mut bytes, peer.confirmed);
            bytes.extend_from_slice(&peer.current_at_ms.to_le_bytes());
            bytes.push(peer.following as u8);
            write_text(&mut bytes, &peer.refusal);
        }
        sealed(bytes)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut rest = unsealed(bytes)?.strip_prefix(REGION).ok_or(FormatError)?;
        let name = read_text(&mut rest, REGION_NAME_BYTES_MAX)?;
        let log = LogId(*take(&mut rest)?);
        let mut peers = Vec::new();
        while !rest.is_empty() && peers.len() < PEERS_MAX {
            peers.push(PeerRecord {
                name: read_text(&mut rest, REGION_NAME_BYTES_MAX)?,
                log: LogId(*take(&mut rest)?),
                complete: LastRecord::decode(take(&mut rest)?),
                confirmed: read_cursor(&mut rest)?,
                current_at_ms: u64::from_le_bytes(*take(&mut rest)?),
                following: match *take(&mut rest)? {
                    [0] => Following::No,
                    [1] => Following::Yes,
                    [2] => Following::Reset,
                    [_] => return Err(FormatError),
                },
                refusal: read_text(&mut rest, REFUSAL_BYTES_MAX)?,
            });
        }
        if rest.is_empty() { Ok(Self { name, log, peers }) } else { Err(FormatError) }
    }
}

/// Returns a text of at most `bytes_max` bytes.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=bytes_max.min(text.len())).rev().find(is_end);
    &text[..end.unwrap_or_default()]
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    let text = cut(text, usize::from(u8::MAX));
    bytes.push(text.len() as u8);
    bytes.extend_from_slice(text.as_bytes());
}

fn write_cursor(bytes: &mut Vec<u8>, cursor: LogCursor) {
    bytes.extend_from_slice(&cursor.id.0);
    bytes.extend_from_slice(&cursor.offset.0.to_le_bytes());
}

fn read_text(rest: &mut &[u8], bytes_max: usize) -> Result<Box<str>, FormatError> {
    let [length] = *take(rest)?;
    let (text, behind) = rest.split_at_checked(usize::from(length)).ok_or(FormatError)?;
    *rest = behind;
    let text = std::str::from_utf8(text).map_err(|_| FormatError)?;
    let is_good = text.len() <= bytes_max && !text.chars().any(char::is_control);
    if is_good { Ok(text.into()) } else { Err(FormatError) }
}

fn read_cursor(rest: &mut &[u8]) -> Result<LogCursor, FormatError> {
    let id = LogId(*take(rest)?);
    Ok(LogCursor { id, offset: LogOffset(u64::from_le_bytes(*take(rest)?)) })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], FormatError> {
    let (taken, behind) = rest.split_first_chunk().ok_or(FormatError)?;
    *rest = behind;
    Ok(taken)
}

/// "LAR", version 1, kind.
const REGION: &[u8] = b"LAR\x01G\0\0\0";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer() -> impl Strategy<Value = PeerRecord> {
        let cursor = || {
            any::<([u8; 16], u64)>().prop_map(|(id, at)| LogCursor { id: LogId(id), offset: LogOffset(at) })
        };
        let follows = prop::sample::select(vec![Following::No, Following::Yes, Following::Reset]);
        let last = any::<[u8; LastRecord::BYTES]>().prop_map(|bytes| LastRecord::decode(&bytes));
        ("[a-z]{0,64}", cursor(), last, cursor(), any::<u64>(), follows, "\\PC{0,60}").prop_map(
            |(name, log, complete, confirmed, current_at_ms, following, refusal)| PeerRecord {
                name: name.into(),
                log: log.id,
                complete,
                confirmed,
                current_at_ms,
                following,
                refusal: refusal.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_region_comes_back(name in "[a-z]{1,64}", log: [u8; 16], peers in prop::collection::vec(peer(), 0..5), noise: Vec<u8>) {
            let record = RegionRecord { name: name.into(), log: LogId(log), peers };
            prop_assert_eq!(RegionRecord::decode(&record.encode()), Ok(record));
            // Decoding never panics, whatever the input.
            let _ = (RegionRecord::decode(&noise), RegionRecord::decode(&sealed([REGION, &noise].concat())));
        }
    }
}
