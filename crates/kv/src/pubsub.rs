//! Messages on channels.

use crate::mail::Message;
use crate::reply::Reply;
use crate::shared::Shared;

/// Sends a message to all who have subscribed to a channel, or to patterns that match it; to how many.
pub(crate) fn publish(shared: &Shared, channel: &[u8], payload: &[u8]) -> usize {
    let mut message = Message::new(|reply| write(reply, b"message", channel, payload));
    shared.interests.subscriptions.publish(channel, |pattern, client| match pattern {
        None => message.send(shared, client),
        Some(pattern) => {
            Message::new(|reply| write_matched(reply, pattern, channel, payload)).send(shared, client)
        }
    })
}

/// Sends a message to all who have subscribed to a shard channel; to how many.
pub(crate) fn publish_to_shard(shared: &Shared, channel: &[u8], payload: &[u8]) -> usize {
    let mut message = Message::new(|reply| write(reply, b"smessage", channel, payload));
    shared.interests.subscriptions.publish_to_shard(channel, |client| message.send(shared, client))
}

fn write(reply: &mut Reply<'_>, kind: &[u8], channel: &[u8], payload: &[u8]) {
    reply.push(3);
    [kind, channel, payload].into_iter().for_each(|bytes| reply.bulk(bytes));
}

fn write_matched(reply: &mut Reply<'_>, pattern: &[u8], channel: &[u8], payload: &[u8]) {
    reply.push(4);
    [b"pmessage", pattern, channel, payload].into_iter().for_each(|bytes| reply.bulk(bytes));
}
