//! Converts arguments to the settings of a load.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bench::http::list::{self, Recording};
use bench::http::{
    Detail, HttpLoad, Order, Pace, Protocol, Reuse, Revisit, Session, Target, TlsSettings, Trust, Until, Url,
};
use terminal::input_file::{self, Kind};
use terminal::output;

use super::arguments::{HttpArguments, Tls};

const DURATION_S: u64 = 10;

pub(super) fn of(arguments: &HttpArguments) -> anyhow::Result<HttpLoad> {
    let base = arguments.base.as_deref().map(Url::parse).transpose()?;
    let (targets, pace) = match (&arguments.replay, &base) {
        (Some(log), Some(base)) => replay(arguments, log, base)?,
        _ => (targets(arguments, base.as_ref())?, pace(arguments)),
    };
    let amount = &arguments.amount;
    let once = targets.len() as u64;
    let mut load = HttpLoad::of(finished(targets, arguments)?);
    load.pace = pace;
    load.until = match (amount.requests, amount.duration) {
        (Some(requests), _) => Until::Requests(requests),
        (None, Some(duration)) => Until::Elapsed(duration),
        (None, None) if arguments.replay.is_some() => Until::Requests(once),
        (None, None) => Until::Elapsed(std::time::Duration::from_secs(DURATION_S)),
    };
    load.order = if amount.random { Order::Random } else { Order::InTurn };
    load.protocol = if amount.http2 {
        Protocol::Http2 { streams: amount.streams }
    } else {
        Protocol::Http1 { pipelining: amount.pipeline }
    };
    load.tls = tls(&arguments.tls);
    (load.connections, load.threads, load.seed) = (amount.connections, amount.threads, amount.seed);
    load.reuse = if amount.no_keep_alive { Reuse::OnePerRequest } else { Reuse::KeepAlive };
    load.warm_up = amount.warm_up.map(Until::Elapsed);
    load.timeout = amount.timeout;
    load.think = amount.think.map(|(from, to)| from..=to);
    load.revisit = if arguments.request.conditional { Revisit::Conditional } else { Revisit::Plain };
    load.detail = if arguments.per_url { Detail::PerUrl } else { Detail::Total };
    Ok(load)
}

fn pace(arguments: &HttpArguments) -> Pace {
    arguments.amount.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second })
}

fn targets(arguments: &HttpArguments, base: Option<&Url>) -> anyhow::Result<Vec<Target>> {
    let Some(path) = &arguments.list else {
        let method = arguments.request.method.clone();
        let target = |url: &String| Ok(Target { method: method.clone(), ..Target::at(url)? });
        return arguments.urls.iter().map(target).collect();
    };
    let mut targets = list::targets(&read(path)?, base).with_context(|| path.display().to_string())?;
    anyhow::ensure!(!targets.is_empty(), "{} names no URL", path.display());
    for target in targets.iter_mut().filter(|target| target.method == "GET") {
        target.method.clone_from(&arguments.request.method);
    }
    Ok(targets)
}

fn replay(arguments: &HttpArguments, path: &Path, base: &Url) -> anyhow::Result<(Vec<Target>, Pace)> {
    let recording: Recording =
        list::recording(&read_log(path)?, base).with_context(|| path.display().to_string())?;
    anyhow::ensure!(
        !recording.targets.is_empty(),
        "{} has no GET or HEAD request to make again",
        path.display()
    );
    if recording.skipped > 0 {
        output::note(&format!(
            "{} lines are left out: neither GET nor HEAD of a path, or not readable",
            recording.skipped
        ));
    }
    let pace = match arguments.replay_speed {
        None => pace(arguments),
        Some(speed) => Pace::Recorded { due: recording.due_at(speed) },
    };
    Ok((recording.targets, pace))
}

/// Adds the settings that all requests share.
fn finished(targets: Vec<Target>, arguments: &HttpArguments) -> anyhow::Result<Vec<Target>> {
    let request = &arguments.request;
    let body = match (&request.body, &request.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => input_file::read(path, Kind::RegularOrPipe, BODY_BYTES_MAX)
            .with_context(|| path.display().to_string())?,
        (None, None) => Vec::new(),
    };
    let body = bytes::Bytes::from(body);
    let finish = |target| Target {
        fields: request.fields.clone(),
        body: body.clone(),
        status: request.expect_status,
        ..target
    };
    Ok(targets.into_iter().map(finish).collect())
}

fn tls(arguments: &Tls) -> TlsSettings {
    let trust = match &arguments.cacert {
        Some(path) => Trust::File(path.clone()),
        None if arguments.insecure => Trust::Anyone,
        None => Trust::System,
    };
    let session = if arguments.no_resumption { Session::AlwaysNew } else { Session::Resumed };
    TlsSettings { trust, server_name: arguments.server_name.clone(), session }
}

/// Larger than any body that is worth sending repeatedly.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// Reads a log, with invalid UTF-8 written as an escape so that its line is skipped: clients choose the bytes of a log, and a target
/// that isn't UTF-8 can't be requested.
fn read_log(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).replace('\u{fffd}', "\\x"))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
