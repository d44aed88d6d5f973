//! Whoever watches a load while it runs.

use std::ops::ControlFlow;

use crate::result::Interval;

/// Told each tenth of a second what happened in it, in order.
pub trait Observer {
    /// One more interval is over; a break ends the load early, with what there is.
    fn observe(&mut self, interval: &Interval) -> ControlFlow<()>;
}

/// Watches nothing.
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
