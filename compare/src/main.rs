//! `make compare`: Larder and its peers side by side, on one machine, in one run.
//!
//! Decides which figure goes into the table; never what a figure means for the product. Each peer is configured as
//! fairly as its file in `compare/peers` says; a figure is the middle of several rounds, in which the servers take turns.

mod client;
mod cores;
mod load;
mod machine;
mod measure;
mod origin;
mod output;
mod pause;
mod peers;
mod plan;
mod process;
mod report;
mod stage;
mod statistics;
mod template;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum as _};

use crate::measure::Effort;
use crate::peers::Peer;
use crate::plan::What;
use crate::report::Report;
use crate::stage::{CLIENT_CORE, Stage};

/// Measures Larder and its peers side by side
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
struct Options {
    /// What to measure; everything without
    #[arg(value_enum)]
    what: Vec<What>,

    /// Larder's binary
    #[arg(long, value_name = "FILE")]
    larder: PathBuf,

    /// How often each server has its turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Seconds of each turn
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds_each: u32,

    /// Only these servers; all that are installed without
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SERVER,...")]
    peers: Vec<Peer>,

    /// Write latest.json and latest.md to this folder; print only without
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

fn main() -> std::process::ExitCode {
    match run(Options::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            output::progress(&format!("{error:#}"));
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> anyhow::Result<()> {
    if options.what.is_empty() {
        options.what = What::value_variants().to_vec();
    }
    stay_off_the_server_core()?;
    let stage = Stage::new(&options.larder)?;
    process::stop_on_signals(&stage.processes)?;
    let effort = Effort { rounds: options.rounds, seconds_each: options.seconds_each };
    let mut rows = Vec::new();
    for what in &options.what {
        let servers = stage::start_all(&stage, &wanted(*what, &options.peers));
        ensure!(!servers.is_empty(), "no server runs");
        rows.push(measure::row(&stage, &servers, *what, effort)?);
    }
    let machine = machine::Machine::look(&repository(), &taking_part(&rows), &options.larder);
    let report = Report::new(machine, effort, rows);
    output::result(&report.markdown());
    if let Some(folder) = &options.results {
        write_results(folder, &report)?;
    }
    Ok(())
}

/// The threads of this program, the origin's too, leave the server's core alone.
fn stay_off_the_server_core() -> anyhow::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(CLIENT_CORE);
    rustix::thread::sched_setaffinity(None, &cores)
        .with_context(|| format!("no core {CLIENT_CORE}: the comparison needs two cores"))
}

fn wanted(what: What, chosen: &[Peer]) -> Vec<Peer> {
    let takes_part = |peer: &&Peer| chosen.is_empty() || chosen.contains(peer);
    what.core_time().peers.iter().filter(takes_part).copied().collect()
}

fn taking_part(rows: &[measure::Row]) -> Vec<Peer> {
    let subjects = rows.iter().flat_map(|row| &row.series).map(|series| series.subject);
    let mut peers: Vec<Peer> = subjects
        .filter_map(|subject| match subject {
            measure::Subject::Peer(peer) => Some(peer),
            measure::Subject::PlainHit => None,
        })
        .collect();
    peers.sort();
    peers.dedup();
    peers
}

fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

fn write_results(folder: &Path, report: &Report) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join("latest.json"), report.json()?)?;
    fs::write(folder.join("latest.md"), format!("# Latest comparison\n\n{}", report.markdown()))?;
    output::progress(&format!("written to {}", folder.display()));
    Ok(())
}
