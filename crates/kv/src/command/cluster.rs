//! CLUSTER commands, and the check of key slots before a command.

use std::fmt::Write as _;

use resp::{SLOTS, hash_slot};

use super::walk::walk;
use super::{Call, Command, Outcome, Refusal};
use crate::cluster::{Cluster, ClusterNode, CrossSlot, Place};
use crate::repeated;
use crate::reply::Reply;
use crate::server::Security;
use crate::transaction::Slots;

impl Call<'_> {
    /// Checks that this server owns the slots of a command's keys.
    pub(super) fn check_slots(&self, command: &Command) -> Outcome {
        let Some(cluster) = &self.shared.cluster else { return Ok(()) };
        match cluster.place(self.keys_of(command)) {
            Place::Here => Ok(()),
            Place::There(slot, node) => {
                let port = node.port_for(self.security());
                Err(Refusal::Moved(format!("{slot} {}:{port}", node.host)))
            }
            Place::Nowhere => Err(Refusal::Other("CLUSTERDOWN Hash slot not served")),
            Place::Apart => Err(Refusal::CrossSlot),
        }
    }

    /// Requires that all keys of a transaction share a slot, even if this server owns all of their slots,
    /// unless commands across slots are allowed.
    pub(super) fn check_slots_of_queue(&self, command: &Command) -> Outcome {
        let queue = self.session.queue.as_ref().filter(|_| command.name == "exec");
        match queue.map(|queue| queue.slots()) {
            Some(Slots::Several) if !self.may_cross_slots() => Err(Refusal::CrossSlot),
            _ => Ok(()),
        }
    }

    /// Returns whether a transaction may have keys in several slots. Each of its commands was checked when it
    /// was queued, and the slot map doesn't change.
    fn may_cross_slots(&self) -> bool {
        self.shared.cluster.as_ref().is_some_and(|cluster| cluster.cross_slot() == CrossSlot::Allowed)
    }

    /// The transport security of the client, which receives the ports with the same security.
    fn security(&self) -> Security {
        self.session.client.ends.security
    }

    /// The slot of a command's keys in a cluster; they share one slot.
    pub(super) fn first_slot(&self, command: &Command) -> Option<u16> {
        self.shared.cluster.as_ref()?;
        self.keys_of(command).next().map(hash_slot)
    }

    /// Refuses a command that needs a second database, which a cluster doesn't have.
    pub(super) fn check_no_cluster(&self, refusal: &'static str) -> Outcome {
        if self.shared.cluster.is_some() { Err(Refusal::Other(refusal)) } else { Ok(()) }
    }

    fn cluster(&self) -> Result<&Cluster, Refusal> {
        self.shared.cluster.as_ref().ok_or(Refusal::Other("ERR This instance has cluster support disabled"))
    }

    fn slot(&self, index: usize, refusal: &'static str) -> Result<u16, Refusal> {
        let slot = u16::try_from(self.integer(index)?).ok();
        slot.filter(|slot| *slot < SLOTS).ok_or(Refusal::Other(refusal))
    }
}

/// READONLY, READWRITE, ASKING: accepted, because there are no replicas and slots never move.
pub(super) fn accept(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.cluster()?;
    reply.ok();
    Ok(())
}

/// CLUSTER SLOTS
pub(super) fn slots(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let cluster = call.cluster()?;
    reply.array(cluster.ranges().count());
    for (slots, node, id) in cluster.ranges() {
        reply.array(3);
        reply.integer(i64::from(*slots.start()));
        reply.integer(i64::from(*slots.end()));
        reply.array(4);
        reply.bulk(node.host.as_bytes());
        reply.integer(i64::from(node.port_for(call.security())));
        reply.bulk(id.as_bytes());
        // The node has no metadata, such as additional host names.
        reply.map(0);
    }
    Ok(())
}

/// CLUSTER SHARDS
pub(super) fn shards(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let cluster = call.cluster()?;
    reply.array(cluster.nodes().len());
    for (node, id) in cluster.nodes() {
        reply.map(2);
        reply.bulk(b"slots");
        let ranges: Vec<_> = ranges_of(cluster, id).collect();
        reply.array(ranges.len() * 2);
        for (first, last) in ranges {
            reply.integer(i64::from(first));
            reply.integer(i64::from(last));
        }
        reply.bulk(b"nodes");
        reply.array(1);
        shard_node(node, id, reply);
    }
    Ok(())
}

