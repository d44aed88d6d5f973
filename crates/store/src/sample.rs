//! A record for tests and benches of the memory tier.

use std::sync::Arc;

use crate::{Budget, Charge, OverBudget, Record, allocated_bytes};

/// A record of any size.
#[derive(Debug)]
pub struct SampleRecord {
    /// What it is recognised by.
    pub payload: Box<[u8]>,
    /// Milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Covers the payload.
    pub charge: Charge,
}

impl SampleRecord {
    /// A record that never expires.
    ///
    /// # Errors
    /// When the budget has no room.
    pub fn new(budget: &Arc<Budget>, payload: &[u8]) -> Result<Arc<Self>, OverBudget> {
        let charge = budget.reserve_record(Self::bytes(payload.len()))?;
        Ok(Arc::new(Self { payload: payload.into(), expires_at_ms: None, charge }))
    }

    /// What such a record weighs, with the two counters of its `Arc`.
    fn bytes(payload_bytes: usize) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + allocated_bytes(payload_bytes)
    }
}

impl Record for SampleRecord {
    fn charge(&self) -> &Charge {
        &self.charge
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// Any number, so that tests see all: none, one or two.
    fn responses(&self) -> u64 {
        (self.payload.len() as u64 + 1) % 3
    }
}
