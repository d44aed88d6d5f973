//! Accepting and admitting clients.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;

use crate::clients::Ends;
use crate::limits::Limits;
use crate::server::Security;
use crate::shared::Shared;
use crate::transport::Transport;
use crate::unix;

/// A listener with its properties.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: Listener,
    pub(crate) security: Security,
    pub(crate) owner: Owner,
    /// Whether to poll the listener, because clients may be waiting without an event.
    pub(crate) is_asked: bool,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    /// Accepts the next waiting client.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, Ends)> {
        let security = self.security;
        match &self.listener {
            Listener::Tcp(listener) => {
                let (socket, client) = listener.accept()?;
                let server = socket.local_addr()?;
                Ok((socket, Ends { client, server, security }))
            }
            Listener::Unix(listener) => {
                let (socket, _) = listener.accept()?;
                Ok((unix::as_stream(socket), Ends::of_unix(security)))
            }
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match &mut self.listener {
            Listener::Tcp(listener) => listener,
            Listener::Unix(listener) => listener,
        }
    }
}

/// Owner of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Process,
    /// The process that started this one. Clients that connect after this process has ended wait for its
    /// successor.
    Starter,
}

/// The reason for refusing a client. The client receives the text of `Protected` and `ClientsOverLimit`.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(
        "DENIED Larder is in protected mode: no password is set, so only clients on this machine may connect. \
         Set `password_files`, or `protected_mode = false`."
    )]
    Protected,
    #[error("ERR max number of clients reached")]
    ClientsOverLimit,
    #[error("no certificate for TLS")]
    NoCertificate,
    #[error("failed to start TLS")]
    Tls(#[from] rustls::Error),
    #[error("the socket is closed")]
    Socket(#[from] io::Error),
}

/// A client that was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// The client's socket, if the reason was sent to the client.
    pub(crate) told: Option<TcpStream>,
}

pub(crate) fn admit(
    mut socket: TcpStream,
    ends: Ends,
    shared: &Shared,
    limits: &Limits,
) -> Result<Transport, Refused> {
    if let Err(refusal) = check(ends.client, shared, limits) {
        // A new socket has an empty buffer, so the short text fits.
        let told = socket.write_all(format!("-{refusal}\r\n").as_bytes());
        return Err(Refused { refusal, told: told.ok().map(|()| socket) });
    }
    begin(socket, ends, shared, limits).map_err(|refusal| Refused { refusal, told: None })
}

fn begin(socket: TcpStream, ends: Ends, shared: &Shared, limits: &Limits) -> Result<Transport, Refusal> {
    if !ends.is_unix() {
        socket.set_nodelay(true)?;
    }
    if !ends.is_unix() && !limits.keepalive.is_zero() {
        let silence = limits.keepalive.min(KEEPALIVE_MAX);
        SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(silence))?;
    }
    match ends.security {
        Security::Plain => Ok(Transport::Plain(socket)),
        Security::Tls => {
            let config = shared.tls().ok_or(Refusal::NoCertificate)?;
            Ok(Transport::tls(socket, &config)?)
        }
    }
}

/// The largest interval that the kernel accepts.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

fn check(client: SocketAddr, shared: &Shared, limits: &Limits) -> Result<(), Refusal> {
    if !shared.access.read().admits(client) {
        return Err(Refusal::Protected);
    }
    // Unauthenticated clients are closed to make room: otherwise they could keep all others out.
    let staying = shared.clients.count().saturating_sub(shared.strangers.ending());
    if staying >= limits.clients_max && !shared.end_one_stranger() {
        return Err(Refusal::ClientsOverLimit);
    }
    Ok(())
}
