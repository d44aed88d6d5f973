//! What can be chosen about a breaker, and what is allowed.

use std::ops::RangeInclusive;

/// What can be chosen. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// For how long a result counts, within [`Options::WINDOW_MS`].
    ///
    /// By default 10,000: long enough to see [`Options::requests_min`] failures of two calls a second, short enough that a
    /// trouble of a minute ago does not count against a server that has recovered.
    pub window_ms: u64,
    /// Parts of the window, within [`Options::WINDOW_BUCKETS`]: results are forgotten one part at a time, so that they count
    /// for up to one part less than `window_ms`.
    ///
    /// By default 10, a second each: the window is then right within a tenth.
    pub window_buckets: u32,
    /// Failures within the window without which nothing opens, within [`Options::REQUESTS_MIN`]. A known caller has one.
    ///
    /// By default 20: with fewer, the failures that a restart of a server makes would be enough. Failures, not results: else a few callers
    /// for whom alone calls fail could open it beside as many others.
    pub requests_min: u32,
    /// The share of failures, in percent, from which the breaker opens, within [`Options::ERROR_PERCENT`].
    ///
    /// By default 50: what fails more often than not costs more than it brings; below it, most calls are still worth their try.
    pub error_percent: u32,
    /// How long it stays open at first, within [`Options::RESET_MS`].
    ///
    /// By default 5,000: as long as a process takes to restart.
    pub reset_ms: u64,
    /// How long it stays open at most, from `reset_ms` to the end of [`Options::RESET_MS`]: each failed probe doubles the
    /// time, up to this one, and closing makes it `reset_ms` again. The same value as `reset_ms` keeps it constant.
    ///
    /// By default 30,000: nobody waits longer than half a minute for something that has come back.
    pub reset_ms_max: u64,
    /// Probes that may be under way at once, within [`Options::PROBES_MAX`].
    ///
    /// By default 1: no more than one call at a time runs into what is still broken, and what starts up is not flooded.
    pub probes_max: u32,
    /// How long a probe keeps its place without a report, within [`Options::PROBE_MS_MAX`]. It should be longer than a call may
    /// take: afterwards another one may be sent beside it.
    ///
    /// By default 30,000, longer than calls that have a time limit take. It only matters where a permit is kept for ever.
    pub probe_ms_max: u64,
    /// Successes of probes, without a failure between them, that close the breaker, within [`Options::SUCCESSES_TO_CLOSE`].
    ///
    /// By default 3: what fails half of the time would pass one probe every second time, and three in a row one time in eight.
    pub successes_to_close: u32,
}

impl Options {
    /// Of [`Options::window_ms`]; an hour keeps as much as anybody remembers of a trouble.
    pub const WINDOW_MS: RangeInclusive<u64> = 100..=HOUR_MS;
    /// Of [`Options::window_buckets`]; a failure adds up this many counters.
    pub const WINDOW_BUCKETS: RangeInclusive<u32> = 1..=60;
    /// Of [`Options::requests_min`].
    pub const REQUESTS_MIN: RangeInclusive<u32> = 1..=1_000_000;
    /// Of [`Options::error_percent`].
    pub const ERROR_PERCENT: RangeInclusive<u32> = 1..=100;
    /// Of [`Options::reset_ms`] and [`Options::reset_ms_max`]; more than an hour would be a way that is shut for good.
    pub const RESET_MS: RangeInclusive<u64> = 1..=HOUR_MS;
    /// Of [`Options::probes_max`]; each has a place in memory while it is under way.
    pub const PROBES_MAX: RangeInclusive<u32> = 1..=100;
    /// Of [`Options::probe_ms_max`].
    pub const PROBE_MS_MAX: RangeInclusive<u64> = 1..=HOUR_MS;
    /// Of [`Options::successes_to_close`].
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

/// Options that were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings(Options);

impl Settings {
    /// # Errors
    /// The first option that is outside its range, or a first reset that is longer than the longest.
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

    /// What was chosen.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0
    }
}

fn check(option: &'static str, value: u64, allowed: RangeInclusive<u64>) -> Result<(), SettingsError> {
    if allowed.contains(&value) { Ok(()) } else { Err(SettingsError::OutOfRange { option, value, allowed }) }
}

/// Why options make no breaker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value is too small or too large.
    #[error("`{option}` is {value}; allowed: {} to {}", allowed.start(), allowed.end())]
    OutOfRange {
        /// The name of the option.
        option: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed; for `reset_ms_max` it begins at `reset_ms`.
        allowed: RangeInclusive<u64>,
    },
}

const HOUR_MS: u64 = 3_600_000;
