//! Core time per command: servers side by side, in interleaved rounds.

use std::path::Path;
use std::time::Duration;

use bench::resp::{RespLoad, Workload};

use super::store::{self, Running, Store};
use super::turns::{self, Entrant, MEASURES};
use super::{HOT_KEYS, VALUE_BYTES, Wish};
use crate::Effort;
use crate::plan::What;
use crate::row::{Row, Subject};

/// The settings of a row.
struct Case {
    what: What,
    title: &'static str,
    workload: Workload,
    pipeline: usize,
    connections: usize,
    keys: u64,
    value_bytes: usize,
}

const GET: Case = Case {
    what: What::KvGet,
    title: "",
    workload: Workload::Get,
    pipeline: 1,
    connections: 50,
    keys: HOT_KEYS,
    value_bytes: VALUE_BYTES,
};

const CASES: [Case; 10] = [
    Case { title: "kv: GET, P=100", pipeline: 100, ..GET },
    Case { title: "kv: GET, P=10", pipeline: 10, ..GET },
    Case { title: "kv: GET, P=1, 50 connections", ..GET },
    Case { title: "kv: GET, P=1, 256 connections", connections: 256, ..GET },
    Case { what: What::KvSet, title: "kv: SET, P=100", workload: Workload::Set, pipeline: 100, ..GET },
    Case { what: What::KvSet, title: "kv: SET, P=1, 50 connections", workload: Workload::Set, ..GET },
    Case { what: What::KvValues, title: "kv: GET of 1 KiB, P=1", value_bytes: 1 << 10, keys: 10_000, ..GET },
    Case { what: What::KvValues, title: "kv: GET of 64 KiB, P=1", value_bytes: 64 << 10, keys: 1000, ..GET },
    Case {
        what: What::KvValues,
        title: "kv: SET of 64 KiB, P=1",
        workload: Workload::Set,
        value_bytes: 64 << 10,
        keys: 1000,
        ..GET
    },
    Case { what: What::KvKeys, title: "kv: GET, P=100, 10 M keys", pipeline: 100, keys: 10_000_000, ..GET },
];

/// Fills buffers and processor caches before the first round.
const WARM_UP: Duration = Duration::from_millis(500);

pub(super) fn measure(wish: &Wish<'_>, what: What) -> anyhow::Result<Vec<Row>> {
    let cases = CASES.iter().filter(|case| case.what == what && wish.has(case.title));
    cases.map(|case| case.measure(wish.larder, wish.effort)).collect()
}

impl Case {
    fn measure(&self, larder: &Path, effort: Effort) -> anyhow::Result<Row> {
        let servers = store::start_all(larder, &Store::ALL, self.value_bytes);
        let beside: &[Store] = if self.keys > HOT_KEYS { &[Store::Larder] } else { &[] };
        let beside = store::start_all(larder, beside, self.value_bytes);
        let entrant = |subject, server: &Running, keys| Entrant {
            subject,
            pid: server.pid(),
            load: self.load(server, keys),
        };
        let mut entrants: Vec<Entrant> =
            servers.iter().map(|server| entrant(Subject::Store(server.store), server, self.keys)).collect();
        entrants.extend(beside.iter().map(|server| entrant(Subject::HotKeys, server, HOT_KEYS)));
        let mut row = Row::new(self.what, self.title, &MEASURES);
        turns::take(&mut row, &entrants, effort)?;
        Ok(row)
    }

    fn load(&self, server: &Running, keys: u64) -> RespLoad {
        RespLoad {
            workload: self.workload,
            pipeline: self.pipeline,
            connections: self.connections,
            value_bytes: self.value_bytes,
            keys,
            warm_up: Some(WARM_UP),
            ..server.load()
        }
    }
}
