//! `larder-bench http`: load on HTTP servers.

mod arguments;
mod load;
mod sides;

use std::net::{SocketAddr, ToSocketAddrs as _};

use anyhow::Context as _;
use bench::http::HttpLoad;
use bench::progress::Progress;
use bench::result::Run;

pub(crate) use arguments::HttpArguments;

use super::server::Server;

/// Runs the load and prints the result.
pub(super) fn run(arguments: &HttpArguments) -> anyhow::Result<()> {
    let load = load::of(arguments)?;
    arguments.outputs.of_load("HTTP load", || match &arguments.compare {
        Some(url) => sides::run(arguments, &load, url),
        None => Ok(vec![one(arguments, &load)?]),
    })
}

fn one(arguments: &HttpArguments, load: &HttpLoad) -> anyhow::Result<Run> {
    let server = Server::start(&arguments.server, || address(load))?;
    if let Some(until) = load.warm_up {
        let warm_up = HttpLoad { until, warm_up: None, ..load.clone() };
        bench::http::run(&warm_up, &mut ())?;
    }
    let measured = HttpLoad { warm_up: None, ..load.clone() };
    let progress = Progress::of_load("http", load.until, arguments.progress());
    server.under(progress, |observer| Ok(bench::http::run(&measured, observer)?))
}

/// Returns the address of the first URL's server, which may be started later.
fn address(load: &HttpLoad) -> anyhow::Result<SocketAddr> {
    let url = &load.targets.first().context("there is no URL")?.url;
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, url.port).to_socket_addrs().with_context(|| host.to_owned())?;
    addresses.next().with_context(|| format!("{host} has no address"))
}
