//! The same servers under `redis-benchmark`, which must agree with our generator.

use std::process::Command;

use anyhow::{Context as _, ensure};
use bench::resp;
use bench::server::ServerProbe;

use super::store::{self, Running, Store};
use super::turns::{MEASURES, figures};
use super::{HOT_KEYS, VALUE_BYTES, Wish};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::SERVER_CORE;
use crate::{Effort, calm};

/// The servers that speak the Redis protocol; memcached doesn't.
const STORES: [Store; 3] = [Store::Null, Store::Larder, Store::Redis];

/// A test of `redis-benchmark`, and the rate that determines how many commands one second takes.
struct Case {
    title: &'static str,
    test: &'static str,
    pipeline: u32,
    commands_per_second: u32,
}

const CASES: [Case; 4] = [
    Case {
        title: "kv by redis-benchmark: GET, P=100",
        test: "get",
        pipeline: 100,
        commands_per_second: 1_000_000,
    },
    Case {
        title: "kv by redis-benchmark: SET, P=100",
        test: "set",
        pipeline: 100,
        commands_per_second: 800_000,
    },
    Case {
        title: "kv by redis-benchmark: GET, P=10",
        test: "get",
        pipeline: 10,
        commands_per_second: 500_000,
    },
    Case { title: "kv by redis-benchmark: GET, P=1", test: "get", pipeline: 1, commands_per_second: 80_000 },
];

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| wish.has(case.title)).collect();
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let servers = store::start_all(wish.larder, &STORES, VALUE_BYTES);
    for server in servers.iter().filter(|server| server.store != Store::Null) {
        fill(server)?;
    }
    cases.into_iter().map(|case| case.measure(&servers, wish.effort)).collect()
}

/// Sets the keys with the tool itself, since it chooses its own key names.
fn fill(server: &Running) -> anyhow::Result<()> {
    resp::prepare(&server.load())?;
    let case = &CASES[1];
    case.run(server, 4 * u32::try_from(HOT_KEYS)?).map(drop)
}

impl Case {
    fn measure(&self, servers: &[Running], effort: Effort) -> anyhow::Result<Row> {
        let mut row = Row::new(What::KvTools, self.title, &MEASURES);
        for _ in output::rounds(self.title, effort.rounds) {
            for server in servers {
                let commands = effort.seconds_each * self.commands_per_second;
                let probe = ServerProbe::new(&[server.pid()], Some(SERVER_CORE))?;
                let turn =
                    calm::turn(&probe, || self.run(server, commands).with_context(|| server.store.title()))?;
                let figures = figures(&turn, commands.into(), turn.outcome)?;
                row.add(Subject::Store(server.store), figures, 0);
            }
        }
        Ok(row)
    }

    /// Commands per second, as reported by the tool.
    fn run(&self, server: &Running, commands: u32) -> anyhow::Result<f64> {
        let (host, port, Self { test, pipeline, .. }) = (server.address.ip(), server.address.port(), self);
        let arguments = format!(
            "-h {host} -p {port} -t {test} -r {HOT_KEYS} -P {pipeline} -n {commands} -d {VALUE_BYTES} -c 50 --precision 3 --csv"
        );
        let output = Command::new("redis-benchmark").args(arguments.split_whitespace()).output();
        let output = output.context("redis-benchmark can't be started")?;
        ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        per_second(&text).with_context(|| format!("unknown output: {text}"))
    }
}

/// Parses the output of `redis-benchmark --csv`: a header line, and a line of quoted figures.
fn per_second(text: &str) -> Option<f64> {
    let mut cells = text.lines().last()?.split(',').map(|cell| cell.trim_matches('"'));
    cells.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::per_second;

    #[test]
    fn the_rate_is_the_second_figure() {
        let header = "\"test\",\"rps\",\"avg_latency_ms\"\n";
        assert_eq!(per_second(&format!("{header}\"SET\",\"74626.87\",\"0.379\"\n")), Some(74626.87));
        assert_eq!(per_second(header), None);
        assert_eq!(per_second(""), None);
    }
}
