//! What a run says while it is on: how far it is, and of a load its rate, latency and errors.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::observe::Observer;
use crate::result::{Interval, Latencies};
use crate::until::Until;

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
    done: Arc<Mutex<Done>>,
    teller: Option<(SyncSender<()>, JoinHandle<()>)>,
}

/// Requests that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// With an answer.
    requests: u64,
    errors: u64,
    /// Of those with an answer.
    latency_sum_us: f64,
    /// Since it was last told.
    latency_max_us: u64,
}

/// Whether anybody counts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Requests,
    Nothing,
}

/// A server that answered nothing by then speaks another protocol, or has nothing of what is expected.
const HOPELESS_AFTER_S: f64 = 1.0;

impl Progress {
    /// Tells on standard error how a load goes, which its observer counts.
    #[must_use]
    pub fn of_load(name: &str, goal: Until, style: Style) -> Self {
        Self::start(name, goal, style, Counts::Requests)
    }

    /// Tells how much of a time is over.
    pub(crate) fn of_time(name: &str, lasts: Duration, style: Style) -> Self {
        Self::start(name, Until::Elapsed(lasts), style, Counts::Nothing)
    }

    fn start(name: &str, goal: Until, style: Style, counts: Counts) -> Self {
        let done = Arc::new(Mutex::new(Done::default()));
        let Some(interval) = style.interval() else { return Self { done, teller: None } };
        let (stop, stopped) = mpsc::sync_channel(0);
        let (sink, name, counted) = (Box::new(io::stderr()), name.to_owned(), Arc::clone(&done));
        let mut teller =
            Teller { sink, name, goal, style, counts, done: counted, last: Done::default(), width: 0 };
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
        Self { done, teller: thread.ok().map(|thread| (stop, thread)) }
    }

    /// For the load. It ends where the first second brings nothing but failures.
    pub fn observer(&self) -> impl Observer + use<> {
        let done = Arc::clone(&self.done);
        move |interval: &Interval, _: &Latencies| {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.add(interval);
            let is_hopeless = done.requests == 0
                && done.errors > 0
                && interval.at_s + interval.length_s >= HOPELESS_AFTER_S;
            if is_hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
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

impl Done {
    #[expect(clippy::cast_precision_loss, reason = "a tenth of a second has fewer than 2^52 requests")]
    fn add(&mut self, interval: &Interval) {
        self.requests += interval.requests;
        self.errors += interval.errors;
        self.latency_sum_us += interval.mean_us * interval.requests as f64;
        self.latency_max_us = self.latency_max_us.max(interval.max_us);
    }
}

struct Teller {
    sink: Box<dyn Write + Send>,
    name: String,
    goal: Until,
    style: Style,
    counts: Counts,
    done: Arc<Mutex<Done>>,
    /// Totals at the last time.
    last: Done,
    /// Of the line that stands on the terminal.
    width: usize,
}

impl Teller {
    fn tell(&mut self, elapsed: Duration, interval: Duration) {
        let total = self.total();
        let mut line = format!("{}: {}", self.name, time_part(self.goal, elapsed, &total));
        if self.counts == Counts::Requests {
            line += &rate_part(&total, &self.last, interval);
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

    fn total(&self) -> Done {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let total = *done;
        done.latency_max_us = 0;
        total
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
fn rate_part(total: &Done, last: &Done, interval: Duration) -> String {
    let requests = (total.requests - last.requests) as f64;
    let mut line = format!(": {:.0} requests/s", requests / interval.as_secs_f64().max(1e-9));
    if requests > 0.0 {
        let mean_us = (total.latency_sum_us - last.latency_sum_us) / requests;
        let _ = write!(line, ", latency {} mean, {} max", time(mean_us), time(total.latency_max_us as f64));
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

    fn teller(sink: &Sink, style: Style, done: &Arc<Mutex<Done>>) -> Teller {
        let (sink, done, goal) =
            (Box::new(sink.clone()), Arc::clone(done), Until::Elapsed(Duration::from_secs(10)));
        let (name, counts, last) = ("set".to_owned(), Counts::Requests, Done::default());
        Teller { sink, name, goal, style, counts, done, last, width: 0 }
    }

    fn add(done: &Mutex<Done>, requests: u64, errors: u64, mean_us: f64, max_us: u64) {
        let interval = Interval { requests, errors, mean_us, max_us, ..Interval::default() };
        done.lock().expect("no panic").add(&interval);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lines_tell_the_last_interval() {
        let (sink, done) = (Sink::default(), Arc::default());
        let mut teller = teller(&sink, Style::Lines, &done);
        add(&done, 100, 1, 50.0, 1_500);
        teller.tell(SECOND, SECOND);
        add(&done, 300, 0, 2_000.0, 2_000_000);
        add(&done, 100, 1, 2_000.0, 1_000);
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
        let (sink, done) = (Sink::default(), Arc::default());
        let mut teller = teller(&sink, Style::Rewritten, &done);
        add(&done, 100, 0, 50.0, 1_500);
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
        let done = Done { requests: 250, ..Done::default() };
        assert_eq!(time_part(Until::Requests(1000), SECOND, &done), "1 s, 25 %");
        assert_eq!(time_part(Until::Requests(100), SECOND, &done), "1 s, 100 %");
    }

    #[test]
    fn where_nobody_counts_only_the_time_is_told() {
        let sink = Sink::default();
        let mut teller = Teller { counts: Counts::Nothing, ..teller(&sink, Style::Lines, &Arc::default()) };
        teller.tell(2 * SECOND, SECOND);
        assert_eq!(sink.text(), "set: 2 s, 20 %\n");
    }

    #[test]
    fn quiet_says_nothing() {
        assert!(Progress::of_load("", Until::Requests(1), Style::Quiet).teller.is_none());
    }
}
