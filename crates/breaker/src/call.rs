//! A call: for whom it is made, and how it ends.

/// For whom a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nobody in particular: each of these calls counts.
    Anyone,
    /// One of many, by a number that its user chooses. All its calls within the window count as one, by the latest result, so that no
    /// caller opens for all what fails for it alone. Numbers should be hashes with a secret: where more than
    /// four meet in one place, the latest four count.
    Known(u64),
}

impl Caller {
    /// How many known callers count at most: enough for [`crate::Options::requests_min`] of 1,000 to be reached by 1,100.
    pub const SEATS: usize = 2_048;
}

/// How an admitted call ended. What counts as a failure is for its user to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Success,
    /// It didn't, or not in time.
    Failure,
}
