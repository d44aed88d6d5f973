//! Settings of a load.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use thiserror::Error;

use crate::drive;

pub use crate::drive::{Pace, Reuse, Until};

/// A load on a server.
#[derive(Clone, Debug)]
pub struct RespLoad {
    pub address: SocketAddr,
    pub protocol: Protocol,
    pub login: Option<Login>,
    pub workload: Workload,
    /// Size of a key: 2 to 65,536.
    pub key_bytes: usize,
    /// Size of a value: up to 64 MiB.
    pub value_bytes: usize,
    pub values: Values,
    /// TTL of the keys that are set, in seconds.
    pub ttl_s: Option<u32>,
    /// Number of distinct keys.
    pub keys: u64,
    pub choice: Choice,
    pub preload: Preload,
    pub connections: usize,
    pub reuse: Reuse,
    /// Commands that are sent before their replies are read.
    pub pipeline: usize,
    pub threads: usize,
    pub until: Until,
    /// Duration of an uncounted load before the measured one.
    pub warm_up: Option<Duration>,
    pub pace: Pace,
    /// Time limit for opening a connection, and for the replies to a batch.
    pub timeout: Duration,
    /// The same seed chooses the same keys.
    pub seed: u64,
}

/// Protocol of a load. Also a command-line option, with the comments as help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Resp2,
    Resp3,
    /// The text protocol whose messages end with 0x1F
    UnitSeparator,
    // The commands mg, ms and md, from memcached 1.6.10 on.
    /// The meta commands of memcached
    Memcached,
}

/// Credentials for AUTH.
#[derive(Clone, Debug)]
pub struct Login {
    pub user: Option<String>,
    pub password: String,
}

/// Commands of a load. Also a command-line option, with the comments as help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    Set,
    Get,
    Del,
    // Each command counts.
    /// SET a key, GET it, GET a missing key
    Workflow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Each key has its own value.
    OfKey,
    /// All keys have the same value, for a server that stores nothing.
    Fixed,
}

/// Order of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    Uniform,
    /// Zipf: the frequency of the key of rank r is proportional to 1 / r^s.
    Zipf(f64),
    /// In order, starting again after the last.
    InTurn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// The contents are unknown: a GET may miss.
    Nothing,
    /// Every key is set before the load: a GET must hit.
    AllKeys,
}

/// Errors of a load.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RespError {
    /// Settings that exclude each other, or are out of range.
    #[error("{0}")]
    Settings(String),
    /// Nothing listens on the address, or the server doesn't answer in time.
    #[error("{address} can't be reached")]
    Unreachable { address: SocketAddr, source: io::Error },
    /// The server refuses the greeting.
    #[error("{address} answers the greeting with: {reply}")]
    Refused { address: SocketAddr, reply: String },
    /// The server uses a different protocol.
    #[error("{address} does not answer in RESP")]
    Malformed { address: SocketAddr, source: io::Error },
    /// The keys couldn't be set before the load.
    #[error("{errors} of {keys} keys could not be set before the load; the first: {first}")]
    Preload { errors: u64, keys: u64, first: String },
    /// A thread, timer or socket of the generator itself failed.
    #[error("the generator can't run the load")]
    Own(#[from] io::Error),
}

