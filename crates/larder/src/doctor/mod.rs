//! Checks whether this machine and the servers around it let Larder work well: in `larder doctor`, and at the start of
//! the Redis-compatible server.
//!
//! [`facts`] reads the settings of the system and [`checks`] evaluates them; [`origin`] and [`store`] connect to other servers;
//! [`certificate`] reads dates. Nothing here changes the system; only the process's own limit of open files is raised.

mod certificate;
mod checks;
mod collector;
mod facts;
mod origin;
mod store;

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::bail;
use clap::Args;
use gateway::config::DEFAULT_STORE;
use terminal::output;

pub(crate) use checks::Needs;

use crate::config::{self, Input, KvSettings, Overrides, Program, Settings, StoreTier};
use crate::default_file::FileArguments;
use crate::problems;
use checks::Finding;
use facts::Facts;

/// Check OS settings, origins, certificates and stores for problems
///
/// Prints a line for each check, and the change and its reason for each problem. Changes nothing. Exit status 1 if there is a problem.
///
/// Without FILE or --origin it checks the OS settings for `larder kv` with its defaults. With a file it checks:
///
///   - OS settings that the configuration needs
///   - origins: one HEAD request to each, and its clock
///   - shared stores: a connection to each
///   - the collector of [tracing]: an empty message
///   - certificate expiry
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    configuration: FileArguments,

    /// Origin server to check, as in `larder serve --origin`
    #[arg(long, value_name = "URL", conflicts_with = "configuration")]
    origin: Option<String>,

    /// Node of [kv.cluster] that runs on this machine [default: the one in the file, or any]
    #[arg(long, value_name = "NAME", requires = "configuration")]
    cluster_node: Option<String>,

    /// Redis-compatible server to check, instead of the one in [store.remote]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl DoctorArguments {
    /// Returns the settings to check: those of the file or the origin, or else of the Redis-compatible server.
    fn overrides(&self) -> Overrides {
        let is_told = self.configuration.named().is_some() || self.origin.is_some();
        let program = if is_told { Program::Serve } else { Program::Kv };
        Overrides {
            origin: self.origin.clone(),
            store: self.store.clone(),
            ..Overrides::to_look(program, self.cluster_node.clone())
        }
    }
}

/// Prints the findings.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    let checked = config::check(arguments.configuration.named().map(Input::given), &arguments.overrides());
    problems::to_stderr(&checked);
    let Some(settings) = checked.settings else { return ExitCode::FAILURE };
    let mut has_advice = tell(&checks::findings(&Facts::read(), &Needs::of_all(&settings)));
    has_advice |= settings.gateway.as_ref().is_some_and(tell_gateway);
    has_advice |= tell_stores(&settings);
    has_advice |= settings.spans.as_ref().is_some_and(|spans| tell(&[collector::finding(spans)]));
    if has_advice { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn tell_gateway(gateway: &gateway::config::Config) -> bool {
    let now = SystemTime::now();
    let has_old = tell(&certificate::findings(gateway, now));
    tell(&origin::findings(gateway, now)) | has_old
}

fn tell_stores(settings: &Settings) -> bool {
    let mut has_advice = false;
    for StoreTier { name, remote, region } in &settings.tiers {
        let Some(remote) = remote else { continue };
        if name != DEFAULT_STORE {
            output::result(&format!("[stores.{name}]"));
        }
        has_advice |= tell(&store::findings(remote));
        for peer in region.iter().flat_map(|region| &region.peers) {
            output::result(&format!("[[region.peers]] {}", peer.name));
            has_advice |= tell(&store::findings_of_peer(peer));
        }
    }
    has_advice
}

/// Prints the findings, and returns whether one of them has advice.
fn tell(findings: &[Finding]) -> bool {
    findings.iter().for_each(|finding| output::result(&finding.to_string()));
    findings.iter().any(|finding| finding.advice.is_some())
}

/// Logs a warning for each setting that should be changed.
pub(crate) fn warn(kv: &KvSettings) {
    for finding in checks::findings(&Facts::read(), &Needs::of_kv(kv)) {
        let Some(advice) = &finding.advice else { continue };
        tracing::warn!(setting = %finding.setting, found = %finding.found, set = %advice.set, "{}", advice.why);
    }
}

/// Raises the limit of open files as far as the system allows: the soft limit is low only because of programs that use
/// `select`.
pub(crate) fn raise_open_files() {
    if let Err(error) = facts::raise_open_files() {
        tracing::warn!(%error, "can't raise the limit of open files");
    }
}

/// Enough files for serving one client from one origin.
const OPEN_FILES_LEFT_MIN: u64 = 8;

/// Makes sure that clients can connect. Call it after all other files and sockets are open.
///
/// # Errors
///
/// Returns an error if the process can hardly open another file.
pub(crate) fn ensure_open_files() -> anyhow::Result<()> {
    match facts::open_files_left() {
        Some(left) if left < OPEN_FILES_LEFT_MIN => bail!(
            "the limit of open files leaves {left} for connections: raise it with `ulimit -n`, or `LimitNOFILE=` of the systemd unit"
        ),
        _ => Ok(()),
    }
}
