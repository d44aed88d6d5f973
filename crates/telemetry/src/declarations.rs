//! The table of all metrics, from which the exposition, the reference page and the checks in the tests take
//! names, types and help texts.

use std::fmt::Write;

use crate::histogram::{Bound, COMMAND_BOUNDS, DURATION_BOUNDS};
use crate::labels::CacheResult;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A value that only increases, from zero at the start of the process.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Cumulative buckets with a sum and a count.
    Histogram,
}

impl MetricType {
    /// Returns the name of the type in the exposition format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The unit of a metric. Base units only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Items: requests, connections, stored responses.
    Count,
    /// Seconds, including points in time (since the Unix epoch).
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Returns the name of the unit in the documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }
}

/// One row of [`METRICS`].
#[derive(Debug)]
pub struct Declaration {
    /// The identifier that code uses.
    pub metric: Metric,
    /// The name in the exposition.
    pub name: &'static str,
    /// Its type.
    pub metric_type: MetricType,
    /// Its unit.
    pub unit: Unit,
    /// The labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// Help text, in one line.
    pub help: &'static str,
}

impl Declaration {
    /// Returns whether only a process with a gateway has the metric.
    pub(crate) fn is_of_gateway(&self) -> bool {
        self.name.starts_with("larder_") && !self.name.starts_with("larder_kv_")
    }
}

macro_rules! metrics {
    ($($variant:ident $name:literal $metric_type:ident $unit:ident $labels:expr, $help:literal;)*) => {
        /// Every metric, sorted by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        /// Every metric with its declaration; sorted by name.
        pub static METRICS: &[Declaration] = &[$(Declaration {
            metric: Metric::$variant,
            name: $name,
            metric_type: MetricType::$metric_type,
            unit: Unit::$unit,
            labels: &$labels,
            help: $help,
        },)*];
    };
}

