//! The `larder` binary: command line, configuration, assembly, signals.
//!
//! Decides which servers run and with which settings; never touches a request. Only this crate reads arguments and
//! configuration files. Main types: [`cli::Cli`], [`config::Settings`], [`lifecycle::Event`].
//!
//! `assemble` joins the parts; `process` reloads and upgrades them. `docs/internals/process.md` explains configuration,
//! start and stop.

mod allocator;
mod assemble;
mod certificate;
mod check;
mod cli;
mod config;
mod default_file;
mod doctor;
mod explain;
mod inherited;
mod kv;
mod lifecycle;
mod measures;
mod notify;
mod operate;
mod predecessor;
mod problems;
mod process;
mod reference;
#[cfg(feature = "test-store")]
mod test_store;
mod tier;
mod upgrade;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use cli::Command;
use config::{Input, Overrides};
use inherited::Inherited;
use terminal::output::{self, failed, finished};

/// The allocator. Its settings are in `.cargo/config.toml`: it returns freed memory to the system soon.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    terminal::run("larder", run_command)
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
        Command::Origin(options) => run_mock_origin(options),
        Command::Own(command) => command.run(cli::definition()),
        Command::Reference { out } => reference::write(&out),
    };
    finished(outcome)
}

/// Runs the servers of the configuration. Reports a failure to standard error, and to the process that this one was to
/// replace.
fn run(file: Option<&Path>, overrides: &Overrides) -> ExitCode {
    match serve(file, overrides) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            upgrade::complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// # Errors
///
/// Returns the error, in one line, that was written to standard error.
fn serve(file: Option<&Path>, overrides: &Overrides) -> Result<(), String> {
    // The runtime starts no threads until it gets work.
    let runtime = lifecycle::runtime().and_then(|runtime| {
        runtime.block_on(async { lifecycle::ignore_early() })?;
        Ok(runtime)
    });
    let runtime = runtime.context("signals can't be handled").map_err(|error| told(&error))?;
    let inherited = Inherited::take().map_err(|error| told(&error))?;
    // A process that takes over must not wait for input from a pipe.
    let of_file = if inherited.has_predecessor() { Input::of_file } else { Input::given };
    let checked = config::check(file.map(of_file), overrides);
    problems::to_stderr(&checked);
    let errors = problems::errors(&checked);
    let settings = checked.settings.ok_or(errors)?;
    assemble::run(runtime, settings, file, overrides, inherited).map_err(|error| told(&error))
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

/// Writes the error to standard error, and returns its text.
fn told(error: &anyhow::Error) -> String {
    let causes = output::causes(error);
    output::failure(&causes);
    causes
}
