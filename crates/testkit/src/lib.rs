//! Tools for tests of the binary: servers that misbehave on demand, a client that sends any bytes, and the binary itself as a process.
//!
//! The crate decides nothing about HTTP caching and uses no code of the product, so that an error in the product can't hide in the tests.
//! The exception is the parser of the Redis protocol (`resp`), which [`RespProxy`] needs and which is tested against real servers. No
//! test waits for a fixed time: all wait for a condition ([`wait`], [`Gate`]) with a generous deadline, and panic with details if it
//! passes. The crate is for tests only, and uses threads and blocking sockets throughout.
//!
//! Main types: [`Larder`] (the binary), [`ScriptedOrigin`] (an origin server whose every byte a test chooses), [`FaultProxy`] (a bad
//! network), [`RespProxy`] (a proxy that decides about each reply of a Redis), [`Client`] (HTTP/1.x by hand), [`Nginx`] and
//! [`RealServer`] (real origin servers), [`Authority`] (certificates), [`conversation`] (case files of whole conversations).

mod bytes;
mod certificates;
mod client;
mod consumption;
pub mod conversation;
pub mod decision_table;
mod delay_line;
mod documentation;
mod gate;
mod kv;
mod kv_service;
mod message;
mod nginx;
mod origin;
mod origin_server;
mod ports;
mod process;
mod proxy;
mod real;
mod redis;
mod resp_client;
mod resp_proxy;
mod tool;
pub mod wait;

pub use bytes::{Random, sha256};
pub use certificates::{Authority, Identity};
pub use client::{Client, End, Response};
pub use documentation::{documented_commands, guides};
pub use gate::Gate;
pub use kv::{Kv, converse, say};
pub use kv_service::{KvService, KvSetup};
pub use message::{Fields, Head};
pub use nginx::Nginx;
pub use origin::{Exchange, Received};
pub use origin_server::ScriptedOrigin;
pub use ports::Port;
pub use process::{Larder, Service, Setup, Successor};
pub use proxy::{Accept, Cut, FaultProxy, Faults, Stall};
pub use real::RealServer;
pub use redis::{Redis, RedisCluster, RedisService};
pub use resp::Value;
pub use resp::hash_slot;
pub use resp_client::RespClient;
pub use resp_proxy::{Fate, RespProxy, Seen};
pub use rustix::process::Signal;
pub use tool::{Output, raise_open_files_limit, run};
