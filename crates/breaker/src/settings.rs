//! Options of a breaker, with ranges and defaults.

use std::ops::RangeInclusive;

/// Options of a breaker. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time for which a result counts, within [`Options::WINDOW_MS`].
    ///
    /// By default 10,000: long enough to see [`Options::requests_min`] failures at two calls a second, short enough that failures of a
    /// minute ago don't count against a server that has recovered.
    pub window_ms: u64,
    /// Parts of the window, within [`Options::WINDOW_BUCKETS`]. Results are forgotten one part at a time, so they may count for up to one
    /// part less than `window_ms`.
    ///
    /// By default 10, a second each: the window is then accurate to a tenth.
    pub window_buckets: u32,
    /// Failures within the window that are needed to open the breaker, within [`Options::REQUESTS_MIN`]. A known caller contributes at
    /// most one.
    ///
    /// By default 20: fewer would be reached by the failures of a server restart. The option counts failures, not results: otherwise a
    /// few callers whose own calls fail could open the breaker together with as many successful callers.
    pub requests_min: u32,
    /// Share of failures, in percent, from which the breaker opens, within [`Options::ERROR_PERCENT`].
    ///
    /// By default 50: above that, most calls fail; below that, most calls are still worth a try.
    pub error_percent: u32,
    /// Duration of the first open state, within [`Options::RESET_MS`].
    ///
    /// By default 5,000: about as long as a process takes to restart.
    pub reset_ms: u64,
    /// Longest duration of the open state, from `reset_ms` to the end of [`Options::RESET_MS`]. Each failed probe doubles the duration up
    /// to this limit; closing resets it to `reset_ms`. If both are equal, the duration is constant.
    ///
    /// By default 30,000: no call waits longer than half a minute for a service that has come back.
    pub reset_ms_max: u64,
    /// Maximum number of concurrent probes, within [`Options::PROBES_MAX`].
    ///
    /// By default 1: only one call at a time meets a service that is still broken, and one that is starting up is not flooded.
    pub probes_max: u32,
    /// Time for which a probe keeps its slot without a report, within [`Options::PROBE_MS_MAX`]. Set it longer than a call may take,
    /// because another probe may start afterwards.
    ///
    /// By default 30,000, longer than calls with a time limit take. The option matters only if a permit is never reported or dropped.
    pub probe_ms_max: u64,
    /// Successful probes in a row that close the breaker, within [`Options::SUCCESSES_TO_CLOSE`].
    ///
    /// By default 3: a service that fails half of the time passes one probe with a probability of one half, and three in a row with one
    /// eighth.
    pub successes_to_close: u32,
}

impl Options {
    /// Range of [`Options::window_ms`]; failures of more than an hour ago are irrelevant.
    pub const WINDOW_MS: RangeInclusive<u64> = 100..=HOUR_MS;
    /// Range of [`Options::window_buckets`]; a failure adds up this many counters.
    pub const WINDOW_BUCKETS: RangeInclusive<u32> = 1..=60;
    /// Range of [`Options::requests_min`].
    pub const REQUESTS_MIN: RangeInclusive<u32> = 1..=1_000_000;
    /// Range of [`Options::error_percent`].
    pub const ERROR_PERCENT: RangeInclusive<u32> = 1..=100;
    /// Range of [`Options::reset_ms`] and [`Options::reset_ms_max`]; an open state of more than an hour would be
    /// practically permanent.
    pub const RESET_MS: RangeInclusive<u64> = 1..=HOUR_MS;
    /// Range of [`Options::probes_max`]; each probe takes memory while it runs.
    pub const PROBES_MAX: RangeInclusive<u32> = 1..=100;
    /// Range of [`Options::probe_ms_max`].
    pub const PROBE_MS_MAX: RangeInclusive<u64> = 1..=HOUR_MS;
    /// Range of [`Options::successes_to_close`].
    pub const SUCCESSES_TO_CLOSE: RangeInclusive<u32> = 1..=1_000;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window_ms: 10_000,
            window_buckets: 10,
            requests_min: 20,
            error_percent: 50,
            reset_ms: 5_000,
            reset_ms_max: 30_000,
            probes_max: 1,
            probe_ms_max: 30_000,
            successes_to_close: 3,
        }
    }
}

/// Checked options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings(Options);

impl Settings {
    /// Checks options.
    ///
    /// # Errors
    /// Returns the first option that is out of range; `reset_ms_max` must not be less than `reset_ms`.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        let counts = [
            ("window_buckets", options.window_buckets, Options::WINDOW_BUCKETS),
            ("requests_min", options.requests_min, Options::REQUESTS_MIN),
            ("error_percent", options.error_percent, Options::ERROR_PERCENT),
            ("probes_max", options.probes_max, Options::PROBES_MAX),
            ("successes_to_close", options.successes_to_close, Options::SUCCESSES_TO_CLOSE),
        ];
        for (option, value, allowed) in counts {
            check(option, value.into(), (*allowed.start()).into()..=(*allowed.end()).into())?;
        }
        check("window_ms", options.window_ms, Options::WINDOW_MS)?;
        check("reset_ms", options.reset_ms, Options::RESET_MS)?;
        check("reset_ms_max", options.reset_ms_max, options.reset_ms..=*Options::RESET_MS.end())?;
        check("probe_ms_max", options.probe_ms_max, Options::PROBE_MS_MAX)?;
        Ok(Self(options))
    }

    /// Returns the checked options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0
    }
}

fn check(option: &'static str, value: u64, allowed: RangeInclusive<u64>) -> Result<(), SettingsError> {
    if allowed.contains(&value) { Ok(()) } else { Err(SettingsError::OutOfRange { option, value, allowed }) }
}

/// Error of an invalid option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value is out of range.
    #[error("`{option}` is {value}; allowed: {} to {}", allowed.start(), allowed.end())]
    OutOfRange {
        /// Name of the option.
        option: &'static str,
        /// The value given.
        value: u64,
        /// Allowed values; for `reset_ms_max` they begin at `reset_ms`.
        allowed: RangeInclusive<u64>,
    },
}

const HOUR_MS: u64 = 3_600_000;
