//! Observers of a running load.

use std::ops::ControlFlow;

use crate::result::Interval;

/// Receives the results of each tenth of a second, in order.
pub trait Observer {
    /// Receives an interval that has ended. A break ends the load early, with the results so far.
    fn observe(&mut self, interval: &Interval) -> ControlFlow<()>;
}

/// Ignores the intervals.
impl Observer for () {
    fn observe(&mut self, _interval: &Interval) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(&Interval) -> ControlFlow<()>> Observer for F {
    fn observe(&mut self, interval: &Interval) -> ControlFlow<()> {
        self(interval)
    }
}
