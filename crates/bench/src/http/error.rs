//! Errors of a load.

use std::io;
use std::path::PathBuf;

/// A load that couldn't begin, or never reached a server. Later failures are counted, not returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No URL was given.
    #[error("expected at least one URL")]
    NoTargets,
    /// The URL is invalid.
    #[error("{url:?} isn't a valid URL: {why}")]
    BadUrl { url: String, why: String },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The host name doesn't resolve.
    #[error("{host} has no address")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    /// The server doesn't accept connections.
    #[error("can't connect to {address}")]
    Unreachable {
        address: String,
        #[source]
        source: io::Error,
    },
    /// The file has no readable certificates.
    #[error("{} isn't a PEM file with certificates", path.display())]
    Authorities {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The TLS settings are inconsistent.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The load was ended before each side had a round.
    #[error("the load was ended before each side had its turn")]
    Ended,
    /// The system refused a socket, epoll, a timer or a thread.
    #[error("the system refused a resource for the load")]
    System(#[from] io::Error),
}