fn shard_node(node: &ClusterNode, id: &str, reply: &mut Reply<'_>) {
    reply.map(7 + usize::from(node.tls_port.is_some()));
    reply.bulk(b"id");
    reply.bulk(id.as_bytes());
    reply.bulk(b"port");
    reply.integer(i64::from(node.port));
    if let Some(port) = node.tls_port {
        reply.bulk(b"tls-port");
        reply.integer(i64::from(port));
    }
    for (name, value) in [("ip", node.host.as_str()), ("endpoint", &node.host), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"replication-offset");
    reply.integer(0);
    reply.bulk(b"health");
    reply.bulk(b"online");
}

fn ranges_of<'a>(cluster: &'a Cluster, id: &'a str) -> impl Iterator<Item = (u16, u16)> + use<'a> {
    let own = cluster.ranges().filter(move |(_, _, owner)| *owner == id);
    own.map(|(slots, _, _)| (*slots.start(), *slots.end()))
}

/// CLUSTER NODES. The bus port is 0, because there is no bus.
pub(super) fn nodes(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let cluster = call.cluster()?;
    let (_, me) = cluster.me();
    let mut text = String::new();
    for (node, id) in cluster.nodes() {
        let flags = if id == me { "myself,master" } else { "master" };
        // Writing to a `String` can't fail.
        let port = node.port_for(call.security());
        let _ = write!(text, "{id} {}:{port}@0 {flags} - 0 0 0 connected", node.host);
        for (first, last) in ranges_of(cluster, id) {
            let _ = if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
        }
        text.push('\n');
    }
    reply.text(&text);
    Ok(())
}

/// CLUSTER INFO. The state is `ok` even if some slots have no owner, because assigned slots are served.
pub(super) fn info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let cluster = call.cluster()?;
    let assigned = cluster.assigned();
    let size = cluster.nodes().filter(|(node, _)| !node.slots.is_empty()).count();
    let facts = [
        ("slots_assigned", assigned),
        ("slots_ok", assigned),
        ("slots_pfail", 0),
        ("slots_fail", 0),
        ("known_nodes", cluster.nodes().len()),
        ("size", size),
        ("current_epoch", 0),
        ("my_epoch", 0),
        ("stats_messages_sent", 0),
        ("stats_messages_received", 0),
    ];
    let facts = facts.map(|(name, number)| format!("cluster_{name}:{number}\r\n")).concat();
    reply.text(&format!("cluster_state:ok\r\n{facts}total_cluster_links_buffer_limit_exceeded:0\r\n"));
    Ok(())
}

/// CLUSTER KEYSLOT key
pub(super) fn keyslot(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.cluster()?;
    reply.integer(i64::from(hash_slot(call.argument(2))));
    Ok(())
}

/// CLUSTER MYID
pub(super) fn myid(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.bulk(call.cluster()?.me().1.as_bytes());
    Ok(())
}

/// CLUSTER LINKS: always empty, because nodes don't communicate.
pub(super) fn links(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.cluster()?;
    reply.array(0);
    Ok(())
}

/// CLUSTER REPLICAS node-id: always empty.
pub(super) fn replicas(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let wanted = call.argument(2);
    if !call.cluster()?.nodes().any(|(_, id)| id.as_bytes() == wanted) {
        return Err(Refusal::UnknownNode(repeated::text(wanted)));
    }
    reply.array(0);
    Ok(())
}

/// CLUSTER COUNTKEYSINSLOT slot
pub(super) fn countkeysinslot(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.cluster()?;
    let slot = call.slot(2, "ERR Invalid slot")?;
    let walk = walk(call, |walk, key| walk.found += usize::from(hash_slot(key) == slot))?;
    reply.count(walk.found);
    Ok(())
}

/// CLUSTER GETKEYSINSLOT slot count
pub(super) fn getkeysinslot(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    const REFUSAL: &str = "ERR Invalid slot or number of keys";
    call.cluster()?;
    let slot = call.slot(2, REFUSAL)?;
    let count = usize::try_from(call.integer(3)?).map_err(|_| Refusal::Other(REFUSAL))?;
    let shared = call.shared;
    let walk = walk(call, |walk, key| {
        if walk.found < count && hash_slot(key) == slot {
            walk.tell(key, shared);
        }
    })?;
    walk.reply(call, reply);
    Ok(())
}
