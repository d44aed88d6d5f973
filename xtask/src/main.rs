//! `cargo xtask`: tidy, codegen, requirements and vectors (the last two also with `--check`), and the commands for
//! releases.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::release::{self, Options};
use xtask::requirements::{self, Mode};
use xtask::vectors::{self, Vectors};
use xtask::{codegen, lines, tidy};

const HELP: &str = "cargo xtask <command>

  tidy              check the house rules; one line per problem, exit status 1 if there is one
  lines             print the lines of production code of each crate, without blank ones and comments
  codegen           write the generated pages of docs/reference
  requirements      join requirements and citations into docs/reference/rfc9111.md
  requirements --check
                    compare it with the tree; exit status 1 if it differs, a citation names no requirement, or a
                    requirement without an exception lacks code or test
  vectors           write the vectors of conformance/store
  vectors --check   compare them with the code's results; exit status 1 if they differ
  release [--binary FILE | --profile FILE] [--version VERSION] [--out FOLDER]
                    build a release, or use a built `larder` with `larder-bench` in the same folder; make an archive, a Debian
                    package, lists of components and checksums; without a profile of an earlier training, the server is built
                    twice, and trained under load in between;
                    VERSION begins with the version of the binary: 0.1.0, 0.1.0-1, 0.1.0~rc1
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => run_tidy(),
        ["lines"] => lines::report(&root()),
        ["codegen"] => codegen::run(&root()),
        ["requirements"] => requirements::run(&root(), Mode::Write),
        ["vectors"] => vectors::run(&root(), Vectors::Write),
        ["vectors", "--check"] => vectors::run(&root(), Vectors::Check),
        ["release", options @ ..] => {
            Options::parse(options).and_then(|options| release::run(&root(), &options))
        }
        ["requirements", "--check"] => requirements::run(&root(), Mode::Check),
        _ => Err(anyhow::anyhow!("{HELP}")),
    };
    match outcome {
        Ok(lines) => {
            print(&lines);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_tidy() -> anyhow::Result<Vec<String>> {
    let problems = tidy::check(&root())?;
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    print(&lines);
    anyhow::ensure!(problems.is_empty(), "tidy: {} problems", problems.len());
    Ok(Vec::new())
}

/// Prints lines. A closed pipe (`cargo xtask tidy | head`) must not panic.
fn print(lines: &[String]) {
    let mut output = std::io::stdout().lock();
    for line in lines {
        if writeln!(output, "{line}").is_err() {
            return;
        }
    }
}

/// Returns the repository, found from this crate's folder, so that the command works in every working directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
