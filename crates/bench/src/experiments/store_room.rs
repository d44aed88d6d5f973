//! Gateways with little memory, and a store that has room for all that they are asked for, or for a tenth: what the origin and the store
//! get to do. And gateways that lose their connections to the store: whether the origin hears of it.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use crate::random::SplitMix;
use crate::resp::Client;
use crate::result::{Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::fleet::{Answer, Asker, Store, are_one, is_written, run_of, shared, unanswered};
use super::stage::{Server, Stage, origin_requests};

const GATEWAYS: usize = 4;
const PAGES: Pages = Pages { count: 200, bytes: 150_000 };
/// They have room in the memory of each gateway.
const HOT_PAGES: Pages = Pages { count: 20, bytes: 1_000 };
const RECONNECTIONS: u64 = 5;
/// Of each load, all gateways together.
const REQUESTS: u64 = 8_000;
const MEMORY: &str = "4MiB";

/// How much the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// There is no store.
    None,
    Tenth,
    All,
    /// What is asked for is in memory, too, and all connections are closed again and again.
    Reconnected,
}

impl Room {
    fn name(self) -> &'static str {
        match self {
            Self::None => "no store",
            Self::Tenth => "room for a tenth",
            Self::All => "room for all",
            Self::Reconnected => "connections closed",
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Pages {
    count: usize,
    bytes: usize,
}

/// What one load led to.
struct Row {
    room: Room,
    answers: Vec<Answer>,
    origin: u64,
    /// `SET` at the store: leases, records, segments, and what gateways say of themselves several times a second.
    writes: u64,
}

const DESCRIPTION: &str = "Four gateways, each with 4 MiB of memory, are asked for 200 pages of 150 kB by chance: without a store, with a \
    Redis that has room for 3 MB of the 30, and with one that has room for all. Connections closed: for 20 pages of 1 kB, which all of \
    them have in memory, while all connections to the Redis are closed five times.";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let rows: Vec<Row> = [alone(stage)?, over_store(Room::Tenth, stage)?, over_store(Room::All, stage)?]
        .into_iter()
        .flatten()
        .collect();
    Ok(Findings {
        title: "Room in the shared store",
        description: DESCRIPTION.to_owned(),
        runs: rows.iter().map(Row::run).collect(),
        charts: Vec::new(),
        expectations: expectations(&rows),
    })
}

fn alone(stage: &mut Stage<'_>) -> Result<Vec<Row>, ExperimentError> {
    let origin = stage.origin(&[])?;
    let gateways = gateways(stage, &origin, &format!("[store]\nmemory = \"{MEMORY}\""))?;
    let scene = Scene { origin: &origin, gateways: &gateways };
    let (answers, asked) = scene.load(PAGES, stage.requests(REQUESTS))?;
    Ok(vec![Row { room: Room::None, answers, origin: asked, writes: 0 }])
}

fn over_store(room: Room, stage: &mut Stage<'_>) -> Result<Vec<Row>, ExperimentError> {
    let origin = stage.origin(&[])?;
    let store = Store::Redis.start(stage, &["--maxmemory-policy", "volatile-lfu"])?;
    let gateways = gateways(stage, &origin, &format!("{}\nmemory = \"{MEMORY}\"", shared(store.address)))?;
    are_one(&gateways)?;
    let mut redis = Client::connect(store.address).map_err(unanswered)?;
    if room == Room::Tenth {
        limit(&mut redis).map_err(unanswered)?;
    }
    let scene = Scene { origin: &origin, gateways: &gateways };
    let mut rows = vec![scene.row(room, PAGES, stage.requests(REQUESTS), &mut redis)?];
    if room == Room::All {
        rows.push(scene.reconnected(stage.requests(REQUESTS), &mut redis)?);
    }
    Ok(rows)
}

/// Who is asked.
struct Scene<'a> {
    origin: &'a Server,
    gateways: &'a [Server],
}

