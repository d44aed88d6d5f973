//! Names of records in the tier. The first byte of a name is the kind of record, so names of different kinds
//! are different. `f` and `p` are reserved, because older versions used them.

use store::FillId;
use store::backing::KEY_BYTES_MAX;

const RECORD: u8 = b'r';
const APART: u8 = b'a';

/// Returns the name of the record under a cache key; `None` if the key is too long for a tier.
pub(super) fn of_record(key: &[u8]) -> Option<Vec<u8>> {
    (key.len() < KEY_BYTES_MAX).then(|| [&[RECORD], key].concat())
}

/// Returns the cache key of the record with this name; `None` if the name isn't that of a record.
pub(super) fn key_of(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(&[RECORD])
}

/// Returns the name of a response that is stored apart from its record.
pub(super) fn of_response(id: FillId) -> Vec<u8> {
    [&[APART][..], &id.process.to_be_bytes(), &id.sequence.to_be_bytes()].concat()
}
