//! What can go wrong: at the start, at a purge, at an explanation.

use std::io;
use std::net::SocketAddr;

use serde::Serialize;

/// What can go wrong before the listeners run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Whoever reaches the address could purge and reload: set a token or bind to loopback.
    #[error("the admin listener on {address} needs a token, because it is not on loopback")]
    TokenRequired {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The token cannot be sent in a header field, or is too short to be safe.
    #[error("the admin token must have {bytes_min} or more of the characters A-Z a-z 0-9 - . _ ~ + / =")]
    TokenUnusable {
        /// The shortest length allowed.
        bytes_min: usize,
    },
    /// The address is taken, or not of this machine.
    #[error("the admin API can't listen on {address}")]
    AddressNotBound {
        /// The address asked for.
        address: SocketAddr,
        /// The reason that the system gave.
        source: io::Error,
    },
}

/// Why a purge could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The URL is none, or not an absolute http or https one. The caller corrects it.
    #[error("the URL cannot be used: {reason}")]
    UrlInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// No site of the configuration takes requests for this URL.
    #[error("no site serves this URL")]
    SiteUnknown {
        /// The sites there are.
        sites: Vec<SiteUrls>,
    },
    /// The store did not take the purge. The caller tries again.
    #[error("the store did not take the purge: {reason}")]
    StoreUnavailable {
        /// What the store said.
        reason: String,
    },
}

/// Which URLs belong to a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SiteUrls {
    /// Its name.
    pub name: String,
    /// None where it takes what no other site wants.
    pub hosts: Vec<String>,
    /// `/` for all paths.
    pub path_prefix: String,
}

/// Why there is no explanation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The request cannot be made. The caller corrects it.
    #[error("the request cannot be made: {reason}")]
    RequestInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// Too many explanations are under way, or the process stops. The caller tries again.
    #[error("no more requests can be explained now")]
    Busy,
}
