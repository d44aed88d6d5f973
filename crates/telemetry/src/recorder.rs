//! The handles through which workers count.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::declarations::Metric;
use crate::labels::{
    AdminRefusal, ConnectionKind, FillState, OriginId, OriginOutcome, RuleId, SiteId, TlsFailure,
};
use crate::tables::{Event, OriginAnswer, RequestOutcome, SiteEvent, Tables};

/// What is counted about one purge when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct PurgeAnswer {
    /// A `url`, a `tag`, ...
    pub form: &'static str,
    /// `hard`, `soft` or `refresh`.
    pub mode: &'static str,
    /// How far it had come: `complete` or `partial`.
    pub reach: &'static str,
    /// From the order to the answer.
    pub duration_ns: u64,
}

/// Counts for one worker. Cheap to clone; clones count into the same place, so that each worker
/// should use its own. Reasons and modes are `'static` words, to bound the number of series.
#[derive(Debug, Clone)]
pub struct WorkerRecorder {
    shard: Arc<Shard>,
}

/// Holds a gauge up by one until it is dropped, on whichever thread.
#[derive(Debug)]
#[must_use = "the gauge falls when the guard is dropped"]
pub struct GaugeGuard {
    shard: Arc<Shard>,
    gauge: usize,
}

/// The counters of one worker, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    tables: Mutex<Box<Tables>>,
    gauges: [AtomicI64; GAUGES],
}

const IN_FLIGHT: usize = 0;
const COLLAPSED_WAITERS: usize = 1;
const CONNECTIONS: usize = 2;
const FILLS: usize = CONNECTIONS + ConnectionKind::ALL.len();
const GAUGES: usize = FILLS + FillState::ALL.len();

impl WorkerRecorder {
    pub(crate) fn new(shard: Arc<Shard>) -> Self {
        Self { shard }
    }

    /// One request was answered, in full or not.
    pub fn request(&self, outcome: &RequestOutcome) {
        self.shard.tables.lock().request(outcome);
    }

    /// A request begins to wait, or its body to be sent; it is in flight until the guard is dropped. What is answered at
    /// once costs nothing here: it would be over before anybody could look.
    pub fn in_flight(&self) -> GaugeGuard {
        self.guard(IN_FLIGHT)
    }

    /// A client connection was accepted, or turned out to be of this kind.
    pub fn connection(&self, kind: ConnectionKind) -> GaugeGuard {
        self.event(Metric::ConnectionsTotal, kind.as_str());
        self.guard(CONNECTIONS + kind as usize)
    }

    /// A client connection was closed before its first request.
    pub fn connection_refused(&self, reason: &'static str) {
        self.event(Metric::ConnectionsRefusedTotal, reason);
    }

    /// A client connection that waited for a request was closed to make room for another.
    pub fn connection_evicted(&self) {
        self.event(Metric::ConnectionsEvictedTotal, "");
    }

    /// A request was refused for what the client sent.
    pub fn client_error(&self, reason: &'static str) {
        self.event(Metric::ClientErrorsTotal, reason);
    }

    /// A client connection ended before its TLS handshake was complete.
    pub fn tls_handshake_failed(&self, failure: TlsFailure) {
        self.event(Metric::TlsHandshakesFailedTotal, failure.as_str());
    }

    /// A request waits for another's forward until the guard is dropped.
    pub fn collapsed(&self) -> GaugeGuard {
        self.event(Metric::CollapsedRequestsTotal, "");
        self.guard(COLLAPSED_WAITERS)
    }

    /// A fill is in this state until the guard is dropped.
    pub fn fill(&self, state: FillState) -> GaugeGuard {
        self.guard(FILLS + state as usize)
    }

    /// A fill ended before the response was complete.
    pub fn fill_aborted(&self, reason: &'static str) {
        self.event(Metric::FillsAbortedTotal, reason);
    }

    /// A message matched a transformation rule.
    pub fn transform(&self, site: SiteId, rule: RuleId) {
        self.shard.tables.lock().transform(site, rule);
    }

    /// A response was forwarded but not stored.
    pub fn not_stored(&self, reason: &'static str) {
        self.event(Metric::NotStoredTotal, reason);
    }

    /// Bytes that a stored response lacks were asked for, and answered.
    pub fn missing_part(&self, outcome: &'static str) {
        self.event(Metric::MissingPartsTotal, outcome);
    }

    /// So many bytes that a stored response lacks came from the origin.
    pub fn missing_part_bytes(&self, bytes: u64) {
        let event = Event { metric: Metric::MissingPartBytesTotal, origin: OriginId::NONE, value: "" };
        self.shard.tables.lock().count(event, bytes);
    }

    /// A part of a representation was stored.
    pub fn part_stored(&self) {
        self.event(Metric::PartsStoredTotal, "");
    }

    /// A response was sent in a content coding, or not for this reason.
    pub fn compression(&self, outcome: Result<&'static str, &'static str>) {
        match outcome {
            Ok(coding) => self.event(Metric::CompressionResponsesTotal, coding),
            Err(reason) => self.event(Metric::CompressionSkippedTotal, reason),
        }
    }

    /// So many bytes were compressed, and so many came of it.
    pub fn compressed_bytes(&self, coding: &'static str, input: u64, output: u64) {
        let event = |metric| Event { metric, origin: OriginId::NONE, value: coding };
        let mut tables = self.shard.tables.lock();
        tables.count(event(Metric::CompressionInputBytesTotal), input);
        tables.count(event(Metric::CompressionOutputBytesTotal), output);
    }

