//! What a client has chosen for its connection.

use std::net::SocketAddr;

use engine::Database;

use crate::reply::Version;

#[derive(Debug)]
pub(crate) struct Session {
    /// Unique among all connections of the process.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) since_ms: u64,
    pub(crate) database: Database,
    pub(crate) version: Version,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Library,
    pub(crate) replies: Replies,
    pub(crate) is_over: bool,
}

/// CLIENT SETINFO.
#[derive(Debug, Default)]
pub(crate) struct Library {
    pub(crate) name: Vec<u8>,
    pub(crate) version: Vec<u8>,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// Not to the next command.
    SkipNext,
    /// Not to this one.
    Skip,
}

impl Session {
    pub(crate) fn new(id: u64, address: SocketAddr, since_ms: u64) -> Self {
        Self {
            id,
            address,
            since_ms,
            database: Database::default(),
            version: Version::default(),
            name: Vec::new(),
            library: Library::default(),
            replies: Replies::default(),
            is_over: false,
        }
    }

    /// RESET.
    pub(crate) fn reset(&mut self) {
        let (id, address, since_ms) = (self.id, self.address, self.since_ms);
        *self = Self::new(id, address, since_ms);
    }

    /// A command begins: whether its reply is sent.
    pub(crate) fn is_answered(&mut self) -> bool {
        match self.replies {
            Replies::On => true,
            Replies::Off => false,
            Replies::SkipNext => {
                self.replies = Replies::Skip;
                false
            }
            Replies::Skip => {
                self.replies = Replies::On;
                true
            }
        }
    }
}
