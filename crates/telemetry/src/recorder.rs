//! The handles with which workers count.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::declarations::Metric;
use crate::labels::{
    AdminRefusal, ConnectionKind, FillState, OriginId, OriginOutcome, RuleId, SiteId, TlsFailure,
};
use crate::tables::{Event, OriginAnswer, RequestOutcome, SiteEvent, Tables};

/// The labels and the duration of an answered purge.
#[derive(Debug, Clone, Copy)]
pub struct PurgeAnswer {
    /// The kind of selection: `url`, `tag` and so on.
    pub form: &'static str,
    /// `hard`, `soft` or `refresh`.
    pub mode: &'static str,
    /// `complete` if all instances have applied the purge, else `partial`.
    pub reach: &'static str,
    /// Time from the request to the response.
    pub duration_ns: u64,
}

/// Counts events for one worker. Cheap to clone; clones share their counters, so each worker should use its own.
/// Reasons and modes are `'static` strings, which bounds the number of series.
#[derive(Debug, Clone)]
pub struct WorkerRecorder {
    shard: Arc<Shard>,
}

/// A guard that raises a gauge by one until it is dropped. Any thread may drop it.
#[derive(Debug)]
#[must_use = "the gauge falls when the guard is dropped"]
pub struct GaugeGuard {
    shard: Arc<Shard>,
    gauge: usize,
}

