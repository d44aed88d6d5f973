//! The null servers, as processes.

use std::path::Path;
use std::process::Command;

use testkit::{Service, wait};

/// Starts `larder-bench null-http` or `null-resp`, and returns its address.
pub(crate) fn start(name: &str, folder: &Path, arguments: &[&str]) -> (Service, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder-bench"));
    command.arg(name).args(arguments);
    let mut service = Service::start(&mut command, folder, name);
    let address = wait::until("it prints its address", || {
        service.assert_runs();
        service.stdout().strip_suffix('\n').map(str::to_owned)
    });
    (service, address)
}
