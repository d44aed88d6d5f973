//! Progress of a run on a terminal: the share that is done, and the rate, latency and errors of a load.

use std::ops::ControlFlow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::drive::Until;
use crate::observe::Observer;
use crate::report::number;
use crate::result::Interval;

/// Whether progress is shown on standard error. It is shown only on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Shown,
    Quiet,
}

/// Shows the progress of a run until it is finished or dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    goal: Until,
}

/// Requests since the last update of the display.
#[derive(Debug, Default)]
struct Recent {
    since_s: f64,
    requests: u64,
    latency_sum_us: f64,
    latency_max_us: u64,
}

/// Seconds after which a load without a correct response ends: the server uses another protocol, or sends unexpected responses.
const HOPELESS_AFTER_S: f64 = 1.0;
const SHOWN_EACH_S: f64 = 0.5;

impl Progress {
    /// Shows the progress of a load, which its observer counts.
    #[must_use]
    pub fn of_load(name: &str, goal: Until, style: Style) -> Self {
        let length = match goal {
            Until::Requests(requests) => requests,
            Until::Elapsed(duration) => ms(duration.as_secs_f64()),
        };
        let bar = match style {
            Style::Shown => ProgressBar::new(length),
            Style::Quiet => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{prefix}: {elapsed}, {percent} %{msg}");
        let style = style.expect("the template has only keys of indicatif");
        let bar = bar.with_style(style).with_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_secs_f64(SHOWN_EACH_S));
        Self { bar, goal }
    }

    /// Returns the observer of the load, which ends it if the first second has only failures.
    pub fn observer(&self) -> impl Observer + use<> {
        let (bar, goal) = (self.bar.clone(), self.goal);
        let (mut requests, mut errors, mut recent) = (0, 0, Recent::default());
        move |interval: &Interval| {
            requests += interval.requests;
            errors += interval.errors;
            let now_s = interval.at_s + interval.length_s;
            bar.set_position(match goal {
                Until::Requests(_) => requests + errors,
                Until::Elapsed(_) => ms(now_s),
            });
            recent.add(interval);
            if now_s - recent.since_s >= SHOWN_EACH_S {
                bar.set_message(format!(": {}, {errors} errors", recent.told(now_s)));
                recent = Recent { since_s: now_s, ..Recent::default() };
            }
            let is_hopeless = requests == 0 && errors > 0 && now_s >= HOPELESS_AFTER_S;
            if is_hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Ends the progress display and clears its line.
    pub fn finish(self) {}
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Recent {
    #[expect(clippy::cast_precision_loss, reason = "half a second has fewer than 2^52 requests")]
    fn add(&mut self, interval: &Interval) {
        self.requests += interval.requests;
        self.latency_sum_us += interval.mean_us * interval.requests as f64;
        self.latency_max_us = self.latency_max_us.max(interval.max_us);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
    fn told(&self, now_s: f64) -> String {
        let requests = self.requests as f64;
        let rate = number::rate(requests / (now_s - self.since_s));
        let (mean, max) =
            (number::time(self.latency_sum_us / requests), number::time(self.latency_max_us as f64));
        format!("{rate} requests/s, latency {mean} mean, {max} max")
    }
}

fn ms(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(at_s: f64, requests: u64, errors: u64) -> Interval {
        Interval {
            at_s,
            length_s: 0.5,
            requests,
            errors,
            mean_us: 50.0,
            max_us: 1_500,
            ..Interval::default()
        }
    }

    #[test]
    fn the_last_half_second_is_shown() {
        let progress = Progress::of_load("set", Until::Requests(1_000), Style::Quiet);
        let mut observer = progress.observer();
        assert!(observer.observe(&interval(0.0, 100, 1)).is_continue());
        assert_eq!(progress.bar.message(), ": 200 requests/s, latency 50.0 µs mean, 1.50 ms max, 1 errors");
        assert_eq!(progress.bar.position(), 101);
        assert!(observer.observe(&interval(0.5, 0, 1)).is_continue());
        assert_eq!(progress.bar.message(), ": 0 requests/s, latency - mean, 1.50 ms max, 2 errors");
    }

    #[test]
    fn a_load_without_an_answer_ends_after_a_second() {
        let mut observer = Progress::of_load("set", Until::Requests(1_000), Style::Quiet).observer();
        assert!(observer.observe(&interval(0.0, 0, 1)).is_continue());
        assert!(observer.observe(&interval(0.5, 0, 1)).is_break());
    }
}
