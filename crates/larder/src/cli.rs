//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use mock_origin::OriginOptions;
use terminal::command_line::{self, variables};
use terminal::quantity::whole_number;
use terminal::{OwnCommand, nearest, output};

use crate::config::{Overrides, WORKERS, parse_address, parse_listen_address};
use crate::default_file::{self, FileArguments};
use gateway::PurgeWait;

/// HTTP cache gateway (`larder serve`) and Redis-compatible cache server (`larder kv`)
#[derive(Debug, Parser)]
#[command(name = "larder", version = terminal::version::VERSION, arg_required_else_help = true, after_help = MEASURING)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MEASURING: &str = "To load-test servers and compare the results, run `larder-bench`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the HTTP cache gateway; also runs the Redis-compatible cache server if the file has a [kv] table
    ///
    /// Options override the file. Without FILE and --origin, reads /etc/larder/larder.toml.
    Serve(ServeArguments),
    Kv(crate::kv::KvArguments),
    Check(crate::check::CheckArguments),
    Doctor(crate::doctor::DoctorArguments),
    Explain(ExplainArguments),
    Purge(PurgeArguments),
    /// Reload the configuration of a running server
    Reload(AdminArguments),
    /// Upgrade a running gateway to the installed version without downtime
    Upgrade(AdminArguments),
    /// Show readiness, hit rate and store contents of a running server
    Status(StatusArguments),
    /// Run a mock origin server for demos and tests
    Origin(OriginOptions),
    #[command(flatten)]
    Own(OwnCommand),
    /// Write the reference pages
    #[command(hide = true)]
    Reference {
        /// Directory that the pages are written to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Parses the command line, with environment variables for options that it lacks. Reports misspelt variables first: one
/// of them may be the reason that an option is missing.
pub(crate) fn parse() -> Cli {
    let command = definition();
    if std::env::args().nth(1).is_some_and(|name| WARNING_COMMANDS.contains(&name.as_str())) {
        let present = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        unknown_variables(&command, present).iter().for_each(|line| output::warning(line));
    }
    refuse_other_words(&command);
    command_line::read(command)
}

/// Returns the definition of all commands and options, with their variables.
pub(crate) fn definition() -> clap::Command {
    // The mock origin parses IP addresses only, so host names are resolved here, as for the gateway.
    let listen = |argument: clap::Arg| argument.value_parser(parse_listen_address);
    let origin = |command: clap::Command| command.mut_arg("listen", listen).mut_arg("tls_listen", listen);
    command_line::with_variables(Cli::command().mut_subcommand("origin", origin))
}

/// Exits with the parser's error for a missing argument, for a setting that the default file would have provided.
pub(crate) fn lacking(command: &str, what: &str) -> ! {
    let mut definition = definition();
    definition.build();
    let command = definition.find_subcommand_mut(command).expect("the command was parsed");
    let file = default_file::path("larder.toml");
    let message = format!("expected {what}: the default file {} doesn't exist", file.display());
    command.error(ErrorKind::MissingRequiredArgument, message).exit()
}

/// Refuses options of other programs, and names the options to use instead. For `--all`, the parser would suggest `--all-tags`, which
/// narrows a selection instead of purging the whole cache.
fn refuse_other_words(command: &clap::Command) {
    let words: Vec<String> = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    let Some((name, rest)) = words.split_first() else { return };
    if name == "bench" || (name == "help" && rest.first().is_some_and(|of| of == "bench")) {
        command.clone().error(ErrorKind::InvalidSubcommand, BENCH_MOVED).exit();
    }
    let is_meant = |(of, option, _): &&(&str, &str, &str)| {
        of == name && rest.iter().any(|word| word.split('=').next() == Some(option))
    };
    if let Some((_, option, tip)) = OTHER_WORDS.iter().find(is_meant) {
        let message = format!("larder {name} has no {option}: {tip}");
        command.clone().error(ErrorKind::UnknownArgument, message).exit();
    }
}

const BENCH_MOVED: &str =
    "`larder bench` is a separate program: use `larder-bench`, which has the same commands and options";

/// Commands, options of other programs, and the options to use instead.
const OTHER_WORDS: [(&str, &str, &str); 6] = [
    (
        "purge",
        "--all",
        "use --everything to purge the whole cache, --site NAME or --host HOST for a part of it, and --all-tags with --tag for \
         responses that have every tag",
    ),
    ("serve", "--port", "use --listen ADDRESS, such as --listen 0.0.0.0:8080"),
    ("serve", "--bind", "use --listen ADDRESS, such as --listen 0.0.0.0:8080"),
    ("kv", "--port", "use --listen ADDRESS, such as --listen 127.0.0.1:6380"),
    ("kv", "--bind", "use --listen ADDRESS, such as --listen 0.0.0.0:6379"),
    (
        "kv",
        "--requirepass",
        "set `password_files` in the [kv] table of a configuration file, which keeps the password out of the process list",
    ),
];

/// Long-running commands, and the command that checks their settings: here, a variable without effect would be noticed late.
const WARNING_COMMANDS: [&str; 3] = ["serve", "kv", "check"];

/// Returns a line for each variable that looks like a misspelt option: similar to one, or with the name of a command in
/// it. Other variables are intentional: scripts keep a `LARDER_VERSION`, container platforms describe a service called
/// larder, and `larder-bench` has its own.
fn unknown_variables(command: &clap::Command, present: impl Iterator<Item = String>) -> Vec<String> {
    let known = variables(command);
    let is_of_others = |name: &str| {
        name.ends_with("_PORT")
            || name.contains("_PORT_")
            || name.contains("_SERVICE_")
            || name == "LARDER_VERSION"
            || name.starts_with("LARDER_BENCH_")
    };
    let commands: Vec<String> = command
        .get_subcommands()
        .map(|inner| format!("LARDER_{}_", inner.get_name().to_ascii_uppercase()))
        .collect();
    let line = |name: &String| match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => Some(format!("{name}: warning: unknown variable; did you mean `{near}`?")),
        None if commands.iter().any(|command| name.starts_with(command)) => {
            Some(format!("{name}: warning: unknown variable"))
        }
        None => None,
    };
    let mut unknown: Vec<String> = present
        .filter(|name| name.starts_with("LARDER_") && !is_of_others(name) && !known.contains(name))
        .collect();
    unknown.sort();
    unknown.iter().filter_map(line).collect()
}

