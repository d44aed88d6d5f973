//! The progress of a load that is watched.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::Observer;
use crate::progress::{Done, Live, Progress, Style};
use crate::result::{Interval, Latencies};
use crate::until::Until;

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

    /// For the load.
    pub fn observer(&self) -> impl Observer + use<> {
        let live = self.live.clone();
        move |interval: &Interval, _: &Latencies| {
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
            ControlFlow::Continue(())
        }
    }

    /// Ends it.
    pub fn finish(self) {
        self.progress.finish();
    }
}
