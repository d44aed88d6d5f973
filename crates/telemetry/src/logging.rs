//! The event log: `tracing` to standard error, as text or JSON, with levels that can be changed at run time.

use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::declarations::Metric;
use crate::event_lines::{self, EventLines};
use crate::registry::Telemetry;

/// The format of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// An error of the event log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// The levels are invalid: neither a level nor `target=level` pairs.
    #[error("`{levels}` isn't a list of levels such as `info,gateway=debug`: {reason}")]
    LevelsUnreadable {
        /// The levels as given.
        levels: String,
        /// The reason why they are invalid.
        reason: String,
    },
    /// The writer thread can't be started.
    #[error("the thread of the event log cannot be started: {0}")]
    ThreadNotStarted(std::io::Error),
    /// Logging was set up before in this process.
    #[error("logging is set up already")]
    SetUpAlready,
    /// The subscriber of the handle no longer exists.
    #[error("logging has ended")]
    Ended,
}

/// A handle that changes the levels at run time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogLevels {
    handle: reload::Handle<EnvFilter, Registry>,
}

impl LogLevels {
    /// Replaces all levels: a default and directives per target, such as `info,gateway=debug`.
    ///
    /// # Errors
    ///
    /// Returns an error if the levels are invalid; the old ones stay.
    pub fn change(&self, levels: &str) -> Result<(), LoggingError> {
        let filter = parse(levels)?;
        self.handle.reload(filter).map_err(|_| LoggingError::Ended)
    }
}

/// Sets up the event log of the process, to standard error. Logging never blocks: lines that standard error
/// doesn't accept are dropped and counted.
///
/// # Errors
///
/// Returns an error if the levels are invalid, or logging is set up already.
pub fn install(format: LogFormat, levels: &str) -> Result<LogLevels, LoggingError> {
    let (subscriber, levels) = subscriber(format, levels, || &LINES)?;
    subscriber.try_init().map_err(|_| LoggingError::SetUpAlready)?;
    event_lines::start_writer(&LINES).map_err(LoggingError::ThreadNotStarted)?;
    Ok(levels)
}

/// Waits up to `limit` until every line is written. Call it before the process ends.
pub fn flush(limit: Duration) {
    LINES.flush(limit);
}

/// Reports the dropped lines at every scrape.
pub fn report_to(telemetry: &Telemetry) {
    telemetry.collect_from(Box::new(|sample| sample.add(Metric::LogDroppedTotal, &[], LINES.dropped())));
}

/// Static, because a process has only one standard error.
static LINES: EventLines = EventLines::new();

/// Checks levels without changing anything, for the check of a configuration.
///
/// # Errors
///
/// Returns an error if the levels are invalid.
pub fn check_levels(levels: &str) -> Result<(), LoggingError> {
    parse(levels).map(drop)
}

fn subscriber<W>(
    format: LogFormat,
    levels: &str,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + 'static, LogLevels), LoggingError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse(levels)?);
    let lines = fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    Ok((tracing_subscriber::registry().with(filter).with(lines), LogLevels { handle }))
}

/// This library warns about frames of clients, with a line for each frame: a client could fill the log.
const QUIET: &str = "h2=error";

/// Parses levels. Ignores environment variables, which only the binary reads.
fn parse(levels: &str) -> Result<EnvFilter, LoggingError> {
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let all = match levels {
        "" => format!("{QUIET},info"),
        // A directive for the same target replaces the one before.
        named => format!("{QUIET},{named}"),
    };
    builder.parse(all).map_err(|error| LoggingError::LevelsUnreadable {
        levels: levels.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock())).expect("UTF-8")
        }
    }

    #[test]
    fn levels_change_while_running() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, levels) =
            subscriber(LogFormat::Json, "warn,quiet=error", move || writer.clone()).expect("levels");
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("hidden");
            tracing::warn!(target: "quiet", "hidden");
            assert_eq!(lines.take(), "");
            levels.change("info").expect("levels");
            tracing::warn!(target: "h2::proto", "hidden: clients cause it");
            tracing::info!(answer = 42, "shown");
        });
        let line: serde_json::Value = serde_json::from_str(&lines.take()).expect("one JSON object");
        assert_eq!(line["message"], "shown");
        assert_eq!(line["answer"], 42);
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn warnings_of_http_2_are_written_where_a_level_names_them() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, _levels) =
            subscriber(LogFormat::Text, "info,h2=warn", move || writer.clone()).expect("levels");
        tracing::subscriber::with_default(subscriber, || tracing::warn!(target: "h2::proto", "shown"));
        assert!(lines.take().contains("shown"));
    }

    #[test]
    fn unreadable_levels_are_refused() {
        assert!(check_levels("info,gateway=debug").is_ok());
        for levels in ["gateway=loud", "a=b=c"] {
            assert!(matches!(check_levels(levels), Err(LoggingError::LevelsUnreadable { .. })), "{levels}");
        }
    }

    #[test]
    fn text_is_plain() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, _levels) =
            subscriber(LogFormat::Text, "info", move || writer.clone()).expect("levels");
        tracing::subscriber::with_default(subscriber, || tracing::warn!("shown"));
        let text = lines.take();
        assert!(text.contains(" WARN ") && text.ends_with("shown\n") && !text.contains('\u{1b}'), "{text}");
    }
}