metrics! {
    AccessLogDroppedTotal "larder_access_log_dropped_total" Counter Count [],
        "Lines of the access log dropped because the queue was full or the target could not be written.";
    AdminRefusedTotal "larder_admin_refused_total" Counter Count ["reason"],
        "Requests refused by the admin API, by error code: `token_missing`, `token_wrong`, `host_not_loopback` and `browser_request` (without a token: `Host` names another machine, or a web page sent it), `method_not_allowed`. `GET /` without a token isn't counted: `larder` uses it to recognise an admin API.";
    BackgroundValidationsTotal "larder_background_validations_total" Counter Count ["event"],
        "Validations in the background, by event: `ahead` (of a fresh response whose lifetime ends soon, `refresh_ahead_percent`), `stale` (of a response used stale, `stale-while-revalidate`), `probe` (of a response used stale because the circuit breaker of its origin is half-open; the validation is the probe), `in_vain` (any of these that did not update the stored response. If the origin failed, the next one waits for half a second; otherwise for 50 ms if another client triggers it, and for up to 8 s if the same client does).";
    BuildInfo "larder_build_info" Gauge Count ["version", "commit", "rustc"],
        "Always 1; the labels identify the build.";
    CertificateExpiryTimestampSeconds "larder_certificate_expiry_timestamp_seconds" Gauge Seconds ["host"],
        "Expiry (`notAfter`) of a certificate for clients of the gateway, in seconds since the Unix epoch. If two listeners have certificates for one host, the earlier expiry.";
    ClientErrorsTotal "larder_client_errors_total" Counter Count ["reason"],
        "Requests that were refused because of invalid or slow input, or that ended because the client left, was too slow, or used too many resources; a connection with an error counts as one request.";
    CollapsedRequestsTotal "larder_collapsed_requests_total" Counter Count [],
        "Requests that waited for another request's forward.";
    CollapsedWaiters "larder_collapsed_waiters" Gauge Count [],
        "Requests that are waiting for another request's forward.";
    CompressionInputBytesTotal "larder_compression_input_bytes_total" Counter Bytes ["coding"],
        "Bytes of responses before compression. A stored response is compressed once for each coding.";
    CompressionOutputBytesTotal "larder_compression_output_bytes_total" Counter Bytes ["coding"],
        "Bytes of compressed bodies, after compression.";
    CompressionResponsesTotal "larder_compression_responses_total" Counter Count ["coding"],
        "Responses sent in a content coding that Larder applied.";
    CompressionSkippedTotal "larder_compression_skipped_total" Counter Count ["reason"],
        "Responses of rules with `compress = true` that were sent unencoded; the reasons are in docs/operate/compression.md.";
    Connections "larder_connections" Gauge Count ["protocol"],
        "Open client connections; a TLS connection counts both as `tls` and as the protocol inside.";
    ConnectionsEvictedTotal "larder_connections_evicted_total" Counter Count [],
        "Client connections closed to make room for others at the limit `limits.connections_max`: idle ones, or those in use by a client with more than `limits.client_share_percent`.";
    ConnectionsMax "larder_connections_max" Gauge Count [],
        "The limit for open client connections: `limits.connections_max`.";
    ConnectionsRefusedTotal "larder_connections_refused_total" Counter Count ["reason"],
        "Client connections closed before their first request was read.";
    ConnectionsTotal "larder_connections_total" Counter Count ["protocol"],
        "Client connections since the start; a TLS connection counts both as `tls` and as the protocol inside.";
    ExplanationsTotal "larder_explanations_total" Counter Count [],
        "Explanations requested by operators.";
    Fills "larder_fills" Gauge Count ["state"],
        "Fills of the cache in progress: responses that may be stored, fetched from an origin.";
    FillsAbortedTotal "larder_fills_aborted_total" Counter Count ["reason"],
        "Fills that ended before the response was complete; at most, the received bytes are stored as a part.";
    InvalidationsTotal "larder_invalidations_total" Counter Count ["what"],
        "URLs (`url`) and groups (`group`) invalidated by unsafe requests, even if nothing was stored for them.";
    KvBuffersBytes "larder_kv_buffers_bytes" Gauge Bytes [],
        "Bytes of pending requests and replies of all Redis clients.";
    KvChangesUnsaved "larder_kv_changes_unsaved" Gauge Count [],
        "Changes of keys since the last save to `save_file`, or since the start.";
    KvCommandDurationSeconds "larder_kv_command_duration_seconds" Histogram Seconds ["command"],
        "Durations of commands in the server, sampled: only some fast commands are measured.";
    KvCommandSecondsTotal "larder_kv_command_seconds_total" Counter Seconds ["command"],
        "Time of commands in the server, estimated from samples.";
    KvCommandsTotal "larder_kv_commands_total" Counter Count ["command"],
        "Commands executed for Redis clients.";
    KvConnections "larder_kv_connections" Gauge Count [],
        "Open connections of Redis clients.";
    KvConnectionsEndedTotal "larder_kv_connections_ended_total" Counter Count ["reason"],
        "Connections of Redis clients closed by the server: `auth_timeout` and `strangers` (too many, or too much memory for them) before authentication, `buffers`, `messages`, `replies` and `request` for exceeding these limits, `idle`, and `http` for POST and `Host:`.";
    KvConnectionsMax "larder_kv_connections_max" Gauge Count [],
        "The limit for open connections of Redis clients: `limits.clients_max`.";
    KvConnectionsRefusedTotal "larder_kv_connections_refused_total" Counter Count [],
        "Connections of Redis clients that were refused: too many connections, protected mode, or no TLS.";
    KvConnectionsTotal "larder_kv_connections_total" Counter Count [],
        "Connections of Redis clients since the start.";
    KvConnectionsUnauthenticated "larder_kv_connections_unauthenticated" Gauge Count [],
        "Open connections of Redis clients that have not authenticated although a password is required, or not finished the TLS handshake.";
    KvErrorsTotal "larder_kv_errors_total" Counter Count ["code"],
        "Error replies to Redis clients.";
    KvEvictionsTotal "larder_kv_evictions_total" Counter Count [],
        "Keys evicted for space.";
    KvExpirationsTotal "larder_kv_expirations_total" Counter Count [],
        "Keys removed because they had expired.";
    KvHitsTotal "larder_kv_hits_total" Counter Count [],
        "Keys requested by Redis clients that existed.";
    KvKeys "larder_kv_keys" Gauge Count [],
        "Keys in all databases.";
    KvKeysExpiring "larder_kv_keys_expiring" Gauge Count [],
        "Keys that have an expiry.";
    KvLastSaveTimestampSeconds "larder_kv_last_save_timestamp_seconds" Gauge Seconds [],
        "Time of the last save of all keys to `save_file`, in seconds since the Unix epoch; before the first save, the time of the start. Only with a `save_file`.";
    KvMemoryBytes "larder_kv_memory_bytes" Gauge Bytes [],
        "Bytes of keys, values and their index.";
    KvMemoryMaxBytes "larder_kv_memory_max_bytes" Gauge Bytes [],
        "The limit for keys, values and their index: `maxmemory`.";
    KvMemoryTrimmedBytesTotal "larder_kv_memory_trimmed_bytes_total" Counter Bytes [],
        "Freed memory that the allocator was asked to return to the OS: to keep resident memory within 110 % of `maxmemory`, or by `MEMORY PURGE`.";
    KvMissesTotal "larder_kv_misses_total" Counter Count [],
        "Keys requested by Redis clients that did not exist.";
    KvReceivedBytesTotal "larder_kv_received_bytes_total" Counter Bytes [],
        "Bytes received from Redis clients.";
    KvSaveFailed "larder_kv_save_failed" Gauge Count [],
        "1 if the last background save to `save_file` failed, else 0. Only with a `save_file`.";
    KvSavesRefusedTotal "larder_kv_saves_refused_total" Counter Count [],
        "Save files that were damaged or had a different format version: the server continued without any of their keys. It does not start with a file of a different program.";
    KvSentBytesTotal "larder_kv_sent_bytes_total" Counter Bytes [],
        "Bytes of replies to Redis clients.";
    KvSlowCommandsTotal "larder_kv_slow_commands_total" Counter Count [],
        "Commands that took longer than `slowlog-log-slower-than`.";
    LogDroppedTotal "larder_log_dropped_total" Counter Count [],
        "Lines of the event log dropped because standard error could not be written, or not fast enough.";
    MissesRefusedTotal "larder_misses_refused_total" Counter Count ["site", "rule"],
        "Requests to an origin that were not sent because their rule had used up its `miss_budget`.";
    MissingPartBytesTotal "larder_missing_part_bytes_total" Counter Bytes [],
        "Bytes that stored responses lacked and that were fetched from origins.";
    MissingPartsTotal "larder_missing_parts_total" Counter Count ["outcome"],
        "Responses to requests for bytes that a stored response lacked.";
    NotStoredTotal "larder_not_stored_total" Counter Count ["reason"],
        "Responses forwarded but not stored; the reason is the detail code of Cache-Status.";
    OriginBreaker "larder_origin_breaker" Gauge Count ["origin", "state"],
        "1 for the current state of an origin's circuit breaker, 0 for the others; origins without one have no series.";
    OriginBreakerOpenedTotal "larder_origin_breaker_opened_total" Counter Count ["origin"],
        "Number of times that the circuit breaker of an origin has opened.";
    OriginConnections "larder_origin_connections" Gauge Count ["origin", "state"],
        "Connections to origins.";
    OriginConnectionsOpenedTotal "larder_origin_connections_opened_total" Counter Count ["origin"],
        "Connections opened to origins.";
    OriginConnectionsReusedTotal "larder_origin_connections_reused_total" Counter Count ["origin"],
        "Requests to origins on a reused connection.";
    OriginErrorsTotal "larder_origin_errors_total" Counter Count ["origin", "reason"],
        "Requests to origins without a response, without a complete response head, or with a 304 or 206 that the request had not asked for. Bodies that end early after a complete head are in `larder_fills_aborted_total`.";
    OriginExchanges "larder_origin_exchanges" Gauge Count ["origin", "state"],
        "Exchanges with origins in progress, by the limit that they count towards.";
    OriginFetchDurationSeconds "larder_origin_fetch_duration_seconds" Histogram Seconds ["origin"],
        "Time from the first attempt to the complete head of the origin's response.";
    OriginRequestsTotal "larder_origin_requests_total" Counter Count ["origin", "outcome"],
        "Requests to origins, by status class.";
    OriginResponseSecondsTotal "larder_origin_response_seconds_total" Counter Seconds ["origin", "method", "status"],
        "Time until the heads of `larder_origin_responses_total` were complete, or until it was certain that no head would arrive.";
    OriginResponsesTotal "larder_origin_responses_total" Counter Count ["origin", "method", "status"],
        "Requests to origins, by method and exact status.";
    OriginRetriesOverBudgetTotal "larder_origin_retries_over_budget_total" Counter Count ["origin"],
        "Failed requests to origins that were not retried on another server because the retry budget (`budget_percent`) was used up.";
    OriginRetriesTotal "larder_origin_retries_total" Counter Count ["origin"],
        "Requests sent again: to another server of the origin, or on a new connection because a pooled one was closed.";
    OriginServerChecksTotal "larder_origin_server_checks_total" Counter Count ["origin", "server", "result"],
        "Health checks of a server of an origin.";
    OriginServerEjectionsTotal "larder_origin_server_ejections_total" Counter Count ["origin", "server"],
        "Ejections of a server of an origin because of failures.";
    OriginServerFailuresTotal "larder_origin_server_failures_total" Counter Count ["origin", "server", "reason"],
        "Failed attempts to get a response from a server of an origin, including those followed by a successful retry, and 304 or 206 responses that the request had not asked for. Starts from zero for a server that a reload removes and adds again.";
    OriginServerRequestsInFlight "larder_origin_server_requests_in_flight" Gauge Count ["origin", "server"],
        "Requests in progress at a server of an origin, including tunnels.";
    OriginServerRequestsTotal "larder_origin_server_requests_total" Counter Count ["origin", "server"],
        "Requests sent to a server of an origin, including retries. Starts from zero for a server that a reload removes and adds again.";
    OriginServerState "larder_origin_server_state" Gauge Count ["origin", "server", "state"],
        "1 for the current state of a server of an origin, 0 for the others.";
    PartsStoredTotal "larder_parts_stored_total" Counter Count [],
        "Stored parts of representations (206).";
    PurgeDurationSeconds "larder_purge_duration_seconds" Histogram Seconds [],
        "Time from the request for a purge to its response: until all instances that share a store have applied it, or the wait for them has ended.";
    PurgeFormsTotal "larder_purge_forms_total" Counter Count ["form"],
        "Purges by operators, by selection.";
    PurgeReachTotal "larder_purge_reach_total" Counter Count ["reach"],
        "Purges by operators, by their reach at the time of the response.";
    PurgesRefusedTotal "larder_purges_refused_total" Counter Count ["reason"],
        "Refused requests with the method PURGE: `purge-token-missing`, `purge-token-wrong`, `purge-invalid` (with the token, for a URL that cannot be purged).";
    PurgesTotal "larder_purges_total" Counter Count ["mode"],
        "Purges by operators.";
    RateLimitedTotal "larder_rate_limited_total" Counter Count ["site", "rule", "outcome"],
        "Requests beyond the rate limit of their client, by the rule with the `rate_limit`; the limit of the site has no rule.";
    RegionCarrier "larder_region_carrier" Gauge Count ["region"],
        "1 if this instance carries the purges of other regions into the log of its own, else 0. One instance of each region does.";
    RegionPurgeLagSeconds "larder_region_purge_lag_seconds" Gauge Seconds ["peer"],
        "Time since this region last knew all purges of another region; since the start if it never has. It is below 2 s while the region is reached.";
    ReloadsTotal "larder_reloads_total" Counter Count ["outcome"],
        "Reloads of the configuration, by outcome.";
    RequestBytesTotal "larder_request_bytes_total" Counter Bytes ["site"],
        "Body bytes received from clients.";
    RequestsInFlight "larder_requests_in_flight" Gauge Count [],
        "Requests in progress: those that wait (for an origin, another request, or the tier behind memory), and those whose response body is being sent, including tunnels. Requests that are answered at once, such as small hits, do not count.";
    RequestsTotal "larder_requests_total" Counter Count ["site", "method", "status", "cache"],
        "Requests answered.";
    ResponseBytesTotal "larder_response_bytes_total" Counter Bytes ["site", "cache"],
        "Body bytes sent to clients.";
    ResponseDurationSeconds "larder_response_duration_seconds" Histogram Seconds ["site", "cache"],
        "Time from the complete request head until the kernel has accepted the last byte of the response.";
    ResponseSecondsTotal "larder_response_seconds_total" Counter Seconds ["site", "method", "status", "cache"],
        "Sum of the durations of the requests in `larder_requests_total`.";
    RuleRequestsTotal "larder_rule_requests_total" Counter Count ["site", "rule", "cache"],
        "Requests answered, by cache rule.";
    RuleResponseBytesTotal "larder_rule_response_bytes_total" Counter Bytes ["site", "rule", "cache"],
        "Body bytes sent to clients, by cache rule.";
    StoreBytes "larder_store_bytes" Gauge Bytes ["store", "class"],
        "Bytes in the memory tier, including metadata.";
    StoreEntries "larder_store_entries" Gauge Count ["store"],
        "Stored responses; each variant of a URL is one.";
    StoreEvictionsTotal "larder_store_evictions_total" Counter Count ["store"],
        "Stored responses evicted for space. Segments of large bodies are in `larder_store_segments_evicted_bytes_total`.";
    StoreExpirationsTotal "larder_store_expirations_total" Counter Count ["store"],
        "Stored responses removed because they had expired.";
    StoreFileBytes "larder_store_file_bytes" Gauge Bytes ["store"],
        "The part of `larder_store_bytes` in anonymous files, from which the kernel sends. It is memory of the control group, but not resident memory of the process.";
    StoreFileFallbacksTotal "larder_store_file_fallbacks_total" Counter Count ["store"],
        "Large segments kept on the heap because they did not fit into an anonymous file.";
    StoreMaxBytes "larder_store_max_bytes" Gauge Bytes ["store"],
        "The limit for the memory tier.";
    StoreNotes "larder_store_notes" Gauge Count ["store"],
        "Cache keys without a stored response that Larder remembers as hit-for-miss: requests for them don't wait for each other.";
    StoreSegmentsEvictedBytesTotal "larder_store_segments_evicted_bytes_total" Counter Bytes ["store"],
        "Segments (of up to 1 MiB) of large bodies evicted for space. The response stays, and its missing bytes are fetched when they are requested.";
    TierBreaker "larder_tier_breaker" Gauge Count ["store", "state"],
        "1 for the current state of the circuit breaker of the tier behind memory, 0 for the others.";
    TierBreakerOpenedTotal "larder_tier_breaker_opened_total" Counter Count ["store"],
        "Number of times that the circuit breaker of the tier behind memory has opened: the tier failed, and Larder sends it no requests for a while.";
    TierClockAheadSeconds "larder_tier_clock_ahead_seconds" Gauge Seconds ["store"],
        "Time by which the clock of the server behind a store is ahead of this instance's; negative if it is behind, and absent while unknown.";
    TierDoubtsTotal "larder_tier_doubts_total" Counter Count ["store", "reason"],
        "Events after which copies in memory are no longer trusted, by reason: `changed` (another instance or client changed a record: its copy is read again before its next use), `all` (all may have changed: the server was emptied, or the connection to it was lost), `unverified` (a copy was used while the tier was unavailable).";
    TierInstances "larder_tier_instances" Gauge Count ["store"],
        "Known instances that share the tier behind memory, including this one.";
    TierLeaseWaitSecondsTotal "larder_tier_lease_wait_seconds_total" Counter Seconds ["store"],
        "Time that forwards have waited for another instance's fetch.";
    TierLeasesTotal "larder_tier_leases_total" Counter Count ["store", "event"],
        "Leases by which one instance fetches for all that share the tier: `taken` by this instance, `waited` (another instance had it, and this one waited for its response), `expired` (the lease of another instance timed out: its holder crashed or was suspended, or a full server refused its release), `lost` (this instance's lease ended, or another one took it, before the response was written, so it was not written), `failed` (the tier did not answer, and this instance asked the origin without a lease), `released_late` (the tier was slow to release a lease of this instance that produced no response: waiters elsewhere waited more than 0.1 s longer) or `not_released` (as far as this instance knows, the tier never released it: other instances waited until it ended).";
    TierLoadsTotal "larder_tier_loads_total" Counter Count ["store", "result"],
        "Look-ups in the tier behind memory: `hit` (a usable record), `miss`, `failed` (no reply in time, which counts as a miss).";
    TierLog "larder_tier_log" Gauge Count ["store"],
        "Number derived from the id of the purge log that this instance reads in the tier behind memory: the same for all instances that share the tier. Different numbers in a fleet mean different servers.";
    TierOperationDurationSeconds "larder_tier_operation_duration_seconds" Histogram Seconds ["store", "operation"],
        "Time until the tier behind memory replied, or until the deadline.";
    TierPendingKeys "larder_tier_pending_keys" Gauge Count ["store"],
        "Cache keys whose last change is not yet written to the tier behind memory.";
    TierPurgesHeardTotal "larder_tier_purges_heard_total" Counter Count ["store"],
        "Purges, and invalidations by unsafe requests, of other instances that were applied here.";
    TierSilenceSeconds "larder_tier_silence_seconds" Gauge Seconds ["store"],
        "Time since the tier behind memory last answered a heartbeat; since the start if it never has.";
    TierUnusableTotal "larder_tier_unusable_total" Counter Count ["store", "reason"],
        "Records and segments in the tier behind memory that differ from what Larder writes: `corrupt`, or `forged` (without a valid tag where one is required).";
    TierVerified "larder_tier_verified" Gauge Count ["store"],
        "1 while copies in memory are verified, because the tier behind memory answers heartbeats and its purge log can be read in time; else 0.";
    TierWritesTotal "larder_tier_writes_total" Counter Count ["store", "result"],
        "Changes of records in the tier behind memory: `written`, `removed`, `failed` (tried again), `given_up` (removed because it can't be written), `refused` (the queue is full: earlier records are no longer trusted).";
    TlsHandshakesFailedTotal "larder_tls_handshakes_failed_total" Counter Count ["reason"],
        "Failed TLS handshakes of clients: `certificate-refused` (the client does not trust or accept the certificate), `client-alert` (it ended the handshake for another reason), `client-closed`, `incompatible` (no version or cipher suite in common), `no-application-protocol` (no ALPN protocol in common), `not-tls`, `protocol` (any other error), `timeout` (longer than `limits.head_read_timeout`). HTTP without TLS is in `larder_client_errors_total`.";
    TraceExportsTotal "larder_trace_exports_total" Counter Count ["result"],
        "Requests with spans to the collector: `accepted`, `partial` (a part of the spans was accepted), `again` (repeated later), `failed` (given up).";
    TraceSpansTotal "larder_trace_spans_total" Counter Count ["result"],
        "Spans of traces: `exported`, `dropped` (the queue was full, because the collector was unavailable or slower), `rejected` (by the collector), `failed` (the collector was unavailable, or answered with an error, for too long).";
    TransformsTotal "larder_transforms_total" Counter Count ["site", "rule"],
        "Messages that a transformation rule has matched (`[[site.transform]]`).";
    UpgradesTotal "larder_upgrades_total" Counter Count ["outcome"],
        "Upgrades: `took-over` is 1 in a process that has taken over from another one; `failed` counts failed attempts of this process to start a successor.";
    WorkerConnections "larder_worker_connections" Gauge Count ["worker"],
        "Open client connections of a worker, each counted once. Connections never move between workers.";
    ProcessCpuSecondsTotal "process_cpu_seconds_total" Counter Seconds [],
        "CPU time of the process, user and system.";
    ProcessMaxFds "process_max_fds" Gauge Count [],
        "Maximum number of open file descriptors of the process.";
    ProcessOpenFds "process_open_fds" Gauge Count [],
        "Open file descriptors of the process.";
    ProcessResidentMemoryBytes "process_resident_memory_bytes" Gauge Bytes [],
        "Resident memory of the process, without anonymous files: see `larder_store_file_bytes`.";
    ProcessStartTimeSeconds "process_start_time_seconds" Gauge Seconds [],
        "Start time of the process, in seconds since the Unix epoch.";
}

