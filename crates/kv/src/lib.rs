//! The Redis-protocol data plane: connections, commands, replies.
//!
//! Decides what a command means and in which order replies go out; where a key lies, and which is evicted, the `engine` decides. It reads
//! no configuration and knows nothing of HTTP.
//!
//! [`Server::start`] binds a listener per worker and runs each worker on a thread of its own: one loop over non-blocking
//! sockets. All workers share one [`engine::Engine`]; no command leaves the thread that read it. What comes with one read is
//! executed command by command in order, and answered with one write.
//!
//! `worker.rs` has the loop, `conversation.rs` a connection without its socket, `command/table.rs` the one list of commands, and the
//! rest of `command/` their functions. `docs/internals/kv.md` explains the whole.
//!
//! - A command waits for nothing and needs no message between threads. One that must see all keys at one moment takes the turns of all
//!   workers, always in the same order.
//! - Code that runs while a shard is locked (mail, notices of changed keys) never asks for a shard.
//! - Buffers of clients, and all that the server remembers for them, count against `maxmemory`.

mod accept;
mod accepted;
mod access;
mod background;
mod body;
mod charge;
mod clients;
mod cluster;
mod command;
mod connection;
mod conversation;
mod databases;
mod effort;
mod endings;
mod fixed_limits;
mod glob;
mod interest;
mod invalidation;
mod lcs;
mod leaving;
mod limits;
mod line;
mod mail;
mod measures;
mod monitor;
mod notify;
mod offline;
mod output;
mod ownership;
mod pass;
mod pause;
mod pins;
mod place;
mod posted;
mod pubsub;
mod rates;
mod rdb;
mod rdb_file;
mod repeated;
mod reply;
mod saved;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod separated;
mod server;
mod session;
mod shared;
mod size;
mod slow;
mod sparkline;
mod statistics;
mod strangers;
mod subscriptions;
mod sync;
mod system;
mod tracking;
mod transaction;
mod transport;
mod trim;
mod unix;
mod worker;

pub use access::{Access, DebugCommands, Passwords, ProtectedMode};
pub use cluster::{Cluster, ClusterError, ClusterNode, CrossSlot};
pub use command::commands_markdown;
pub use endings::Ending;
pub use fixed_limits::{Amount, fixed_limits};
pub use limits::{BuffersLimit, Limits, OutputLimit};
pub use measures::{CommandMeasures, Measures, SavingMeasures};
pub use offline::{Offline, OfflineClient};
pub use place::ReserveError;
pub use rdb::RdbError;
pub use rdb_file::{Imported, import};
pub use resp::SLOTS;
pub use saved::{SaveError, SaveFile};
pub use separated::TextProtocol;
pub use server::{Control, Listen, Security, Server, ServerError, Settings, Sockets};
pub use size::parse_size;
pub use trim::Trim;
pub use unix::UnixListen;
