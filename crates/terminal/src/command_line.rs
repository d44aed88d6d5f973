//! Parsing of arguments and variables.

use std::io::{self, Write as _};

use clap::{Arg, FromArgMatches};

use crate::output;

/// Parses the command line by its definition. Exits if the command line is wrong or asks for help.
#[must_use]
pub fn read<Asked: FromArgMatches>(definition: clap::Command) -> Asked {
    let parsed = definition.try_get_matches().and_then(|matches| Asked::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| end_with(&error))
}

/// Prints the message and exits. Help counts as a result: if it can't be written, the command fails.
fn end_with(error: &clap::Error) -> ! {
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(unwritten) if !error.use_stderr() && unwritten.kind() != io::ErrorKind::BrokenPipe => {
            output::failure(&format!("can't write the result: {unwritten}"));
            std::process::exit(1)
        }
        _ => std::process::exit(error.exit_code()),
    }
}

/// Adds a variable to every option: the program, the command and the option, as in `LARDER_KV_LISTEN`. The name has
/// the command because `--listen` of one command differs from that of another. It also prevents conflicts with
/// variables such as `LARDER_PORT`, which container platforms set for a service called larder.
#[must_use]
pub fn with_variables(definition: clap::Command) -> clap::Command {
    let program = upper(definition.get_name());
    with_prefix(definition, &program)
}

fn with_prefix(command: clap::Command, prefix: &str) -> clap::Command {
    let prefixed = |name: &str| format!("{prefix}_{}", upper(name));
    let named = |argument: Arg| match argument.get_long().map(prefixed) {
        Some(name) => argument.env(name).hide_env_values(true),
        None => argument,
    };
    command.mut_args(named).mut_subcommands(|inner| {
        let name = prefixed(inner.get_name());
        with_prefix(inner, &name)
    })
}

fn upper(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

/// Returns the names of all variables.
#[must_use]
pub fn variables(definition: &clap::Command) -> Vec<String> {
    let of_options = definition.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let own = of_options.map(str::to_owned);
    own.chain(definition.get_subcommands().flat_map(variables)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_names_program_command_and_option() {
        let long = |name: &'static str| Arg::new(name).long(name);
        let inner = clap::Command::new("null-http").arg(long("body-bytes")).arg(Arg::new("plain"));
        let definition = clap::Command::new("larder-bench").arg(long("top")).subcommand(inner);
        let names = variables(&with_variables(definition));
        assert_eq!(names, ["LARDER_BENCH_TOP", "LARDER_BENCH_NULL_HTTP_BODY_BYTES"]);
    }
}
