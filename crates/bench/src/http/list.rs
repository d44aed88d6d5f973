//! Requests read from files: lists of URLs, and access logs to replay.

use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::LoadError;
use super::load::{Target, Url};

/// A line that can't be parsed.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ListError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

/// Reads a list with a URL, or a method and a URL, per line. Empty lines and those that begin with `#` are skipped. A path is appended to
/// `base`.
///
/// # Errors
///
/// Returns an error for the first line that can't be parsed.
pub fn targets(text: &str, base: Option<&Url>) -> Result<Vec<Target>, ListError> {
    let mut targets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = |what: String| ListError { line: number + 1, what };
        let (method, url) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [url] => ("GET", url),
            [method, url] => (method, url),
            _ => return Err(wrong(format!("{line:?} is neither URL nor METHOD URL"))),
        };
        let target = at(url, base).map_err(|error| wrong(error.to_string()))?;
        targets.push(Target { method: method.into(), ..target });
    }
    Ok(targets)
}

/// Parses a URL, or a path relative to the base.
fn at(url: &str, base: Option<&Url>) -> Result<Target, LoadError> {
    match base {
        Some(base) if url.starts_with('/') => {
            Target::at(&format!("{}://{}{url}", base.scheme.name(), base.authority()))
        }
        _ => Target::at(url),
    }
}

/// Requests of an access log, in its order.
#[derive(Debug, Default)]
pub struct Recording {
    pub targets: Vec<Target>,
    /// When each request was made, relative to the first. Requests of the same second are spread over it if the log has no finer times.
    pub due: Vec<Duration>,
    /// Number of lines whose request can't be repeated: methods other than `GET` and `HEAD`, whose bodies aren't in the log, targets
    /// with escapes added by the log, malformed requests, and a truncated last line.
    pub skipped: usize,
}

/// Reads an access log in the common or combined format, or Larder's own JSON lines, and aims it at `base`.
///
/// # Errors
///
/// Returns an error for the first line in none of these formats.
pub fn recording(log: &str, base: &Url) -> Result<Recording, ListError> {
    let mut lines = Vec::new();
    // Rotation or a full disk truncates the last line.
    let (log, cut) =
        log.rsplit_once('\n').filter(|(_, last)| is_cut(last)).map_or((log, 0), |(log, _)| (log, 1));
    let mut skipped = cut;
    for (number, line) in log.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let parsed = if line.starts_with('{') { json_line(line) } else { combined_line(line) };
        let logged = parsed.map_err(|what| ListError { line: number + 1, what })?;
        let target = at(logged.target, Some(base)).ok().filter(|_| logged.target.starts_with('/'));
        match target {
            Some(target) if matches!(logged.method, "GET" | "HEAD") => {
                lines.push((logged.at_ms, Target { method: logged.method.into(), ..target }));
            }
            _ => skipped += 1,
        }
    }
    // Servers write a line after the response, so lines may be out of order.
    lines.sort_by_key(|(at_ms, _)| *at_ms);
    let times: Vec<i64> = lines.iter().map(|(at_ms, _)| *at_ms).collect();
    let targets = lines.into_iter().map(|(_, target)| target).collect();
    Ok(Recording { targets, due: spread(&times), skipped })
}

impl Recording {
    /// Due time of each request if the log is replayed at this multiple of its speed.
    #[must_use]
    pub fn due_at(&self, speed: f64) -> Vec<Duration> {
        self.due.iter().map(|due| due.div_f64(speed)).collect()
    }
}

struct Logged<'a> {
    at_ms: i64,
    method: &'a str,
    target: &'a str,
}

/// Times relative to the first. Lines of the same whole second are spread evenly over it.
fn spread(times_ms: &[i64]) -> Vec<Duration> {
    let is_whole = times_ms.iter().all(|at| at % 1000 == 0);
    let first = times_ms.first().copied().unwrap_or_default();
    let mut due = Vec::with_capacity(times_ms.len());
    for same in times_ms.chunk_by(|one, next| one == next) {
        let begin = Duration::from_millis(same[0].abs_diff(first));
        let step =
            if is_whole { Duration::from_secs(1).div_f64(precise(same.len())) } else { Duration::ZERO };
        due.extend((0..same.len()).map(|place| begin + step.mul_f64(precise(place))));
    }
    due
}

#[expect(clippy::cast_precision_loss, reason = "logs have fewer than 2^52 lines")]
fn precise(count: usize) -> f64 {
    count as f64
}

#[derive(Deserialize)]
struct JsonLine<'a> {
    timestamp: &'a str,
    method: &'a str,
    #[serde(borrow)]
    target: std::borrow::Cow<'a, str>,
}

fn json_line(line: &str) -> Result<Logged<'_>, String> {
    let parsed: JsonLine<'_> =
        serde_json::from_str(line).map_err(|error| format!("no line of Larder's access log: {error}"))?;
    let at_ms = rfc3339_ms(parsed.timestamp).ok_or_else(|| format!("{:?} is no time", parsed.timestamp))?;
    // A target with escapes isn't a path that can be sent, here and below.
    let target = match parsed.target {
        std::borrow::Cow::Borrowed(target) => target,
        std::borrow::Cow::Owned(_) => "",
    };
    Ok(Logged { at_ms, method: parsed.method, target })
}

