//! Sample record for tests and benches of the memory tier.

use std::sync::Arc;

use crate::{Budget, Charge, OverBudget, Record, allocated_bytes};

/// A record with a payload of any size.
#[derive(Debug)]
pub struct SampleRecord {
    /// Bytes by which tests recognise the record.
    pub payload: Box<[u8]>,
    /// Expiry time in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Reservation for the record and its payload.
    pub charge: Charge,
}

impl SampleRecord {
    /// Creates a record that never expires.
    ///
    /// # Errors
    /// If the budget has no room.
    pub fn new(budget: &Arc<Budget>, payload: &[u8]) -> Result<Arc<Self>, OverBudget> {
        let charge = budget.reserve_record(Self::bytes(payload.len()))?;
        Ok(Arc::new(Self { payload: payload.into(), expires_at_ms: None, charge }))
    }

    /// Returns the size of a record, including the two counters of its `Arc`.
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

    /// Returns a number of responses from 0 to 2, by the length of the payload, so that tests cover all three.
    fn responses(&self) -> u64 {
        (self.payload.len() as u64 + 1) % 3
    }
}
