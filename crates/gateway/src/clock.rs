//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use caching::Timestamp;

/// The wall clock. A clock before 1970 counts as 1970: ages are then too small, never negative.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
