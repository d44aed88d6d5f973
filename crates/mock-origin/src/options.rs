//! What the operator can choose.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use super::prefix::Prefix;

/// Options of `larder origin`.
#[derive(Debug, Clone, clap::Args)]
pub struct OriginOptions {
    /// Address for HTTP/1.1 and HTTP/2 without TLS; repeatable; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3030")]
    pub(crate) listen: Vec<SocketAddr>,

    /// Address for HTTP/1.1 and HTTP/2 over TLS; repeatable; self-signed without --tls-cert
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tls_listen: Vec<SocketAddr>,

    /// Certificate chain (PEM) for --tls-listen
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_listen")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key (PEM) that belongs to --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Write the certificate in use (PEM) to this file, so that clients can trust it
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub(crate) tls_cert_out: Option<PathBuf>,

    /// Path prefix of all resources, such as /mocks; other paths get 404
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) prefix: Prefix,

    /// CPU time in milliseconds for each request to `/api/products` and the paths below it
    #[arg(long, value_name = "MS", default_value_t = 1)]
    pub(crate) cpu_ms: u64,

    /// Requests that sit out their `delay` at the same time, as queries of a database do; others queue [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) delay_slots: Option<NonZeroUsize>,

    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,

    /// Write one line per request to FILE, or to standard error without FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) access_log: Option<PathBuf>,

    /// Distinct URLs that /counters keeps; requests for further URLs only count as overflow
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) counters_max: usize,
}
