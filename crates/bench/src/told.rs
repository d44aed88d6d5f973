//! The progress of a load that is watched.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::Observer;
use crate::progress::{Done, Live, Progress, Style};
use crate::result::{Interval, Latencies};
use crate::until::Until;

const HOPELESS_AFTER_S: f64 = 1.0;

/// The progress of a load, fed by what its observer is told.
#[derive(Debug)]
pub struct Told {
    progress: Progress,
    live: Arc<Live>,
}

impl Told {
    /// Begins to tell it.
    #[must_use]
    pub fn start(name: &str, goal: Until, style: Style) -> Self {
        let live = Arc::new(Live::default());
        Self { progress: Progress::start(name, goal, style, std::slice::from_ref(&live)), live }
    }

    /// For the load. It ends where the first second brings nothing but failures: the server speaks another protocol, or has nothing of what is
    /// expected.
    pub fn observer(&self) -> impl Observer + use<> {
        let live = self.live.clone();
        let (mut requests, mut errors) = (0, 0);
        move |interval: &Interval, _: &Latencies| {
            requests += interval.requests;
            errors += interval.errors;
            #[expect(
                clippy::cast_precision_loss,
                reason = "a tenth of a second has fewer than 2^52 requests"
            )]
            let sum = Duration::from_secs_f64(interval.mean_us * interval.requests as f64 / 1e6);
            live.add(&Done {
                requests: interval.requests,
                errors: interval.errors,
                latency_sum_us: u64::try_from(sum.as_micros()).unwrap_or(u64::MAX),
                latency_max_us: interval.max_us,
            });
            let is_hopeless =
                requests == 0 && errors > 0 && interval.at_s + interval.length_s >= HOPELESS_AFTER_S;
            if is_hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Ends it.
    pub fn finish(self) {
        self.progress.finish();
    }
}