/// Arguments of `larder serve`, which override the file. Their values are checked like those of the file.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// Origin server for all requests, instead of a configuration file
    #[arg(long, value_name = "URL", conflicts_with = "configuration")]
    origin: Option<String>,

    #[command(flatten)]
    configuration: FileArguments,

    /// Address to listen on for clients; repeatable or comma-separated; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,

    /// Address of the admin API [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    /// Memory for stored responses, such as 512MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    /// Redis-compatible server to use as the shared store of several instances, such as redis://cache.internal/0 [default: none]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = whole_number(WORKERS))]
    workers: Option<u32>,

    /// Defaults of the cache rules: safe, or rfc9111 for everything that RFC 9111 permits [default: safe]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Log level: error, warn, info or debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// Access log destination: stdout, off or a file [default: off]
    #[arg(long, value_name = "TARGET")]
    access_log: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

/// Address and credentials of the admin API.
#[derive(Args, Debug)]
pub(crate) struct AdminArguments {
    /// Address of the admin API, or its URL
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081", value_parser = parse_admin)]
    pub(crate) admin: SocketAddr,

    /// File whose first line is the bearer token of the admin API
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Parses an address, or the URL `http://HOST:PORT` that a browser shows.
fn parse_admin(text: &str) -> Result<SocketAddr, String> {
    let address = match text.split_once("://") {
        None => text,
        Some(("http", rest)) => rest.strip_suffix('/').unwrap_or(rest),
        Some((scheme, _)) => return Err(format!("the admin API speaks http, not {scheme}")),
    };
    parse_address(address)
}

/// Parses a host with an optional port.
fn parse_host(text: &str) -> Result<String, String> {
    let authority =
        text.parse::<http::uri::Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
    let host = authority.map(|_| text.to_owned());
    host.ok_or_else(|| "expected a host, such as www.example.com or www.example.com:8080".into())
}

const PURGE_STATUSES: &str = "\
Exit status:
  0  at least one response was purged, or the purge doesn't report a count
  1  the admin API didn't answer, the address isn't an admin API, or at least one purge was refused, such as of a URL that no site serves
  2  the command line is wrong
  3  nothing matched: no stored response for any URL or in a dry run, or no site serves the host of --host or --prefix
  4  in a fleet or in another region, an instance didn't confirm the purge in time, or it is unknown whether all did";

/// Purge responses from a running cache
///
/// Give URLs (each with all its variants), --everything, or one or more of --tag, --site, --host and --prefix. With several of these, a response must
/// match each; one of several tags is enough unless --all-tags is given.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)
    .args(["url", "tag", "site", "host", "prefix", "everything"])))]
