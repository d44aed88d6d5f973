//! The Redis-protocol data plane: connections, commands, replies.
//!
//! This crate defines the meaning of commands, and the order of replies. The `engine` crate decides where a
//! key is stored and which key is evicted. This crate reads no configuration and knows nothing of HTTP.
//!
//! [`Server::start`] binds a listener per worker and runs each worker on its own thread, as an event loop
//! over non-blocking sockets. All workers share one [`engine::Engine`]; a command is executed on the thread
//! that read it. The commands of one read are executed in order, and their replies are sent with one write.
//!
//! The event loop is in `worker.rs`, a connection without its socket in `conversation.rs`, the command table
//! in `command/table.rs`, and the implementations of commands in the rest of `command/`. `docs/internals/kv.md`
//! explains the design.
//!
//! - A command never blocks and needs no messages between threads. A command that needs a consistent view of
//!   all keys takes the turns of all workers, always in the same order.
//! - Code that runs with a shard locked (mail, notices of changed keys) never locks a shard.
//! - Clients' buffers, and all state that the server keeps for clients, count against `maxmemory`.

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
