//! `larder origin`, the mock origin server, as a process.

use std::process::Command;

use tempfile::TempDir;
use testkit::{Client, Identity, Service, wait};

use crate::LARDER;

pub(crate) struct MockOrigin {
    pub(crate) url: String,
    _folder: TempDir,
    _service: Service,
}

impl MockOrigin {
    pub(crate) fn start() -> Self {
        Self::over("http://", &[])
    }

    pub(crate) fn with_tls(identity: &Identity) -> Self {
        let [certificate, key] =
            [&identity.certificate, &identity.key].map(|file| file.display().to_string());
        Self::over(
            "https://",
            &["--tls-listen", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key],
        )
    }

    fn over(scheme: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(LARDER);
        command.args(["origin", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut service = Service::start(&mut command, folder.path(), "origin");
        let url = wait::until("the mock origin listens", || {
            service.assert_runs();
            let text = service.stdout();
            text.split_whitespace().find(|word| word.starts_with(scheme)).map(str::to_owned)
        });
        Self { url, _folder: folder, _service: service }
    }

    /// Returns the number of requests for a target that have reached the mock origin.
    pub(crate) fn count(&self, target: &str) -> usize {
        let address = self.url.trim_start_matches("http://").parse().expect("an address");
        let encoded = target.replace('?', "%3F").replace('&', "%26").replace('=', "%3D");
        let answer = Client::connect(address).get(&format!("/counters?url={encoded}"));
        answer.text().trim().parse().expect("a number")
    }
}
