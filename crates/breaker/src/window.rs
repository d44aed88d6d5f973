//! Results within the window, counted in buckets.

use crate::call::{Caller, Outcome};
use crate::settings::Options;

/// Successes and failures within the window, with one result for each known caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of successes.
    pub successes: u64,
    /// Number of failures.
    pub failures: u64,
}

impl Counts {
    /// Returns whether both the number and the share of failures reach their limits.
    pub(crate) fn is_trouble(self, options: &Options) -> bool {
        let share = u64::from(options.error_percent) * (self.successes + self.failures);
        self.failures >= options.requests_min.into() && self.failures * 100 >= share
    }
}

/// Number of seats in which a caller's result may be kept. A new caller takes the first free seat, or else the oldest.
const ROW: usize = 4;

/// A ring of buckets: the index for a time is its bucket number modulo the length.
#[derive(Debug)]
pub(crate) struct Window {
    buckets: Box<[Bucket]>,
    bucket_ms: u64,
    /// Number of the latest bucket that was written or read: `now_ms / bucket_ms`.
    latest: u64,
    /// Latest result of each known caller, with the bucket that counts it. Empty until the first known caller.
    seats: Box<[Option<Seat>]>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    caller: u64,
    bucket: u64,
    outcome: Outcome,
}

/// Counts of one bucket. They saturate at four billion results, which no bucket reaches.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    successes: u32,
    failures: u32,
}

impl Bucket {
    fn count(&mut self, outcome: Outcome) -> &mut u32 {
        match outcome {
            Outcome::Success => &mut self.successes,
            Outcome::Failure => &mut self.failures,
        }
    }
}

impl Window {
    pub(crate) fn new(options: &Options) -> Self {
        let buckets = vec![Bucket::default(); options.window_buckets as usize];
        // The buckets together are at least as long as the window, so the last millisecond is covered too.
        let bucket_ms = options.window_ms.div_ceil(options.window_buckets.into());
        Self { buckets: buckets.into_boxed_slice(), bucket_ms, latest: 0, seats: Box::default() }
    }

    /// Counts a result; for a known caller, it replaces the previous one.
    pub(crate) fn add(&mut self, caller: Caller, outcome: Outcome, now_ms: u64) {
        self.forget_until(now_ms);
        if let Caller::Known(caller) = caller {
            self.take_seat(Seat { caller, bucket: self.latest, outcome });
        }
        let count = self.bucket(self.latest).count(outcome);
        *count = count.saturating_add(1);
    }

    fn take_seat(&mut self, seat: Seat) {
        if self.seats.is_empty() {
            self.seats = vec![None; Caller::SEATS].into_boxed_slice();
        }
        let row = (seat.caller % (Caller::SEATS / ROW) as u64) as usize * ROW;
        let choice = |place: &&mut Option<Seat>| match place {
            Some(taken) if taken.caller == seat.caller => (0, 0),
            None => (1, 0),
            Some(taken) => (2, taken.bucket),
        };
        let place = self.seats[row..row + ROW].iter_mut().min_by_key(choice);
        let before = place.and_then(|place| place.replace(seat));
        let length = self.buckets.len() as u64;
        if let Some(before) = before.filter(|before| self.latest - before.bucket < length) {
            let count = self.bucket(before.bucket).count(before.outcome);
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn counts(&mut self, now_ms: u64) -> Counts {
        self.forget_until(now_ms);
        let add = |sum: Counts, bucket: &Bucket| Counts {
            successes: sum.successes + u64::from(bucket.successes),
            failures: sum.failures + u64::from(bucket.failures),
        };
        self.buckets.iter().fold(Counts::default(), add)
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
        self.seats.fill(None);
    }

    fn bucket(&mut self, number: u64) -> &mut Bucket {
        let at = number % self.buckets.len() as u64;
        &mut self.buckets[at as usize]
    }

    /// Empties the buckets after the latest one, up to the bucket of `now_ms`. If time went back, the latest bucket stays the latest.
    fn forget_until(&mut self, now_ms: u64) {
        let (now, length) = (now_ms / self.bucket_ms, self.buckets.len() as u64);
        let passed = now.saturating_sub(self.latest);
        for number in 0..passed.min(length) {
            self.buckets[((now - number) % length) as usize] = Bucket::default();
        }
        self.latest += passed;
    }
}