#[command(group(clap::ArgGroup::new("selection").multiple(true).args(["tag", "site", "host", "prefix"])))]
#[command(group(clap::ArgGroup::new("mode").args(["hard", "soft", "refresh"])))]
#[command(after_help = PURGE_STATUSES)]
pub(crate) struct PurgeArguments {
    /// URLs to purge, in the form that `rewrite` rules produce; `-` reads more from standard input, one per line
    #[arg(conflicts_with_all = ["selection", "everything"])]
    pub(crate) url: Vec<String>,

    /// Responses with this tag; repeatable; with several sites, add `--site` or `--host`
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,

    /// With several tags: only responses that have all of them
    #[arg(long, requires = "tag")]
    pub(crate) all_tags: bool,

    /// With several tags: responses that have any of them (the default)
    #[arg(long, requires = "tag", conflicts_with = "all_tags")]
    pub(crate) any: bool,

    /// Responses of this site, by its name in the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,

    /// Responses of this host; with a port, only those of that port
    #[arg(long, value_parser = parse_host)]
    pub(crate) host: Option<String>,

    /// Responses whose URL begins with https://host/path, host/path or a path
    #[arg(long, value_name = "URL")]
    pub(crate) prefix: Option<String>,

    /// Everything in the cache
    #[arg(long, conflicts_with = "selection")]
    pub(crate) everything: bool,

    /// Never use the responses again, not even stale or for validation (the default)
    #[arg(long)]
    pub(crate) hard: bool,

    /// Mark the responses stale instead: the next request validates them with the origin
    #[arg(long)]
    pub(crate) soft: bool,

    /// Mark the responses stale, and fetch the given URLs again at once
    #[arg(long)]
    pub(crate) refresh: bool,

    /// Count the responses that would be purged, without purging them
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Instances for which the command waits: those of all regions, or only those of this one, or none
    #[arg(long, value_name = "all|near|none", default_value = "all", value_parser = parse_wait, conflicts_with = "dry_run")]
    pub(crate) wait: PurgeWait,

    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

fn parse_wait(text: &str) -> Result<PurgeWait, &'static str> {
    PurgeWait::from_word(text).ok_or("expected `all`, `near` or `none`")
}

/// Explain why a response was or wasn't cached
///
/// Give a URL to query the running cache, or files with a request and a response to evaluate the rules offline.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["url", "request"])))]
pub(crate) struct ExplainArguments {
    /// URL as clients request it: the running cache makes this request and reports each decision
    pub(crate) url: Option<String>,

    /// GET or HEAD
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", conflicts_with = "request")]
    pub(crate) method: String,

    /// Header field of the request, such as "Accept-Language: de"; repeatable
    #[arg(short = 'H', long = "header", value_name = "FIELD", conflicts_with = "request")]
    pub(crate) header: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) pair: PairArguments,

    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

/// Files with an exchange, and with the next request.
#[derive(Args, Debug)]
pub(crate) struct PairArguments {
    /// File with a request in HTTP/1.1 form: request line and header fields; needs no running cache
    #[arg(long, value_name = "FILE", requires = "response")]
    pub(crate) request: Option<PathBuf>,

    /// File with the origin's response to that request: status line and header fields
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(crate) response: Option<PathBuf>,

    /// When the response was received, such as "Sun, 06 Nov 1994 08:49:37 GMT" [default: its Date, else now]
    #[arg(long, value_name = "DATE", requires = "request")]
    pub(crate) received: Option<String>,

    /// Time from the response to the next request, such as 90s or 1h
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub(crate) after: String,

    /// File with the next request [default: the same request again]
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(crate) again: Option<PathBuf>,

