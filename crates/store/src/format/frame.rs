//! Frame of every record and segment: mark, version, kind, length, tag, checksum.

use std::fmt;

use ring::hmac;
use twox_hash::XxHash3_64;

use super::bytes::{Reader, Writer};
use super::error::FormatError;
use crate::backing::{RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX};

/// Length of the header, which declares the kind and length of a frame.
pub const HEADER_BYTES: usize = 12;

/// Kind of the content of a frame, with its number in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Primary record, under a cache key.
    Primary = 1,
    /// Response outside its primary record.
    Response = 2,
    /// Segment of a body.
    Segment = 3,
}

/// Content of a header, not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// Kind of the content.
    pub kind: Kind,
    /// Length of the frame, within the limit of its kind.
    pub bytes: usize,
    has_tag: bool,
}

/// Secrets for the authentication tag.
pub struct TagKeys {
    current: hmac::Key,
    previous: Option<hmac::Key>,
}

impl TagKeys {
    /// Creates keys. Tags are written with `current`; tags made with `previous` are also accepted, until all instances have the new secret.
    pub fn new(current: &[u8], previous: Option<&[u8]>) -> Self {
        let key = |secret| hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self { current: key(current), previous: previous.map(key) }
    }

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        truncated(&hmac::sign(&self.current, bytes))
    }

    fn accepts(&self, bytes: &[u8], tag: &[u8]) -> bool {
        let is_of = |key| is_equal(&truncated(&hmac::sign(key, bytes)), tag);
        is_of(&self.current) || self.previous.as_ref().is_some_and(is_of)
    }
}

impl fmt::Debug for TagKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKeys")
    }
}

fn truncated(tag: &hmac::Tag) -> [u8; TAG_BYTES] {
    let mut short = [0; TAG_BYTES];
    short.copy_from_slice(&tag.as_ref()[..TAG_BYTES]);
    short
}

/// Compares two tags in constant time.
fn is_equal(one: &[u8; TAG_BYTES], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

impl Kind {
    fn bytes_max(self) -> usize {
        match self {
            Self::Primary | Self::Response => RECORD_BYTES_MAX,
            Self::Segment => SEGMENT_FRAME_BYTES_MAX,
        }
    }
}

/// Reads the first [`HEADER_BYTES`], so that the caller can reserve memory before it fetches the whole frame.
///
/// # Errors
/// If the header shows that the frame can't be used.
pub fn declared(bytes: &[u8]) -> Result<Declared, FormatError> {
    let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(FormatError::Length)?;
    let [m, a, r, version, kind, flags, zeros @ .., l0, l1, l2, l3] = *header;
    if [m, a, r] != MARK {
        return Err(FormatError::NotOurs);
    }
    if version != VERSION {
        return Err(FormatError::UnknownVersion(version));
    }
    if kind == RESERVED_KIND {
        return Err(FormatError::Reserved);
    }
    let known = [Kind::Primary, Kind::Response, Kind::Segment];
    let kind = known.into_iter().find(|known| *known as u8 == kind);
    let kind = kind.ok_or(FormatError::Invalid("the kind is not known"))?;
    if flags & !HAS_TAG != 0 || zeros != [0, 0] {
        return Err(FormatError::Invalid("a flag is not known"));
    }
    let bytes = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    if bytes > kind.bytes_max() {
        return Err(FormatError::TooLong { bytes, bytes_max: kind.bytes_max() });
    }
    Ok(Declared { kind, bytes, has_tag: flags & HAS_TAG != 0 })
}

/// Verifies a frame and returns a reader of its content.
pub(super) fn open<'a>(
    bytes: &'a [u8],
    kind: Kind,
    keys: Option<&TagKeys>,
) -> Result<Reader<'a>, FormatError> {
    let declared = declared(bytes)?;
    if declared.bytes != bytes.len() {
        return Err(FormatError::Length);
    }
    let (before, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(FormatError::Length)?;
    if XxHash3_64::oneshot(before).to_le_bytes() != *checksum {
        return Err(FormatError::Checksum);
    }
    let tag_bytes = if declared.has_tag { TAG_BYTES } else { 0 };
    let content_end = before.len().checked_sub(tag_bytes).ok_or(FormatError::Length)?;
    let (tagged, tag) = before.split_at(content_end);
    if keys.is_some_and(|keys| !declared.has_tag || !keys.accepts(tagged, tag)) {
        return Err(FormatError::Unauthenticated);
    }
    if declared.kind != kind {
        return Err(FormatError::Other);
    }
    tagged.get(HEADER_BYTES..).map(Reader::new).ok_or(FormatError::Length)
}

/// Appends a frame around the bytes that `content` writes. If `content` fails, `out` is unchanged.
pub(super) fn seal(
    out: &mut Vec<u8>,
    kind: Kind,
    keys: Option<&TagKeys>,
    content: impl FnOnce(&mut Writer<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let start = out.len();
    let sealed = write_frame(out, kind, keys, content);
    if sealed.is_err() {
        out.truncate(start);
    }
    sealed
}

fn write_frame(
    out: &mut Vec<u8>,
    kind: Kind,
    keys: Option<&TagKeys>,
    content: impl FnOnce(&mut Writer<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let start = out.len();
    let flags = if keys.is_some() { HAS_TAG } else { 0 };
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&[VERSION, kind as u8, flags, 0, 0, 0, 0, 0, 0]);
    content(&mut Writer { out })?;
    let tag_bytes = if keys.is_some() { TAG_BYTES } else { 0 };
    let bytes = out.len() - start + tag_bytes + CHECKSUM_BYTES;
    let too_long = FormatError::TooLong { bytes, bytes_max: kind.bytes_max() };
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= kind.bytes_max()).ok_or(too_long)?;
    out[start + HEADER_BYTES - 4..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    if let Some(keys) = keys {
        let tag = keys.tag(&out[start..]);
        out.extend_from_slice(&tag);
    }
    let checksum = XxHash3_64::oneshot(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    Ok(())
}

const MARK: [u8; 3] = *b"LAR";
const VERSION: u8 = 1;
/// Kind for the progress of a body, written by versions that shared bodies while they were arriving.
const RESERVED_KIND: u8 = 4;
const HAS_TAG: u8 = 1;
const TAG_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
