//! One, two and three instances that share the slots of a cluster, and one instance without a cluster.
//!
//! All instances and the generator share two cores here, so commands per second can't grow with the number of instances. The CPU
//! time per command is the figure to compare: instances don't talk to each other, so it should be the same for one and for three
//! instances. Three times as many cores then serve three times as many commands.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use anyhow::Context as _;
use bench::resp::{RespLoad, Topology};
use bench::server::{Ready, ServerCommand, ServerProcess, free_address};
use tempfile::TempDir;

use super::store::{Store, Wanted};
use super::turns::{self, Entrant, MEASURES};
use super::{HOT_KEYS, Wish};
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::BOTH_CORES;

const CASES: [(&str, usize); 2] =
    [("kv: instances of a cluster, GET, P=1", 1), ("kv: instances of a cluster, GET, P=100", 100)];
const SLOTS: usize = 16_384;
const CONNECTIONS: usize = 50;

/// Instances that know each other's slots. Stopped on drop.
struct Cluster {
    addresses: Vec<SocketAddr>,
    processes: Vec<ServerProcess>,
    _folder: TempDir,
}

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    let cases = CASES.iter().filter(|(title, _)| wish.has(title));
    cases.map(|(title, pipeline)| row(wish, title, *pipeline)).collect()
}

fn row(wish: &Wish<'_>, title: &str, pipeline: usize) -> anyhow::Result<Row> {
    let alone = Store::Larder.start(wish.larder, &Wanted { cores: &BOTH_CORES, ..Wanted::default() })?;
    let load = RespLoad { pipeline, connections: CONNECTIONS, keys: HOT_KEYS, ..alone.load() };
    let clusters = [1, 2, 3].map(|instances| Cluster::start(wish.larder, instances));
    let clusters = clusters.into_iter().collect::<anyhow::Result<Vec<Cluster>>>()?;
    let mut entrants = vec![Entrant {
        subject: Subject::Store(Store::Larder),
        pids: vec![alone.pid()],
        loads: vec![load.clone()],
    }];
    entrants.extend(clusters.iter().map(|cluster| {
        let instances = cluster.processes.len();
        // Each instance gets as many concurrent commands as a single one.
        let load = RespLoad {
            address: cluster.addresses[0],
            topology: Topology::Cluster,
            pipeline: pipeline * instances,
            ..load.clone()
        };
        Entrant {
            subject: Subject::Instances(instances),
            pids: cluster.processes.iter().map(ServerProcess::pid).collect(),
            loads: vec![load],
        }
    }));
    let mut row = Row::new(What::KvCluster, title, &MEASURES);
    turns::take(&mut row, &entrants, wish.effort, None)?;
    Ok(row)
}

impl Cluster {
    fn start(larder: &Path, instances: usize) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let addresses = (0..instances).map(|_| free_address()).collect::<io::Result<Vec<_>>>()?;
        let mut map = "[kv.cluster]\n".to_owned();
        for (number, address) in addresses.iter().enumerate() {
            let (first, end) = (number * SLOTS / instances, (number + 1) * SLOTS / instances);
            let slots = format!("{first}-{}", end - 1);
            // Writing to a String can't fail.
            write!(
                map,
                "[[kv.cluster.nodes]]\nname = \"{number}\"\naddress = \"{address}\"\nslots = [\"{slots}\"]\n"
            )
            .ok();
        }
        let file = folder.path().join("cluster.toml");
        fs::write(&file, map)?;
        let start = |(number, address): (usize, &SocketAddr)| {
            let mut command = Command::new(larder);
            command.args(["kv", "--maxmemory", "1GiB", "--workers", "1", "--config"]).arg(&file);
            command.args(["--listen", &address.to_string(), "--cluster-node", &number.to_string()]);
            ServerCommand::new(command, Ready::Listens(*address)).on_cores(&BOTH_CORES).start()
        };
        let processes = addresses.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Self { addresses, processes, _folder: folder })
    }
}