    /// Configuration file with the site and rule to apply [default: the rules of the profile]
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(crate) config: Option<PathBuf>,

    /// Profile to apply without a configuration: safe or rfc9111 [default: safe]
    #[arg(long, value_name = "NAME", requires = "request", conflicts_with = "config")]
    pub(crate) profile: Option<String>,
}

impl ServeArguments {
    /// Returns the configuration file, or `None` if the origin is given.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        if self.origin.is_some() {
            return None;
        }
        let file = self.configuration.or_default(default_file::OF_GATEWAY);
        Some(file.unwrap_or_else(|| lacking("serve", "--origin <URL>|--config <FILE>")))
    }

    /// Returns the settings that override the file.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            origin: self.origin.clone(),
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            memory: self.memory.clone(),
            store: self.store.clone(),
            workers: self.workers,
            profile: self.profile.clone(),
            log_level: self.log_level.clone(),
            access_log: self.access_log.clone(),
            ..Overrides::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables that a platform sets by itself for a service called larder or larder-kv must not set an option.
    #[test]
    fn every_option_has_a_variable_of_its_own() {
        fn visit(command: &clap::Command, names: &mut Vec<String>) {
            for option in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
                let name = option
                    .get_env()
                    .unwrap_or_else(|| panic!("{:?} of {}", option.get_id(), command.get_name()));
                names.push(name.to_str().expect("ASCII").to_owned());
            }
            command.get_subcommands().for_each(|inner| visit(inner, names));
        }
        let command = definition();
        let mut names = Vec::new();
        visit(&command, &mut names);
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "each name is there once");
        assert!(names.iter().all(|name| name.starts_with("LARDER_")));
        let platform =
            |name: &&String| name.ends_with("_PORT") || name.contains("_PORT_") || name.contains("_SERVICE_");
        assert_eq!(names.iter().find(platform), None);
        for name in ["LARDER_SERVE_LISTEN", "LARDER_KV_MAXMEMORY", "LARDER_PURGE_ADMIN"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }

    #[test]
    fn unknown_variables_are_reported() {
        let command = definition();
        let check = |name: &str, expected: Option<&str>| {
            let told = unknown_variables(&command, [name.to_owned()].into_iter());
            assert_eq!(told.first().map(String::as_str), expected, "{name}");
        };
        let near = "LARDER_SERVE_ORGN: warning: unknown variable; did you mean `LARDER_SERVE_ORIGIN`?";
        check("LARDER_SERVE_ORGN", Some(near));
        check("LARDER_KV_XYZ", Some("LARDER_KV_XYZ: warning: unknown variable"));
        for name in [
            "LARDER_SERVE_ORIGIN",
            "LARDER_PORT",
            "LARDER_PORT_8080_TCP",
            "LARDER_SERVICE_HOST",
            "LARDER_VERSION",
            "LARDER_BENCH_HTTP_TIMEOUT",
            "HOME",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn the_mock_origin_listens_on_host_names() {
        let parsed = |option: &str, address: &str| {
            definition().try_get_matches_from(["larder", "origin", option, address])
        };
        for option in ["--listen", "--tls-listen"] {
            assert!(parsed(option, "localhost:80").is_ok(), "{option}");
            let refused = parsed(option, ":80").unwrap_err().to_string();
            assert!(refused.contains("for every address write `0.0.0.0:80`"), "{refused}");
        }
    }

    /// The commands in the documentation parse.
    #[test]
    fn commands_of_the_documentation_are_accepted() {
        let commands = testkit::documented_commands("larder");
        for (page, words) in &commands {
            let parsed = definition().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{page}: {}", parsed.unwrap_err());
        }
        assert!(commands.len() > 20, "{} commands", commands.len());
    }

    #[test]
    fn serve_takes_sites_from_one_place() {
        #[track_caller]
        fn check(arguments: &str, accepted: bool) {
            let arguments = arguments.split_whitespace();
            assert_eq!(
                Cli::try_parse_from(["larder", "serve"].into_iter().chain(arguments)).is_ok(),
                accepted
            );
        }
        check("--origin http://a", true);
        check("--config larder.toml --listen 1.2.3.4:5 --listen [::1]:5", true);
        check("", true);
        check("--origin http://a --config larder.toml", false);
    }
}
