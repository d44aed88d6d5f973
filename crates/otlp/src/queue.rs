//! Spans queued for the collector, and counts of all outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use telemetry::trace::{Span, SpanSink};
use telemetry::{Metric, Telemetry};
use tokio::sync::Notify;

/// Outcomes of spans and of requests with them.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) requests_accepted: AtomicU64,
    pub(crate) requests_partial: AtomicU64,
    pub(crate) requests_again: AtomicU64,
    pub(crate) requests_failed: AtomicU64,
}

impl Counts {
    /// Reports the counts at every scrape.
    pub fn report_to(self: &Arc<Self>, telemetry: &Telemetry) {
        let counts = Arc::clone(self);
        telemetry.collect_from(Box::new(move |sample| {
            let spans = [
                ("exported", &counts.exported),
                ("dropped", &counts.dropped),
                ("rejected", &counts.rejected),
                ("failed", &counts.failed),
            ];
            let requests = [
                ("accepted", &counts.requests_accepted),
                ("partial", &counts.requests_partial),
                ("again", &counts.requests_again),
                ("failed", &counts.requests_failed),
            ];
            for (metric, results) in [(Metric::TraceSpansTotal, spans), (Metric::TraceExportsTotal, requests)]
            {
                for (result, count) in results {
                    sample.add(metric, &[result], count.load(Ordering::Relaxed));
                }
            }
        }));
    }

    pub(crate) fn add(count: &AtomicU64, more: usize) {
        count.fetch_add(more as u64, Ordering::Relaxed);
    }
}

/// Queues spans for the collector.
#[derive(Debug)]
pub struct Exporter {
    waiting: Mutex<Vec<Span>>,
    waiting_max: usize,
    batch_max: usize,
    /// Notified when there are enough spans for a batch.
    pub(crate) full: Notify,
    pub(crate) counts: Arc<Counts>,
}

impl Exporter {
    pub(crate) fn new(waiting_max: usize, batch_max: usize) -> Self {
        let (waiting, full, counts) = (Mutex::default(), Notify::new(), Arc::default());
        Self { waiting, waiting_max, batch_max, full, counts }
    }

    /// Returns the outcomes of spans.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Takes the oldest queued spans, up to a batch.
    pub(crate) fn batch(&self) -> Vec<Span> {
        let mut waiting = self.waiting.lock();
        if waiting.len() <= self.batch_max {
            return std::mem::take(&mut waiting);
        }
        let later = waiting.split_off(self.batch_max);
        std::mem::replace(&mut waiting, later)
    }
}

impl SpanSink for Exporter {
    fn take(&self, span: Span) {
        let count = {
            let mut waiting = self.waiting.lock();
            if waiting.len() < self.waiting_max {
                waiting.push(span);
                waiting.len()
            } else {
                Counts::add(&self.counts.dropped, 1);
                return;
            }
        };
        if count == self.batch_max {
            self.full.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::trace::{SpanKind, SpanStatus, TraceContext, TraceFlags};

    use super::*;

    fn span(start_unix_ns: u64) -> Span {
        Span {
            context: TraceContext::root(TraceFlags::SAMPLED),
            parent: None,
            state: None,
            name: "GET",
            kind: SpanKind::Server,
            start_unix_ns,
            end_unix_ns: start_unix_ns,
            attributes: Vec::new(),
            links: Vec::new(),
            status: SpanStatus::Unset,
        }
    }

    #[test]
    fn the_oldest_go_first_and_what_has_no_room_is_counted() {
        let exporter = Exporter::new(5, 2);
        (0..8).for_each(|number| exporter.take(span(number)));
        let batches = std::iter::from_fn(|| Some(exporter.batch()).filter(|batch| !batch.is_empty()));
        let numbers: Vec<Vec<u64>> =
            batches.map(|batch| batch.iter().map(|span| span.start_unix_ns).collect()).collect();
        assert_eq!(numbers, [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(exporter.counts.dropped.load(Ordering::Relaxed), 3);
    }
}
