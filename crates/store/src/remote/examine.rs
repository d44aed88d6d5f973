//! Examination of a server before Larder depends on it.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Pipeline, Value, cmd, pipe};
use tokio::sync::Notify;

use super::heartbeat::{Beat, Role};
use super::master::Master;
use super::names::{Digest, Names};
use super::reply::{self, Refused};
use super::settings::{Access, RemoteSettings};
use super::wire::{Redirections, Wire};
use crate::address::REGION;
use crate::backing::{BackingError, RECORD_BYTES_MAX};
use crate::fleet::RegionRecord;

/// Properties of a server; `None` for each one that the server doesn't report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Name and version, such as `redis 7.0.15`.
    pub version: Option<String>,
    /// Whether the server is a master, not a replica.
    pub is_master: Option<bool>,
    /// Median round trip time of several pings.
    pub round_trip: Duration,
    /// Milliseconds by which the server's clock is ahead of this process's clock.
    pub clock_ahead_ms: Option<i64>,
    /// Memory limit in bytes; 0 for no limit.
    pub memory_bytes_max: Option<u64>,
    /// Eviction policy.
    pub eviction_policy: Option<String>,
    /// Maximum number of keys that the server tracks for all clients in total; 0 for no limit.
    pub tracked_keys_max: Option<u64>,
    /// Number of replicas that are connected.
    pub replicas: u32,
    /// Number of replicas below which the server refuses writes; 0 for no such limit.
    pub replicas_min: Option<u64>,
    /// Whether the server announces changes to its clients.
    pub tracks: bool,
    /// Required commands that this user may not use, or that the server doesn't know.
    pub refused: Vec<&'static str>,
}

/// Failure to examine a server.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ExamineError(Box<dyn Error + Send + Sync>);

/// Properties of the store of another region, which is only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExaminedPeer {
    /// Whether the server is a master, not a replica.
    pub is_master: Option<bool>,
    /// Median round trip time of several pings.
    pub round_trip: Duration,
    /// Milliseconds by which the server's clock is ahead of this process's clock.
    pub clock_ahead_ms: Option<i64>,
    /// Name of the region to which the store belongs; `None` if no instance of it is running.
    pub region: Option<Box<str>>,
    /// Required commands that this user may not use, or that the server doesn't know.
    pub refused: Vec<&'static str>,
}

/// Connects as an instance would, and queries the server. Writes only one key, which it removes again. Call it inside a tokio runtime.
///
/// # Errors
/// If the connection can't be opened, or breaks.
pub async fn examine(settings: &RemoteSettings) -> Result<Examined, ExamineError> {
    let (wire, redirections) = open(settings).await?;
    let names = Names::new(&settings.prefix);
    ask(&wire, &names, redirections).await.map_err(|error| ExamineError(error.into()))
}

/// Connects as the carrier of another region would, and queries the server, without writing.
///
/// # Errors
/// If the connection can't be opened, or breaks.
pub async fn examine_peer(settings: &RemoteSettings) -> Result<ExaminedPeer, ExamineError> {
    let (wire, redirections) = open(settings).await?;
    let names = Names::new(&settings.prefix);
    ask_peer(&wire, &names, redirections).await.map_err(|error| ExamineError(error.into()))
}

async fn open(settings: &RemoteSettings) -> Result<(Wire, Redirections), ExamineError> {
    let connector = Master::new(settings, &Arc::default())
        .find_once()
        .await
        .map_err(|why| ExamineError((*why).into()))?;
    let ignore = |_| Ok::<(), ()>(());
    let opened = connector.open(REPLY_BYTES_MAX, ignore, Arc::new(Notify::new())).await;
    let (wire, _driving) = opened.map_err(|error| ExamineError(error.into()))?;
    Ok((wire, connector.redirections()))
}

async fn ask_peer(
    wire: &Wire,
    names: &Names,
    redirections: Redirections,
) -> Result<ExaminedPeer, BackingError> {
    let refused = refused(wire, names, Access::Reading).await?;
    let beat = Beat::of(wire, Redirections::Unexpected).await?;
    let mut question = cmd("GETRANGE");
    question.arg(names.record_of(REGION, Digest::of(REGION))).arg(0).arg(RECORD_BYTES_MAX - 1);
    // The user may be forbidden to read it, which is in `refused`.
    let record = reply::of(wire.ask_one(&question).await?).ok();
    let record = record.and_then(|value| reply::part(value, RECORD_BYTES_MAX).ok()?);
    let region = record.and_then(|bytes| RegionRecord::decode(&bytes).ok()).map(|record| record.name);
    let clock_ahead_ms = beat.clock.map(|clock| clock.ahead_us() / 1000);
    let is_master = is_master(beat.role, redirections);
    Ok(ExaminedPeer {
        is_master,
        round_trip: median_round_trip(wire).await?,
        clock_ahead_ms,
        region,
        refused,
    })
}

async fn ask(wire: &Wire, names: &Names, redirections: Redirections) -> Result<Examined, BackingError> {
    let refused = refused(wire, names, Access::Shared).await?;
    let [info, memory, policy, tracked, replicas] = wire.ask_for(&settings()).await?;
    let beat = Beat::of(wire, Redirections::Unexpected).await?;
    Ok(Examined {
        version: text(info).as_deref().and_then(version),
        is_master: is_master(beat.role, redirections),
        clock_ahead_ms: beat.clock.map(|clock| clock.ahead_us() / 1000),
        round_trip: median_round_trip(wire).await?,
        memory_bytes_max: setting(memory).and_then(|text| text.parse().ok()),
        eviction_policy: setting(policy),
        tracked_keys_max: setting(tracked).and_then(|text| text.parse().ok()),
        replicas: beat.replicas,
        replicas_min: setting(replicas).and_then(|text| text.parse().ok()),
        tracks: !refused.iter().any(|command| command.starts_with("CLIENT")),
        refused,
    })
}

