//! Parsers for the output of load generators.

/// The figures of one load, as reported by a generator.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Figures {
    /// 0 for generators that don't report it.
    pub(crate) requests: f64,
    pub(crate) errors: u64,
    pub(crate) per_second: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

/// Parses the JSON of `larder-bench`.
pub(super) fn of_bench(text: &str) -> Option<Figures> {
    let report = bench::report::read(text).ok()?;
    let run = report.runs.first()?;
    Some(Figures {
        requests: run.requests as f64,
        errors: run.errors.total() + run.unsent,
        per_second: run.requests_per_s,
        mean_us: run.latency.mean_us,
        p50_us: run.latency.p50_us as f64,
        p99_us: run.latency.p99_us as f64,
        max_us: run.latency.max_us as f64,
    })
}

/// Parses the output of `wrk --latency`.
pub(super) fn of_wrk(text: &str) -> Option<Figures> {
    let latency: Vec<&str> = after(text, "Latency ")?.split_whitespace().collect();
    let time = |name| microseconds(after(text, name)?);
    let errors =
        after(text, "Non-2xx or 3xx responses:").map_or(Some(0), |count| count.trim().parse().ok())?;
    Some(Figures {
        requests: text.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?,
        errors: errors + wrk_socket_errors(text),
        per_second: after(text, "Requests/sec:")?.trim().parse().ok()?,
        mean_us: microseconds(latency.first()?)?,
        p50_us: time("50%")?,
        p99_us: time("99%")?,
        max_us: microseconds(latency.get(2)?)?,
    })
}

/// Sums `Socket errors: connect 0, read 1, write 0, timeout 2`, if there is such a line.
fn wrk_socket_errors(text: &str) -> u64 {
    let counts = after(text, "Socket errors:").unwrap_or_default();
    counts.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Parses the output of `ab -e /dev/stdout`.
pub(super) fn of_ab(text: &str) -> Option<Figures> {
    let number = |name| after(text, name)?.split_whitespace().next()?.parse::<f64>().ok();
    let percentile = |percent| number(percent).map(|ms| ms * 1e3);
    Some(Figures {
        requests: number("Complete requests:")?,
        errors: number("Failed requests:")? as u64,
        per_second: number("Requests per second:")?,
        // The first of two lines with this prefix.
        mean_us: number("Time per request:")? * 1e3,
        p50_us: percentile("50,")?,
        p99_us: percentile("99,")?,
        // A whole number of milliseconds.
        max_us: percentile("100%")?,
    })
}

/// Parses the output of `redis-benchmark --csv`: a header line, and a line of quoted figures.
pub(crate) fn of_redis_benchmark(text: &str) -> Option<Figures> {
    let figures: Vec<f64> =
        text.lines().last()?.split(',').filter_map(|cell| cell.trim_matches('"').parse().ok()).collect();
    let &[per_second, mean_ms, _min_ms, p50_ms, _p95_ms, p99_ms, max_ms] = figures.as_slice() else {
        return None;
    };
    let (mean_us, p50_us, p99_us, max_us) = (mean_ms * 1e3, p50_ms * 1e3, p99_ms * 1e3, max_ms * 1e3);
    Some(Figures { per_second, mean_us, p50_us, p99_us, max_us, ..Figures::default() })
}

/// The rest of the first line that begins with `name`, leading spaces ignored.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name))
}

/// Parses `512.00us`, `2.87ms`, `1.02s`.
fn microseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let of = |unit, factor| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    of("us", 1.0).or_else(|| of("ms", 1e3)).or_else(|| of("s", 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_become_figures() {
        let wrk = "\
Running 1s test @ http://127.0.0.1:18999/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   512.16us  514.95us   7.64ms   96.66%
    Req/Sec    84.74k    17.13k  111.96k    60.00%
  Latency Distribution
     50%  375.00us
     75%  610.00us
     90%  773.00us
     99%    2.87ms
  84277 requests in 1.00s, 3.05MB read
  Socket errors: connect 0, read 1, write 0, timeout 2
  Non-2xx or 3xx responses: 4
Requests/sec:  84048.47
Transfer/sec:      3.05MB
";
        let ab = "\
Percentage served,Time in ms
0,0.234
50,0.545
99,0.910
Concurrency Level:      64
Complete requests:      115401
Failed requests:        3
Requests per second:    115384.15 [#/sec] (mean)
Time per request:       0.555 [ms] (mean)
Time per request:       0.009 [ms] (mean, across all concurrent requests)
  50%      1
  99%      1
 100%      5 (longest request)
";
        let redis = "\
\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"
\"SET\",\"74626.87\",\"0.379\",\"0.104\",\"0.343\",\"0.575\",\"1.087\",\"9.895\"
";
        let numbers = |figures: Option<Figures>| {
            let Figures { requests, errors, per_second, mean_us, p50_us, p99_us, max_us } =
                figures.expect("all is there");
            [requests, errors as f64, per_second, mean_us, p50_us, p99_us, max_us].map(f64::round)
        };
        assert_eq!(numbers(of_wrk(wrk)), [84277.0, 7.0, 84048.0, 512.0, 375.0, 2870.0, 7640.0]);
        assert_eq!(numbers(of_ab(ab)), [115401.0, 3.0, 115384.0, 555.0, 545.0, 910.0, 5000.0]);
        assert_eq!(numbers(of_redis_benchmark(redis)), [0.0, 0.0, 74627.0, 379.0, 343.0, 1087.0, 9895.0]);
    }

    #[test]
    fn what_is_missing_is_not_zero() {
        assert_eq!(of_wrk("Requests/sec:  84048.47\n"), None);
        assert_eq!(of_ab("Complete requests: 1\n"), None);
        assert_eq!(of_redis_benchmark("\"SET\",\"74626.87\"\n"), None);
        assert_eq!(of_bench("{}"), None);
    }
}
