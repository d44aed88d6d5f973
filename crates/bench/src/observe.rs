//! Observers of a running load.

use std::ops::ControlFlow;

use crate::result::{Interval, Latencies};

/// Receives the results of each tenth of a second, in order.
pub trait Observer {
    /// Receives an interval that has ended, with its latencies. A break ends the load early, with the results so far.
    fn observe(&mut self, interval: &Interval, latencies: &Latencies) -> ControlFlow<()>;
}

/// Ignores the intervals.
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
