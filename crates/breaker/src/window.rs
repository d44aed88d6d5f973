//! Results of the last seconds, counted in buckets.

use crate::call::{Caller, Outcome};
use crate::settings::Options;

/// Successes and failures within the window; of each known caller one result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That succeeded.
    pub successes: u64,
    /// That failed.
    pub failures: u64,
}

impl Counts {
    /// Whether there are enough failures, and they are enough of the results.
    pub(crate) fn is_trouble(self, options: &Options) -> bool {
        let share = u64::from(options.error_percent) * (self.successes + self.failures);
        self.failures >= options.requests_min.into() && self.failures * 100 >= share
    }
}

/// In so many seats may be the result of a caller; the first that is free, or else the oldest, becomes that of a new one.
const ROW: usize = 4;

/// A ring: the bucket of a time is its number modulo the length.
#[derive(Debug)]
pub(crate) struct Window {
    buckets: Box<[Bucket]>,
    bucket_ms: u64,
    /// The number of the latest bucket that was written or read: `now_ms / bucket_ms`.
    latest: u64,
    /// The latest result of each known caller, and in which bucket it is counted. None before there is one.
    seats: Box<[Option<Seat>]>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    caller: u64,
    bucket: u64,
    outcome: Outcome,
}

/// A bucket is full at four thousand million results, which no bucket sees.
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
        // The buckets together are never shorter than the window, and the last millisecond has one too.
        let bucket_ms = options.window_ms.div_ceil(options.window_buckets.into());
        Self { buckets: buckets.into_boxed_slice(), bucket_ms, latest: 0, seats: Box::default() }
    }

    /// Counts a result; for a known caller in place of the one before.
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

    /// Empties the buckets between the latest one and that of `now_ms`; a time that went back stays in the latest.
    fn forget_until(&mut self, now_ms: u64) {
        let (now, length) = (now_ms / self.bucket_ms, self.buckets.len() as u64);
        let passed = now.saturating_sub(self.latest);
        for number in 0..passed.min(length) {
            self.buckets[((now - number) % length) as usize] = Bucket::default();
        }
        self.latest += passed;
    }
}
