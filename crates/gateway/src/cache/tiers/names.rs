//! The names of records in the tier. Injective: the first byte says what it is.

use store::FillId;
use store::backing::KEY_BYTES_MAX;

const RECORD: u8 = b'r';
const APART: u8 = b'a';
const FLIGHT: u8 = b'f';
const PROGRESS: u8 = b'p';

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

/// Of what is on its way to a cache key. `None`: the key is too long for a tier.
pub(super) fn of_flight(key: &[u8]) -> Option<Vec<u8>> {
    (key.len() < KEY_BYTES_MAX).then(|| [&[FLIGHT], key].concat())
}

/// Of how far a body on its way has come.
pub(super) fn of_progress(id: FillId) -> Vec<u8> {
    of_fill(PROGRESS, id)
}

/// Whether it is one of the last two.
pub(super) fn is_of_way(name: &[u8]) -> bool {
    matches!(name.first(), Some(&FLIGHT | &PROGRESS))
}

fn of_fill(kind: u8, id: FillId) -> Vec<u8> {
    [&[kind][..], &id.process.to_be_bytes(), &id.sequence.to_be_bytes()].concat()
}