impl Metric {
    /// Returns the declaration of this metric.
    pub fn declaration(self) -> &'static Declaration {
        &METRICS[self as usize]
    }
}

/// The meaning of each label. A test fails if a label in [`METRICS`] is missing here.
static LABELS: &[(&str, &str)] = &[
    ("cache", "result of the cache, see below"),
    (
        "class",
        "`stored` (complete stored responses), `filling` (arriving), `pinned` (removed, but still being read, or records that wait to be written into an unavailable tier)",
    ),
    ("code", "first word of the error, such as `ERR` or `NOAUTH`"),
    ("coding", "content coding: `zstd`, `br` or `gzip`"),
    ("command", "Redis command in lower case; subcommands as `client|list`"),
    ("commit", "the commit of the build"),
    (
        "event",
        "of a lease: `taken`, `waited`, `expired`, `lost`, `failed`, `released_late` or `not_released`; of a validation in the background: `ahead`, `stale`, `probe`, `in_vain`",
    ),
    ("form", "selection of a purge: `url`, `tag`, `site`, `host`, `prefix` or `everything`"),
    (
        "host",
        "first name in a certificate, such as `shop.example` or `*.example.org`; absent for a certificate without names",
    ),
    ("method", "request method; `other` for every method that isn't listed"),
    ("mode", "`hard` (removed), `soft` (stale from now) or `refresh` (stale, and fetched again)"),
    (
        "operation",
        "for a shared store: `record` (metadata and leases), `segment` (up to 1 MiB of a body) or `log` (purges)",
    ),
    ("origin", "name of the origin in the configuration"),
    (
        "outcome",
        "status class, `304`, or `failed`; for reloads `applied` or `refused`; for upgrades `took-over` or `failed`; for missing parts `spliced` (a part of the stored response), `replaced` (by a complete one), `discarded` (neither) or `failed`; for rate limits `refused` or `dry_run` (let through)",
    ),
    ("peer", "name of another region"),
    ("protocol", "`http1`, `http2`, `tls`"),
    (
        "reach",
        "`complete`: all instances that the purge waits for have applied it, or there is only one; `partial`: some did not confirm in time",
    ),
    (
        "reason",
        "a short code, from a fixed list; those of `larder_client_errors_total`, `larder_not_stored_total`, `larder_origin_errors_total`, `larder_origin_server_failures_total` and `larder_purges_refused_total` are listed on the page on `Cache-Status`, and those of `larder_admin_refused_total` on the page on the admin API",
    ),
    ("region", "name of this instance's region"),
    (
        "result",
        "for look-ups in a shared store `hit`, `miss` or `failed`; for its changes `written`, `removed`, `failed`, `given_up` or `refused`; for spans `exported`, `dropped`, `rejected` or `failed`; for exports of spans `accepted`, `partial`, `again` or `failed`; for health checks `passed` or `failed`",
    ),
    (
        "rule",
        "name of the rule in its site; `built-in` if no rule matched, `none` for requests answered before a rule was selected, and for limits of the whole site",
    ),
    ("rustc", "version of the compiler"),
    ("server", "URL of a server of the origin, without a path"),
    ("site", "name of the site in the configuration; `none` if no site matched the request"),
    (
        "state",
        "fills: `waiting` for the head or `streaming` the body; connections: `idle`, `active`, `connecting`; circuit breakers: `closed`, `open`, `half_open`; exchanges: `queued`, `in_flight` (`requests_in_flight_max`), `upload` and `delivery` (`transfers_max`), `tunnel` (`tunnels_max`); servers of origins: `up`, `slow_start` (a part of its share), `ejected`, `unhealthy` (fails its checks), `drained` (weight 0)",
    ),
    (
        "status",
        "status code sent; `499` if the client left before the response, `0` for a code outside 100 to 999; of an origin: `0` if it sent no response",
    ),
    ("store", "name of a `[stores.NAME]`; absent for `[store]`"),
    ("version", "version of Larder"),
    ("what", "kind of invalidation: `url` or `group`"),
    ("worker", "number of a worker thread, from 0"),
];

