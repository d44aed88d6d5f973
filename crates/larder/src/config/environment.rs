//! The environment variables of poor-man-s-cache, for a server that replaces it (`--environment`). They apply if
//! `SERVER_PORT` is set, override the file, and are overridden by arguments of the command line.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use toml::de::DeValue;

use super::locate::Place;
use super::overlay::{list, put, put_number, text};
use super::problem::Problems;
use super::tree::Table;

const PORT: &str = "SERVER_PORT";
const METRICS_HOST: &str = "METRICS_HOST";
const METRICS_PORT: &str = "METRICS_PORT";
const SHARDS: &str = "NUM_SHARDS";
const BUFFER: &str = "SOCK_BUF_SIZE";
const QUEUE: &str = "CONN_QUEUE_LIMIT";
const COMPRESSION: &str = "ENABLE_COMPRESSION";
const INLINE: &str = "RESP_INLINE_CAPACITY";

/// All variables that Larder reads.
pub(crate) const VARIABLES: [&str; 8] =
    [PORT, METRICS_HOST, METRICS_PORT, SHARDS, BUFFER, QUEUE, COMPRESSION, INLINE];

/// The variables that are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(&'static str, String)>);

impl Environment {
    /// Reads each of [`VARIABLES`] with `ask`.
    pub(crate) fn read(ask: impl Fn(&str) -> Option<OsString>) -> Self {
        let value = |name| Some((name, ask(name)?.to_string_lossy().into_owned()));
        Self(VARIABLES.into_iter().filter_map(value).collect())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }

    /// Overrides the values of the file.
    pub(super) fn apply(&self, tree: &mut Table, problems: &mut Problems) {
        if self.value(PORT).is_none() {
            return;
        }
        self.apply_port(tree, problems);
        for (name, path) in [(QUEUE, "kv.backlog"), (BUFFER, "kv.socket_buffer_bytes")] {
            if let Some(number) = self.number(name, problems) {
                put_number(tree, path, (name, number), problems);
            }
        }
        if let Some(word) = self.read_as(COMPRESSION, "true, false or a number", problems, compression) {
            put(tree, "kv.compression", (COMPRESSION, text(word)), problems);
        }
        self.apply_metrics(tree, problems);
        for (name, reason) in [(SHARDS, NO_SHARDS), (INLINE, NO_INLINE)] {
            if self.number(name, problems).is_some() {
                problems.warning(&Place::Flag(name), "", format!("has no effect: {reason}"));
            }
        }
    }

    /// Applies `SERVER_PORT`. The predecessor listens on all addresses, without passwords or other access control.
    fn apply_port(&self, tree: &mut Table, problems: &mut Problems) {
        let Some(port) = self.port(PORT, problems) else { return };
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).to_string();
        put(tree, "kv.listen", (PORT, list([text(&address)])), problems);
        put(tree, "kv.text_protocol", (PORT, text("unit-separator")), problems);
        let kv = tree.table("kv");
        if kv.given("protected_mode").is_none() && kv.list("password_files").is_empty() {
            put(tree, "kv.protected_mode", (PORT, DeValue::Boolean(false)), problems);
            problems.warning(&Place::Flag(PORT), "kv.protected_mode", OPEN);
        }
    }

    fn apply_metrics(&self, tree: &mut Table, problems: &mut Problems) {
        for (name, other) in [(METRICS_HOST, METRICS_PORT), (METRICS_PORT, METRICS_HOST)] {
            if self.value(name).is_some() && self.value(other).is_none() {
                return problems.error(&Place::Flag(name), "", format!("needs {other} as well"));
            }
        }
        let host = |host: &str| match host {
            "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            host => host.parse().ok(),
        };
        let Some(ip) = self.read_as(METRICS_HOST, "an IP address or localhost", problems, host) else {
            return;
        };
        let Some(port) = self.port(METRICS_PORT, problems) else { return };
        let address = SocketAddr::from((ip, port)).to_string();
        put(tree, "admin.probes_listen", (METRICS_PORT, text(&address)), problems);
    }

    fn port(&self, name: &'static str, problems: &mut Problems) -> Option<u16> {
        let expected = "a port, a whole number from 0 to 65535";
        self.read_as(name, expected, problems, |value| value.parse().ok())
    }

    fn number(&self, name: &'static str, problems: &mut Problems) -> Option<u32> {
        let expected = format!("a whole number from 1 to {}", u32::MAX);
        self.read_as(name, &expected, problems, |value| value.parse().ok().filter(|number| *number > 0))
    }

    /// Parses a variable, if it is set.
    fn read_as<T>(
        &self,
        name: &'static str,
        expected: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            problems.error(&Place::Flag(name), "", format!("expected {expected}; found {value:?}"));
        }
        parsed
    }
}

