//! `larder-bench null-resp`: the smallest Redis-protocol server that the kernel allows.

use std::net::SocketAddr;

use bench::null::NullResp;
use clap::Args;
use terminal::quantity::whole_number;

/// Run a minimal Redis-protocol server, as the baseline for ratios
///
/// It counts commands and writes as many ready replies; it stores nothing, so a load on it needs --fixed-values and the same value
/// size. A connection must repeat its first command. Prints its address, and serves until it is killed.
///
/// Examples:
///
///   larder-bench null-resp --listen 127.0.0.1:7777
///
///   larder-bench resp 127.0.0.1:7777 --workload get --fixed-values --pipeline 100
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct NullRespArguments {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Size of the value that each GET returns, in bytes
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = whole_number(0..=67_108_864_u32))]
    value_size: u32,
}

pub(super) fn run(arguments: &NullRespArguments) -> anyhow::Result<()> {
    let server = NullResp { value_bytes: arguments.value_size as usize };
    super::null_http::serve(arguments.listen, server.bind(arguments.listen))
}