/// Returns the reference page of all metrics, generated from the table.
pub fn metrics_markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\nGenerated from the table in `crates/telemetry/src/declarations.rs`; do not edit.\n\
         `GET /metrics` of the admin listener answers in the Prometheus text format.\n\n\
         | metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
    );
    for row in METRICS {
        let labels = row.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let kind = row.metric_type.as_str();
        let unit = row.unit.as_str();
        // Writing to a `String` can't fail.
        let _ = writeln!(page, "| `{}` | {kind} | {unit} | {labels} | {} |", row.name, row.help);
    }
    page.push_str("\n## Labels\n\n| label | values |\n|---|---|\n");
    for (label, meaning) in LABELS {
        // An unescaped bar would end the cell.
        let _ = writeln!(page, "| `{label}` | {} |", meaning.replace('|', "\\|"));
    }
    let results = CacheResult::ALL.map(|result| format!("`{}`", result.as_str())).join(", ");
    let _ = writeln!(page, "\nValues of `cache`: {results}.");
    let words = |bounds: &[Bound]| bounds.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(", ");
    let (all, commands) = (words(&DURATION_BOUNDS), words(&COMMAND_BOUNDS));
    let _ = writeln!(page, "\n## Buckets\n\nUpper bounds of durations, in seconds: {all}, +Inf.");
    let _ = writeln!(page, "\nBuckets of `larder_kv_command_duration_seconds`: {commands}, +Inf.");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_in_the_order_of_the_enum() {
        for (index, row) in METRICS.iter().enumerate() {
            assert_eq!(row.metric as usize, index, "{}", row.name);
        }
        assert!(METRICS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn names_follow_the_prometheus_rules() {
        for row in METRICS {
            let name = row.name;
            assert!(name.starts_with("larder_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), row.metric_type == MetricType::Counter, "{name}");
            let base = name.trim_end_matches("_total");
            for (unit, word) in [(Unit::Seconds, "_seconds"), (Unit::Bytes, "_bytes")] {
                assert_eq!(base.ends_with(word), row.unit == unit, "{name}: the unit comes last");
                assert!(!base.trim_end_matches(word).contains(word), "{name}: the unit comes last");
            }
            let of_a_histogram = ["_count", "_sum", "_bucket"];
            assert!(!of_a_histogram.iter().any(|ending| name.ends_with(ending)), "{name}");
            assert!(row.help.ends_with('.') && !row.help.contains('\n'), "{name}");
        }
    }

    #[test]
    fn no_cell_of_the_page_ends_early() {
        for line in metrics_markdown().lines().filter(|line| line.starts_with('|')) {
            let bars = line.replace("\\|", "").matches('|').count();
            assert!(bars == 6 || bars == 3, "{line}");
        }
    }

    #[test]
    fn every_label_is_explained_and_none_too_many() {
        let used = |label: &str| METRICS.iter().any(|row| row.labels.contains(&label));
        for row in METRICS {
            for label in row.labels {
                assert!(LABELS.iter().any(|(name, _)| name == label), "{label} of {}", row.name);
            }
        }
        assert!(LABELS.iter().all(|(label, _)| used(label)));
        assert!(LABELS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn the_page_names_every_metric_once() {
        let page = metrics_markdown();
        for row in METRICS {
            assert_eq!(page.matches(&format!("| `{}` |", row.name)).count(), 1, "{}", row.name);
        }
    }
}
