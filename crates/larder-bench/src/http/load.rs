//! Converts arguments to the settings of a load.

use std::fs;

use anyhow::Context as _;
use bench::http::list;
use bench::http::{
    Detail, HttpLoad, Order, Protocol, Reuse, Session, Target, TlsSettings, Trust, Until, Url,
};
use terminal::input_file::{self, Kind};

use super::arguments::{HttpArguments, Tls};

pub(super) fn of(arguments: &HttpArguments) -> anyhow::Result<HttpLoad> {
    let base = arguments.base.as_deref().map(Url::parse).transpose()?;
    let (amount, connections) = (&arguments.amount, &arguments.connections);
    let mut load = HttpLoad::of(finished(targets(arguments, base.as_ref())?, arguments)?);
    (load.pace, load.until, load.threads) = (amount.pace(), amount.until(), amount.threads);
    load.warm_up = amount.warm_up.map(Until::Elapsed);
    load.order = if connections.random { Order::Random } else { Order::InTurn };
    load.protocol = if connections.http2 {
        Protocol::Http2 { streams: connections.streams }
    } else {
        Protocol::Http1 { pipelining: connections.pipeline }
    };
    load.tls = tls(&arguments.tls);
    (load.connections, load.seed) = (connections.connections, connections.seed);
    load.reuse = if connections.no_keep_alive { Reuse::OnePerRequest } else { Reuse::KeepAlive };
    load.timeout = connections.timeout;
    load.think = connections.think.map(|(from, to)| from..=to);
    load.detail = if arguments.per_url { Detail::PerUrl } else { Detail::Total };
    Ok(load)
}

fn targets(arguments: &HttpArguments, base: Option<&Url>) -> anyhow::Result<Vec<Target>> {
    let Some(path) = &arguments.list else {
        let method = arguments.request.method.clone();
        let target = |url: &String| Ok(Target { method: method.clone(), ..Target::at(url)? });
        return arguments.urls.iter().map(target).collect();
    };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut targets = list::targets(&text, base).with_context(|| path.display().to_string())?;
    anyhow::ensure!(!targets.is_empty(), "{} contains no URL", path.display());
    for target in targets.iter_mut().filter(|target| target.method == "GET") {
        target.method.clone_from(&arguments.request.method);
    }
    Ok(targets)
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

/// Maximum size of a body: larger than any that is worth sending repeatedly.
const BODY_BYTES_MAX: u64 = 1 << 30;
