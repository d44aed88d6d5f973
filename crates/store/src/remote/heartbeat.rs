//! Heartbeats: role and clock of the server.

use std::time::{Instant, SystemTime};

use redis::{Pipeline, Value, pipe};

use super::clock::ClockReading;
use super::reply::{self, Refused};
use super::slots::{self, ClusterInfo};
use super::wire::{Redirections, Wire};
use crate::backing::BackingError;

/// Reply to a heartbeat, and the time when the heartbeat was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    pub(super) role: Role,
    /// Number of replicas that are connected to a master; 0 if unknown.
    pub(super) replicas: u32,
    pub(super) sent: Instant,
    /// State of the cluster, if it was asked for.
    pub(super) cluster: Option<ClusterInfo>,
    /// Reading of the server's clock.
    pub(super) clock: Option<ClockReading>,
}

impl Beat {
    pub(super) async fn of(wire: &Wire, redirections: Redirections) -> Result<Self, BackingError> {
        let (sent, asked) = (Instant::now(), SystemTime::now());
        let mut question = question();
        if redirections == Redirections::Followed {
            question.cmd("CLUSTER").arg("INFO");
        }
        let mut answers = wire.ask(&question).await?;
        let cluster = match answers.len() {
            3.. => Some(slots::cluster_info(answers.remove(2))?),
            _ => None,
        };
        let Pulse { role, replicas, clock_us } = pulse(answers)?;
        let clock = clock_us.map(|clock_us| ClockReading { clock_us, asked, round_trip: sent.elapsed() });
        Ok(Self { role, replicas, sent, cluster, clock })
    }
}

/// Returns the commands of a heartbeat. It requests the role because a fail-over changes the role without notice.
fn question() -> Pipeline {
    let mut pipeline = pipe();
    pipeline.cmd("ROLE").cmd("TIME");
    pipeline
}

/// Parsed reply.
#[derive(Debug, PartialEq, Eq)]
struct Pulse {
    role: Role,
    replicas: u32,
    /// Microseconds since the Unix epoch; `None` if the server doesn't report the time.
    clock_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    /// A replica or a sentinel.
    Other,
    /// Not reported, because some services forbid the command.
    Unknown,
}

/// Parses the reply.
fn pulse(values: Vec<Value>) -> Result<Pulse, BackingError> {
    let [role, time] = reply::exactly(values)?;
    let (role, replicas) = self::role(role)?;
    Ok(Pulse { role, replicas, clock_us: clock_us(time)? })
}

/// Returns the role, and the number of connected replicas.
fn role(value: Value) -> Result<(Role, u32), BackingError> {
    match reply::of(value) {
        Ok(Value::Array(parts)) => Ok(match &parts[..] {
            [Value::BulkString(name), _, Value::Array(replicas)] if name == b"master" => {
                (Role::Master, u32::try_from(replicas.len()).unwrap_or(u32::MAX))
            }
            [Value::BulkString(name), ..] if name == b"master" => (Role::Master, 0),
            _ => (Role::Other, 0),
        }),
        Ok(other) => Err(reply::unexpected(&other)),
        Err(Refused::Forbidden(_) | Refused::Unknown(_)) => Ok((Role::Unknown, 0)),
        Err(refused) => Err(refused.into()),
    }
}

fn clock_us(value: Value) -> Result<Option<u64>, BackingError> {
    let number = |value: &Value| match value {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    match reply::of(value) {
        Ok(Value::Array(parts)) => Ok(match &parts[..] {
            [seconds, micros] => number(seconds)
                .zip(number(micros))
                .and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros)),
            _ => None,
        }),
        Ok(other) => Err(reply::unexpected(&other)),
        Err(Refused::Forbidden(_) | Refused::Unknown(_)) => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn check(role: Value, time: Value, expected: &Pulse) {
        assert_eq!(&pulse(vec![role, time]).unwrap(), expected);
    }

    #[test]
    fn pulses_are_read() {
        let time = || Value::Array(vec![text("1700000000"), text("250")]);
        let clock_us = Some(1_700_000_000_000_250);
        let connected = Value::Array(vec![Value::Array(vec![text("10.0.0.2"), text("6379"), text("0")])]);
        let master = Value::Array(vec![text("master"), Value::Int(0), connected]);
        check(master, time(), &Pulse { role: Role::Master, replicas: 1, clock_us });
        let replica = Value::Array(vec![text("slave"), text("10.0.0.1")]);
        check(replica, time(), &Pulse { role: Role::Other, replicas: 0, clock_us });
        check(
            Value::Array(Vec::new()),
            Value::Array(Vec::new()),
            &Pulse { role: Role::Other, replicas: 0, clock_us: None },
        );
        assert!(pulse(vec![Value::Okay, time()]).is_err());
        assert!(pulse(vec![time()]).is_err());
    }
}
