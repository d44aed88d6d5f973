//! Limits without a configuration key, for the reference page of limits.

use std::time::Duration;

use crate::command::VALUE_BYTES_MAX;
use crate::{accepted, leaving, statistics, strangers, subscriptions, transaction};

/// The amount of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(usize),
    Bytes(u64),
    Time(Duration),
}

/// All fixed limits with their descriptions.
#[must_use]
pub fn fixed_limits() -> [(Amount, &'static str); 15] {
    use Amount::{Bytes, Count, Time};
    let requests = resp::Limits::default();
    let bytes = |bytes: usize| Bytes(bytes as u64);
    [
        (Count(requests.elements_max), "Arguments of a request."),
        (bytes(requests.line_bytes_max), "Line of the protocol, such as an inline command."),
        (bytes(VALUE_BYTES_MAX), "Value, as an argument or as the result of a command."),
        (Count(strangers::ARGUMENTS_MAX), "Arguments of a request before authentication."),
        (
            bytes(strangers::ARGUMENT_BYTES_MAX),
            "An argument of a request, or a message of the 0x1F protocol, before authentication.",
        ),
        (
            Bytes(strangers::BYTES_MAX),
            "Requests, replies and handshakes of all unauthenticated clients, or 1/32 of `maxmemory` if that is less.",
        ),
        (
            Count(leaving::LEAVING_MAX),
            "Lingering connections, whose clients are still reading the last reply, or an eighth of `limits.clients_max` if that is less; beyond it, the oldest is closed.",
        ),
        (Time(Duration::from_millis(leaving::WITHIN_MS)), "Duration of a lingering connection."),
        (bytes(leaving::BYTES_MAX), "Input of a lingering connection."),
        (Count(subscriptions::CHANNELS_MAX), "Channels of a client, and as many shard channels."),
        (Count(subscriptions::PATTERNS_MAX), "Patterns of a client."),
        (bytes(subscriptions::NAMES_BYTES_MAX), "Names of the channels and patterns of a client."),
        (bytes(transaction::WATCHED_BYTES_MAX), "Watched keys of a client."),
        (bytes(accepted::TEXT_BYTES_MAX), "Text value of a setting without effect in `CONFIG SET`."),
        (Count(statistics::CODES_MAX), "Error codes that `INFO errorstats` counts separately."),
    ]
}
