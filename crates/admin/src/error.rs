//! What can go wrong at the start.

use std::io;
use std::net::SocketAddr;

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
    #[error("the token must have {bytes_min} or more of the characters A-Z a-z 0-9 - . _ ~ + / =")]
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
