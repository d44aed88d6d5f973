//! Encoding of stored responses and their segments in tiers behind memory: `docs/internals/record-format.md`.
//!
//! Pure: bytes in, values out. Field lines are copied and never parsed. Decoded values borrow the bytes.

mod body;
mod bytes;
mod error;
mod frame;
mod record;
mod segment;

pub use body::{Body, BodyState, Content, Fragment, INLINE_BYTES_MAX, Layout, Run};
pub use error::{FormatError, Meaning};
pub use frame::{Declared, HEADER_BYTES, Kind, TagKeys, declared};
pub use record::{
    FieldLine, NamedValue, Note, NoteKind, Record, RecordKind, RequestMarks, Response, Variant,
    decode_record, encode_record,
};
pub use segment::{SegmentFrame, decode_segment, encode_segment};

#[cfg(test)]
mod tests;
