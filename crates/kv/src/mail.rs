//! Messages to other clients, encoded once for all recipients.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::clients::Client;
use crate::output::Output;
use crate::posted::Posted;
use crate::reply::{Reply, SHARED_FROM, Version};
use crate::shared::Shared;

/// A message encoded for each protocol version, on demand.
pub(crate) struct Message<W> {
    write: W,
    written: [Option<Output>; 2],
}

impl<W: Fn(&mut Reply<'_>)> Message<W> {
    pub(crate) fn new(write: W) -> Self {
        Self { write, written: [None, None] }
    }

    /// Posts the message to a client, unless it is closing. Closes the client if its output exceeds the
    /// limit.
    pub(crate) fn send(&mut self, shared: &Shared, client: &Client) -> bool {
        if client.is_killed() {
            return false;
        }
        let version = client.version();
        let (write, written) = (&self.write, &mut self.written[version.number() - 2]);
        let message = written.get_or_insert_with(|| {
            let mut out = Output::default();
            write(&mut Reply { out: &mut out, version });
            shared.message(out)
        });
        shared.post(client, message);
        true
    }
}

/// A part of one or more messages. A long part is stored once for all messages.
pub(crate) struct Part<'a> {
    bytes: &'a [u8],
    posted: OnceCell<Arc<Posted>>,
}

impl<'a> Part<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, posted: OnceCell::new() }
    }

    pub(crate) fn write(&self, reply: &mut Reply<'_>, shared: &Shared) {
        if self.bytes.len() < SHARED_FROM {
            reply.bulk(self.bytes);
        } else {
            reply.posted(self.posted.get_or_init(|| shared.posted(self.bytes.to_vec())));
        }
    }
}

impl Shared {
    pub(crate) fn posted(&self, bytes: Vec<u8>) -> Arc<Posted> {
        Posted::new(bytes, self.buffered())
    }

    /// Wraps an encoded message so that recipients share it if it is long.
    pub(crate) fn message(&self, mut written: Output) -> Output {
        if written.has_values() || written.len() < SHARED_FROM {
            return written;
        }
        let mut bytes = std::mem::take(written.bytes_mut());
        bytes.shrink_to_fit();
        written.share_message(&self.posted(bytes));
        written
    }
}

impl Client {
    pub(crate) fn version(&self) -> Version {
        if self.facts.protocol.load(Relaxed) == 3 { Version::Resp3 } else { Version::Resp2 }
    }
}