/// Parses `client ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.0" 200 2326`, with or without further fields.
fn combined_line(line: &str) -> Result<Logged<'_>, String> {
    let form = || "neither common or combined log format nor a JSON line".to_owned();
    let (_, rest) = line.split_once('[').ok_or_else(form)?;
    let (time, rest) = rest.split_once(']').ok_or_else(form)?;
    let at_ms = clf_ms(time).ok_or_else(|| format!("{time:?} is no time"))?;
    let request =
        rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')).ok_or_else(form)?.0;
    let mut words = request.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().filter(|target| !target.contains('\\')).unwrap_or_default();
    Ok(Logged { at_ms, method, target })
}

/// Whether a last line is truncated.
fn is_cut(line: &str) -> bool {
    !line.is_empty() && json_line(line).is_err() && combined_line(line).is_err()
}

/// Parses `10/Oct/2000:13:55:36 -0700` to milliseconds since 1970.
fn clf_ms(text: &str) -> Option<i64> {
    const FORM: &[BorrowedFormatItem<'_>] = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    ms(OffsetDateTime::parse(text, FORM).ok()?)
}

/// Parses `2026-01-31T12:00:00.123Z` to milliseconds since 1970.
fn rfc3339_ms(text: &str) -> Option<i64> {
    ms(OffsetDateTime::parse(text, &Rfc3339).ok()?)
}

fn ms(time: OffsetDateTime) -> Option<i64> {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("http://127.0.0.1:8080/").expect("a URL")
    }

    fn asked(targets: &[Target]) -> Vec<String> {
        targets.iter().map(|target| format!("{} {}", target.method, target.url)).collect()
    }

    #[test]
    fn a_list_has_urls_methods_and_comments() {
        let text = "# all\nhttp://h/a\n\n  HEAD https://h:1/b?c  \n/d\n";
        let list = targets(text, Some(&base())).expect("a list");
        assert_eq!(asked(&list), ["GET http://h/a", "HEAD https://h:1/b?c", "GET http://127.0.0.1:8080/d"]);
    }

    #[test]
    fn a_wrong_line_is_told() {
        for (text, expected) in [
            ("http://h/\n\nnonsense", "line 3: \"nonsense\" isn't a valid URL"),
            ("a b c", "line 1: \"a b c\" is neither"),
            ("/path", "line 1: \"/path\" isn't a valid URL"),
        ] {
            let error = targets(text, None).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_combined_log_is_played_in_its_time() {
        let log = "\
::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 2326
::1 - - [10/Oct/2000:13:55:36 -0700] \"HEAD /b?c=d HTTP/1.1\" 200 0 \"-\" \"agent\"
::1 - - [10/Oct/2000:20:55:38 +0000] \"GET /late HTTP/1.1\" 200 0
::1 - - [10/Oct/2000:20:55:37 +0000] \"POST /a HTTP/1.1\" 200 0
::1 - - [10/Oct/2000:20:55:37 +0000] \"\\x16\\x03\" 400 0
::1 - - [10/Oct/2000:20:55:37 +0000] \"GET /a\\\"b HTTP/1.1\" 200 0
::1 - - [10/Oct/2000:20:55:37 +0000] \"GET /\\x22x\\x22 HTTP/1.1\" 200 0
::1 - - [10/Oct/2000:20:55:37 +0000] \"GET /cut HT";
        let recording = recording(log, &base()).expect("a log");
        let expected = ["GET http://127.0.0.1:8080/a", "HEAD http://127.0.0.1:8080/b?c=d"];
        assert_eq!(asked(&recording.targets)[..2], expected);
        assert_eq!(recording.due, [0, 500, 2000].map(Duration::from_millis));
        assert_eq!(recording.due_at(2.0), [0, 250, 1000].map(Duration::from_millis));
        assert_eq!(recording.skipped, 5);
    }

    #[test]
    fn larders_own_log_is_exact_to_the_millisecond() {
        let log = r#"{"timestamp":"2026-01-31T23:59:59.990Z","client":"::1","method":"GET","target":"/a","status":200}
{"timestamp":"2026-02-01T00:00:00.015Z","client":"::1","method":"GET","target":"/b","status":200}"#;
        let recording = recording(log, &base()).expect("a log");
        assert_eq!(recording.due, [0, 25].map(Duration::from_millis));
    }

    #[test]
    fn what_is_no_log_is_refused() {
        for (log, expected) in [
            ("hello", "line 1: neither"),
            ("::1 - - [yesterday] \"GET / HTTP/1.1\" 200 0", "line 1: \"yesterday\" is no time"),
            ("{\"timestamp\":1}", "line 1: no line of Larder's"),
        ] {
            let error = recording(log, &base()).expect_err(log).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
