//! `larder bench http`: load on HTTP servers.

mod arguments;
mod load;
mod sides;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bench::http::HttpLoad;
use bench::interrupt::Interruptible;
use bench::result::{Machine, Report, Run, SCHEMA};
use bench::told::Told;

pub(crate) use arguments::HttpArguments;
pub(super) use arguments::{field, time};

use super::judge::judge;
use super::server::{Server, Watched};

/// Makes the load and shows what came of it.
pub(super) fn run(arguments: &HttpArguments) -> anyhow::Result<()> {
    let load = load::of(arguments)?;
    let started_at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let runs = match sides::of(arguments, &load)? {
        Some(sides) => sides::run(arguments, &sides)?,
        None => vec![one(arguments, &load)?],
    };
    let report = Report {
        schema: SCHEMA.into(),
        title: "HTTP load".into(),
        description: runs.first().map_or_else(String::new, |run| run.load.clone()),
        started_at_unix_s,
        machine: Machine::this(),
        larder: crate::VERSION.into(),
        runs,
        charts: Vec::new(),
        expectations: Vec::new(),
    };
    arguments.outputs.write(&report)?;
    judge(&report.runs)
}

fn one(arguments: &HttpArguments, load: &HttpLoad) -> anyhow::Result<Run> {
    let wanted = &arguments.server;
    let watched =
        Watched { pid: wanted.server_pid, command: wanted.server_cmd.as_deref(), core: wanted.server_core };
    let server = Server::start(&watched, || address(load))?;
    if let Some(until) = load.warm_up {
        let warm_up = HttpLoad { until, warm_up: None, ..load.clone() };
        bench::http::run(&warm_up, &mut ())?;
    }
    let measuring = server.begin()?;
    let measured = HttpLoad { warm_up: None, ..load.clone() };
    let told = Told::start("http", load.until, arguments.progress());
    let interruptible = Interruptible::begin()?;
    let mut run = bench::http::run(&measured, &mut interruptible.ending(&mut told.observer()))?;
    told.finish();
    run.server =
        measuring.map(|measuring| measuring.end()).transpose()?.map(|spent| spent.per_request(run.requests));
    Ok(run)
}

/// Where the server of the first URL listens, or will.
fn address(load: &HttpLoad) -> anyhow::Result<SocketAddr> {
    let url = &load.targets.first().context("there is no URL")?.url;
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, url.port).to_socket_addrs().with_context(|| host.to_owned())?;
    addresses.next().with_context(|| format!("{host} has no address"))
}
