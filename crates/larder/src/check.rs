//! `larder check`: reports the problems of a configuration as text or JSON.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use terminal::output;

use crate::config::{self, Checked, Input, LeftOut, Overrides, Problem, Program, Severity, Sources};
use crate::default_file::{self, FileArguments};
use crate::{cli, problems};

/// Check a configuration file and report every problem
///
/// Prints each problem with file, line, column and key, and exits with status 1 if there is an error. Warnings don't change the exit status.
/// `-` reads standard input, with paths relative to the working directory. Without FILE, checks /etc/larder/larder.toml.
#[derive(Args, Debug)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    configuration: FileArguments,

    /// Node of [kv.cluster] to check the file for [default: the one in the file, or any]
    #[arg(long, value_name = "NAME")]
    cluster_node: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks the file and prints its problems.
pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    let overrides = Overrides::to_look(Program::Serve, arguments.cluster_node.clone());
    let file = arguments
        .configuration
        .named()
        .map(Path::to_owned)
        .or_else(|| default_file::find(default_file::OF_GATEWAY));
    let file = file.unwrap_or_else(|| cli::lacking("check", "<FILE>"));
    let input = if file == Path::new("-") { Input::of_standard_input() } else { Input::given(&file) };
    let name = input.name.clone();
    let checked = config::check(Some(input), &overrides);
    if arguments.json {
        output::result(&report(&checked).to_string());
    } else {
        problems::to_stdout(&checked);
    }
    if checked.settings.is_none() {
        return ExitCode::FAILURE;
    }
    if !arguments.json {
        output::result(&format!("{name}: usable"));
    }
    ExitCode::SUCCESS
}

/// Returns the result as JSON, for editors and pipelines.
fn report(checked: &Checked) -> Value {
    let problems: Vec<_> = checked.problems.iter().map(|problem| entry(problem, &checked.sources)).collect();
    let mut report = json!({ "usable": checked.settings.is_some(), "problems": problems });
    let LeftOut { errors, warnings } = checked.left_out;
    if errors + warnings > 0 {
        report["left_out"] = json!({ "errors": errors, "warnings": warnings });
    }
    report
}

/// Returns a problem as JSON. `file`, `line` and `column` are null for a problem outside the files.
fn entry(problem: &Problem, sources: &Sources) -> Value {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let position = sources.position(&problem.place);
    json!({
        "severity": severity,
        "file": position.map(|(file, _)| file),
        "line": position.map(|(_, at)| at.line),
        "column": position.map(|(_, at)| at.column),
        "key": problem.path,
        "message": problem.message,
    })
}
