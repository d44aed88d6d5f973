//! Messages to other clients, written once for all who get the same.

use std::sync::atomic::Ordering::Relaxed;

use crate::clients::Client;
use crate::output::Output;
use crate::reply::{Reply, Version};
use crate::shared::Shared;

/// A message in both protocols, as far as somebody gets it.
pub(crate) struct Message<W> {
    write: W,
    written: [Option<Vec<u8>>; 2],
}

impl<W: Fn(&mut Reply<'_>)> Message<W> {
    pub(crate) fn new(write: W) -> Self {
        Self { write, written: [None, None] }
    }

    /// Sends it to one more client, unless that is to be closed. One that has too much to read already is closed for it.
    pub(crate) fn send(&mut self, shared: &Shared, client: &Client) -> bool {
        if client.is_killed() {
            return false;
        }
        let version = client.version();
        let (write, written) = (&self.write, &mut self.written[version.number() - 2]);
        let bytes = written.get_or_insert_with(|| {
            let mut out = Output::default();
            write(&mut Reply { out: &mut out, version });
            std::mem::take(out.bytes_mut())
        });
        shared.post(client, bytes);
        true
    }
}

impl Client {
    pub(crate) fn version(&self) -> Version {
        if self.facts.protocol.load(Relaxed) == 3 { Version::Resp3 } else { Version::Resp2 }
    }
}
