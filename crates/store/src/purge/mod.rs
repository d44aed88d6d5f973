//! Purges: records in a log that put responses out of use, and the index that determines which responses they match.
//!
//! A [`PurgeRecord`] means the same to every process that reads it: `docs/internals/purge-log.md` specifies its bytes. A [`PurgeIndex`]
//! holds the records that one process has read. It has a fixed size; when full, it may put too many responses out of use, but never too
//! few. This module never waits, and never reads a clock.

mod bytes;
mod clause;
mod index;
mod names;
mod record;
#[cfg(test)]
mod tests;

pub use bytes::{PURGE_RECORD_BYTES_MAX, PurgeBytesError};
pub use clause::{CLAUSES_MAX, Clause, ResponseUrl, UrlConditions};
pub use index::{LastPurges, PurgeEffect, PurgeIndex, PurgeSubject};
pub use names::{Name, NameTable};
pub use record::{
    HOST_BYTES_MAX, PREFIX_BYTES_MAX, PurgeId, PurgeInvalid, PurgeMode, PurgeRecord, PurgeTarget,
    SITE_BYTES_MAX, Selection, TAG_BYTES_MAX, TAGS_MAX, TagsMatch, URL_BYTES_MAX, UrlScheme,
};
