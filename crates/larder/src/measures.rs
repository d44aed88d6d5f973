//! Gauges of the data plane, read at every scrape.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, UNIX_EPOCH};

use fleet::counts::TierCounts;
use fleet::regions::{PeerStatus, RegionStatus};
use gateway::{GatewayControl, ServedCertificate, StoreMeasures};
use kv::CommandMeasures;
use origin::{BreakerStats, ServerState, ServerStats};
use parking_lot::Mutex;
use store::Usage;
use store::backing::{BreakerState, Health, Operation};
use telemetry::{Buckets, COMMAND_BOUNDS, Metric, Number, Sample, Telemetry};

use crate::certificate::Validity;
use crate::kv::KvControl;

/// Errors of the Redis-compatible server that alerts use.
const ERRORS_OF_ALERTS: [&str; 3] = ["OOM", "WRONGPASS", "NOAUTH"];

/// Adds the gauges of the store, of connections to origins and of certificates to every scrape.
pub(crate) fn report(telemetry: &Telemetry, gateway: GatewayControl) {
    telemetry.collect_from(Box::new(move |sample| {
        for StoreMeasures { name, usage, tier, health, region } in gateway.stores() {
            let store = name.unwrap_or_default();
            report_store(sample, store, &usage);
            tier.iter().for_each(|counts| report_tier(sample, store, counts));
            health.iter().for_each(|health| report_health(sample, store, health));
            region.iter().for_each(|region| report_region(sample, region));
        }
        report_origins(sample, &gateway);
        report_certificates(sample, &gateway);
        sample.add(Metric::ConnectionsMax, &[], gateway.connections_max() as u64);
    }));
}

/// Adds the counters of the Redis-compatible server to every scrape.
pub(crate) fn report_kv(telemetry: &Telemetry, kv: KvControl) {
    let spent = Spent::default();
    telemetry.collect_from(Box::new(move |sample| {
        let measures = kv.measures();
        report_engine(sample, kv.engine());
        report_clients(sample, &measures);
        report_saving(sample, &measures);
        report_commands(sample, &measures.commands, &spent);
    }));
}

