//! Sockets that listen already when the process starts, opened by who started it: `sd_listen_fds(3)`.
//!
//! A socket takes the place of the listener with its address. The configuration goes on to say what is spoken there, and `larder check` sees
//! all of it; names of sockets say nothing.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, ensure};
use gateway::SocketOwner;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::upgrade::Predecessor;

/// Those that nobody has got yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<(SocketAddr, TcpListener)>,
    /// None if there were none.
    owner: Option<SocketOwner>,
    /// Who gave them, if it was one like this process.
    predecessor: Option<Predecessor>,
}

impl Inherited {
    /// Those that the environment tells of, unless it tells another process; from then on it tells nobody. To be called before there are other
    /// threads, which may read the environment.
    ///
    /// # Errors
    /// A descriptor is no socket that listens for TCP connections.
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

    /// Whether this process takes over from another one.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Whose they are. Without any, they are those that this process will open.
    pub(crate) fn owner(&self) -> SocketOwner {
        self.owner.unwrap_or(SocketOwner::Process)
    }

    /// Those that are bound to an address: several, where their owner spreads connections over them.
    pub(crate) fn at(&mut self, address: SocketAddr) -> Vec<TcpListener> {
        self.sockets.extract_if(.., |(bound, _)| *bound == address).map(|(_, listener)| listener).collect()
    }

    /// The one that is bound to an address, for who takes connections from one alone.
    ///
    /// # Errors
    /// There are several: clients of the others would wait without end.
    pub(crate) fn only_one_at(&mut self, address: SocketAddr) -> anyhow::Result<Option<TcpListener>> {
        let mut sockets = self.at(address);
        ensure!(
            sockets.len() < 2,
            "{} sockets are inherited for {address}, and the admin API takes one",
            sockets.len()
        );
        Ok(sockets.pop())
    }

    /// The last moment of those that nobody wants: clients are refused there as soon as who opened them closes them too. Who gave them can go.
    pub(crate) fn close_rest(self) -> Option<Predecessor> {
        for (address, _) in self.sockets {
            tracing::warn!(%address, "a socket that was inherited is closed: no listener of the configuration has its address");
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
