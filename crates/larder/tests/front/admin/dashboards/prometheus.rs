//! A real Prometheus with the configuration and the rules of `deploy/`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::{Captures, Regex};
use serde_json::Value;
use testkit::{Client, Port, Service, wait};

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Addresses of gateways and of kv servers to scrape.
pub(crate) type Targets = [Vec<SocketAddr>; 2];

pub(crate) struct Prometheus {
    port: Port,
    _service: Service,
    _folder: tempfile::TempDir,
}

pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) health: String,
    /// The firing alerts; `None` for a recording rule.
    pub(crate) firing: Option<Vec<Labels>>,
}

/// Labels of a firing alert, including `alertname`.
pub(crate) type Labels = BTreeMap<String, String>;

impl Rule {
    fn read(rule: &Value) -> Self {
        let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        let firing = rule["alerts"].as_array().map(|alerts| {
            let alerts = alerts.iter().filter(|alert| alert["state"] == "firing");
            alerts.map(|alert| serde_json::from_value(alert["labels"].clone()).expect("labels")).collect()
        });
        Self { name: text("name"), query: text("query"), health: text("health"), firing }
    }
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
            let answer = asked.and_then(|()| client.try_response_to("GET"));
            answer.is_ok_and(|response| response.status() == 200)
        });
        Self { port, _service: service, _folder: folder }
    }

    /// Returns how many series with a number a query finds.
    #[track_caller]
    pub(crate) fn series(&self, query: &str) -> usize {
        self.values(query).len()
    }

    /// Returns the numbers of the series that a query finds.
    #[track_caller]
    pub(crate) fn values(&self, query: &str) -> Vec<f64> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.ask(&format!("/api/v1/query?query={query}"));
        let found = answer["data"]["result"].as_array().expect("a vector");
        let values = found.iter().filter_map(|series| series["value"][1].as_str()?.parse().ok());
        values.filter(|value: &f64| !value.is_nan()).collect()
    }

    #[track_caller]
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let answer = self.ask("/api/v1/rules");
        let groups = answer["data"]["groups"].as_array().expect("groups");
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        rules.map(Rule::read).collect()
    }

    #[track_caller]
    pub(crate) fn firing(&self) -> Vec<Labels> {
        self.rules().into_iter().filter_map(|rule| rule.firing).flatten().collect()
    }

    #[track_caller]
    fn ask(&self, target: &str) -> Value {
        let response = Client::connect(self.port.address()).ask("GET", target, "");
        let text = response.text();
        assert_eq!(response.status(), 200, "{target}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// Writes the files of `deploy/` with the addresses of this test and shorter times.
fn write_copy(folder: &Path, targets: &Targets) {
    let read = |name: &str| fs::read_to_string(deploy().join("prometheus").join(name)).expect(name);
    // The job of the kv server is commented out in the file.
    let off = "  # - job_name: larder-kv\n  #   static_configs:\n  #     - targets: ";
    let on = "  - job_name: larder-kv\n    static_configs:\n      - targets: ";
    let mut config = read("prometheus.yml").replace("_interval: 15s", "_interval: 400ms").replace(off, on);
    for (from, to) in ["\"127.0.0.1:8081\"", "\"127.0.0.1:8082\""].iter().zip(targets) {
        assert_eq!(config.matches(from).count(), 1, "{config}");
        let to: Vec<_> = to.iter().map(|address| format!("\"{address}\"")).collect();
        config = config.replace(from, &to.join(", "));
    }
    fs::create_dir(folder.join("rules")).expect("a folder in the folder");
    fs::write(folder.join("prometheus.yml"), config).expect("a file in the folder");
    for name in ["rules/recording.yml", "rules/alerts.yml"] {
        fs::write(folder.join(name), quicker(&read(name))).expect("a file in the folder");
    }
}

/// Shortens times for the test: a minute of a window becomes 0.8 s, a day a minute, and the minutes that a
/// condition must last a second. Expressions and thresholds stay as users have them.
fn quicker(rules: &str) -> String {
    let window = Regex::new(r"(?P<before>[\[:])(?P<minutes>\d+)m\b").expect("a pattern");
    let pending = Regex::new(r"(?m)for: \d+m$").expect("a pattern");
    let milliseconds = |window: &Captures<'_>| {
        let minutes: u32 = window["minutes"].parse().expect("a number");
        format!("{}{}ms", &window["before"], minutes * 800)
    };
    let rules = window.replace_all(rules, milliseconds).replace("[1d]", "[1m]");
    pending.replace_all(&rules, "for: 1s").into_owned()
}
