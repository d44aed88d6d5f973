//! `larder kv`: the Redis-protocol server, by its command line.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use clap::Args;
use engine::{Engine, Policy};
use kv::Server;

use crate::config::parse_size;
use crate::{lifecycle, output};

/// Run a cache server for clients of Redis
///
/// Keeps strings in memory, up to a limit; evicts those that are worth least. Speaks RESP2 and RESP3. Prints its address, and serves
/// until it is told to stop (SIGTERM or Ctrl-C).
///
/// Examples:
///
///   larder kv
///
///   larder kv --listen 0.0.0.0:6379 --maxmemory 4GiB --workers 4
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct KvArguments {
    /// Address for clients; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,

    /// Memory for keys and values, such as 512MiB; at least 2MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    maxmemory: u64,

    /// What is evicted when memory is full
    #[arg(long, value_name = "POLICY", default_value_t = Policy::default())]
    maxmemory_policy: Policy,

    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

/// Room for the index and a segment of each queue.
const MAXMEMORY_BYTES_MIN: u64 = 2 << 20;

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok_or("a size is a number with KiB, MiB or GiB, such as 512MiB")?;
    if bytes < MAXMEMORY_BYTES_MIN {
        return Err(format!("{text} is less than 2MiB, which the index and the first keys need"));
    }
    Ok(bytes)
}

pub(crate) fn run(arguments: &KvArguments) -> anyhow::Result<()> {
    let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = arguments.workers.map_or_else(cpus, NonZeroUsize::get);
    let runtime = lifecycle::runtime()?;
    runtime.block_on(async {
        // Before anything listens: a signal that comes while starting must not kill the process half-way.
        let mut signals = lifecycle::Signals::listen()?;
        let engine = Arc::new(Engine::new(&engine::Settings {
            bytes_max: arguments.maxmemory,
            policy: arguments.maxmemory_policy,
            seed: seed(),
        }));
        let settings = kv::Settings { listen: arguments.listen, workers, version: crate::VERSION.to_owned() };
        let server = Server::start(&settings, engine).context("kv")?;
        output::result(&server.address().to_string());
        signals.stopped().await;
        server.stop();
        Ok(())
    })
}

/// What the standard library draws for its hash maps: from the system, once for each thread.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}
