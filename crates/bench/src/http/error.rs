//! Why a load could not be made.

use std::io;
use std::path::PathBuf;

/// A load that could not begin, or never reached a server. What goes wrong later is counted, not returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Name at least one URL.
    #[error("expected at least one URL")]
    NoTargets,
    /// Correct the URL.
    #[error("{url:?} isn't a valid URL: {why}")]
    BadUrl { url: String, why: String },
    /// Correct the settings.
    #[error("{0}")]
    Settings(String),
    /// Correct the name, or the resolver.
    #[error("{host} has no address")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    /// Start the server, or correct the address.
    #[error("can't connect to {address}")]
    Unreachable {
        address: String,
        #[source]
        source: io::Error,
    },
    /// Correct the file of authorities.
    #[error("{} isn't a PEM file with certificates", path.display())]
    Authorities {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The TLS settings do not fit together.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// Let the load run until each side had its turn.
    #[error("the load was ended before each side had its turn")]
    Ended,
    /// The system refused what the loop needs: sockets, epoll, a timer, a thread.
    #[error("the system does not let the load run")]
    System(#[from] io::Error),
}
