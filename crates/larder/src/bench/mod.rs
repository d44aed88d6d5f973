//! `larder bench`: the command line of the load generator and of its reports.
//!
//! Reads arguments and files, shows results; what is measured and how it is shown stands in the crate `bench`.

mod experiment;
mod http;
mod judge;
mod null_http;
mod null_resp;
mod outputs;
mod report;
mod resp;
mod server;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Experiment(experiment::ExperimentArguments),
    Http(Box<http::HttpArguments>),
    NullHttp(null_http::NullHttpArguments),
    Resp(Box<resp::RespArguments>),
    NullResp(null_resp::NullRespArguments),
    /// Show a saved report, or compare several
    Report(report::ReportArguments),
    /// Print the JSON Schema of a report
    Schema,
}

pub(crate) fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Experiment(arguments) => experiment::run(&arguments),
        BenchCommand::Http(arguments) => http::run(&arguments),
        BenchCommand::NullHttp(arguments) => null_http::run(&arguments),
        BenchCommand::Resp(arguments) => resp::run(&arguments),
        BenchCommand::NullResp(arguments) => null_resp::run(&arguments),
        BenchCommand::Report(arguments) => report::run(&arguments),
        BenchCommand::Schema => {
            crate::output::result(bench::report::schema().trim_end());
            Ok(())
        }
    }
}
