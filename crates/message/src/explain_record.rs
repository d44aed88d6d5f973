//! Decisions recorded during an exchange, for `larder explain`.
//!
//! Each step adds its decision to the record that the request carries. Requests of clients have no record; each step then costs one
//! comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caching::explain::Finding;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The decisions so far, shared by the request and the forward that it starts.
#[derive(Debug, Default)]
pub struct Record {
    findings: Mutex<Vec<Finding>>,
    open: AtomicUsize,
    closed: Notify,
}

impl Record {
    #[inline]
    pub fn note(&self, finding: Finding) {
        let mut findings = self.findings.lock();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// Takes the decisions out of the record, in order.
    #[inline]
    pub fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.findings.lock())
    }

    /// Announces a forward. The forward may add decisions until the returned guard is dropped.
    #[inline]
    pub fn open(self: &Arc<Self>) -> OpenRecord {
        self.open.fetch_add(1, Ordering::AcqRel);
        OpenRecord(Arc::clone(self))
    }

    /// Resolves when no forward is running.
    pub async fn closed(&self) {
        loop {
            let closed = self.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            closed.await;
        }
    }
}

/// Guard of [`Record::open`].
pub struct OpenRecord(Arc<Record>);

impl Clone for OpenRecord {
    #[inline]
    fn clone(&self) -> Self {
        self.0.open()
    }
}

impl Drop for OpenRecord {
    #[inline]
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.closed.notify_waiters();
    }
}

/// Adds a finding, if there is a record.
#[inline]
pub fn note(record: Option<&Arc<Record>>, finding: impl FnOnce() -> Finding) {
    if let Some(record) = record {
        record.note(finding());
    }
}

const FINDINGS_MAX: usize = 200;
