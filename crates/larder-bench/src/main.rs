//! The `larder-bench` binary: command line of the load generator, its reports and experiments.
//!
//! Reads arguments and files, and prints results. The crate `bench` measures and renders. Servers are separate processes: an
//! experiment starts `larder` like any user.

mod amount;
mod experiment;
mod http;
mod null_http;
mod null_resp;
mod outputs;
mod report;
mod resp;
mod server;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use terminal::version::VERSION;
use terminal::{OwnCommand, command_line, output};

/// Load-test servers and compare the results
#[derive(Debug, Parser)]
#[command(name = "larder-bench", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Experiment(experiment::ExperimentArguments),
    Http(Box<http::HttpArguments>),
    NullHttp(null_http::NullHttpArguments),
    Resp(Box<resp::RespArguments>),
    NullResp(null_resp::NullRespArguments),
    /// Show a saved report, or compare several
    Report(report::ReportArguments),
    #[command(flatten)]
    Own(OwnCommand),
}

fn main() -> ExitCode {
    terminal::run("larder-bench", || output::finished(run(command_line::read::<Cli>(definition()).command)))
}

/// All commands and options, with their environment variables.
fn definition() -> clap::Command {
    command_line::with_variables(Cli::command())
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Experiment(arguments) => experiment::run(&arguments),
        Command::Http(arguments) => http::run(&arguments),
        Command::NullHttp(arguments) => null_http::run(&arguments),
        Command::Resp(arguments) => resp::run(&arguments),
        Command::NullResp(arguments) => null_resp::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Own(command) => command.run(definition()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// The variables keep the names that they had before the load generator became a separate program.
    #[test]
    fn variables_begin_with_the_name_of_the_program() {
        let names = command_line::variables(&definition());
        assert!(names.iter().any(|name| name == "LARDER_BENCH_HTTP_JSON"), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("LARDER_BENCH_")), "{names:?}");
    }

    /// Options with a fixed set of values.
    #[test]
    fn the_guide_has_every_protocol_and_workload() {
        let guide = include_str!("../../../docs/operate/bench.md");
        let definition = definition();
        let command = definition.find_subcommand("resp").expect("it is there");
        for option in ["protocol", "workload"] {
            let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option));
            let values = argument.expect("it is there").get_possible_values();
            assert!(values.len() >= 4, "{values:?}");
            for value in &values {
                assert!(
                    guide.contains(&format!("| `{}` |", value.get_name())),
                    "--{option} {}",
                    value.get_name()
                );
            }
        }
    }

    /// The commands that the pages show.
    #[test]
    fn commands_of_the_documentation_are_accepted() {
        let lines = testkit::documented_commands("larder-bench");
        for (page, words) in &lines {
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{page}: {}", parsed.unwrap_err());
        }
        assert!(lines.len() > 8, "{} commands", lines.len());
    }
}