impl Scene<'_> {
    fn row(
        &self,
        room: Room,
        pages: Pages,
        requests: u64,
        redis: &mut Client,
    ) -> Result<Row, ExperimentError> {
        let before = writes(redis).map_err(unanswered)?;
        let (answers, origin) = self.load(pages, requests)?;
        self.gateways.iter().try_for_each(is_written)?;
        Ok(Row { room, answers, origin, writes: writes(redis).map_err(unanswered)? - before })
    }

    fn reconnected(&self, requests: u64, redis: &mut Client) -> Result<Row, ExperimentError> {
        // So often that each gateway has all of them.
        self.row(Room::Reconnected, HOT_PAGES, 100 * HOT_PAGES.count as u64, redis)?;
        let mut all = Row { room: Room::Reconnected, answers: Vec::new(), origin: 0, writes: 0 };
        for _ in 0..RECONNECTIONS {
            redis.ask(&[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"]).map_err(unanswered)?;
            let row = self.row(Room::Reconnected, HOT_PAGES, requests / RECONNECTIONS, redis)?;
            all.answers.extend(row.answers);
            all.origin += row.origin;
            all.writes += row.writes;
        }
        Ok(all)
    }

    /// A client for each gateway; the answers, and how often the origin was asked.
    fn load(&self, pages: Pages, requests: u64) -> Result<(Vec<Answer>, u64), ExperimentError> {
        let before = origin_requests(self.origin.address)?;
        let begun = Instant::now();
        let each = requests / self.gateways.len() as u64;
        let client = |(number, gateway): (usize, &Server)| {
            let address = gateway.address;
            thread::spawn(move || ask(number as u64, address, pages, begun, each))
        };
        let clients: Vec<_> = self.gateways.iter().enumerate().map(client).collect();
        let answers = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
        Ok((answers, origin_requests(self.origin.address)? - before))
    }
}

fn gateways(stage: &mut Stage<'_>, origin: &Server, tables: &str) -> Result<Vec<Server>, ExperimentError> {
    (0..GATEWAYS).map(|_| stage.gateway_with(origin, tables, "")).collect()
}

/// Room for a tenth of the pages beside what is there.
fn limit(redis: &mut Client) -> io::Result<()> {
    let used = redis.info("memory", "used_memory")?.and_then(|used| used.trim().parse::<usize>().ok());
    let limit = used.unwrap_or(0) + PAGES.count * PAGES.bytes / 10;
    redis.ask(&[b"CONFIG", b"SET", b"maxmemory", limit.to_string().as_bytes()]).map(drop)
}

fn writes(redis: &mut Client) -> io::Result<u64> {
    let told = redis.info("commandstats", "cmdstat_set")?.unwrap_or_default();
    let calls = told.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse().ok());
    Ok(calls.unwrap_or(0))
}

fn ask(number: u64, gateway: SocketAddr, pages: Pages, begun: Instant, requests: u64) -> Vec<Answer> {
    let mut asker = Asker::new(&[gateway]);
    let mut random = SplitMix::new(number);
    let one = |_| {
        let page = random.next() % pages.count as u64;
        let at = Instant::now();
        let (kind, _) = asker.ask(0, &format!("/bytes/{}?cc=max-age=3600&page={page}", pages.bytes), &[]);
        Answer { at_s: (at - begun).as_secs_f64(), kind, latency: at.elapsed() }
    };
    (0..requests).map(one).collect()
}

impl Row {
    fn run(&self) -> Run {
        run_of(self.room.name(), "4 clients, closed loop", self.answers.iter())
    }
}

fn expectations(rows: &[Row]) -> Vec<Expectation> {
    let mut expectations: Vec<_> = rows.iter().map(|row| all_answered(&row.run())).collect();
    let alone = rows.iter().find(|row| row.room == Room::None).map_or(0, |row| row.origin);
    expectations.extend(rows.iter().filter_map(|row| origin(row, alone)));
    expectations
        .extend(rows.iter().filter(|row| matches!(row.room, Room::Tenth | Room::All)).map(few_writes));
    expectations
}

fn origin(row: &Row, alone: u64) -> Option<Expectation> {
    let (what, limit) = match row.room {
        Room::None => return None,
        Room::Tenth => ("no more origin requests than without a store", alone),
        Room::All => ("the origin is asked once for each page, within 2 %", PAGES.count as u64 * 102 / 100),
        Room::Reconnected => ("the origin is asked for nothing", 0),
    };
    Some(Expectation {
        what: format!("{}: {what}", row.room.name()),
        measured: format!(
            "{} origin requests for {} of clients, {alone} without a store",
            row.origin,
            row.answers.len()
        ),
        holds: row.origin <= limit,
    })
}

/// For each response: the lease, the record, the segment; and where they are full of others, the lease once more.
fn few_writes(row: &Row) -> Expectation {
    Expectation {
        what: format!("{}: at most 6 writes at the store for each origin request", row.room.name()),
        measured: format!("{} writes, {} origin requests", row.writes, row.origin),
        holds: row.writes <= 6 * row.origin,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fleet::Kind;
    use super::*;

    fn row(room: Room, origin: u64, writes: u64, kind: Kind) -> Row {
        Row { room, answers: vec![Answer { at_s: 1.0, kind, latency: Duration::ZERO }], origin, writes }
    }

    #[track_caller]
    fn check(rows: &[Row], holds: &[bool]) {
        let held: Vec<bool> = expectations(rows).iter().map(|expectation| expectation.holds).collect();
        assert_eq!(held, holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        let alone = |kind| row(Room::None, 900, 0, kind);
        check(&[alone(Kind::Hit)], &[true]);
        check(&[alone(Kind::Failed)], &[false]);
        for (room, most) in [(Room::Tenth, 900), (Room::All, 204)] {
            check(&[alone(Kind::Hit), row(room, most, 6 * most, Kind::Hit)], &[true; 4]);
            check(&[alone(Kind::Hit), row(room, most + 1, 0, Kind::Hit)], &[true, true, false, true]);
            check(&[alone(Kind::Hit), row(room, most, 6 * most + 1, Kind::Hit)], &[true, true, true, false]);
        }
        check(&[alone(Kind::Hit), row(Room::Reconnected, 0, 9, Kind::Hit)], &[true; 3]);
        check(&[alone(Kind::Hit), row(Room::Reconnected, 1, 0, Kind::Hit)], &[true, true, false]);
    }
}
