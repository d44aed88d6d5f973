//! Limits without a key, for the page that lists all limits.

use std::time::Duration;

use crate::command::VALUE_BYTES_MAX;
use crate::{accepted, leaving, statistics, strangers, subscriptions, transaction};

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(usize),
    Bytes(u64),
    Time(Duration),
}

/// Each, with what it bounds.
#[must_use]
pub fn fixed_limits() -> [(Amount, &'static str); 15] {
    use Amount::{Bytes, Count, Time};
    let requests = resp::Limits::default();
    let bytes = |bytes: usize| Bytes(bytes as u64);
    [
        (Count(requests.elements_max), "Arguments of a request."),
        (bytes(requests.line_bytes_max), "A line of the protocol, which an inline command is."),
        (bytes(VALUE_BYTES_MAX), "A value, as a command is given it or puts it together."),
        (Count(strangers::ARGUMENTS_MAX), "Arguments of a request before the password."),
        (
            bytes(strangers::ARGUMENT_BYTES_MAX),
            "Each of those, and a message of the 0x1F protocol before the password.",
        ),
        (
            Bytes(strangers::BYTES_MAX),
            "Requests, replies and handshakes of all clients before the password, or 1/32 of `maxmemory` where that is less.",
        ),
        (
            Count(leaving::LEAVING_MAX),
            "Connections that are over, while their clients read the last reply, or an eighth of `limits.clients_max` where that is less; for another, the oldest ends at once.",
        ),
        (Time(Duration::from_millis(leaving::WITHIN_MS)), "How long one of those may take."),
        (bytes(leaving::BYTES_MAX), "What one of those may send meanwhile."),
        (Count(subscriptions::CHANNELS_MAX), "Channels of a client, and as many shard channels."),
        (Count(subscriptions::PATTERNS_MAX), "Patterns of channels of a client."),
        (bytes(subscriptions::NAMES_BYTES_MAX), "The names of all those, of a client."),
        (bytes(transaction::WATCHED_BYTES_MAX), "Keys that a client watches."),
        (
            bytes(accepted::TEXT_BYTES_MAX),
            "The text that `CONFIG SET` gives to a setting that means nothing here.",
        ),
        (Count(statistics::CODES_MAX), "Codes of errors that `INFO errorstats` counts apart."),
    ]
}
