//! The names of records in the tier. Injective: the first byte says what it is. `f` and `p` are reserved: older versions used them.

use store::FillId;
use store::backing::KEY_BYTES_MAX;

const RECORD: u8 = b'r';
const APART: u8 = b'a';

/// Of what lies under a cache key. `None`: the key is too long for a tier.
pub(super) fn of_record(key: &[u8]) -> Option<Vec<u8>> {
    (key.len() < KEY_BYTES_MAX).then(|| [&[RECORD], key].concat())
}

/// The cache key of a record with this name; `None` for what is no record.
pub(super) fn key_of(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(&[RECORD])
}

/// Of a response that lies apart from the record.
pub(super) fn of_response(id: FillId) -> Vec<u8> {
    of_fill(APART, id)
}

fn of_fill(kind: u8, id: FillId) -> Vec<u8> {
    [&[kind][..], &id.process.to_be_bytes(), &id.sequence.to_be_bytes()].concat()
}
