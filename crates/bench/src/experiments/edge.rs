//! One small cached answer, from five kinds of servers: `ab -n 10000 -c 512` on `/cacheable`.
//!
//! Larder and nginx with a shared dictionary answer from their own memory; nginx with Lua, puma and Node query Redis for
//! every request. Measured with and without keep-alive, in several alternating rounds.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::http::{HttpLoad, Reuse, Until};
use crate::resp::Client;
use crate::result::{Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::stage::{Server, Stage, free_address, program, write_filled};
use super::store::{Store, unanswered};

const REQUESTS: u64 = 10_000;
const CONNECTIONS: usize = 512;

/// Number of rounds, of which the median is the result.
const ROUNDS: usize = 3;

/// The answer.
const ANSWER: &str = "STUB_SERVICE";

struct Contestant {
    name: &'static str,
    server: Server,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let Field { contestants, missing, _behind } = start_all(stage)?;
    let mut runs = Vec::new();
    for (reuse, words) in [(Reuse::KeepAlive, "keep-alive"), (Reuse::OnePerRequest, "a connection each")] {
        runs.extend(rounds(stage, &contestants, reuse, words)?);
    }
    let mut expectations: Vec<_> = runs.iter().map(all_answered).collect();
    expectations.extend(runs.chunks(contestants.len()).map(ahead_of_all));
    Ok(Findings {
        title: "Edge cache",
        description: format!(
            "{REQUESTS} requests over {CONNECTIONS} connections to one URL with an answer of {} bytes; the median of \
             {ROUNDS} rounds. Larder and nginx with a shared dictionary have it in their own memory; the others read \
             Redis for every request. One worker each, puma two with up to 32 threads.{}",
            ANSWER.len(),
            left_out(&missing)
        ),
        runs,
        charts: Vec::new(),
        expectations,
    })
}

/// The servers of a run.
struct Field {
    contestants: Vec<Contestant>,
    /// Programs that this machine lacks, and how to install them.
    missing: Vec<String>,
    /// Servers that the contestants depend on, which are stopped after them.
    _behind: Vec<Server>,
}

/// Starts Larder, and every other server that is installed.
fn start_all(stage: &mut Stage<'_>) -> Result<Field, ExperimentError> {
    let origin = stage.origin(&["--workers", "1"])?;
    let mut missing = Vec::new();
    let redis = if_installed(redis(stage), &mut missing)?;
    let larder = stage.gateway_with(&origin, "workers = 1", "")?;
    let mut contestants = vec![Contestant { name: "larder", server: larder }];
    let mut add = |name, server| {
        let server = if_installed(server, &mut missing)?;
        contestants.extend(server.map(|server| Contestant { name, server }));
        Ok::<_, ExperimentError>(())
    };
    add("nginx-lua-dictionary", nginx(stage, SHARED_DICTIONARY, None))?;
    if let Some(redis) = &redis {
        add("nginx-lua-redis", nginx(stage, REDIS_ON_EVERY_HIT, Some(redis)))?;
        add("puma-redis", puma(stage, redis))?;
        add("node-redis", node(stage, redis))?;
    }
    if contestants.len() == 1 {
        let program = "none of the other servers".to_owned();
        return Err(ExperimentError::Missing { program, package: "nginx libnginx-mod-http-lua".to_owned() });
    }
    Ok(Field { contestants, missing, _behind: redis.into_iter().chain([origin]).collect() })
}

/// Returns the server. If the machine lacks its program, returns `None` and adds a note.
fn if_installed(
    server: Result<Server, ExperimentError>,
    missing: &mut Vec<String>,
) -> Result<Option<Server>, ExperimentError> {
    match server {
        Err(error @ ExperimentError::Missing { .. }) => {
            missing.push(error.to_string());
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Returns a sentence for the report that lists the servers left out.
fn left_out(missing: &[String]) -> String {
    if missing.is_empty() { String::new() } else { format!(" Left out: {}.", missing.join("; ")) }
}

const SHARED_DICTIONARY: &str = include_str!("edge/nginx_dictionary.conf");
const REDIS_ON_EVERY_HIT: &str = include_str!("edge/nginx_redis.conf");
const PUMA: &str = include_str!("edge/cacheable.ru");
const NODE: &str = include_str!("edge/cacheable.js");

/// Starts Redis with the answer stored in it.
fn redis(stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
    let redis = Store::Redis.start(stage)?;
    let stored = Client::connect(redis.address)
        .and_then(|mut client| client.ask(&[b"SET", b"/cacheable", ANSWER.as_bytes()]));
    match stored.map_err(unanswered)? {
        reply if reply == b"+OK\r\n" => Ok(redis),
        reply => Err(unanswered(io::Error::other(reply.escape_ascii().to_string()))),
    }
}

fn nginx(stage: &mut Stage<'_>, template: &str, redis: Option<&Server>) -> Result<Server, ExperimentError> {
    const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_lua_module.so";
    if !Path::new(MODULE).is_file() {
        let (program, package) = ("nginx's Lua module".to_owned(), "libnginx-mod-http-lua".to_owned());
        return Err(ExperimentError::Missing { program, package });
    }
    let address = free_address()?;
    let folder = stage.new_folder()?;
    let file = folder.join("nginx.conf");
    let redis_port = redis.map_or_else(String::new, |redis| redis.address.port().to_string());
    let port = address.port().to_string();
    let folder = folder.display().to_string();
    write_filled(&file, template, &[("folder", &folder), ("port", &port), ("redis_port", &redis_port)])?;
    let mut command = Command::new(program("nginx", "nginx")?);
    command.args(["-p", "/usr/share/nginx", "-c"]).arg(file);
    stage.start(command, address)
}

fn puma(stage: &mut Stage<'_>, redis: &Server) -> Result<Server, ExperimentError> {
    let address = free_address()?;
    let file = stage.new_folder()?.join("cacheable.ru");
    write_filled(&file, PUMA, &[])?;
    let mut command = Command::new(program("puma", "puma ruby-sinatra ruby-redis")?);
    command.args(["--quiet", "--environment", "production", "--workers", "2", "--threads", "8:32"]);
    command.args(["--bind", &format!("tcp://{address}")]).arg(file);
    command.env("REDIS_PORT", redis.address.port().to_string());
    stage.start(command, address)
}

fn node(stage: &mut Stage<'_>, redis: &Server) -> Result<Server, ExperimentError> {
    const LIBRARIES: &str = "/usr/share/nodejs";
    if !Path::new(LIBRARIES).join("redis").exists() {
        let (program, package) = ("node-redis".to_owned(), "nodejs node-redis".to_owned());
        return Err(ExperimentError::Missing { program, package });
    }
    let address = free_address()?;
    let file = stage.new_folder()?.join("cacheable.js");
    write_filled(&file, NODE, &[])?;
    let mut command = Command::new(program("node", "nodejs node-redis")?);
    command.arg(file).env("NODE_ENV", "production").env("NODE_PATH", LIBRARIES);
    command.env("PORT", address.port().to_string()).env("REDIS_PORT", redis.address.port().to_string());
    stage.start(command, address)
}

impl Contestant {
    /// Returns the URL of the load. Larder requests a resource of the answer's size from the mock origin; the other servers have one URL.
    fn url(&self) -> String {
        match self.name {
            "larder" => self.server.url(&format!("/bytes/{}?cc=max-age=3600", ANSWER.len())),
            _ => self.server.url("/cacheable"),
        }
    }
}

/// Runs the rounds, and returns the median run of each contestant, in order.
fn rounds(
    stage: &Stage<'_>,
    contestants: &[Contestant],
    reuse: Reuse,
    words: &str,
) -> Result<Vec<Run>, ExperimentError> {
    let mut runs: Vec<Vec<Run>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (contestant, runs) in contestants.iter().zip(&mut runs) {
            runs.push(one(stage, contestant, reuse, words)?);
        }
    }
    Ok(runs.into_iter().map(middle).collect())
}

fn one(
    stage: &Stage<'_>,
    contestant: &Contestant,
    reuse: Reuse,
    words: &str,
) -> Result<Run, ExperimentError> {
    let mut load = HttpLoad::of_urls(&[contestant.url()])?;
    load.targets[0].status = Some(200);
    load.connections = CONNECTIONS;
    load.reuse = reuse;
    load.until = Until::Requests(REQUESTS);
    load.warm_up = Some(Until::Requests(CONNECTIONS as u64));
    stage.load(&format!("{}, {words}", contestant.name), &load, &contestant.server)
}

/// The run with the median rate.
fn middle(mut runs: Vec<Run>) -> Run {
    runs.sort_by(|one, other| one.requests_per_s.total_cmp(&other.requests_per_s));
    runs.swap_remove(runs.len() / 2)
}

/// Compares Larder, which is the first run, with all others.
fn ahead_of_all(runs: &[Run]) -> Expectation {
    let best = runs[1..].iter().max_by(|one, other| one.requests_per_s.total_cmp(&other.requests_per_s));
    let (rate, name) = best.map_or((0.0, "nobody"), |run| (run.requests_per_s, run.name.as_str()));
    Expectation {
        what: format!("{}: more requests per second than any other server", runs[0].name),
        measured: format!("{:.0}; the best other server: {rate:.0} ({name})", runs[0].requests_per_s),
        holds: runs[0].requests_per_s > rate,
    }
}
