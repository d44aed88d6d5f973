//! Whoever watches a load while it runs.

use std::ops::ControlFlow;

use crate::result::{Interval, Latencies};

/// Told each tenth of a second what happened in it, in order.
pub trait Observer {
    /// One more interval is over, with these latencies; a break ends the load early, with what there is.
    fn observe(&mut self, interval: &Interval, latencies: &Latencies) -> ControlFlow<()>;
}

/// Watches nothing.
impl Observer for () {
    fn observe(&mut self, _interval: &Interval, _latencies: &Latencies) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(&Interval, &Latencies) -> ControlFlow<()>> Observer for F {
    fn observe(&mut self, interval: &Interval, latencies: &Latencies) -> ControlFlow<()> {
        self(interval, latencies)
    }
}
