//! The binary from outside, as its users and those around it meet it. One program, so that it is linked once, and tests of one room run
//! beside those of others.

// What several of them use, and some of it `soak.rs`.
mod churn;
mod compare;
mod crowd;
mod identical;
mod identity;
mod instances;
mod mock;
mod pressure;
mod purges;
mod stores;

// The rooms.
mod behind_memory;
mod caching;
mod clients;
mod command_line;
mod compressing;
mod conversations;
mod counting;
mod crowding;
mod explaining;
mod files;
mod filling;
mod fleet;
mod fleet_collapse;
mod fleet_faults;
mod forwarding;
mod groups;
mod hostile;
mod known_mistakes;
mod kv;
mod kv_access;
mod kv_batches;
mod kv_client_memory;
mod kv_clients;
mod kv_commands;
mod kv_connections;
mod kv_crowd;
mod kv_differences;
mod kv_endings;
mod kv_first_contact;
mod kv_memory;
mod kv_restart;
mod kv_service;
mod kv_talk;
mod kv_text_protocol;
mod kv_unix;
mod large;
mod logging;
mod malformed;
mod memory;
mod messages;
mod methods;
mod observing;
mod operating;
mod operations;
mod oracle;
mod origins;
mod overtaken;
mod partial;
mod privacy;
mod protection;
mod purging;
mod reading;
mod real_origins;
mod refreshing;
mod remote_tier;
mod site_stores;
mod stale;
mod tracing;
mod transform_trust;
mod transforming;
mod wire;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
