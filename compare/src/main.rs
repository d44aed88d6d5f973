//! `make compare`: Larder and its peers side by side, on one machine, in one run.
//!
//! Decides which figures go into the table, never what a figure means for the product. `bench::peers` configures and starts the
//! peers. A figure is the median of several rounds, in which the servers take turns.

mod calm;
mod chart;
mod coalescing;
mod core_time;
mod kv;
mod load;
mod machine;
mod memory;
mod mixed;
mod open_loop;
mod origin;
mod output;
mod plan;
mod report;
mod row;
mod stage;
mod statistics;
mod upload;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use bench::peers::Peer;
use clap::Parser;

use crate::plan::What;
use crate::report::Report;
use crate::row::Row;
use crate::stage::{CLIENT_CORE, Theatre};

/// Measure Larder and its peers side by side
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
struct Options {
    /// Rows to measure [default: all rows of the gateway]
    #[arg(value_enum)]
    what: Vec<What>,

    /// Larder's binary
    #[arg(long, value_name = "FILE")]
    larder: PathBuf,

    /// Rounds; in each, every server has one turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Duration of each turn in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds_each: u32,

    /// Measure only these servers [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SERVER,...")]
    peers: Vec<Peer>,

    /// Measure only rows of kv with this text in their title
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Write latest.md, or kv.md for rows of kv, to this folder [default: only print]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

/// Number and length of the turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    rounds: u32,
    seconds_each: u32,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::progress(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> anyhow::Result<()> {
    options.what = What::resolved(&options.what);
    // Servers are started in their own folders, so a relative path would not work.
    let larder = fs::canonicalize(&options.larder)
        .with_context(|| format!("--larder {}: not found", options.larder.display()))?;
    measure_all(&options, &larder)
}

fn measure_all(options: &Options, larder: &Path) -> anyhow::Result<()> {
    stay_off_the_server_core()?;
    raise_open_files_limit();
    let theatre = Theatre::new(larder)?;
    let effort = Effort { rounds: options.rounds, seconds_each: options.seconds_each };
    let mut rows = Vec::new();
    for what in &options.what {
        let measured = match what {
            what if what.is_kv() => {
                kv::measure(&kv::Wish { larder, effort, only: options.only.as_deref() }, *what)?
            }
            _ => measure(&theatre, *what, &wanted(*what, &options.peers), effort)?,
        };
        measured.iter().for_each(|row| output::result(&report::row_table(row)));
        rows.extend(measured);
    }
    let machine = machine::Machine::look(&repository(), versions(&rows, larder));
    let report = Report::new(machine, effort, rows);
    output::result(&report.conclusion());
    if let Some(folder) = &options.results {
        write_results(folder, &options.what, &report)?;
    }
    Ok(())
}

fn measure(theatre: &Theatre, what: What, peers: &[Peer], effort: Effort) -> anyhow::Result<Vec<Row>> {
    if let Some(settings) = what.core_time() {
        return Ok(vec![core_time::measure(theatre, what, &settings, peers, effort)?]);
    }
    Ok(match what {
        What::OpenLoop => vec![open_loop::measure(theatre, peers, effort)?],
        What::Memory => memory::idle(theatre, peers)?,
        What::Overhead => vec![memory::overhead(theatre, peers)?],
        What::Waiters => vec![coalescing::waiters(theatre, peers, effort)?],
        What::Expiry => vec![coalescing::expiry(theatre, peers)?],
        What::Mixed => vec![mixed::measure(theatre, peers, effort)?],
        What::Upload => vec![upload::measure(theatre, peers, effort)?],
        _ => Vec::new(),
    })
}

/// Keeps the threads of this program, including the generator and the origin, off the server's core.
fn stay_off_the_server_core() -> anyhow::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(CLIENT_CORE);
    rustix::thread::sched_setaffinity(None, &cores)
        .with_context(|| format!("no core {CLIENT_CORE}: the comparison needs two cores"))
}

/// Raises the limit of open files: this program opens thousands of idle connections, and its children inherit the limit.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the system refuses, the rows that need many files report it.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

fn wanted(what: What, chosen: &[Peer]) -> Vec<Peer> {
    let takes_part = |peer: &&Peer| chosen.is_empty() || chosen.contains(peer);
    what.peers().iter().filter(takes_part).copied().collect()
}

/// Title and version command of every participant.
fn versions(rows: &[Row], larder: &Path) -> Vec<(String, Command)> {
    let subjects = rows.iter().flat_map(|row| &row.series).map(|series| series.subject);
    let mut known: Vec<(String, Command)> = Vec::new();
    for subject in subjects {
        let Some(command) = subject.version(larder) else { continue };
        if known.iter().all(|(title, _)| title != subject.title()) {
            known.push((subject.title().to_owned(), command));
        }
    }
    known
}

fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

fn write_results(folder: &Path, what: &[What], report: &Report) -> anyhow::Result<()> {
    let (name, title) = match what.iter().all(|what| what.is_kv()) {
        true => ("kv.md", "larder kv"),
        false => ("latest.md", "larder serve"),
    };
    write(&folder.join(name), &report.markdown(title))?;
    match chart::of(&report.rows) {
        Some(chart) => write(&folder.join("hit.svg"), &chart),
        None => Ok(()),
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("can't write {}", file.display()))?;
    output::progress(&format!("written to {}", file.display()));
    Ok(())
}