    /// A request to an origin ended: the head of its response is there, or there will be none.
    pub fn origin_request(&self, answer: &OriginAnswer) {
        let outcome = answer.status.map_or(OriginOutcome::Failed, OriginOutcome::from_status);
        let metric = Metric::OriginRequestsTotal;
        let event = Event { metric, origin: answer.origin, value: outcome.as_str() };
        let mut tables = self.shard.tables.lock();
        tables.event(event);
        tables.origin_answer(answer);
    }

    /// A request to an origin got no response, or none whose head was complete. Counted beside
    /// [`origin_request`](Self::origin_request).
    pub fn origin_error(&self, origin: OriginId, reason: &'static str) {
        let event = Event { metric: Metric::OriginErrorsTotal, origin, value: reason };
        self.shard.tables.lock().event(event);
    }

    /// A request was sent again on a new connection.
    pub fn origin_retry(&self, origin: OriginId) {
        let event = Event { metric: Metric::OriginRetriesTotal, origin, value: "" };
        self.shard.tables.lock().event(event);
    }

    /// A validation that no client waits for began, or ended: `ahead`, `stale`, `probe`, `in_vain`.
    pub fn background_validation(&self, event: &'static str) {
        self.event(Metric::BackgroundValidationsTotal, event);
    }

    /// A request was beyond the rate limit of its client; that of the site is no rule's.
    pub fn rate_limited(&self, site: SiteId, rule: RuleId, outcome: &'static str) {
        self.site_event(SiteEvent { metric: Metric::RateLimitedTotal, site, rule, value: outcome });
    }

    /// A miss was not forwarded, because its rule has used up its budget.
    pub fn miss_refused(&self, site: SiteId, rule: RuleId) {
        self.site_event(SiteEvent { metric: Metric::MissesRefusedTotal, site, rule, value: "" });
    }

    /// An operator had a request explained.
    pub fn explanation(&self) {
        self.event(Metric::ExplanationsTotal, "");
    }

    /// A purge was answered.
    pub fn purge(&self, answer: &PurgeAnswer) {
        let PurgeAnswer { form, mode, reach, duration_ns } = *answer;
        let mut tables = self.shard.tables.lock();
        for (metric, value) in
            [(Metric::PurgesTotal, mode), (Metric::PurgeFormsTotal, form), (Metric::PurgeReachTotal, reach)]
        {
            tables.event(Event { metric, origin: OriginId::NONE, value });
        }
        tables.purge_duration(duration_ns);
    }

    /// The method PURGE was refused, for this reason.
    pub fn purge_refused(&self, reason: &'static str) {
        self.event(Metric::PurgesRefusedTotal, reason);
    }

    /// The admin API refused a request.
    pub fn admin_refused(&self, refusal: AdminRefusal) {
        self.event(Metric::AdminRefusedTotal, refusal.as_str());
    }

    /// An unsafe request invalidated a `url` or a `group`.
    pub fn invalidation(&self, what: &'static str) {
        self.event(Metric::InvalidationsTotal, what);
    }

    /// The configuration was loaded again: `applied` or `refused`.
    pub fn reload(&self, outcome: &'static str) {
        self.event(Metric::ReloadsTotal, outcome);
    }

    /// A successor was started: it `took-over`, or it `failed` and this process goes on.
    pub fn upgrade(&self, outcome: &'static str) {
        self.event(Metric::UpgradesTotal, outcome);
    }

    fn event(&self, metric: Metric, value: &'static str) {
        self.shard.tables.lock().event(Event { metric, origin: OriginId::NONE, value });
    }

    fn site_event(&self, event: SiteEvent) {
        self.shard.tables.lock().site_event(event);
    }

    fn guard(&self, gauge: usize) -> GaugeGuard {
        let shard = Arc::clone(&self.shard);
        shard.gauges[gauge].fetch_add(1, Ordering::Relaxed);
        GaugeGuard { shard, gauge }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.shard.gauges[self.gauge].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shard {
    /// Takes what was counted and leaves the empty tables in its place. The worker waits for the
    /// exchange of two pointers at most, however much there is to add up.
    pub(crate) fn exchange(&self, tables: &mut Box<Tables>) {
        std::mem::swap(&mut *self.tables.lock(), tables);
    }
}

/// Open client connections of one worker, each counted once.
pub(crate) fn connections(shard: &Shard) -> u64 {
    let open = [ConnectionKind::Http1, ConnectionKind::Http2]
        .map(|kind| shard.gauges[CONNECTIONS + kind as usize].load(Ordering::Relaxed));
    u64::try_from(open.iter().sum::<i64>()).unwrap_or(0)
}

/// The gauges of all shards, as metric, label value and sum. Relaxed reads are enough: a guard
/// raises and lowers the same cell, so that no sum is ever below zero for long.
pub(crate) fn gauges(shards: &[Arc<Shard>]) -> impl Iterator<Item = (Metric, Option<&'static str>, u64)> {
    let single =
        [(Metric::RequestsInFlight, None, IN_FLIGHT), (Metric::CollapsedWaiters, None, COLLAPSED_WAITERS)];
    let connections = ConnectionKind::ALL
        .map(|kind| (Metric::Connections, Some(kind.as_str()), CONNECTIONS + kind as usize));
    let fills = FillState::ALL.map(|state| (Metric::Fills, Some(state.as_str()), FILLS + state as usize));
    single.into_iter().chain(connections).chain(fills).map(|(metric, label, gauge)| {
        let sum: i64 = shards.iter().map(|shard| shard.gauges[gauge].load(Ordering::Relaxed)).sum();
        (metric, label, u64::try_from(sum).unwrap_or(0))
    })
}
