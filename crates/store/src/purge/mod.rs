//! Purges: what an operator takes out of use, as records of a log, and the index that says what they take.
//!
//! A [`PurgeRecord`] means the same to every process that reads it: `docs/design/purge-log.md` has its bytes. A
//! [`PurgeIndex`] is what one process remembers of the records that it has read. It has a fixed size, and where it is full it
//! takes too much out of use and never too little. Nothing here waits, or looks at a clock.

mod bytes;
mod clause;
mod index;
mod names;
mod record;
#[cfg(test)]
mod tests;

pub use bytes::{PURGE_RECORD_BYTES_MAX, PurgeBytesError};
pub use clause::{CLAUSES_MAX, Clause, Limits, Place};
pub use index::{Force, Judgement, PurgeIndex, Subject};
pub use names::{Name, NameTable};
pub use record::{
    HOST_BYTES_MAX, PREFIX_BYTES_MAX, PurgeId, PurgeInvalid, PurgeMode, PurgeRecord, SITE_BYTES_MAX,
    Selection, TAG_BYTES_MAX, TAGS_MAX, TagsMatch, URL_BYTES_MAX, UrlScheme, What,
};
