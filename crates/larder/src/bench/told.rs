//! The progress of a load on the terminal.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bench::observe::Observer;
use bench::progress::{Done, Goal, Live, Progress, Style};
use bench::result::Interval;

/// The progress of a load, fed by what its observer is told.
pub(super) struct Told {
    progress: Progress,
    live: Arc<Live>,
}

impl Told {
    pub(super) fn start(name: &str, goal: Goal, style: Style) -> Self {
        let live = Arc::new(Live::default());
        Self { progress: Progress::start(name, goal, style, std::slice::from_ref(&live)), live }
    }

    pub(super) fn observer(&self) -> impl Observer + use<> {
        let live = self.live.clone();
        move |interval: &Interval| {
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

    pub(super) fn finish(self) {
        self.progress.finish();
    }
}
