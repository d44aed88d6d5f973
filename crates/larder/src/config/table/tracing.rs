//! Keys of tracing.

use gateway::config::AcceptParent;

use super::section::*;

section! {
    /// Spans of requests, sent to an OpenTelemetry collector by OTLP over HTTP. Without this table no spans are recorded, and `traceparent`
    /// is forwarded like any field.
    pub(super) TRACING = "tracing";
    /// URL that spans are posted to; without a path, `/v1/traces` is added.
    ///
    /// Bodies are protobuf. An unreachable or slow collector doesn't delay requests: spans are queued, and dropped and counted if the queue
    /// is full.
    endpoint = Text("URL of a collector, such as `http://collector:4318`").required().kept(),
    /// Header fields of requests to the collector, each with a file whose first line is the value.
    ///
    /// Values are in files because most are secrets: `authorization = "token.txt"`, with `Bearer` before the token in the file.
    headers = Map(KeyForm::FieldName, &SecretFile).default("{}").kept(),
    /// PEM file with the certificate authorities to trust for an `https` endpoint.
    ca_file = FILE.absent("the certificate authorities of the system").kept(),
    /// Sampling rate: Larder records one of this many traces that begin here; `1` for all, `0` for none.
    ///
    /// It doesn't apply to traces whose sender decides (`accept_parent`). Instances with the same value choose the same traces.
    sample_one_in = Integer(0..=1_000_000_000).default("100"),
    /// Senders whose `traceparent` is trusted: their trace is continued, and recorded if they ask for it.
    ///
    /// A request from any other sender begins a new trace, with a link to the trace that it names. `always` is for gateways that only
    /// trusted clients can reach: a trusted sender can have every request recorded.
    accept_parent = one_of::<AcceptParent>().default("trusted_proxies"),
    /// The resource attribute `service.name`.
    service_name = Text("name").absent("`server_name`").kept(),
    /// Further resource attributes, such as `{ "deployment.environment.name" = "staging" }`.
    ///
    /// `service.instance.id` is the host name with the process id by default.
    resource_attributes = Map(KeyForm::Name, &Text("text")).default("{}").kept(),
    /// Spans queued for the collector; further ones are dropped and counted.
    ///
    /// A span takes about 1 KiB.
    queue_spans_max = Integer(1..=1_000_000).default("8192").kept(),
    /// Maximum number of spans in one request to the collector.
    batch_spans_max = Integer(1..=65_536).default("512").kept(),
    /// Maximum time for which spans wait to be sent in one batch.
    interval = Duration(10..=DAY_MS).default("1s").kept(),
    /// Longest duration of a request to the collector, including the connection.
    timeout = Duration(1..=DAY_MS).default("10s").kept(),
}
