//! Tests of the binary from outside, as users and other programs see it. They are one program, so that it is
//! linked once and waiting tests share cores.

/// Messages between clients and the gateway.
mod http {
    mod compression;
    mod forwarded_fields;
    mod http1;
    mod large_bodies;
    mod limits;
    mod malformed_requests;
    mod paths;
    mod real_clients;
    mod request_bodies;
    pub(crate) mod slow_clients;
    mod transformation;
    mod transformation_safety;
}

/// Storing, reuse, validation, invalidation and purges.
mod cache {
    pub(crate) mod basics;
    mod collapsing;
    mod conversations;
    mod keys;
    mod known_faults;
    mod memory;
    mod methods;
    pub(crate) mod pressure;
    mod privacy;
    mod purging;
    mod races;
    mod range_oracle;
    mod ranges;
    mod refresh_ahead;
    mod site_stores;
    mod stale;
    pub(crate) mod users;
    mod variants;
}

/// Connections to origin servers, and groups of them.
mod origin {
    mod circuit;
    mod connections;
    mod groups;
    mod http2;
    mod malformed_responses;
    mod nginx_files;
    mod real_origins;
    mod same_answer;
}

/// Several instances with one store.
mod fleet {
    mod collapsing;
    mod fail_over;
    pub(crate) mod instances;
    mod kv_store;
    pub(crate) mod purge_waits;
    mod regions;
    mod remote_tier;
    pub(crate) mod sharing;
    mod store_failures;
    pub(crate) mod store_servers;
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
    pub(crate) mod steady_clients;
    mod stop;
    pub(crate) mod tls;
    mod tracing;
    mod upgrade;
}

/// Commands that run beside a server.
mod tools {
    mod command_line;
    mod explain;
    pub(crate) mod mock_origin;
}

/// `larder kv`.
mod kv {
    mod access;
    mod batches;
    pub(crate) mod churn;
    mod client_memory;
    mod commands;
    mod connections;
    pub(crate) mod crowd;
    mod crowds;
    mod differences;
    mod endings;
    mod first_contact;
    mod lifetimes;
    mod memory;
    mod replies;
    mod restart;
    mod service;
    mod sessions;
    mod text_protocol;
    mod unix_socket;
}

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
