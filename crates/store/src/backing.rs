//! Tiers behind memory: asynchronous, of bytes with versions, shared with other processes.
//!
//! [`Backing`] is their contract.

mod contract;
mod error;
mod lease;
mod log;
mod record;
mod watch;

pub use contract::{Backing, Pending};
pub use error::BackingError;
pub use lease::{LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, Renewed, Taken, Token, Waited};
pub use log::{
    Appended, Continuity, LOG_APPEND_BYTES_MAX, LogCursor, LogId, LogOffset, LogPart, LogRecord, LogState,
    Safety,
};
pub use record::{
    Expected, KEY_BYTES_MAX, Loaded, Put, RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX, Tracking, Version, Write,
};
pub use watch::{Source, Standing, Watcher};
