//! Publishing messages on channels.

use std::sync::Arc;

use crate::glob::TooLong;
use crate::mail::{Message, Part};
use crate::reply::Reply;
use crate::shared::Shared;
use crate::subscriptions::Name;

/// Sends a message to the subscribers of a channel and of matching patterns. Returns their number.
pub(crate) fn publish(shared: &Shared, channel: &[u8], payload: &[u8]) -> Result<usize, TooLong> {
    let parts = [Part::new(channel), Part::new(payload)];
    let mut message = Message::new(|reply| write(reply, shared, b"message", &parts));
    let write_matched = |pattern: Name| {
        let parts = &parts;
        move |reply: &mut Reply<'_>| write_matched(reply, shared, &pattern, parts)
    };
    // Clients are grouped by pattern.
    let mut matched = None;
    shared.interests.subscriptions.publish(channel, |pattern, client| {
        let Some(pattern) = pattern else { return message.send(shared, client) };
        let known = matched.take().filter(|(known, _)| Arc::ptr_eq(known, pattern));
        let new = || (Arc::clone(pattern), Message::new(write_matched(Arc::clone(pattern))));
        let (_, message) = matched.insert(known.unwrap_or_else(new));
        message.send(shared, client)
    })
}

/// Sends a message to the subscribers of a shard channel. Returns their number.
pub(crate) fn publish_to_shard(shared: &Shared, channel: &[u8], payload: &[u8]) -> usize {
    let parts = [Part::new(channel), Part::new(payload)];
    let mut message = Message::new(|reply| write(reply, shared, b"smessage", &parts));
    shared.interests.subscriptions.publish_to_shard(channel, |client| message.send(shared, client))
}

fn write(reply: &mut Reply<'_>, shared: &Shared, kind: &[u8], parts: &[Part<'_>]) {
    reply.push(1 + parts.len());
    reply.bulk(kind);
    parts.iter().for_each(|part| part.write(reply, shared));
}

fn write_matched(reply: &mut Reply<'_>, shared: &Shared, pattern: &[u8], parts: &[Part<'_>]) {
    reply.push(2 + parts.len());
    reply.bulk(b"pmessage");
    Part::new(pattern).write(reply, shared);
    parts.iter().for_each(|part| part.write(reply, shared));
}
