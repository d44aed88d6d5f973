//! Decodes any bytes as a record or a segment, or as their content in a frame with the right length and checksum.
//! The result is an error or values that encode to the same bytes, never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::{
    RecordKind, TagKeys, declared, decode_record, decode_segment, encode_record, encode_segment,
};
use store::{FillId, SegmentId};

const ID: SegmentId = SegmentId { fill: FillId { process: 7, sequence: 8 }, index: 3 };

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    let bytes = if first & 1 == 0 { rest.to_vec() } else { framed(first >> 1, rest) };
    let _ = declared(&bytes);
    let keys = TagKeys::new(b"secret", None);
    for kind in [RecordKind::Primary, RecordKind::Response] {
        let key = key_of(&bytes);
        if let Ok(record) = decode_record(&bytes, kind, key, None) {
            let mut written = Vec::new();
            encode_record(&record, kind, None, &mut written).expect("it was read");
            assert!(written == bytes || has_tag(&bytes));
        }
        assert!(decode_record(&bytes, kind, key, Some(&keys)).is_err(), "the secret is unknown here");
    }
    if let Ok(segment) = decode_segment(&bytes, ID, None) {
        let mut written = Vec::new();
        encode_segment(&segment, None, &mut written).expect("it was read");
        assert!(written == bytes || has_tag(&bytes));
    }
});

/// Returns the key in the bytes, or an empty one.
fn key_of(bytes: &[u8]) -> &[u8] {
    let Some(&[low, high]) = bytes.get(12..14) else { return b"" };
    bytes.get(14..14 + usize::from(u16::from_le_bytes([low, high]))).unwrap_or_default()
}

/// Returns whether the bytes have a tag. A process without the secret accepts a tagged record, but can't write one.
fn has_tag(bytes: &[u8]) -> bool {
    bytes[5] & 1 != 0
}

/// Returns a frame without a tag around these bytes.
fn framed(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 20).unwrap_or(u32::MAX);
    let mut bytes = [b"LAR\x01", &[kind % 4, 0, 0, 0][..], &length.to_le_bytes(), content].concat();
    let checksum = twox_hash::XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}
