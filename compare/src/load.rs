//! The load generator: a child process on its own core. What it is called and what it prints stays in this file.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::stage::CLIENT_CORE;

/// What is asked, of whom, how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) path: &'a str,
    /// Field lines of each request.
    pub(crate) fields: &'a [&'a str],
    pub(crate) connections: u32,
    pub(crate) seconds: u32,
}

/// How the generator speaks to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http1Tls,
    /// By prior knowledge, without TLS.
    Http2,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    /// Answers that are no success, broken connections, time-outs.
    pub(crate) errors: u64,
}

/// Streams at a time on each HTTP/2 connection: with 64 requests at a time in all rows, these are 16 connections.
const HTTP2_STREAMS: u32 = 4;

/// Asks for the whole time and waits for the end.
///
/// # Errors
/// When the generator can't be started or says something unknown.
pub(crate) fn run(load: &Load<'_>) -> anyhow::Result<Outcome> {
    match load.protocol {
        Protocol::Http1 => wrk(load, "http"),
        Protocol::Http1Tls => wrk(load, "https"),
        Protocol::Http2 => h2load(load),
    }
}

fn wrk(load: &Load<'_>, scheme: &str) -> anyhow::Result<Outcome> {
    let mut command = pinned("wrk");
    command.args(["-t1", &format!("-c{}", load.connections), &format!("-d{}s", load.seconds)]);
    for field in load.fields {
        command.args(["-H", field]);
    }
    command.arg(format!("{scheme}://{}{}", load.address, load.path));
    parse_wrk(&printed(command)?)
}

fn h2load(load: &Load<'_>) -> anyhow::Result<Outcome> {
    let mut command = pinned("h2load");
    let connections = (load.connections / HTTP2_STREAMS).max(1);
    command.args(["-t1", &format!("-c{connections}"), &format!("-m{HTTP2_STREAMS}")]);
    command.arg(format!("-D{}", load.seconds));
    for field in load.fields {
        command.args(["-H", field]);
    }
    command.arg(format!("http://{}{}", load.address, load.path));
    parse_h2load(&printed(command)?)
}

fn pinned(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &CLIENT_CORE.to_string(), program]);
    command
}

fn printed(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed:\n{text}{error}");
    Ok(text)
}

/// `  12345 requests in 4.00s, 1.2MB read`, and lines about errors only when there are some.
fn parse_wrk(text: &str) -> anyhow::Result<Outcome> {
    let requests = number_before(text, " requests in").context("wrk didn't say how many requests")?;
    let line =
        |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
    let errors = numbers(line("Non-2xx or 3xx responses:").rsplit(':').next().unwrap_or_default())
        + numbers(line("Socket errors:"));
    Ok(Outcome { requests, errors })
}

/// `requests: 10 total, 10 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout`.
fn parse_h2load(text: &str) -> anyhow::Result<Outcome> {
    let line = text.lines().find(|line| line.starts_with("requests:"));
    let line = line.context("h2load didn't say how many requests")?;
    let requests = number_before(line, " done").context("h2load didn't say how many were done")?;
    let errors =
        [" failed", " errored", " timeout"].iter().filter_map(|name| number_before(line, name)).sum();
    Ok(Outcome { requests, errors })
}

/// The number that stands just before `name`.
fn number_before(text: &str, name: &str) -> Option<u64> {
    let (before, _) = text.split_once(name)?;
    before.rsplit([' ', '\n']).next()?.parse().ok()
}

/// The sum of all whole numbers of a line.
fn numbers(line: &str) -> u64 {
    line.split([' ', ',', ':']).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::{Outcome, parse_h2load, parse_wrk};

    #[test]
    fn what_wrk_prints() {
        let fine = "Running 4s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  Thread Stats   Avg\n  331072 requests in 4.10s, 47.36MB read\nRequests/sec:  80749.13\n";
        let bad = "  100 requests in 4.00s, 1MB read\n  Socket errors: connect 1, read 20, write 0, timeout 300\n  Non-2xx or 3xx responses: 4000\n";
        assert_eq!(parse_wrk(fine).expect("known"), Outcome { requests: 331_072, errors: 0 });
        assert_eq!(parse_wrk(bad).expect("known"), Outcome { requests: 100, errors: 4321 });
        assert!(parse_wrk("unable to connect").is_err());
    }

    #[test]
    fn what_h2load_prints() {
        let text = "finished in 2.00s, 29000.50 req/s, 1MB/s\nrequests: 58001 total, 58065 started, 58001 done, 57990 succeeded, 5 failed, 4 errored, 2 timeout\nstatus codes: 57990 2xx\n";
        assert_eq!(parse_h2load(text).expect("known"), Outcome { requests: 58_001, errors: 11 });
        assert!(parse_h2load("").is_err());
    }
}
