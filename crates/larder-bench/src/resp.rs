//! `larder-bench resp`: load on servers that speak the Redis protocol.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bench::progress::{Progress, Style};
use bench::resp::{Choice, Login, Preload, Protocol, RespLoad, RespRun, Reuse, Values, Workload};
use bench::result::Run;
use clap::Args;
use terminal::output;
use terminal::quantity::{number, whole_number};

use super::amount::{Amount, time};
use super::outputs::OutputArguments;
use super::server::{Server, ServerArguments};

/// Load-test a Redis-compatible server, and verify every reply
///
/// The value of a key is a function of the key, so every reply is known byte for byte; keys used for misses are never set. Each command counts as one request, and its latency ends with its reply.
///
/// Examples:
///
///   larder-bench resp 127.0.0.1:6379 --workload get --preload -c 50 -d 10s
///
///   larder-bench resp 127.0.0.1:6379 --workload set --pipeline 100 -n 1000000 --server-pid $(pidof redis-server)
///
///   larder-bench resp 127.0.0.1:6379 --keys 1000000 --zipf 0.99 --rate 20000 -d 1m --json result.json
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RespArguments {
    /// Host and port of the server; an optional `redis://` prefix is allowed
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: String,

    #[command(flatten)]
    commands: Commands,

    #[command(flatten)]
    amount: Amount,

    #[command(flatten)]
    connections: Connections,

    #[command(flatten)]
    server: ServerArguments,

    /// Don't print progress
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    outputs: OutputArguments,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Commands")]
struct Commands {
    /// Commands to send
    #[arg(long, value_enum, default_value_t = Workload::Workflow)]
    workload: Workload,

    /// Protocol of the commands
    #[arg(long, value_enum, default_value_t = Protocol::Resp2)]
    protocol: Protocol,

    /// User for AUTH [default: the default user]
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,

    /// File with the password for AUTH
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Size of a key in bytes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole_number(2..=65_536_usize))]
    key_size: usize,

    /// Size of a value in bytes
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = whole_number(0..=67_108_864_usize))]
    value_size: usize,

    /// TTL of each key that is set, in seconds
    #[arg(long, value_name = "SECONDS")]
    expire: Option<u32>,

    /// Use the same value for all keys: for `larder-bench null-resp`, which stores nothing
    #[arg(long)]
    fixed_values: bool,

    /// Number of distinct keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,

    /// Zipf exponent: choose the key of rank r in proportion to 1 / r^S [default: all keys equally often]
    #[arg(long, value_name = "S", conflicts_with = "in_turn", value_parser = number(0.01..=10.0))]
    zipf: Option<f64>,

    /// Take the keys in order
    #[arg(long)]
    in_turn: bool,

    /// Set every key first; a GET that misses is then an error
    #[arg(long)]
    preload: bool,

    /// Seed: the same number chooses the same keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
struct Connections {
    /// Concurrent connections
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = whole_number(1..=65_536_usize))]
    connections: usize,

    /// Open a connection for each batch (one command without --pipeline)
    #[arg(long)]
    connection_per_request: bool,

    /// Commands to send on a connection before reading replies, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=1000_usize))]
    pipeline: usize,

    /// Time limit for the replies to the commands of a connection
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    timeout: Duration,
}

/// Runs the load and prints the result.
pub(super) fn run(arguments: &RespArguments) -> anyhow::Result<()> {
    let load = load(arguments)?;
    arguments.outputs.of_load("Load on a Redis-protocol server", || Ok(vec![measure(arguments, &load)?]))
}

fn measure(arguments: &RespArguments, load: &RespLoad) -> anyhow::Result<Run> {
    let server = Server::start(&arguments.server, || Ok(load.address))?;
    // Prepare before the measurement begins, so that the server's cost excludes the preparation.
    bench::resp::prepare(load).context("can't start the load")?;
    let style = if arguments.quiet { Style::Quiet } else { Style::Shown };
    let mut problem = None;
    let run = server.under(Progress::of_load("resp", load.until, style), |observer| {
        let RespRun { run, first_problem } = bench::resp::run(load, observer)?;
        problem = first_problem;
        Ok(run)
    })?;
    if let Some(problem) = problem {
        output::note(&format!("the first wrong reply: {problem}"));
    }
    Ok(run)
}

fn load(arguments: &RespArguments) -> anyhow::Result<RespLoad> {
    let RespArguments { commands, amount, connections, .. } = arguments;
    let address = resolved(&arguments.address)?;
    let choice = match (commands.zipf, commands.in_turn) {
        (Some(exponent), _) => Choice::Zipf(exponent),
        (None, true) => Choice::InTurn,
        (None, false) => Choice::Uniform,
    };
    Ok(RespLoad {
        address,
        protocol: commands.protocol,
        login: login(commands)?,
        workload: commands.workload,
        key_bytes: commands.key_size,
        value_bytes: commands.value_size,
        values: if commands.fixed_values { Values::Fixed } else { Values::OfKey },
        ttl_s: commands.expire,
        keys: commands.keys,
        choice,
        preload: if commands.preload { Preload::AllKeys } else { Preload::Nothing },
        connections: connections.connections,
        reuse: if connections.connection_per_request { Reuse::OnePerRequest } else { Reuse::KeepAlive },
        pipeline: connections.pipeline,
        threads: amount.threads,
        until: amount.until(),
        warm_up: amount.warm_up,
        pace: amount.pace(),
        timeout: connections.timeout,
        seed: commands.seed,
    })
}

fn login(commands: &Commands) -> anyhow::Result<Option<Login>> {
    let Some(path) = &commands.password_file else { return Ok(None) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(Some(Login { user: commands.user.clone(), password: text.trim_end_matches(['\r', '\n']).to_owned() }))
}

/// Parses an address, also in the form that `larder kv` prints. A URL can't select a user, which has its own option, or a database.
fn address(text: &str) -> Result<String, String> {
    if text.starts_with("rediss://") {
        return Err("TLS isn't supported: use a redis:// address".into());
    }
    let address = text.strip_prefix("redis://").map_or(text, |rest| rest.trim_end_matches('/'));
    let parts =
        address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let address = parts.map(|_| address.to_owned());
    address.ok_or_else(|| "expected a host and a port, such as 127.0.0.1:6379".into())
}

fn resolved(address: &str) -> anyhow::Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs().with_context(|| format!("{address} has no address"))?;
    addresses.next().with_context(|| format!("{address} has no address"))
}
