//! The environment of an experiment: its folder, its servers, its loads.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::drive::Until;
use crate::http::HttpLoad;
use crate::observe::Observer;
use crate::peers::{Client, Values};
use crate::programs::on_path;
use crate::progress::Progress;
use crate::result::Run;
use crate::server::{self, Ready, ServerCommand, ServerProbe, ServerProcess};

use super::findings::ExperimentError;
use super::settings::Settings;

/// The environment of an experiment.
pub(super) struct Stage<'a> {
    pub(super) settings: &'a Settings,
    folder: TempDir,
    /// Number of servers so far, used for the names of their folders.
    servers: usize,
}

/// A server of the experiment.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// Admin listener of a gateway.
    pub(super) admin: Option<SocketAddr>,
    pub(super) process: ServerProcess,
}

impl Server {
    pub(super) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, ExperimentError> {
        let folder =
            tempfile::tempdir().map_err(|source| io_error("can't create a temporary folder", source))?;
        Ok(Self { settings, folder, servers: 0 })
    }

    /// Returns the duration of a load: the chosen one, or else the usual one.
    pub(super) fn duration(&self, usual: Duration) -> Duration {
        self.settings.duration.unwrap_or(usual)
    }

    /// Returns the number of requests of a load: the chosen one, or else the usual one.
    pub(super) fn requests(&self, usual: u64) -> u64 {
        self.settings.requests.unwrap_or(usual)
    }

    pub(super) fn connections(&self, usual: usize) -> usize {
        self.settings.connections.unwrap_or(usual)
    }

    /// Starts Larder's mock origin.
    pub(super) fn origin(&mut self, arguments: &[&str]) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let mut command = Command::new(&self.settings.larder);
        command.arg("origin").arg("--listen").arg(address.to_string()).args(arguments);
        self.start(command, address)
    }

    /// Starts Larder in front of an origin. `site` has the keys of its site.
    pub(super) fn gateway(&mut self, origin: &Server, site: &str) -> Result<Server, ExperimentError> {
        self.gateway_with(origin, "", site)
    }

    /// Starts Larder in front of an origin, with more tables in its configuration.
    pub(super) fn gateway_with(
        &mut self,
        origin: &Server,
        tables: &str,
        site: &str,
    ) -> Result<Server, ExperimentError> {
        let (address, admin) = (free_address()?, free_address()?);
        let file = self.new_folder()?.join("larder.toml");
        let url = origin.url("");
        let text = format!(
            "listen = [\"{address}\"]\n{tables}\n[admin]\nlisten = \"{admin}\"\n[log]\nlevel = \"warn\"\n[limits]\nconnections_max = 20000\n\
             [[site]]\nname = \"experiment\"\norigin = \"{url}\"\n{site}\n"
        );
        fs::write(&file, text).map_err(|source| io_error("can't write the configuration", source))?;
        let mut command = Command::new(&self.settings.larder);
        command.arg("serve").arg("--config").arg(&file);
        Ok(Server { admin: Some(admin), ..self.start(command, address)? })
    }

    /// Starts a command that listens on the address.
    pub(super) fn start(&mut self, command: Command, address: SocketAddr) -> Result<Server, ExperimentError> {
        let process = ServerCommand::new(command, Ready::Listens(address)).start()?;
        Ok(Server { address, admin: None, process })
    }

    /// Creates a folder for one server that every user can write to, since some servers change their user.
    pub(super) fn new_folder(&mut self) -> Result<PathBuf, ExperimentError> {
        self.servers += 1;
        let folder = self.folder.path().join(format!("server-{}", self.servers));
        fs::create_dir(&folder).map_err(|source| io_error("can't create a folder", source))?;
        Ok(folder)
    }

    /// Runs a load, and measures the cost of `server`.
    pub(super) fn load(&self, name: &str, load: &HttpLoad, server: &Server) -> Result<Run, ExperimentError> {
        self.watch(name, load.until, server, |observer| Ok(crate::http::run(load, observer)?))
    }

    /// Runs any kind of load, and measures the cost of `server`.
    pub(super) fn watch(
        &self,
        name: &str,
        until: Until,
        server: &Server,
        load: impl FnOnce(&mut dyn Observer) -> Result<Run, ExperimentError>,
    ) -> Result<Run, ExperimentError> {
        let probe = ServerProbe::new(&[server.process.pid()], None)?.begin()?;
        let progress = Progress::of_load(name, until, self.settings.progress);
        let run = load(&mut progress.observer());
        progress.finish();
        let run = run?;
        let spent = probe.end()?.per_request(run.requests);
        Ok(Run { name: name.to_owned(), server: Some(spent), ..run })
    }
}

