//! Callers and outcomes of calls.

/// The caller that a call is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// An unknown caller. Each call of an unknown caller counts.
    Anyone,
    /// One of many callers, by a number that the user of the breaker chooses. All calls of one caller within the window count as one, by
    /// the latest result, so that no caller opens the breaker for everyone with calls that fail for it alone. Use keyed hashes as numbers,
    /// because only the latest four callers of each row of the table count.
    Known(u64),
}

impl Caller {
    /// Maximum number of known callers that count: enough for [`crate::Options::requests_min`] of 1,000 to be reached
    /// by 1,100.
    pub const SEATS: usize = 2_048;
}

/// Result of an admitted call. The user of the breaker decides what counts as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call succeeded.
    Success,
    /// The call failed, or took too long.
    Failure,
}