fn is_master(role: Role, redirections: Redirections) -> Option<bool> {
    match role {
        Role::Master => Some(true),
        // Any node of a cluster names the masters.
        Role::Other if redirections == Redirections::Followed => None,
        Role::Other => Some(false),
        Role::Unknown => None,
    }
}

fn settings() -> Pipeline {
    let mut question = pipe();
    question.cmd("INFO").arg("server");
    for name in ["maxmemory", "maxmemory-policy", "tracking-table-max-keys", "min-replicas-to-write"] {
        question.cmd("CONFIG").arg("GET").arg(name);
    }
    question
}

/// Commands that this access needs, each with arguments with which it changes nothing but an unused key.
fn commands(probe: &str, access: Access) -> Vec<(&'static str, Vec<&str>)> {
    use Access::{Reading, Shared};
    let all = [
        (Reading, "CLIENT TRACKING", vec!["ON", "OPTIN"]),
        (Reading, "CLIENT CACHING", vec!["YES"]),
        (Shared, "SET", vec![probe, "0", "PX", "1000"]),
        (Reading, "GETRANGE", vec![probe, "0", "0"]),
        (Reading, "STRLEN", vec![probe]),
        (Shared, "APPEND", vec![probe, "1"]),
        (Shared, "PTTL", vec![probe]),
        (Shared, "PEXPIRE", vec![probe, "1000"]),
        (Shared, "WATCH", vec![probe]),
        (Shared, "UNWATCH", vec![]),
        (Shared, "MULTI", vec![]),
        (Shared, "EXEC", vec![]),
        (Shared, "RENAME", vec![probe, probe]),
        (Shared, "DEL", vec![probe]),
        (Shared, "UNLINK", vec![probe]),
        (Reading, "PING", vec![]),
        (Reading, "ROLE", vec![]),
        (Reading, "TIME", vec![]),
        (Shared, "WAIT", vec!["0", "1"]),
    ];
    let is_needed = |least: Access| access == Shared || least == Reading;
    let needed = all.into_iter().filter(|(least, ..)| is_needed(*least));
    needed.map(|(_, command, arguments)| (command, arguments)).collect()
}

/// Tries each required command, and returns the refused ones.
async fn refused(wire: &Wire, names: &Names, access: Access) -> Result<Vec<&'static str>, BackingError> {
    // A user that only reads may be limited to the names that it needs.
    let probe = if access == Access::Reading { names.log() } else { names.probe() };
    let commands = commands(&probe, access);
    let mut question = pipe();
    for (command, arguments) in &commands {
        let mut asked = Cmd::new();
        command.split(' ').chain(arguments.iter().copied()).for_each(|word| _ = asked.arg(word));
        question.add_command(asked);
    }
    let answers = wire.ask(&question).await?;
    let is_refused =
        |answer: Value| matches!(reply::of(answer), Err(Refused::Forbidden(_) | Refused::Unknown(_)));
    let refused = commands.iter().zip(answers).filter(|(_, answer)| is_refused(answer.clone()));
    Ok(refused.map(|((command, _), _)| *command).collect())
}

async fn median_round_trip(wire: &Wire) -> Result<Duration, BackingError> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let asked = Instant::now();
        wire.ask_one(&cmd("PING")).await?;
        times.push(asked.elapsed());
    }
    times.sort();
    Ok(times[PINGS / 2])
}

fn text(value: Value) -> Option<String> {
    match reply::of(value).ok()? {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Returns the value in a reply to CONFIG GET.
fn setting(value: Value) -> Option<String> {
    let value = match reply::of(value).ok()? {
        Value::Map(pairs) => pairs.into_iter().next()?.1,
        Value::Array(values) => values.into_iter().nth(1)?,
        _ => return None,
    };
    text(value)
}

fn version(info: &str) -> Option<String> {
    let of = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let name = of("server_name").unwrap_or("redis");
    // Valkey and Larder also report a `redis_version`, for clients that choose commands by it.
    let version = of("larder_version").or_else(|| of("valkey_version")).or_else(|| of("redis_version"))?;
    Some(format!("{name} {version}"))
}

const PINGS: usize = 21;

/// Maximum size of replies, which are short: the longest is one section of INFO.
const REPLY_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (info, expected) in [
            ("# Server\r\nredis_version:7.0.15\r\n", Some("redis 7.0.15")),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n", Some("valkey 8.1.0")),
            ("redis_version:7.4.0\r\nserver_name:larder\r\nlarder_version:0.1.0\r\n", Some("larder 0.1.0")),
            ("# Server\r\n", None),
        ] {
            assert_eq!(version(info).as_deref(), expected);
        }
    }

    #[test]
    fn settings_are_read_from_both_protocols() {
        let bulk = |text: &str| Value::BulkString(text.into());
        assert_eq!(setting(Value::Array(vec![bulk("maxmemory"), bulk("5")])).as_deref(), Some("5"));
        assert_eq!(setting(Value::Map(vec![(bulk("maxmemory"), bulk("5"))])).as_deref(), Some("5"));
        assert_eq!(setting(Value::Array(Vec::new())), None);
    }
}
