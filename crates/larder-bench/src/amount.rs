//! Amount and rate of a load, for every kind of load.

use std::time::Duration;

use bench::{Pace, Until};
use clap::Args;
use terminal::quantity::{number, parse_duration, whole_number};

#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct Amount {
    /// Stop after this many requests or commands
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", value_parser = whole_number(1..=REQUESTS_MAX))]
    requests: Option<u64>,

    /// Stop after this time, such as 10s or 5m; a bare number is seconds [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,

    /// Open loop: requests or commands per second, due at fixed times; latency counts from the time a request is due
    #[arg(long, value_name = "R", value_parser = number(0.001..=100_000_000.0))]
    rate: Option<f64>,

    /// Generator threads; one is enough for most servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=256_usize))]
    pub(crate) threads: usize,

    /// Warm-up before the measured load, for this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) warm_up: Option<Duration>,
}

/// Maximum number of requests, enough for years of load.
const REQUESTS_MAX: u64 = 1_000_000_000_000_000;
const DURATION: Duration = Duration::from_secs(10);

impl Amount {
    pub(crate) fn until(&self) -> Until {
        let elapsed = || Until::Elapsed(self.duration.unwrap_or(DURATION));
        self.requests.map_or_else(elapsed, Until::Requests)
    }

    pub(crate) fn pace(&self) -> Pace {
        self.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second })
    }
}

/// Parses `10s`, `500ms`, `1m30s`. A bare number is seconds, as in other load generators.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.or_else(|| parse_duration(text)).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time above zero, such as 10s, 500ms or 1m30s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_are_seconds() {
        let cases = [("10s", Some(10_000)), ("1.5", Some(1500)), ("250ms", Some(250)), ("2m", Some(120_000))];
        let refused = ["0", "-1", "", "soon", "nan", "0s"].map(|text| (text, None));
        for (text, expected) in cases.into_iter().chain(refused) {
            assert_eq!(time(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }
}
