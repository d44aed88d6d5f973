//! Circuit breakers.

use breaker::{Options, Settings};

use super::scope::Scope;
use super::server::millis;
use crate::config::tree::Table;

/// Builds the settings from the keys that all breakers have; `rest` has the other settings.
pub(super) fn breaker(scope: &mut Scope<'_>, table: &Table, rest: Options) -> Option<Settings> {
    let (reset, reset_max) = scope.ordered(table, "reset_time", "reset_time_max");
    let options = Options {
        window_ms: millis(table.get("window")),
        requests_min: table.get("requests_min"),
        error_percent: table.get("error_percent"),
        reset_ms: millis(reset),
        reset_ms_max: millis(reset_max),
        ..rest
    };
    // The option table checks the ranges, and a wrong order of the times has already been reported.
    Settings::new(options).ok()
}
