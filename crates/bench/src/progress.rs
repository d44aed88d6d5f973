//! What a run says while it is on: rate, latency and errors.
//!
//! Each thread of a load counts in a [`Live`] of its own, which costs it a few plain stores; one thread of ours reads
//! them all now and then.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::until::Until;

/// What one thread of a load has done. Written by that thread only.
#[derive(Debug, Default)]
pub struct Live {
    requests: AtomicU64,
    errors: AtomicU64,
    latency_sum_us: AtomicU64,
    /// Since it was last read.
    latency_max_us: AtomicU64,
}

impl Live {
    /// Adds what was done since the last call. Cheap, but not free: once per turn of a loop, not once per request.
    pub fn add(&self, done: &Done) {
        let add = |counter: &AtomicU64, more: u64| counter.store(counter.load(Relaxed) + more, Relaxed);
        add(&self.requests, done.requests);
        add(&self.errors, done.errors);
        add(&self.latency_sum_us, done.latency_sum_us);
        if done.latency_max_us > self.latency_max_us.load(Relaxed) {
            self.latency_max_us.store(done.latency_max_us, Relaxed);
        }
    }
}

/// Requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// With an answer.
    pub requests: u64,
    pub errors: u64,
    /// Of those with an answer.
    pub latency_sum_us: u64,
    pub latency_max_us: u64,
}

/// Where progress is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One line that is written anew, on a terminal.
    Rewritten,
    /// A line every few seconds.
    Lines,
    /// Not at all.
    Quiet,
}

impl Style {
    /// What suits standard error.
    #[must_use]
    pub fn of_stderr() -> Self {
        if io::stderr().is_terminal() { Self::Rewritten } else { Self::Lines }
    }

    fn interval(self) -> Option<Duration> {
        match self {
            Self::Rewritten => Some(Duration::from_millis(500)),
            Self::Lines => Some(Duration::from_secs(5)),
            Self::Quiet => None,
        }
    }
}

/// Tells how a run goes until it is finished or dropped.
#[derive(Debug)]
pub struct Progress {
    teller: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Tells it on standard error.
    #[must_use]
    pub fn start(name: &str, goal: Until, style: Style, live: &[Arc<Live>]) -> Self {
        Self::start_on(Box::new(io::stderr()), name, goal, style, live)
    }

    /// Tells it on another sink.
    #[must_use]
    pub fn start_on(
        sink: Box<dyn Write + Send>,
        name: &str,
        goal: Until,
        style: Style,
        live: &[Arc<Live>],
    ) -> Self {
        let Some(interval) = style.interval() else { return Self { teller: None } };
        let (stop, stopped) = mpsc::sync_channel(0);
        let mut teller = Teller {
            sink,
            name: name.to_owned(),
            goal,
            style,
            live: live.to_vec(),
            last: Done::default(),
            width: 0,
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let begin = Instant::now();
            let mut last = begin;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                teller.tell(now - begin, now - last);
                last = now;
            }
            teller.clear();
        });
        // Without a thread for it there is no progress to see; the run itself is not the worse for it.
        Self { teller: thread.ok().map(|thread| (stop, thread)) }
    }

    /// Ends it, and clears the line.
    pub fn finish(self) {}
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.teller.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

struct Teller {
    sink: Box<dyn Write + Send>,
    name: String,
    goal: Until,
    style: Style,
    live: Vec<Arc<Live>>,
    /// Totals at the last time.
    last: Done,
    /// Of the line that stands on the terminal.
    width: usize,
}

impl Teller {
    fn tell(&mut self, elapsed: Duration, interval: Duration) {
        let total = self.total();
        let mut line = format!("{}{}", self.name_part(), time_part(self.goal, elapsed, &total));
        if !self.live.is_empty() {
            line += &rate_part(&total, &self.since_last(&total), interval);
        }
        self.last = total;
        // A sink that is closed must not end the run.
        let _ = match self.style {
            Style::Rewritten => write!(self.sink, "\r{line:<width$}", width = self.width),
            Style::Lines | Style::Quiet => writeln!(self.sink, "{line}"),
        };
        let _ = self.sink.flush();
        self.width = line.chars().count();
    }

