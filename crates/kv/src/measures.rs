//! What the server has counted, for whoever watches it.

use crate::server::Control;

/// Counts since the start, and what there is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Connections that are open.
    pub clients: u64,
    /// Connections since the start.
    pub clients_made: u64,
    /// Connections that were not admitted.
    pub clients_refused: u64,
    /// Requests and replies of all connections.
    pub buffers_bytes: u64,
}

impl Control {
    /// Adds up what the workers have counted; none of them waits for it.
    #[must_use]
    pub fn measures(&self) -> Measures {
        let shared = self.shared();
        Measures {
            clients: shared.clients.count() as u64,
            clients_made: shared.clients.made(),
            clients_refused: shared.refused(),
            buffers_bytes: shared.buffers_bytes() as u64,
        }
    }
}