/// Parses the switch for compression. The predecessor reads a number, so its own `true` disables compression; here
/// `true` enables it.
fn compression(value: &str) -> Option<&'static str> {
    match value {
        "0" | "false" => Some("none"),
        "true" => Some("lz4"),
        value => value.parse::<u64>().is_ok().then_some("lz4"),
    }
}

const OPEN: &str = "off, because clients of poor-man-s-cache have no password: anyone who can reach the port can read and write everything. \
                    Set `protected_mode` in a configuration file to keep or change this";
const NO_SHARDS: &str = "Larder chooses the number of shards itself; `workers` sets the number of threads";
const NO_INLINE: &str = "requests of any size are read without fixed-size buffers";

#[cfg(test)]
mod tests {
    use crate::config::{Checked, Environment, Overrides, Program, check};

    fn check_variables(variables: &[(&str, &str)]) -> Checked {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into());
        let environment = Environment::read(find);
        check(None, &Overrides { program: Program::Kv, environment, ..Overrides::default() })
    }

    #[track_caller]
    fn check_problems(variables: &[(&str, &str)], expected: &[&str]) {
        let variables = [&[("SERVER_PORT", "7000")], variables].concat();
        let checked = check_variables(&variables);
        let lines: Vec<_> = checked.problems.iter().map(|problem| problem.line(&checked.sources)).collect();
        let lines: Vec<_> = lines.iter().filter(|line| !line.contains("protected_mode")).collect();
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn variables_without_effect_are_told() {
        check_problems(&[], &[]);
        check_problems(&[("NUM_SHARDS", "24")], &["NUM_SHARDS: warning: has no effect"]);
        check_problems(&[("RESP_INLINE_CAPACITY", "255")], &["RESP_INLINE_CAPACITY: warning: has no effect"]);
    }

    #[test]
    fn compression_is_what_the_variable_says() {
        let check = |value: &str, expected: bool| {
            let checked = check_variables(&[("SERVER_PORT", "7000"), ("ENABLE_COMPRESSION", value)]);
            let kv = checked.settings.expect("usable").kv.expect("it is larder kv");
            assert_eq!((kv.pack_from_bytes < usize::MAX), expected, "{value}");
        };
        check("true", true);
        check("1", true);
        check("false", false);
        check("0", false);
    }

    #[test]
    fn bad_values_are_errors() {
        check_problems(&[("NUM_SHARDS", "many")], &["NUM_SHARDS: error: expected a whole number from 1"]);
        check_problems(
            &[("SOCK_BUF_SIZE", "1MiB")],
            &["SOCK_BUF_SIZE: error: expected a whole number from 1"],
        );
        check_problems(
            &[("SOCK_BUF_SIZE", "1")],
            &["SOCK_BUF_SIZE: error: kv.socket_buffer_bytes: expected"],
        );
        check_problems(
            &[("CONN_QUEUE_LIMIT", "0")],
            &["CONN_QUEUE_LIMIT: error: expected a whole number from 1"],
        );
        check_problems(
            &[("CONN_QUEUE_LIMIT", "-1")],
            &["CONN_QUEUE_LIMIT: error: expected a whole number from 1"],
        );
        check_problems(
            &[("ENABLE_COMPRESSION", "yes")],
            &["ENABLE_COMPRESSION: error: expected true, false"],
        );
        check_problems(&[("METRICS_HOST", "0.0.0.0")], &["METRICS_HOST: error: needs METRICS_PORT"]);
        check_problems(&[("METRICS_PORT", "8080")], &["METRICS_PORT: error: needs METRICS_HOST"]);
        let host = [("METRICS_HOST", "example.org"), ("METRICS_PORT", "8080")];
        check_problems(&host, &["METRICS_HOST: error: expected an IP address or localhost"]);
        let port = [("METRICS_HOST", "::1"), ("METRICS_PORT", "80800")];
        check_problems(&port, &["METRICS_PORT: error: expected a port"]);
    }

    #[test]
    fn without_the_port_of_the_server_none_counts() {
        let checked = check_variables(&[("NUM_SHARDS", "many"), ("CONN_QUEUE_LIMIT", "9")]);
        let kv = checked.settings.expect("usable").kv.expect("it is larder kv");
        assert_eq!((kv.sockets.backlog, kv.listen[0].address.port()), (4096, 6379));
        assert!(checked.problems.is_empty());
    }

    #[test]
    fn a_port_that_is_none_is_an_error() {
        let checked = check_variables(&[("SERVER_PORT", "http")]);
        assert!(checked.settings.is_none());
    }
}
