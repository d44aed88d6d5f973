//! The `larder` binary: command line, configuration, assembly, signals.
//!
//! Decides what runs and with which settings; never touches a request. Only this crate reads arguments and
//! configuration files. Main types: [`cli::Cli`], [`config::Settings`], [`lifecycle::Event`].

mod allocator;
mod assemble;
mod bench;
mod check;
mod cli;
mod config;
mod default_file;
mod doctor;
mod explain;
mod inherited;
mod input_file;
mod kv;
mod lifecycle;
mod manual;
mod measures;
mod mock_origin;
mod notify;
mod operate;
mod output;
mod predecessor;
mod process;
mod reference;
#[cfg(feature = "test-store")]
mod test_store;
mod tier;
mod upgrade;
mod version;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use cli::Command;
use config::{Input, Overrides};
use inherited::Inherited;
pub(crate) use version::VERSION;

/// Gives freed memory back to the system soon; its settings and figures stand in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    output::ended(run_command())
}

fn run_command() -> ExitCode {
    let outcome = match cli::parse().command {
        Command::Serve(arguments) => return run(arguments.file().as_deref(), &arguments.overrides()),
        Command::Kv(arguments) => return run(arguments.file().as_deref(), &arguments.overrides()),
        Command::Check(arguments) => return check::run(&arguments),
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Purge(arguments) => {
            return operate::purge::run(&arguments).unwrap_or_else(|error| failed(&error));
        }
        Command::Reload(arguments) => operate::reload(&arguments),
        Command::Upgrade(arguments) => operate::upgrade(&arguments),
        Command::Status(arguments) => {
            return operate::status::run(&arguments).unwrap_or_else(|error| failed(&error));
        }
        Command::Bench { command } => bench::run(command),
        Command::Origin(options) => run_mock_origin(options),
        Command::Version(arguments) => {
            version::run(&arguments);
            Ok(())
        }
        Command::Completions { shell } => {
            manual::print_completions(shell);
            Ok(())
        }
        Command::Manual { out } => manual::write_pages(&out),
        Command::Reference { out } => reference::write(&out),
    };
    finish(outcome)
}

/// Runs whatever the configuration has.
fn run(file: Option<&Path>, overrides: &Overrides) -> ExitCode {
    // It has no threads before work is given to it.
    let runtime = lifecycle::runtime().and_then(|runtime| {
        runtime.block_on(async { lifecycle::ignore_early() })?;
        Ok(runtime)
    });
    let runtime = match runtime.context("signals can't be handled") {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => return failed(&error),
    };
    // A process that takes over may not wait for who writes a pipe.
    let of_file = if inherited.has_predecessor() { Input::of_file } else { Input::given };
    let checked = config::check(file.map(of_file), overrides);
    output::problems(&checked);
    let Some(settings) = checked.settings else { return ExitCode::FAILURE };
    finish(assemble::run(runtime, settings, file, overrides, inherited))
}

fn run_mock_origin(options: mock_origin::OriginOptions) -> anyhow::Result<()> {
    let runtime = lifecycle::runtime()?;
    runtime.block_on(async {
        let mut signals = lifecycle::Signals::listen()?;
        let announce = |addresses: &mock_origin::BoundAddresses| {
            addresses.urls().for_each(|url| output::listening(&url))
        };
        mock_origin::run(options, announce, signals.signalled()).await?;
        Ok(())
    })
}

fn finish(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    output::failure(&output::causes(error));
    ExitCode::FAILURE
}
