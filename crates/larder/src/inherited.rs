//! Listening sockets that the process inherits from its parent: `sd_listen_fds(3)`.
//!
//! An inherited socket replaces the listener with its address. The configuration still defines the protocol of each
//! address, so `larder check` sees all of it; names of sockets have no meaning.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, ensure};
use gateway::SocketOwner;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::upgrade::Predecessor;

/// Inherited sockets that no listener has claimed.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<(SocketAddr, TcpListener)>,
    /// Owner of the inherited sockets; `None` if no sockets are inherited.
    owner: Option<SocketOwner>,
    /// Previous process that handed over the sockets, if it was a Larder process.
    predecessor: Option<Predecessor>,
}

impl Inherited {
    /// Takes the sockets that the environment announces for this process, and removes the announcement. Call it before
    /// other threads start, because they may read the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor is not a listening TCP socket.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let mut descriptors = ListenFd::from_env();
        let sockets = (0..descriptors.len()).map(|index| {
            let listener = listener(&mut descriptors, index);
            listener.with_context(|| {
                format!("descriptor {} (LISTEN_FDS) can't be used", FIRST_DESCRIPTOR + index)
            })
        });
        let sockets: Vec<_> = sockets.collect::<anyhow::Result<_>>()?;
        let predecessor = Predecessor::of_this_process();
        let given_by = || predecessor.as_ref().map_or(SocketOwner::Starter, Predecessor::owner);
        let owner = (!sockets.is_empty()).then(given_by);
        Ok(Self { sockets, owner, predecessor })
    }

    /// Returns whether this process takes over from another one.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Returns the owner of the sockets. Without inherited sockets, this process owns those that it will open.
    pub(crate) fn owner(&self) -> SocketOwner {
        self.owner.unwrap_or(SocketOwner::Process)
    }

    /// Claims the sockets bound to an address. An address has several sockets if their owner spreads connections over
    /// them.
    pub(crate) fn at(&mut self, address: SocketAddr) -> Vec<TcpListener> {
        self.sockets.extract_if(.., |(bound, _)| *bound == address).map(|(_, listener)| listener).collect()
    }

    /// Claims the socket bound to an address, for a server that accepts on one socket only.
    ///
    /// # Errors
    ///
    /// Returns an error if the address has several sockets: clients of the unused ones would wait forever.
    pub(crate) fn only_one_at(&mut self, address: SocketAddr) -> anyhow::Result<Option<TcpListener>> {
        let mut sockets = self.at(address);
        ensure!(
            sockets.len() < 2,
            "{} sockets are inherited for {address}, and the admin API takes one",
            sockets.len()
        );
        Ok(sockets.pop())
    }

    /// Closes the unclaimed sockets and returns the predecessor, which may now stop. The addresses refuse clients once
    /// the process that opened the sockets closes them too.
    pub(crate) fn close_rest(self) -> Option<Predecessor> {
        for (address, _) in self.sockets {
            tracing::warn!(%address, "closed an inherited socket: no listener in the configuration has its address");
        }
        self.predecessor
    }
}

fn listener(descriptors: &mut ListenFd, index: usize) -> anyhow::Result<(SocketAddr, TcpListener)> {
    let listener = descriptors.take_tcp_listener(index)?.context("it is taken already")?;
    ensure!(socket_acceptconn(&listener)?, "it is a connection, not a socket that listens");
    Ok((listener.local_addr()?, listener))
}

const FIRST_DESCRIPTOR: usize = 3;
