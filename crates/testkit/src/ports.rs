//! Ports for servers that need their address before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// First port. The range is below the range from which the system assigns ports: no socket gets such a port by asking for port 0, nor as
/// the local port of an outgoing connection.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A TCP port of the loopback address, reserved for as long as this value lives.
///
/// Binding the port and closing it again is not enough: servers with `SO_REUSEPORT` can share a port without noticing. The UDP port of
/// the same number is the lock among all test processes, because no server under test uses it.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _lock: UdpSocket,
}

impl Port {
    /// Reserves a port.
    ///
    /// # Panics
    /// Panics if all ports of the range are in use.
    pub fn reserve() -> Self {
        let start = process::id().wrapping_mul(61);
        let found = (0..COUNT).find_map(|_| {
            let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = u16::try_from(FIRST + number % COUNT).expect("the range ends below 65536");
            Self::try_reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        });
        found.expect("there are free ports")
    }

    fn try_reserve(address: SocketAddr) -> Option<Self> {
        let lock = UdpSocket::bind(address).ok()?;
        TcpListener::bind(address).ok()?;
        Some(Self { address, _lock: lock })
    }

    /// Returns the address to listen on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
