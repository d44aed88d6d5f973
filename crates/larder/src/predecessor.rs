//! The metrics of poor-man-s-cache under their original names, for dashboards of a server that Larder has replaced.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use telemetry::Telemetry;

use crate::kv::KvControl;

/// Statistics of the scrapes so far.
#[derive(Debug, Default)]
struct Scrapes {
    count: u64,
    bytes: u64,
    /// Total time.
    time: Duration,
    /// Durations of the last scrapes.
    times: VecDeque<Duration>,
}

/// Number of latest scrapes from which quantiles are computed.
const TIMES_MAX: usize = 128;

/// Appends the metrics to every scrape.
pub(crate) fn report(telemetry: &Telemetry, kv: KvControl) {
    let scrapes = Mutex::new(Scrapes::default());
    telemetry.append_from(move |text, time| {
        let measures = kv.measures();
        let mut scrapes = scrapes.lock();
        let counts = [
            ("server_num_errors_total", "counter", "Error replies.", measures.errors()),
            ("server_num_active_connections", "gauge", "Open connections.", measures.clients),
            ("server_num_requests_total", "counter", "Commands executed.", measures.calls()),
            ("exposer_transferred_bytes_total", "counter", "Bytes of all previous scrapes.", scrapes.bytes),
            ("exposer_scrapes_total", "counter", "Previous scrapes.", scrapes.count),
        ];
        for (name, kind, help, value) in counts {
            // Writing to a string can't fail, here and below.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        scrapes.write(text);
        scrapes.add(text.len() as u64, time);
    });
}

impl Scrapes {
    fn write(&self, text: &mut String) {
        let name = "exposer_request_latencies";
        let help = "Time of scrapes, in microseconds.";
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} summary\n");
        let mut times: Vec<_> = self.times.iter().map(Duration::as_micros).collect();
        times.sort_unstable();
        for (quantile, percent) in [("0.5", 50), ("0.9", 90), ("0.99", 99)] {
            let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
            let value = times.get(at).map_or_else(|| "NaN".to_owned(), ToString::to_string);
            let _ = writeln!(text, "{name}{{quantile=\"{quantile}\"}} {value}");
        }
        let _ = write!(text, "{name}_sum {}\n{name}_count {}\n", self.time.as_micros(), self.count);
    }

    fn add(&mut self, bytes: u64, time: Duration) {
        (self.count, self.bytes, self.time) = (self.count + 1, self.bytes + bytes, self.time + time);
        if self.times.len() == TIMES_MAX {
            self.times.pop_front();
        }
        self.times.push_back(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_last_scrapes() {
        let mut scrapes = Scrapes::default();
        (0..1000).for_each(|number| scrapes.add(10, Duration::from_micros(number)));
        let mut text = String::new();
        scrapes.write(&mut text);
        let value = |series: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(series)).expect("it is there");
            line.trim().parse::<u64>().expect("a number")
        };
        assert_eq!(value("exposer_request_latencies{quantile=\"0.5\"}"), 872 + 63);
        assert_eq!(value("exposer_request_latencies{quantile=\"0.99\"}"), 872 + 126);
        assert_eq!(value("exposer_request_latencies_count"), 1000);
        assert_eq!(value("exposer_request_latencies_sum"), 499_500);
    }
}