/// Number of requests for a URL at the mock origin.
///
/// # Errors
/// Returns an error if the origin doesn't answer.
pub(super) fn origin_requests_of(origin: SocketAddr, url: &str) -> Result<u64, ExperimentError> {
    let query: String = url.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let text = tell(origin, &format!("/counters?url={query}")).map_err(uncounted)?;
    text.trim().parse().map_err(|_| uncounted(io::Error::other(format!("no count of requests: {text:?}"))))
}

/// Number of requests at the mock origin, except requests for the counts themselves.
///
/// # Errors
/// Returns an error if the origin doesn't answer.
pub(super) fn origin_requests(origin: SocketAddr) -> Result<u64, ExperimentError> {
    let page = tell(origin, "/metrics").map_err(uncounted)?;
    let is_asked = |line: &&str| !["\"/metrics\"", "\"/counters"].iter().any(|route| line.contains(route));
    let lines: Vec<&str> = page.lines().filter(is_asked).collect();
    Ok(metric_sum(&lines.join("\n"), "mock_origin_requests_total"))
}

fn uncounted(source: io::Error) -> ExperimentError {
    io_error("can't read the counters of the origin", source)
}

/// The sum of a metric over all labels.
///
/// # Errors
/// Returns an error if the address doesn't serve metrics.
pub(super) fn metric(address: SocketAddr, name: &str) -> io::Result<u64> {
    Ok(metric_sum(&tell(address, "/metrics")?, name))
}

fn tell(origin: SocketAddr, path: &str) -> io::Result<String> {
    let answer = Client::connect(origin)?.get(path, &[])?;
    String::from_utf8(answer.body).map_err(io::Error::other)
}

/// The sum of a metric over all labels, in the Prometheus text format.
fn metric_sum(page: &str, name: &str) -> u64 {
    let lines =
        page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

pub(super) fn free_address() -> Result<SocketAddr, ExperimentError> {
    server::free_address().map_err(|source| io_error("no port is free", source))
}

pub(super) fn io_error(what: &str, source: io::Error) -> ExperimentError {
    ExperimentError::Io { what: what.to_owned(), source }
}

/// Location of a third-party program.
pub(super) fn program(name: &str, package: &str) -> Result<PathBuf, ExperimentError> {
    let missing = || ExperimentError::Missing { program: name.to_owned(), package: package.to_owned() };
    on_path(Path::new(name)).ok_or_else(missing)
}

/// Writes a text with its placeholders filled to a file.
pub(super) fn write_filled(
    file: &Path,
    template: &str,
    values: &[(&'static str, &str)],
) -> Result<(), ExperimentError> {
    let mut filling = Values::default();
    values.iter().for_each(|(name, value)| filling.set(name, *value));
    fs::write(file, filling.fill(template)?).map_err(|source| io_error("can't write a configuration", source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_its_labels_only() {
        let page = "# TYPE a_total counter\na_total{x=\"1\"} 3\na_total{x=\"2\"} 4\na_total_more 9\nb 1\n";
        assert_eq!(metric_sum(page, "a_total"), 7);
        assert_eq!(metric_sum(page, "b"), 1);
        assert_eq!(metric_sum(page, "c"), 0);
    }
}
