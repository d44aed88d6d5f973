//! A Prometheus of others, with the configuration and the rules of `deploy/`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde_json::Value;
use testkit::{Client, Port, Service, wait};

/// The folder of a file of this repository.
pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// What is scraped, by the addresses of `deploy/prometheus/prometheus.yml`.
pub(crate) struct Targets {
    pub(crate) gateways: Vec<SocketAddr>,
    pub(crate) kv: SocketAddr,
}

/// Stopped when dropped.
pub(crate) struct Prometheus {
    port: Port,
    _service: Service,
    _folder: tempfile::TempDir,
}

/// A rule as Prometheus tells it.
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) query: String,
    /// Of an alert: `inactive`, `pending` or `firing`.
    pub(crate) state: Option<String>,
    pub(crate) health: String,
}

impl Prometheus {
    #[track_caller]
    pub(crate) fn start(targets: &Targets) -> Self {
        let (port, folder) = (Port::reserve(), tempfile::tempdir().expect("a folder"));
        write_copy(folder.path(), targets);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={}", port.address())).arg("--log.level=warn");
        let mut service = Service::start(&mut command, folder.path(), "prometheus");
        wait::until_true("prometheus is ready", || {
            service.assert_runs();
            let Ok(stream) = TcpStream::connect(port.address()) else { return false };
            let mut client = Client::over(stream);
            let asked = client.try_send("GET /-/ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
            asked.is_ok() && client.try_response_to("GET").is_ok_and(|response| response.status() == 200)
        });
        Self { port, _service: service, _folder: folder }
    }

    /// How many series a query finds that are a number.
    ///
    /// # Panics
    /// When it is no query.
    #[track_caller]
    pub(crate) fn series(&self, query: &str) -> usize {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.ask(&format!("/api/v1/query?query={query}"));
        let found = answer["data"]["result"].as_array().expect("a vector");
        found.iter().filter(|series| series["value"][1] != "NaN").count()
    }

    #[track_caller]
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let answer = self.ask("/api/v1/rules");
        let groups = answer["data"]["groups"].as_array().expect("groups");
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rules
            .map(|rule| Rule {
                name: text(&rule["name"]),
                query: text(&rule["query"]),
                state: rule["state"].as_str().map(str::to_owned),
                health: text(&rule["health"]),
            })
            .collect()
    }

    /// Alerts in a state.
    #[track_caller]
    pub(crate) fn alerts(&self, state: &str) -> BTreeSet<String> {
        let rules = self.rules().into_iter();
        rules.filter(|rule| rule.state.as_deref() == Some(state)).map(|rule| rule.name).collect()
    }

    #[track_caller]
    fn ask(&self, target: &str) -> Value {
        let response = Client::connect(self.port.address()).ask("GET", target, "");
        let text = response.text();
        assert_eq!(response.status(), 200, "{target}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// The files of `deploy/`, with other addresses and with seconds for minutes.
fn write_copy(folder: &Path, targets: &Targets) {
    let read = |name: &str| fs::read_to_string(deploy().join("prometheus").join(name)).expect(name);
    let gateways: Vec<_> = targets.gateways.iter().map(|address| format!("\"{address}\"")).collect();
    let config = read("prometheus.yml")
        .replace("\"127.0.0.1:8081\"", &gateways.join(", "))
        .replace("127.0.0.1:8082", &targets.kv.to_string())
        .replace("_interval: 15s", "_interval: 400ms");
    assert!(config.contains(&gateways[0]) && config.contains(&targets.kv.to_string()), "{config}");
    fs::create_dir(folder.join("rules")).expect("a folder in the folder");
    fs::write(folder.join("prometheus.yml"), config).expect("a file in the folder");
    for name in ["rules/recording.yml", "rules/alerts.yml"] {
        fs::write(folder.join(name), quicker(&read(name))).expect("a file in the folder");
    }
}

/// With seconds for minutes, so that what takes a quarter of an hour can be seen in a test.
fn quicker(rules: &str) -> String {
    let window = Regex::new(r"\[\d+m\]").expect("a pattern");
    let pending = Regex::new(r"(?m)for: \d+m$").expect("a pattern");
    let rules = window.replace_all(rules, "[4s]").replace("[1d]", "[1m]");
    pending.replace_all(&rules, "for: 1s").into_owned()
}
