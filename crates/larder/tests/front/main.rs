//! The binary from outside, as its users and those around it meet it. One program, so that it is linked once and tests that wait share cores.

/// Messages between clients and the gateway.
mod http {
    pub mod compression;
    pub mod forwarded_fields;
    pub mod http1;
    pub mod large_bodies;
    pub mod limits;
    pub mod malformed_requests;
    pub mod paths;
    pub mod real_clients;
    pub mod request_bodies;
    pub mod slow_clients;
    pub mod transformation;
    pub mod transformation_safety;
}

/// Storing, reuse, validation, invalidation and purges.
mod cache {
    pub mod basics;
    pub mod collapsing;
    pub mod conversations;
    pub mod keys;
    pub mod known_faults;
    pub mod memory;
    pub mod methods;
    pub mod pressure;
    pub mod privacy;
    pub mod purging;
    pub mod races;
    pub mod range_oracle;
    pub mod ranges;
    pub mod refresh_ahead;
    pub mod site_stores;
    pub mod stale;
    pub mod users;
    pub mod variants;
}

/// Connections to origin servers, and groups of them.
mod origin {
    pub mod connections;
    pub mod groups;
    pub mod http2;
    pub mod malformed_responses;
    pub mod nginx_files;
    pub mod nginx_pair;
    pub mod real_origins;
    pub mod same_answer;
}

/// Several instances over one store.
mod fleet {
    pub mod collapsing;
    pub mod instances;
    pub mod kv_store;
    pub mod purge_waits;
    pub mod remote_tier;
    pub mod sharing;
    pub mod store_failures;
    pub mod store_servers;
}

/// Probes, metrics, logs, traces, reload and stop.
mod admin {
    mod access_log;
    mod admin_api;
    pub(crate) mod collector;
    mod dashboards;
    mod event_log;
    mod hostile_surroundings;
    mod listening;
    mod metrics;
    pub(crate) mod operator;
    mod purge_command;
    mod reload;
    mod steady_clients;
    mod stop;
    mod tls;
    mod tracing;
    mod upgrade;
}

/// Commands that run beside a server.
mod tools {
    pub mod command_line;
    pub mod explain;
    pub mod mock_origin;
}

/// `larder kv`.
mod kv {
    pub mod access;
    pub mod batches;
    pub mod churn;
    pub mod client_memory;
    pub mod commands;
    pub mod connections;
    pub mod crowd;
    pub mod crowds;
    pub mod differences;
    pub mod endings;
    pub mod first_contact;
    pub mod lifetimes;
    pub mod memory;
    pub mod replies;
    pub mod restart;
    pub mod service;
    pub mod sessions;
    pub mod text_protocol;
    pub mod unix_socket;
}

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
