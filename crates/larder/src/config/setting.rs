//! Types to which values of the tree are converted.

use std::time::Duration;

use cache::settings::CollapseLimits;
use caching::QueryOrder;
use gateway::config::{
    ClientLimits, Enforcement, ErrorExposure, Http2, PersonalResponses, PrefixHandling, ProxyProtocol,
    RangeMiss, Sharing, XCache,
};
use kv::ProtectedMode;
use origin::settings::{AdmissionConfig, OriginTimeouts, RetryConfig};
use origin::tls::Verification;

use super::tree::{Table, Value};
use super::words::Word;

/// A type for values of one kind.
pub(crate) trait Setting: Sized {
    /// Converts the value, or returns `None` if it is of another kind.
    fn of_value(value: &Value) -> Option<Self>;
}

/// A type for a key: a [`Setting`] if the key always has a value, and an `Option` if it may have none.
pub(crate) trait Field: Sized {
    fn of_key(table: &Table, key: &str) -> Self;
}

impl<T: Setting> Field for Option<T> {
    fn of_key(table: &Table, key: &str) -> Self {
        let value = &table.node(key)?.value;
        Some(T::of_value(value).unwrap_or_else(|| value.mismatch(key)))
    }
}

impl<T: Setting> Field for T {
    fn of_key(table: &Table, key: &str) -> Self {
        table.get::<Option<T>>(key).unwrap_or_else(|| panic!("{key} has a default in the option table"))
    }
}

impl Setting for bool {
    fn of_value(value: &Value) -> Option<Self> {
        if let Value::Flag(flag) = value { Some(*flag) } else { None }
    }
}

impl Setting for Duration {
    fn of_value(value: &Value) -> Option<Self> {
        if let Value::Duration(duration) = value { Some(*duration) } else { None }
    }
}

/// Implements [`Setting`] for the integer types of numbers and sizes; the table's range keeps values in bounds.
macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Setting for $integer {
            fn of_value(value: &Value) -> Option<Self> {
                let Value::Number(number) = value else { return None };
                Some((*number).try_into().expect("the range in the option table fits the type"))
            }
        }
    )*};
}
integers! { u8 u16 u32 i32 u64 usize }

impl<T: Word> Setting for T {
    fn of_value(value: &Value) -> Option<Self> {
        let Value::Choice(text) = value else { return None };
        let index = T::WORDS.iter().position(|word| word == text)?;
        Some(T::VALUES[index])
    }
}

/// Implements [`Setting`] for types that stand for `false` and `true`.
macro_rules! flags {
    ($($type:ident: $no:ident, $yes:ident;)*) => {$(
        impl Setting for $type {
            fn of_value(value: &Value) -> Option<Self> {
                bool::of_value(value).map(|flag| if flag { Self::$yes } else { Self::$no })
            }
        }
    )*};
}
flags! {
    Enforcement: Refuse, DryRun;
    ErrorExposure: Hide, Expose;
    Http2: Off, On;
    PersonalResponses: AsTheyCame, Compressed;
    PrefixHandling: Keep, Strip;
    ProtectedMode: Off, On;
    ProxyProtocol: Off, Required;
    QueryOrder: AsSent, Sorted;
    RangeMiss: Whole, Part;
    Sharing: Anonymous, WithCredentials;
    Verification: Off, On;
    XCache: Off, On;
}

/// Implements [`Setting`] for types whose fields are keys of one table.
macro_rules! tables {
    ($($type:ident: $($key:ident),+;)*) => {$(
        impl Setting for $type {
            fn of_value(value: &Value) -> Option<Self> {
                let Value::Table(table) = value else { return None };
                Some(Self { $($key: table.get(stringify!($key))),+ })
            }
        }
    )*};
}
tables! {
    AdmissionConfig: requests_in_flight_max, queue_max, queue_timeout, transfers_max, tunnels_max, client_share_percent;
    ClientLimits: connections_max, client_share_percent, head_bytes_max, fields_max, target_bytes_max, body_bytes_max,
        head_read_timeout, body_read_timeout, body_rate_min, idle_timeout, write_timeout, write_rate_min,
        tunnel_idle_timeout, requests_per_connection_max, http2_streams_max, http2_resets_max,
        http2_send_buffer_bytes_max, compressions_max;
    CollapseLimits: wait_max, waiters_max, on_failure, uncacheable_for;
    OriginTimeouts: connect, first_byte, between_bytes, total;
    RetryConfig: attempts_max, budget_percent, budget_per_second_min;
}
