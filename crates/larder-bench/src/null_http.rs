//! `larder-bench null-http`: the smallest HTTP server that the kernel allows.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bench::null::{NullHttp, NullServer, Stall};
use clap::Args;
use terminal::output;
use terminal::quantity::whole_number;

/// Run a minimal HTTP server, as the baseline for ratios
///
/// It counts the ends of request heads and writes as many copies of one response; it doesn't parse requests, so it can't handle
/// request bodies. Prints its address, and serves until it is killed.
#[derive(Args, Debug)]
pub(crate) struct NullHttpArguments {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Length of the body
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number(0..=1_073_741_824_u32))]
    body_bytes: u32,

    /// Stall for this many milliseconds at intervals
    #[arg(long, value_name = "MS", requires = "stall_every", value_parser = whole_number(1..=3_600_000_u64))]
    stall_ms: Option<u64>,

    /// Milliseconds from the start of one stall to the start of the next
    #[arg(long, value_name = "MS", requires = "stall_ms", value_parser = whole_number(1..=3_600_000_u64))]
    stall_every: Option<u64>,
}

pub(super) fn run(arguments: &NullHttpArguments) -> anyhow::Result<()> {
    let stall = arguments.stall_ms.zip(arguments.stall_every);
    let settings = NullHttp {
        body_bytes: arguments.body_bytes as usize,
        stall: stall.map(|(length, every)| Stall {
            length: Duration::from_millis(length),
            every: Duration::from_millis(every),
        }),
    };
    serve(arguments.listen, settings.bind(arguments.listen))
}

/// Prints the address, and serves.
pub(super) fn serve(address: SocketAddr, bound: io::Result<NullServer>) -> anyhow::Result<()> {
    let server = bound.with_context(|| format!("can't listen at {address}"))?;
    output::result(&server.address().to_string());
    server.serve().context("the server ended")
}
