//! Circuit breakers.

use gateway::config::{BreakerOptions as Options, BreakerSettings as Settings};

use super::scope::Scope;
use super::server::millis;
use crate::config::tree::Table;

/// What all breakers have keys for; the rest is said.
pub(super) fn breaker(scope: &mut Scope<'_>, table: &Table, rest: Options) -> Option<Settings> {
    let ms = |key| millis(table.get(key));
    let options = Options {
        window_ms: ms("window"),
        requests_min: table.get("requests_min"),
        error_percent: table.get("error_percent"),
        reset_ms: ms("reset_time"),
        reset_ms_max: ms("reset_time_max"),
        ..rest
    };
    let given = table.given("reset_time_max").or_else(|| table.given("reset_time"));
    let node = given.or_else(|| table.node("reset_time_max"))?;
    let message = |_| "`reset_time_max` must be at least `reset_time`".to_owned();
    scope.take(node, Settings::new(options).map_err(message))
}