    fn name_part(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) }
    }

    fn total(&self) -> Done {
        self.live.iter().fold(Done::default(), |sum, live| Done {
            requests: sum.requests + live.requests.load(Relaxed),
            errors: sum.errors + live.errors.load(Relaxed),
            latency_sum_us: sum.latency_sum_us + live.latency_sum_us.load(Relaxed),
            latency_max_us: sum.latency_max_us.max(live.latency_max_us.swap(0, Relaxed)),
        })
    }

    fn since_last(&self, total: &Done) -> Done {
        Done {
            requests: total.requests - self.last.requests,
            errors: total.errors - self.last.errors,
            latency_sum_us: total.latency_sum_us - self.last.latency_sum_us,
            latency_max_us: total.latency_max_us,
        }
    }

    fn clear(&mut self) {
        if self.style == Style::Rewritten && self.width > 0 {
            let _ = write!(self.sink, "\r{:width$}\r", "", width = self.width);
            let _ = self.sink.flush();
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn time_part(goal: Until, elapsed: Duration, total: &Done) -> String {
    let share = match goal {
        Until::Requests(requests) => total.requests as f64 / requests.max(1) as f64,
        Until::Elapsed(duration) => elapsed.as_secs_f64() / duration.as_secs_f64().max(1e-9),
    };
    format!("{:.0} s, {:.0} %", elapsed.as_secs_f64(), share.min(1.0) * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn rate_part(total: &Done, recent: &Done, interval: Duration) -> String {
    let rate = recent.requests as f64 / interval.as_secs_f64().max(1e-9);
    let mut line = format!(": {rate:.0} requests/s");
    if recent.requests > 0 {
        let mean_us = recent.latency_sum_us as f64 / recent.requests as f64;
        let _ = write!(line, ", latency {} mean, {} max", time(mean_us), time(recent.latency_max_us as f64));
    }
    let _ = write!(line, ", {} errors", total.errors);
    line
}

fn time(us: f64) -> String {
    if us < 1e3 {
        format!("{us:.0} µs")
    } else if us < 1e6 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{:.1} s", us / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic").clone()).expect("it is text")
        }
    }

    fn teller(sink: &Sink, style: Style, live: &Arc<Live>) -> Teller {
        let (sink, live) = (Box::new(sink.clone()), vec![Arc::clone(live)]);
        let goal = Until::Elapsed(Duration::from_secs(10));
        Teller { sink, name: "set".to_owned(), goal, style, live, last: Done::default(), width: 0 }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lines_tell_the_last_interval() {
        let (sink, live) = (Sink::default(), Arc::new(Live::default()));
        let mut teller = teller(&sink, Style::Lines, &live);
        live.add(&Done { requests: 100, errors: 1, latency_sum_us: 5_000, latency_max_us: 1_500 });
        teller.tell(SECOND, SECOND);
        live.add(&Done { requests: 300, errors: 0, latency_sum_us: 600_000, latency_max_us: 2_000_000 });
        live.add(&Done { requests: 100, errors: 1, latency_sum_us: 200_000, latency_max_us: 1_000 });
        teller.tell(3 * SECOND, 2 * SECOND);
        teller.tell(4 * SECOND, SECOND);
        teller.clear();
        let expected = "set: 1 s, 10 %: 100 requests/s, latency 50 µs mean, 1.5 ms max, 1 errors\n\
                        set: 3 s, 30 %: 200 requests/s, latency 2.0 ms mean, 2.0 s max, 2 errors\n\
                        set: 4 s, 40 %: 0 requests/s, 2 errors\n";
        assert_eq!(sink.text(), expected);
    }

    #[test]
    fn shorter_line_covers_the_longer_one() {
        let (sink, live) = (Sink::default(), Arc::new(Live::default()));
        let mut teller = teller(&sink, Style::Rewritten, &live);
        live.add(&Done { requests: 100, errors: 0, latency_sum_us: 5_000, latency_max_us: 1_500 });
        teller.tell(SECOND, SECOND);
        teller.tell(2 * SECOND, SECOND);
        teller.clear();
        let text = sink.text();
        let lines: Vec<&str> = text.split('\r').collect();
        assert_eq!(lines.len(), 5, "{text:?}");
        assert_eq!(lines[1].chars().count(), lines[2].chars().count(), "{text:?}");
        assert!(lines[3].trim().is_empty() && lines[4].is_empty(), "{text:?}");
    }

    #[test]
    fn share_of_requests_ends_at_100_percent() {
        let done = Done { requests: 250, errors: 0, latency_sum_us: 0, latency_max_us: 0 };
        assert_eq!(time_part(Until::Requests(1000), SECOND, &done), "1 s, 25 %");
        assert_eq!(time_part(Until::Requests(100), SECOND, &done), "1 s, 100 %");
    }

    #[test]
    fn where_nobody_counts_only_the_time_is_told() {
        let sink = Sink::default();
        let mut teller = Teller { live: Vec::new(), ..teller(&sink, Style::Lines, &Arc::default()) };
        teller.tell(2 * SECOND, SECOND);
        assert_eq!(sink.text(), "set: 2 s, 20 %\n");
    }

    #[test]
    fn quiet_says_nothing() {
        let sink = Sink::default();
        let goal = Until::Requests(1);
        Progress::start_on(Box::new(sink.clone()), "", goal, Style::Quiet, &[]).finish();
        assert_eq!(sink.text(), "");
    }
}
