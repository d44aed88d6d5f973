//! Keys of traces.

use gateway::config::AcceptParent;

use super::section::*;

section! {
    /// Spans of requests, sent to a collector of OpenTelemetry by OTLP over HTTP. Without this table nothing is recorded, and `traceparent` is
    /// forwarded like any field.
    pub(super) TRACING = "tracing";
    /// Where spans are posted to; without a path it gets `/v1/traces`.
    ///
    /// Bodies are protobuf. A collector that is away, or slow, holds no request up: spans wait, and are dropped and counted when there is no room.
    endpoint = Text("URL of a collector, such as `http://collector:4318`").required().kept(),
    /// Header fields of requests to the collector, each with a file whose first line is the value.
    ///
    /// Files and not values, because most are secrets: `authorization = "token.txt"`, with `Bearer` before the token in the file.
    headers = Map(KeyForm::FieldName, &SecretFile).default("{}").kept(),
    /// PEM file with the certificate authorities to trust for an `https` endpoint.
    ca_file = FILE.absent("the certificate authorities of the system").kept(),
    /// One out of so many traces that begin here is recorded: `1` for all, `0` for none.
    ///
    /// Where somebody else has decided and is believed (`accept_parent`), this says nothing. Instances with one value choose the same traces.
    sample_one_in = Integer(0..=1_000_000_000).default("100"),
    /// Whose `traceparent` is believed: its trace goes on, recorded if it says so.
    ///
    /// A request of anybody else begins a trace, which has a link to the one that it names. `always` is for gateways that strangers can't reach: who
    /// is believed can have every request recorded.
    accept_parent = one_of::<AcceptParent>().default("trusted_proxies"),
    /// The resource attribute `service.name`.
    service_name = Text("name").absent("`server_name`").kept(),
    /// Further resource attributes, such as `{ "deployment.environment.name" = "staging" }`.
    ///
    /// `service.instance.id` is the name of the machine with the process, unless it is given.
    resource_attributes = Map(KeyForm::Name, &Text("text")).default("{}").kept(),
    /// Spans that may wait for the collector; more are dropped and counted.
    ///
    /// A span takes about 1 KiB.
    queue_spans_max = Integer(1..=1_000_000).default("8192").kept(),
    /// Spans of one request to the collector.
    batch_spans_max = Integer(1..=65_536).default("512").kept(),
    /// How long spans wait for others, to be sent together.
    interval = Duration(10..=DAY_MS).default("1s").kept(),
    /// How long one request to the collector may take, with its connection.
    timeout = Duration(1..=DAY_MS).default("10s").kept(),
}
