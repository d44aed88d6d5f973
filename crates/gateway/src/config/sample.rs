//! A configuration for tests: one site with one origin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use message::client::TrustedProxies;
use origin::settings::{
    AddressFamily, AdmissionConfig, Balance, EndpointConfig, OriginAddress, OriginConfig, OriginProtocol,
    OriginTimeouts, PoolConfig, RetryConfig, ServerConfig,
};

use super::{
    ClientLimits, ClientRules, Collapse, Config, DEFAULT_STORE, ErrorExposure, PrefixHandling, ServerTiming,
    Site, SiteProtection, Spelling, StoreConfig, StoreIndex, TraceFields, Transforms, UnderscoreFields,
    XCache,
};

const LONG: Duration = Duration::from_secs(30);

pub(crate) fn limits() -> ClientLimits {
    ClientLimits {
        connections_max: 8,
        client_share_percent: 50,
        head_bytes_max: 4096,
        fields_max: 64,
        target_bytes_max: 1024,
        body_bytes_max: 1024 * 1024,
        head_read_timeout: LONG,
        body_read_timeout: LONG,
        body_rate_min: 0,
        idle_timeout: LONG,
        write_timeout: LONG,
        write_rate_min: 0,
        tunnel_idle_timeout: LONG,
        requests_per_connection_max: 1000,
        http2_streams_max: 16,
        http2_resets_max: 16,
        http2_send_buffer_bytes_max: 64 * 1024,
        compressions_max: 16,
    }
}

pub(crate) fn config(site: Arc<Site>, limits: ClientLimits) -> Config {
    Config {
        tracing: None,
        listeners: Vec::new(),
        workers: 1,
        limits,
        stores: vec![StoreConfig {
            name: DEFAULT_STORE.to_owned(),
            memory_bytes_max: 16 << 20,
            variants_max: 4,
            validation_tags_max: 4,
            groups_max: 32,
        }],
        purge_method: None,
        sites: vec![site],
        server_name: "larder".to_owned(),
        trusted_proxies: TrustedProxies { networks: Vec::new(), hops_max: 32 },
        drain_limit: LONG,
    }
}

pub(crate) fn site(origin: SocketAddr) -> Site {
    Site {
        name: "site".to_owned(),
        hosts: Vec::new(),
        path_prefix: "/".to_owned(),
        spelling: Spelling::AsWritten,
        clients: ClientRules::default(),
        protection: SiteProtection::default(),
        prefix: PrefixHandling::Keep,
        origin: Arc::new(origin_config(origin)),
        store: StoreIndex::default(),
        rules: Vec::new(),
        profile: caching::Profile::Safe,
        collapse: Collapse::Off,
        timeouts: OriginTimeouts { connect: LONG, first_byte: LONG, between_bytes: LONG, total: None },
        request_fields_hidden: Vec::new(),
        request_fields_forwarded: Vec::new(),
        request_fields_keyed: Vec::new(),
        underscore_fields: UnderscoreFields::Drop,
        tags: caching::tags::TagRules { fields: caching::tags::TagField::ALL.to_vec(), tags_max: 8 },
        response_fields_hidden: Vec::new(),
        expose_errors: ErrorExposure::Expose,
        log_level: tracing::Level::INFO,
        x_cache: XCache::On,
        interim_responses: super::InterimResponses::All,
        server_timing: ServerTiming::Off,
        trace_fields: TraceFields::Forwarded,
        transforms: Transforms::default(),
        cors: None,
        maintenance: None,
        error_pages: Vec::new(),
        compression: None,
    }
}

fn origin_config(address: SocketAddr) -> OriginConfig {
    OriginConfig {
        name: "origin".to_owned(),
        servers: vec![ServerConfig {
            endpoint: EndpointConfig {
                address: OriginAddress::Tcp { host: address.ip().to_string(), port: address.port() },
                protocol: OriginProtocol::Http1,
                tls: None,
                local_address: None,
                address_family: AddressFamily::Any,
                pool: PoolConfig { idle_connections_max: 0, idle_timeout: LONG },
            },
            weight: 1,
        }],
        balance: Balance::RoundRobin,
        slow_start: Duration::ZERO,
        retries: RetryConfig { attempts_max: 3, budget_percent: 20, budget_per_second_min: 10 },
        ejection: None,
        health: None,
        breaker: None,
        base_path: String::new(),
        host_override: None,
        fixed_fields: Vec::new(),
        credentials: None,
        interim_responses_max: 100,
        admission: AdmissionConfig {
            requests_in_flight_max: 64,
            queue_max: 64,
            queue_timeout: LONG,
            transfers_max: 64,
            tunnels_max: 64,
            client_share_percent: 100,
        },
    }
}