impl RespLoad {
    /// Creates a load of GETs on 50 connections for a second, with 100,000 keys of 16 bytes that are set before it. Callers then change its
    /// fields.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        Self {
            address,
            protocol: Protocol::Resp2,
            login: None,
            workload: Workload::Get,
            key_bytes: 16,
            value_bytes: 12,
            values: Values::OfKey,
            ttl_s: None,
            keys: 100_000,
            choice: Choice::Uniform,
            preload: Preload::AllKeys,
            connections: 50,
            reuse: Reuse::KeepAlive,
            pipeline: 1,
            threads: 1,
            until: Until::Elapsed(Duration::from_secs(1)),
            warm_up: None,
            pace: Pace::Closed,
            timeout: Duration::from_secs(30),
            seed: 1,
        }
    }

    /// Refuses invalid settings.
    pub(super) fn check(&self) -> Result<(), RespError> {
        let digits = u32::try_from(self.key_bytes.saturating_sub(1)).unwrap_or(u32::MAX);
        let keys_max = 10_u64.checked_pow(digits).unwrap_or(u64::MAX);
        if self.keys == 0 || self.keys > keys_max {
            let (bytes, keys) = (self.key_bytes, self.keys);
            let text = format!("{keys} keys: expected 1 to {keys_max} with {bytes} bytes per key");
            return Err(RespError::Settings(text));
        }
        let is_text = self.protocol == Protocol::UnitSeparator;
        let is_resp = matches!(self.protocol, Protocol::Resp2 | Protocol::Resp3);
        let broken = [
            (!(2..=65_536).contains(&self.key_bytes), "expected keys of 2 to 65536 bytes"),
            (self.value_bytes > VALUE_BYTES_MAX, "a value may have at most 67108864 bytes"),
            (!(1..=PIPELINE_MAX).contains(&self.pipeline), "expected a pipeline of 1 to 1000 commands"),
            (is_text && self.login.is_some(), "the 0x1F text protocol has no passwords"),
            (is_text && self.ttl_s.is_some(), "keys of the 0x1F text protocol don't expire"),
            (!is_resp && self.login.is_some(), "login to memcached isn't supported"),
            (!self.is_choice_possible(), "the exponent of Zipf has to be above 0 and at most 10"),
        ];
        let broken = broken.iter().find(|(is_broken, _)| *is_broken).map(|(_, what)| *what);
        let amount =
            || drive::broken((self.connections, self.threads), (self.until, self.timeout), self.pace);
        match broken.or_else(amount) {
            Some(what) => Err(RespError::Settings(what.into())),
            None => Ok(()),
        }
    }

    fn is_choice_possible(&self) -> bool {
        let Choice::Zipf(exponent) = self.choice else { return true };
        exponent > 0.0 && exponent <= 10.0
    }

    /// The load that sets every key once.
    pub(super) fn preload(&self) -> Self {
        let keys = self.keys;
        Self {
            workload: Workload::Set,
            choice: Choice::InTurn,
            preload: Preload::Nothing,
            reuse: Reuse::KeepAlive,
            pipeline: if self.value_bytes > 16 << 10 { 1 } else { 100 },
            until: Until::Requests(keys),
            warm_up: None,
            pace: Pace::Closed,
            ..self.clone()
        }
    }

    /// Describes the settings in words.
    pub(super) fn words(&self) -> String {
        let workload = match self.workload {
            Workload::Set => "SET",
            Workload::Get => "GET",
            Workload::Del => "DEL",
            Workload::Workflow => "workflow (SET, GET, GET of a missing key)",
        };
        let choice = match self.choice {
            Choice::Uniform => "uniform".to_owned(),
            Choice::Zipf(exponent) => format!("Zipf {exponent}"),
            Choice::InTurn => "in turn".to_owned(),
        };
        let connections = match self.reuse {
            Reuse::KeepAlive => format!("{} connections", self.connections),
            Reuse::OnePerRequest => format!("{} clients with one connection per request", self.connections),
        };
        let protocol = match self.protocol {
            Protocol::Resp2 => "RESP2",
            Protocol::Resp3 => "RESP3",
            Protocol::UnitSeparator => "0x1F text protocol",
            Protocol::Memcached => "memcached",
        };
        format!(
            "{workload}, {protocol}, {connections}, pipeline {}, {} keys ({choice}) of {} bytes, values of {} \
             bytes, {}, {}",
            self.pipeline, self.keys, self.key_bytes, self.value_bytes, self.pace, self.until
        )
    }
}

pub(super) const VALUE_BYTES_MAX: usize = 64 << 20;
const PIPELINE_MAX: usize = 1000;
