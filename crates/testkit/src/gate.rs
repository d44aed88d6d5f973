//! Gates: a server waits at a gate until the test opens it.

use std::sync::{Arc, Condvar, Mutex};

use crate::wait::DEADLINE;

/// A gate that is closed at first and stays open after [`Gate::open`]. Clones share the gate.
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

    /// Announces a step, which ends all waits for this step or an earlier one.
    ///
    /// # Panics
    /// Never panics in practice, because no holder of the lock does.
    pub fn reach(&self, step: usize) {
        let mut reached = self.shared.0.lock().expect("no holder of this lock panics");
        *reached = step.max(*reached);
        self.shared.1.notify_all();
    }

    /// Waits until the gate is open.
    ///
    /// # Panics
    /// Panics if the deadline passes, because the test did not open the gate.
    pub fn pass(&self) {
        self.pass_step(1);
    }

    /// Waits until the gate has reached a step.
    ///
    /// # Panics
    /// Panics if the deadline passes, because the test did not open the gate.
    pub fn pass_step(&self, step: usize) {
        let reached = self.shared.0.lock().expect("no holder of this lock panics");
        let limit = DEADLINE * 2;
        let wait = self.shared.1.wait_timeout_while(reached, limit, |reached| *reached < step);
        let (reached, result) = wait.expect("no holder of this lock panics");
        drop(reached);
        assert!(!result.timed_out(), "the gate was not opened for step {step}");
    }
}
