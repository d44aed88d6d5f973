//! What of the system is set in a way that a cache server suffers from: as `larder doctor`, and at the start of the server.
//!
//! [`facts`] reads, [`checks`] judges. Nothing is changed, except that the process takes the open files that it may have.

mod checks;
mod facts;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gateway::config::DEFAULT_STORE;

pub(crate) use checks::Needs;

use crate::config::{self, KvSettings, Overrides, Program, StoreTier};
use crate::output;
use checks::Finding;
use facts::Facts;

/// Tell which settings of this system hold the server for Redis clients back, and how fit the shared store is
///
/// Prints each setting with what is there and, where it should be another, what to set and why. With [store.remote] or [stores.NAME.remote] in the file, or --store,
/// it connects to those servers and looks at them too. Changes nothing. Exit status 1 if there is anything to set.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DoctorArguments {
    /// Configuration file whose [kv] says how many clients and how much memory there will be [default: that of an empty file]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Which node of [kv.cluster] this machine is [default: that of the file, or any]
    #[arg(long, value_name = "NAME", requires = "config")]
    cluster_node: Option<String>,

    /// Server of the Redis protocol to look at, instead of that of [store.remote]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Prints what is found.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    let overrides = Overrides {
        store: arguments.store.clone(),
        ..Overrides::to_look(Program::Kv, arguments.cluster_node.clone())
    };
    let checked = config::check(arguments.config.as_deref(), &overrides);
    output::problems(&checked);
    let Some(settings) = checked.settings else { return ExitCode::FAILURE };
    let mut has_advice = settings.kv.as_ref().is_some_and(|kv| tell(&findings(kv)));
    for StoreTier { name, remote } in &settings.tiers {
        let Some(remote) = remote else { continue };
        if name != DEFAULT_STORE {
            output::result(&format!("[stores.{name}]"));
        }
        has_advice |= tell(&store::findings(remote));
    }
    if has_advice { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether any of them should be otherwise.
fn tell(findings: &[Finding]) -> bool {
    findings.iter().for_each(|finding| output::result(&finding.to_string()));
    findings.iter().any(|finding| finding.advice.is_some())
}

/// Logs a warning for each setting that should be another.
pub(crate) fn warn(kv: &KvSettings) {
    for finding in findings(kv) {
        let Some(advice) = &finding.advice else { continue };
        tracing::warn!(setting = finding.setting, found = %finding.found, set = %advice.set, "{}", advice.why);
    }
}

/// Takes as many open files as the system allows this process: the soft limit is low for the sake of programs that use `select`.
pub(crate) fn raise_open_files() {
    if let Err(error) = facts::raise_open_files() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

fn findings(kv: &KvSettings) -> Vec<Finding> {
    checks::findings(&Facts::read(), &Needs::of(kv))
}
