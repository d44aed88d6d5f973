//! Keys of traces.

use super::section::{DAY_MS, FILE, KeyForm, Kind, Preset, Reload, Section, row};

/// Where spans go, and of which requests there are any.
pub(super) static TRACING: Section = Section {
    name: "tracing",
    about: "Spans of requests, sent to a collector of OpenTelemetry by OTLP over HTTP. Without this table nothing is recorded, and `traceparent` is forwarded like any field.",
    options: &[
        row(
            "endpoint",
            Kind::Text("URL of a collector, such as `http://collector:4318`"),
            Preset::Required,
            Reload::No,
            "Where spans are posted to; without a path it gets `/v1/traces`.",
            "Bodies are protobuf. A collector that is away, or slow, holds no request up: spans wait, and are dropped and counted when there is no room.",
        ),
        row(
            "headers",
            Kind::Map { keys: KeyForm::FieldName, values: &Kind::SecretFile },
            Preset::Is("{}"),
            Reload::No,
            "Header fields of requests to the collector, each with a file whose first line is the value.",
            "Files and not values, because most are secrets: `authorization = \"token.txt\"`, with `Bearer` before the token in the file.",
        ),
        row(
            "ca_file",
            FILE,
            Preset::Absent("the certificate authorities of the system"),
            Reload::No,
            "PEM file with the certificate authorities to trust for an `https` endpoint.",
            "",
        ),
        row(
            "sample_one_in",
            Kind::Integer { min: 0, max: 1_000_000_000 },
            Preset::Is("100"),
            Reload::Yes,
            "One out of so many traces that begin here is recorded: `1` for all, `0` for none.",
            "Where somebody else has decided and is believed (`accept_parent`), this says nothing. Instances with one value choose the same traces.",
        ),
        row(
            "accept_parent",
            Kind::Choice(&["always", "trusted_proxies", "never"]),
            Preset::Is("\"trusted_proxies\""),
            Reload::Yes,
            "Whose `traceparent` is believed: its trace goes on, recorded if it says so.",
            "A request of anybody else begins a trace, which has a link to the one that it names. `always` is for gateways that strangers can't reach: who is believed can have every request recorded.",
        ),
        row(
            "service_name",
            Kind::Text("name"),
            Preset::Absent("`server_name`"),
            Reload::No,
            "The resource attribute `service.name`.",
            "",
        ),
        row(
            "resource_attributes",
            Kind::Map { keys: KeyForm::Name, values: &Kind::Text("text") },
            Preset::Is("{}"),
            Reload::No,
            "Further resource attributes, such as `{ \"deployment.environment.name\" = \"staging\" }`.",
            "`service.instance.id` is the name of the machine with the process, unless it is given.",
        ),
        row(
            "queue_spans_max",
            Kind::Integer { min: 1, max: 1_000_000 },
            Preset::Is("8192"),
            Reload::No,
            "Spans that may wait for the collector; more are dropped and counted.",
            "A span takes about 1 KiB.",
        ),
        row(
            "batch_spans_max",
            Kind::Integer { min: 1, max: 65_536 },
            Preset::Is("512"),
            Reload::No,
            "Spans of one request to the collector.",
            "",
        ),
        row(
            "interval",
            Kind::Duration { min_ms: 10, max_ms: DAY_MS },
            Preset::Is("\"1s\""),
            Reload::No,
            "How long spans wait for others, to be sent together.",
            "",
        ),
        row(
            "timeout",
            Kind::Duration { min_ms: 1, max_ms: DAY_MS },
            Preset::Is("\"10s\""),
            Reload::No,
            "How long one request to the collector may take, with its connection.",
            "",
        ),
    ],
};
