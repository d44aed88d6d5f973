//! Gates that a test opens when it wants a server to continue.

use std::sync::{Arc, Condvar, Mutex};

use crate::wait::DEADLINE;

/// A gate, closed at first and open for ever after [`Gate::open`]. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    shared: Arc<(Mutex<usize>, Condvar)>,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate, for present and later waits.
    pub fn open(&self) {
        self.reach(usize::MAX);
    }

    /// Lets waits for this step, or an earlier one, through.
    ///
    /// # Panics
    /// Never in practice: no holder of the lock panics.
    pub fn reach(&self, step: usize) {
        let mut reached = self.shared.0.lock().expect("no holder of this lock panics");
        *reached = step.max(*reached);
        self.shared.1.notify_all();
    }

    /// Waits until the gate is open.
    ///
    /// # Panics
    /// Panics if the deadline passes: the test forgot the gate.
    pub fn pass(&self) {
        self.pass_step(1);
    }

    /// Waits until the gate has reached a step.
    ///
    /// # Panics
    /// Panics if the deadline passes: the test forgot the gate.
    pub fn pass_step(&self, step: usize) {
        let reached = self.shared.0.lock().expect("no holder of this lock panics");
        let limit = DEADLINE * 2;
        let wait = self.shared.1.wait_timeout_while(reached, limit, |reached| *reached < step);
        let (reached, result) = wait.expect("no holder of this lock panics");
        drop(reached);
        assert!(!result.timed_out(), "nobody opened the gate for step {step}");
    }
}