/// The last reported times of commands. Times are estimated from samples and could decrease a little.
/// Prometheus would take a decrease for a counter reset, and count all time since the start again.
#[derive(Default)]
struct Spent(Mutex<HashMap<&'static str, Told>>);

#[derive(Clone, Copy, Default)]
struct Told {
    calls: u64,
    total_us: u64,
}

impl Spent {
    /// Returns the total time of a command. It decreases only after the call counter was reset.
    fn total_us(&self, command: &CommandMeasures) -> u64 {
        let mut all = self.0.lock();
        let told = all.entry(command.name).or_default();
        let least_us = if command.calls < told.calls { 0 } else { told.total_us };
        *told = Told { calls: command.calls, total_us: command.total_us.max(least_us) };
        told.total_us
    }
}

fn report_clients(sample: &mut Sample, measures: &kv::Measures) {
    sample.add(Metric::KvConnections, &[], measures.clients);
    sample.add(Metric::KvConnectionsMax, &[], measures.clients_max);
    sample.add(Metric::KvConnectionsTotal, &[], measures.clients_made);
    sample.add(Metric::KvConnectionsUnauthenticated, &[], measures.strangers);
    for (ending, count) in &measures.endings {
        sample.add(Metric::KvConnectionsEndedTotal, &[ending.name()], *count);
    }
    sample.add(Metric::KvConnectionsRefusedTotal, &[], measures.clients_refused);
    sample.add(Metric::KvBuffersBytes, &[], measures.buffers_bytes);
    sample.add(Metric::KvReceivedBytesTotal, &[], measures.input_bytes);
    sample.add(Metric::KvSentBytesTotal, &[], measures.output_bytes);
    sample.add(Metric::KvHitsTotal, &[], measures.hits);
    sample.add(Metric::KvMissesTotal, &[], measures.misses);
    sample.add(Metric::KvMemoryTrimmedBytesTotal, &[], measures.trimmed_bytes);
    sample.add(Metric::KvSlowCommandsTotal, &[], measures.slow_commands);
    // Series for alerts exist before the first event: `rate()` misses the event that creates a series.
    for code in ERRORS_OF_ALERTS {
        sample.add(Metric::KvErrorsTotal, &[code], 0_u64);
    }
    for (code, count) in &measures.errors_by_code {
        sample.add(Metric::KvErrorsTotal, &[code], *count);
    }
}

fn report_saving(sample: &mut Sample, measures: &kv::Measures) {
    sample.add(Metric::KvSavesRefusedTotal, &[], measures.saves_refused);
    sample.add(Metric::KvChangesUnsaved, &[], measures.changes_unsaved);
    if let Some(saving) = measures.saving {
        let seconds = Duration::from_millis(saving.saved_at_ms).as_secs_f64();
        sample.add(Metric::KvLastSaveTimestampSeconds, &[], seconds);
        sample.add(Metric::KvSaveFailed, &[], u64::from(saving.has_failed));
    }
}

fn report_commands(sample: &mut Sample, commands: &[CommandMeasures], spent: &Spent) {
    for command in commands {
        sample.add(Metric::KvCommandsTotal, &[command.name], command.calls);
        let total = Number::Nanoseconds(spent.total_us(command).saturating_mul(1000));
        sample.add(Metric::KvCommandSecondsTotal, &[command.name], total);
        let mut durations = Buckets::new(&COMMAND_BOUNDS);
        command.times.iter().for_each(|(at_most_ns, count)| durations.add(*at_most_ns, *count));
        durations.add_sum(command.samples_ns);
        sample.histogram(Metric::KvCommandDurationSeconds, &[command.name], &durations);
    }
}

fn report_engine(sample: &mut Sample, engine: &engine::Engine) {
    let counts = engine.counts();
    sample.add(Metric::KvKeys, &[], counts.keys.iter().sum::<u64>());
    sample.add(Metric::KvKeysExpiring, &[], counts.expiring.iter().sum::<u64>());
    sample.add(Metric::KvEvictionsTotal, &[], counts.evicted);
    sample.add(Metric::KvExpirationsTotal, &[], counts.expired);
    sample.add(Metric::KvMemoryBytes, &[], engine.used_bytes());
    sample.add(Metric::KvMemoryMaxBytes, &[], engine.bytes_max());
}

fn report_store(sample: &mut Sample, store: &str, usage: &Usage) {
    sample.add(Metric::StoreEntries, &[store], usage.responses);
    sample.add(Metric::StoreNotes, &[store], usage.notes);
    sample.add(Metric::StoreBytes, &[store, "stored"], usage.stored_bytes);
    sample.add(Metric::StoreBytes, &[store, "filling"], usage.filling_bytes);
    sample.add(Metric::StoreBytes, &[store, "pinned"], usage.pinned_bytes);
    sample.add(Metric::StoreMaxBytes, &[store], usage.bytes_max);
    sample.add(Metric::StoreFileBytes, &[store], usage.file_bytes);
    sample.add(Metric::StoreFileFallbacksTotal, &[store], usage.files_failed);
    sample.add(Metric::StoreEvictionsTotal, &[store], usage.evictions);
    sample.add(Metric::StoreSegmentsEvictedBytesTotal, &[store], usage.segment_bytes_evicted);
    sample.add(Metric::StoreExpirationsTotal, &[store], usage.expirations);
}

fn report_tier(sample: &mut Sample, store: &str, counts: &TierCounts) {
    let loads = [("hit", counts.loads_hit), ("miss", counts.loads_missed), ("failed", counts.loads_failed)];
    for (result, count) in loads {
        sample.add(Metric::TierLoadsTotal, &[store, result], count);
    }
    let writes = [
        ("written", counts.written),
        ("removed", counts.removed),
        ("failed", counts.writes_failed),
        ("given_up", counts.given_up),
        ("refused", counts.refused),
    ];
    for (result, count) in writes {
        sample.add(Metric::TierWritesTotal, &[store, result], count);
    }
    let doubts = [("changed", counts.pushes), ("all", counts.flushes), ("unverified", counts.unverified)];
    for (reason, count) in doubts {
        sample.add(Metric::TierDoubtsTotal, &[store, reason], count);
    }
    sample.add(Metric::TierInstances, &[store], counts.instances);
    if let Some(log) = counts.log {
        sample.add(Metric::TierLog, &[store], log);
    }
    let leases = [
        ("taken", counts.leases_taken),
        ("waited", counts.leases_waited),
        ("expired", counts.leases_expired),
        ("lost", counts.leases_lost),
        ("failed", counts.leases_failed),
        ("released_late", counts.leases_released_late),
        ("not_released", counts.leases_not_released),
    ];
    for (event, count) in leases {
        sample.add(Metric::TierLeasesTotal, &[store, event], count);
    }
    let waited = Duration::from_millis(counts.leases_waited_ms);
    sample.add(Metric::TierLeaseWaitSecondsTotal, &[store], waited.as_secs_f64());
    sample.add(Metric::TierPurgesHeardTotal, &[store], counts.purges_heard);
    sample.add(Metric::TierPendingKeys, &[store], counts.pending);
    sample.add(Metric::TierUnusableTotal, &[store, "corrupt"], counts.corrupt);
    sample.add(Metric::TierUnusableTotal, &[store, "forged"], counts.forged);
}

fn report_region(sample: &mut Sample, region: &RegionStatus) {
    sample.add(Metric::RegionCarrier, &[&region.name], u64::from(region.is_carrier));
    for PeerStatus { name, lag } in &region.peers {
        sample.add(Metric::RegionPurgeLagSeconds, &[name], lag.as_secs_f64());
    }
}

fn report_health(sample: &mut Sample, store: &str, health: &Health) {
    let Health { state, opened, is_verified, silence, clock_ahead_ms, durations } = health;
    for (name, holds) in breaker_states(*state) {
        sample.add(Metric::TierBreaker, &[store, name], u64::from(holds));
    }
    sample.add(Metric::TierBreakerOpenedTotal, &[store], *opened);
    sample.add(Metric::TierVerified, &[store], u64::from(*is_verified));
    sample.add(Metric::TierSilenceSeconds, &[store], silence.as_secs_f64());
    if let Some(ahead_ms) = clock_ahead_ms {
        sample.add(Metric::TierClockAheadSeconds, &[store], *ahead_ms as f64 / 1000.0);
    }
    for operation in Operation::ALL {
        let durations = Buckets::from(durations.of(operation));
        sample.histogram(Metric::TierOperationDurationSeconds, &[store, operation.as_str()], &durations);
    }
}

/// Reports one series per host: Prometheus refuses a scrape with duplicate series.
fn report_certificates(sample: &mut Sample, gateway: &GatewayControl) {
    let mut ends = BTreeMap::new();
    for ServedCertificate { host, key } in gateway.certificates() {
        let Some(validity) = key.cert.first().and_then(|first| Validity::of(first)) else { continue };
        let end = ends.entry(host.unwrap_or_default()).or_insert(validity.end);
        *end = validity.end.min(*end);
    }
    for (host, end) in ends {
        let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        sample.add(Metric::CertificateExpiryTimestampSeconds, &[&host], seconds);
    }
}

fn report_origins(sample: &mut Sample, gateway: &GatewayControl) {
    for (name, stats) in gateway.origin_stats() {
        let active = stats.connections_open.saturating_sub(stats.connections_idle);
        sample.add(Metric::OriginConnections, &[&name, "active"], active);
        sample.add(Metric::OriginConnections, &[&name, "idle"], stats.connections_idle);
        let exchanges = [
            ("queued", stats.requests_queued),
            ("in_flight", stats.requests_in_flight),
            ("upload", stats.uploads_in_flight),
            ("delivery", stats.deliveries_in_flight),
            ("tunnel", stats.tunnels_open),
        ];
        exchanges
            .into_iter()
            .for_each(|(state, count)| sample.add(Metric::OriginExchanges, &[&name, state], count));
        sample.add(Metric::OriginConnectionsOpenedTotal, &[&name], stats.connections_opened);
        sample.add(Metric::OriginConnectionsReusedTotal, &[&name], stats.connections_reused);
        sample.add(Metric::OriginRetriesOverBudgetTotal, &[&name], stats.retries_over_budget);
        sample.add(Metric::OriginRetriesTotal, &[&name], stats.retries);
        stats.breaker.iter().for_each(|breaker| report_breaker(sample, &name, breaker));
        stats.servers.iter().for_each(|server| report_server(sample, &name, server));
    }
}

fn report_breaker(sample: &mut Sample, origin: &str, breaker: &BreakerStats) {
    for (name, holds) in breaker_states(breaker.state) {
        sample.add(Metric::OriginBreaker, &[origin, name], u64::from(holds));
    }
    sample.add(Metric::OriginBreakerOpenedTotal, &[origin], breaker.opened);
}

fn breaker_states(state: BreakerState) -> [(&'static str, bool); 3] {
    [
        ("closed", state == BreakerState::Closed),
        ("open", matches!(state, BreakerState::Open { .. })),
        ("half_open", state == BreakerState::HalfOpen),
    ]
}

fn report_server(sample: &mut Sample, origin: &str, stats: &ServerStats) {
    let labels: &[&str] = &[origin, &stats.server];
    for (result, count) in [("passed", stats.checks_passed), ("failed", stats.checks_failed)] {
        sample.add(Metric::OriginServerChecksTotal, &[origin, &stats.server, result], count);
    }
    sample.add(Metric::OriginServerEjectionsTotal, labels, stats.ejections);
    for (reason, count) in &stats.failures {
        sample.add(Metric::OriginServerFailuresTotal, &[origin, &stats.server, reason], *count);
    }
    sample.add(Metric::OriginServerRequestsInFlight, labels, stats.requests_in_flight);
    sample.add(Metric::OriginServerRequestsTotal, labels, stats.requests);
    for state in ServerState::ALL {
        let holds = u64::from(stats.state == state);
        sample.add(Metric::OriginServerState, &[origin, &stats.server, state.name()], holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_commands_falls_only_when_they_are_reset() {
        let spent = Spent::default();
        let told = [(16, 80), (17, 51), (40, 90), (3, 9), (4, 8)].map(|(calls, total_us)| {
            let command = CommandMeasures { name: "get", calls, total_us, samples_ns: 0, times: Vec::new() };
            spent.total_us(&command)
        });
        assert_eq!(told, [80, 80, 90, 9, 9]);
    }
}
