//! Tiers behind memory: asynchronous stores of bytes with versions, shared with other processes.
//!
//! [`Backing`] is their contract, and [`Guarded`] enforces its deadlines. The feature `test-double` adds `double`, a tier for tests, and
//! `suite`, the tests for any tier.

mod contract;
#[cfg(any(test, feature = "test-double"))]
pub mod double;
mod error;
mod guard;
mod health;
mod lease;
mod log;
mod record;
#[cfg(any(test, feature = "test-double"))]
mod rng;
#[cfg(any(test, feature = "test-double"))]
pub mod suite;
mod watch;

pub use breaker::{Options as BreakerOptions, Settings as BreakerSettings, State as BreakerState};
pub use contract::{Backing, Pending};
pub use error::BackingError;
pub use guard::{Deadlines, Guarded};
pub use health::{Durations, Health, Operation};
pub use lease::{LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, RenewOutcome, TakeOutcome, Token};
pub use log::{
    AppendOutcome, Continuity, LOG_APPEND_BYTES_MAX, LOG_KEPT_BYTES_MAX, LastRecord, LogCursor, LogId,
    LogOffset, LogPart, LogRecord, LogState, Replication,
};
pub use record::{
    Expected, KEY_BYTES_MAX, Loaded, PutOutcome, RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX, Tracking,
    Version, WaitOutcome, Write,
};
#[cfg(any(test, feature = "test-double"))]
pub use rng::Rng;
pub(crate) use watch::Watchers;
pub use watch::{CopyStatus, Source, Watcher};
