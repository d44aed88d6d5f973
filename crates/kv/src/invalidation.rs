//! Sends invalidation messages to client-side caches.

use crate::clients::Client;
use crate::mail::Message;
use crate::reply::{Reply, Version};
use crate::shared::Shared;
use crate::tracking::{Changes, Forgotten, OwnChanges};

/// Channel on which RESP2 clients receive invalidation messages for keys that another connection tracks.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The keys to invalidate.
#[derive(Clone, Copy, Debug)]
enum Stale<'a> {
    Keys(&'a [&'a [u8]]),
    Everything,
}

/// Invalidates a key that has changed.
pub(crate) fn tell_of_key(shared: &Shared, key: &[u8], by: Option<u64>) {
    let tracking = &shared.interests.tracking;
    let clients = tracking.changed(key, by);
    if !clients.is_empty() {
        tell(shared, &clients, Stale::Keys(&[key]));
    }
    if tracking.is_full() {
        broadcast(shared);
    }
}

/// Invalidates keys that were dropped because the tracking table is full.
pub(crate) fn tell_of_forgotten(shared: &Shared, forgotten: &Forgotten) {
    for (key, clients) in forgotten {
        tell(shared, clients, Stale::Keys(&[key]));
    }
}

/// Invalidates all keys.
pub(crate) fn tell_of_flush(shared: &Shared) {
    tell(shared, &shared.interests.tracking.flush(), Stale::Everything);
}

/// Invalidates changed keys for clients in broadcast mode, in one message per prefix.
pub(crate) fn broadcast(shared: &Shared) {
    for changes in shared.interests.tracking.take_changes() {
        let keys: Vec<&[u8]> = changes.keys.iter().map(|(key, _)| &**key).collect();
        let (all, some) = recipients(shared, &changes);
        tell(shared, &all, Stale::Keys(&keys));
        for client in some {
            let of_others = changes.keys.iter().filter(|(_, by)| *by != Some(client));
            let keys: Vec<&[u8]> = of_others.map(|(key, _)| &**key).collect();
            if !keys.is_empty() {
                tell(shared, &[client], Stale::Keys(&keys));
            }
        }
    }
}

/// Splits clients into those that receive all keys and those that don't receive keys that they changed
/// themselves.
fn recipients(shared: &Shared, changes: &Changes) -> (Vec<u64>, Vec<u64>) {
    let has_own = |client: &u64| changes.keys.iter().any(|(_, by)| *by == Some(*client));
    changes.clients.iter().partition(|client| {
        let tracker = shared.interests.tracking.own_changes(**client);
        tracker != Some(OwnChanges::NotTold) || !has_own(client)
    })
}

fn tell(shared: &Shared, clients: &[u64], stale: Stale<'_>) {
    let mut push = Message::new(|reply| {
        reply.push(2);
        reply.bulk(b"invalidate");
        write(reply, stale);
    });
    let mut message = Message::new(|reply| {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(CHANNEL);
        write(reply, stale);
    });
    for client in clients {
        match target(shared, *client) {
            Some((target, _)) if target.version() == Version::Resp3 => push.send(shared, &target),
            Some((target, Way::Redirected)) if target.is_subscribed() => message.send(shared, &target),
            _ => false,
        };
    }
}

fn write(reply: &mut Reply<'_>, stale: Stale<'_>) {
    match stale {
        Stale::Keys(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
        Stale::Everything => reply.null(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Straight,
    Redirected,
}

/// Returns the client that receives the messages of a tracking client. If a redirection target is gone, the
/// tracking client is notified that its redirection is broken.
fn target(shared: &Shared, client: u64) -> Option<(std::sync::Arc<Client>, Way)> {
    let tracking = &shared.interests.tracking;
    let Some(redirect) = tracking.redirect(client) else {
        return Some((shared.clients.find(client)?, Way::Straight));
    };
    if let Some(target) = shared.clients.find(redirect) {
        return Some((target, Way::Redirected));
    }
    tracking.break_redirect(client);
    let client = shared.clients.find(client)?;
    if client.version() == Version::Resp3 {
        let write = |reply: &mut Reply<'_>| {
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(redirect as i64);
        };
        Message::new(write).send(shared, &client);
    }
    None
}