/// The counters of one worker, on cache lines of their own.
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

    /// Counts an answered request, complete or not.
    pub fn request(&self, outcome: &RequestOutcome) {
        self.shard.tables.lock().request(outcome);
    }

    /// Counts a request that begins to wait, or whose body begins to be sent, as in flight until the guard is
    /// dropped. Requests that are answered immediately are not counted here: they would end before a scrape
    /// could see them.
    pub fn in_flight(&self) -> GaugeGuard {
        self.guard(IN_FLIGHT)
    }

    /// Counts a client connection as this kind, once it is accepted or its kind is detected.
    pub fn connection(&self, kind: ConnectionKind) -> GaugeGuard {
        self.event(Metric::ConnectionsTotal, kind.as_str());
        self.guard(CONNECTIONS + kind as usize)
    }

    /// Counts a client connection closed before its first request.
    pub fn connection_refused(&self, reason: &'static str) {
        self.event(Metric::ConnectionsRefusedTotal, reason);
    }

    /// Counts an idle client connection closed to make room for another.
    pub fn connection_evicted(&self) {
        self.event(Metric::ConnectionsEvictedTotal, "");
    }

    /// Counts a request refused because of the client's data.
    pub fn client_error(&self, reason: &'static str) {
        self.event(Metric::ClientErrorsTotal, reason);
    }

    /// Counts a client connection that ended before its TLS handshake was complete.
    pub fn tls_handshake_failed(&self, failure: TlsFailure) {
        self.event(Metric::TlsHandshakesFailedTotal, failure.as_str());
    }

    /// Counts a request as waiting for another's forward until the guard is dropped.
    pub fn collapsed(&self) -> GaugeGuard {
        self.event(Metric::CollapsedRequestsTotal, "");
        self.guard(COLLAPSED_WAITERS)
    }

    /// Counts a fill as in this state until the guard is dropped.
    pub fn fill(&self, state: FillState) -> GaugeGuard {
        self.guard(FILLS + state as usize)
    }

    /// Counts a fill that ended before the response was complete.
    pub fn fill_aborted(&self, reason: &'static str) {
        self.event(Metric::FillsAbortedTotal, reason);
    }

    /// Counts a message that matched a transformation rule.
    pub fn transform(&self, site: SiteId, rule: RuleId) {
        self.shard.tables.lock().transform(site, rule);
    }

    /// Counts a response that was forwarded but not stored.
    pub fn not_stored(&self, reason: &'static str) {
        self.event(Metric::NotStoredTotal, reason);
    }

    /// Counts a response to a request for bytes that a stored response lacks.
    pub fn missing_part(&self, outcome: &'static str) {
        self.event(Metric::MissingPartsTotal, outcome);
    }

    /// Counts bytes from the origin that a stored response lacked.
    pub fn missing_part_bytes(&self, bytes: u64) {
        let event = Event { metric: Metric::MissingPartBytesTotal, origin: OriginId::NONE, value: "" };
        self.shard.tables.lock().count(event, bytes);
    }

    /// Counts a stored part of a representation.
    pub fn part_stored(&self) {
        self.event(Metric::PartsStoredTotal, "");
    }

    /// Counts a response sent in a content coding, or not encoded for a reason.
    pub fn compression(&self, outcome: Result<&'static str, &'static str>) {
        match outcome {
            Ok(coding) => self.event(Metric::CompressionResponsesTotal, coding),
            Err(reason) => self.event(Metric::CompressionSkippedTotal, reason),
        }
    }

    /// Counts bytes before and after compression.
    pub fn compressed_bytes(&self, coding: &'static str, input: u64, output: u64) {
        let event = |metric| Event { metric, origin: OriginId::NONE, value: coding };
        let mut tables = self.shard.tables.lock();
        tables.count(event(Metric::CompressionInputBytesTotal), input);
        tables.count(event(Metric::CompressionOutputBytesTotal), output);
    }

    /// Counts a finished request to an origin: the response head is complete, or the request has failed.
    pub fn origin_request(&self, answer: &OriginAnswer) {
        let outcome = answer.status.map_or(OriginOutcome::Failed, OriginOutcome::from_status);
        let metric = Metric::OriginRequestsTotal;
        let event = Event { metric, origin: answer.origin, value: outcome.as_str() };
        let mut tables = self.shard.tables.lock();
        tables.event(event);
        tables.origin_answer(answer);
    }

    /// Counts a request to an origin without a response, or without a complete head. Called in addition to
    /// [`origin_request`](Self::origin_request).
    pub fn origin_error(&self, origin: OriginId, reason: &'static str) {
        let event = Event { metric: Metric::OriginErrorsTotal, origin, value: reason };
        self.shard.tables.lock().event(event);
    }

    /// Counts a request that was repeated on a new connection.
    pub fn origin_retry(&self, origin: OriginId) {
        let event = Event { metric: Metric::OriginRetriesTotal, origin, value: "" };
        self.shard.tables.lock().event(event);
    }

    /// Counts an event of a validation in the background: `ahead`, `stale`, `probe`, `in_vain`.
    pub fn background_validation(&self, event: &'static str) {
        self.event(Metric::BackgroundValidationsTotal, event);
    }

    /// Counts a request beyond the rate limit of its client. The limit of the site belongs to no rule.
    pub fn rate_limited(&self, site: SiteId, rule: RuleId, outcome: &'static str) {
        self.site_event(SiteEvent { metric: Metric::RateLimitedTotal, site, rule, value: outcome });
    }

    /// Counts a miss that was not forwarded, because its rule has used up its budget.
    pub fn miss_refused(&self, site: SiteId, rule: RuleId) {
        self.site_event(SiteEvent { metric: Metric::MissesRefusedTotal, site, rule, value: "" });
    }

    /// Counts an explanation for an operator.
    pub fn explanation(&self) {
        self.event(Metric::ExplanationsTotal, "");
    }

    /// Counts an answered purge.
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

    /// Counts a refused request with the method PURGE.
    pub fn purge_refused(&self, reason: &'static str) {
        self.event(Metric::PurgesRefusedTotal, reason);
    }

    /// Counts a request that the admin API refused.
    pub fn admin_refused(&self, refusal: AdminRefusal) {
        self.event(Metric::AdminRefusedTotal, refusal.as_str());
    }

    /// Counts the invalidation of a `url` or a `group` by an unsafe request.
    pub fn invalidation(&self, what: &'static str) {
        self.event(Metric::InvalidationsTotal, what);
    }

    /// Counts a reload of the configuration: `applied` or `refused`.
    pub fn reload(&self, outcome: &'static str) {
        self.event(Metric::ReloadsTotal, outcome);
    }

    /// Counts an upgrade: this process `took-over`, or its successor `failed` and it continues.
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
    /// Takes the counts and leaves empty tables in their place. The worker waits for the exchange of two
    /// pointers at most, independent of the amount of data.
    pub(crate) fn exchange(&self, tables: &mut Box<Tables>) {
        std::mem::swap(&mut *self.tables.lock(), tables);
    }
}

/// Returns the number of open client connections of one worker, each counted once.
pub(crate) fn connections(shard: &Shard) -> u64 {
    let open = [ConnectionKind::Http1, ConnectionKind::Http2]
        .map(|kind| shard.gauges[CONNECTIONS + kind as usize].load(Ordering::Relaxed));
    u64::try_from(open.iter().sum::<i64>()).unwrap_or(0)
}

/// Returns the gauges of all shards, as metric, label value and sum. Relaxed reads suffice: a guard raises
/// and lowers the same cell, so a sum below zero is only temporary.
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
