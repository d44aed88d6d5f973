//! Errors at the start.

use std::io;
use std::net::SocketAddr;

/// An error before the listeners run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// No token is set, and the address is not on loopback: anyone who can reach it could purge and reload.
    #[error("the admin listener on {address} needs a token, because it is not on loopback")]
    TokenRequired {
        /// The configured address.
        address: SocketAddr,
    },
    /// The token can't be sent in a header field, or is too short to be safe.
    #[error("the token must have {bytes_min} or more of the characters A-Z a-z 0-9 - . _ ~ + / =")]
    TokenUnusable {
        /// The shortest length allowed.
        bytes_min: usize,
    },
    /// The address is in use, or doesn't belong to this machine.
    #[error("the admin API can't listen on {address}")]
    AddressNotBound {
        /// The configured address.
        address: SocketAddr,
        /// The OS error.
        source: io::Error,
    },
}
