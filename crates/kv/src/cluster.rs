//! A cluster with a static slot map from the configuration.

use std::iter;
use std::ops::RangeInclusive;

use resp::{SLOTS, hash_slot};
use thiserror::Error;
use twox_hash::XxHash3_64;

use crate::server::Security;

/// A server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// The server's name, which is unique in the cluster and equal in the settings of all servers.
    pub name: String,
    /// IP address or host name by which clients reach it.
    pub host: String,
    pub port: u16,
    /// Port for TLS clients, if it differs.
    pub tls_port: Option<u16>,
    pub slots: Vec<RangeInclusive<u16>>,
}

/// Whether a command may have keys in several slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossSlot {
    /// As in Redis.
    #[default]
    Refused,
    /// Allowed if one server owns all of the slots.
    Allowed,
}

/// The slot map, as seen by one of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    nodes: Vec<ClusterNode>,
    ids: Vec<String>,
    me: usize,
    cross_slot: CrossSlot,
    /// Index of the owning node for each slot.
    owners: Vec<Option<u16>>,
}

/// Errors in the definition of a cluster.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterError {
    #[error("no node is named `{0}`")]
    NoSuchNode(String),
    /// `node` is the index of the second node with the name.
    #[error("two nodes are named `{name}`")]
    SameName { name: String, node: usize },
    #[error("`{first}` has this address already")]
    SameAddress { first: String, node: usize },
    #[error("slot {slot} already belongs to `{first}`")]
    SameSlot { slot: u16, first: String, node: usize },
    #[error("there is no slot {0}: the last is 16383")]
    NoSuchSlot(u16),
    #[error("a cluster can have at most {NODES_MAX} nodes")]
    TooManyNodes,
}

impl ClusterNode {
    /// The port for clients with this transport security.
    pub(crate) fn port_for(&self, security: Security) -> u16 {
        match security {
            Security::Plain => self.port,
            Security::Tls => self.tls_port.unwrap_or(self.port),
        }
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        iter::once(self.port).chain(self.tls_port)
    }
}

/// Maximum number of nodes. Redis advises against larger clusters.
const NODES_MAX: usize = 1000;

/// Location of a command's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    Here,
    /// In this slot, which another node owns.
    There(u16, &'a ClusterNode),
    /// In a slot without an owner.
    Nowhere,
    /// In several slots.
    Apart,
}

impl Cluster {
    /// Creates a cluster of `nodes`, as seen by the node named `me`.
    ///
    /// # Errors
    /// If a name, an address or a slot occurs twice, or a name or slot doesn't exist.
    pub fn new(nodes: Vec<ClusterNode>, me: &str) -> Result<Self, ClusterError> {
        if nodes.len() > NODES_MAX {
            return Err(ClusterError::TooManyNodes);
        }
        let find = |name: &str| nodes.iter().position(|node| node.name == name);
        let mut owners = vec![None; usize::from(SLOTS)];
        for (number, node) in nodes.iter().enumerate() {
            if find(&node.name) != Some(number) {
                return Err(ClusterError::SameName { name: node.name.clone(), node: number });
            }
            let is_same = |first: &&ClusterNode| {
                first.host == node.host && node.ports().any(|port| first.ports().any(|other| other == port))
            };
            if let Some(first) = nodes[..number].iter().find(is_same) {
                // Clients would be redirected to the same address forever.
                return Err(ClusterError::SameAddress { first: first.name.clone(), node: number });
            }
            for slot in node.slots.iter().cloned().flatten() {
                let owner = owners.get_mut(usize::from(slot)).ok_or(ClusterError::NoSuchSlot(slot))?;
                if let Some(first) = owner.replace(number as u16) {
                    let first = nodes[usize::from(first)].name.clone();
                    return Err(ClusterError::SameSlot { slot, first, node: number });
                }
            }
        }
        let me = find(me).ok_or_else(|| ClusterError::NoSuchNode(me.to_owned()))?;
        let ids = nodes.iter().map(|node| id_of(&node.name)).collect();
        Ok(Self { nodes, ids, me, cross_slot: CrossSlot::default(), owners })
    }

    /// Returns this cluster with the given policy for commands with keys in several slots.
    #[must_use]
    pub fn with_cross_slot(self, cross_slot: CrossSlot) -> Self {
        Self { cross_slot, ..self }
    }

    pub(crate) fn cross_slot(&self) -> CrossSlot {
        self.cross_slot
    }

    /// Returns whether this server owns the slot of a key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.owners[usize::from(hash_slot(key))].map(usize::from) == Some(self.me)
    }

    pub(crate) fn place<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Place<'_> {
        let mut slots = keys.into_iter().map(hash_slot);
        let Some(slot) = slots.next() else { return Place::Here };
        let owner = self.owners[usize::from(slot)];
        let is_apart = |other: u16| match self.cross_slot {
            CrossSlot::Refused => other != slot,
            CrossSlot::Allowed => self.owners[usize::from(other)] != owner,
        };
        if slots.any(is_apart) {
            return Place::Apart;
        }
        match owner.map(usize::from) {
            None => Place::Nowhere,
            Some(owner) if owner == self.me => Place::Here,
            Some(owner) => Place::There(slot, &self.nodes[owner]),
        }
    }

    /// All nodes with their ids, in the order of the settings.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = (&ClusterNode, &str)> {
        self.nodes.iter().zip(self.ids.iter().map(String::as_str))
    }

    pub(crate) fn me(&self) -> (&ClusterNode, &str) {
        (&self.nodes[self.me], &self.ids[self.me])
    }

    /// Number of slots with an owner.
    pub(crate) fn assigned(&self) -> usize {
        self.owners.iter().flatten().count()
    }

    /// Ranges of consecutive slots with one owner, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<u16>, &ClusterNode, &str)> {
        let mut next = 0;
        iter::from_fn(move || {
            next += self.owners[next..].iter().position(Option::is_some)?;
            let (first, owner) = (next, self.owners[next]);
            next += self.owners[next..].iter().take_while(|other| **other == owner).count();
            let node = usize::from(owner?);
            Some((first as u16..=(next - 1) as u16, &self.nodes[node], self.ids[node].as_str()))
        })
    }
}

/// Returns 40 hexadecimal digits, as in Redis, derived from the name alone.
fn id_of(name: &str) -> String {
    let parts = (0..3).map(|seed| format!("{:016x}", XxHash3_64::oneshot_with_seed(seed, name.as_bytes())));
    parts.collect::<String>()[..40].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, slots: &[RangeInclusive<u16>]) -> ClusterNode {
        ClusterNode {
            name: name.to_owned(),
            host: format!("host-{name}"),
            port: 1,
            tls_port: None,
            slots: slots.to_vec(),
        }
    }

    #[test]
    fn keys_are_where_their_slot_is() {
        // "foo" has slot 12182, "bar" 5061, "hello" 866.
        let nodes = vec![node("a", &[0..=5460]), node("b", &[5461..=12181]), node("c", &[12182..=12182])];
        let cluster = Cluster::new(nodes.clone(), "a").expect("a cluster");
        let cases: [(&[&[u8]], _); 7] = [
            (&[], Place::Here),
            (&[b"bar"], Place::Here),
            (&[b"bar", b"x{bar}"], Place::Here),
            (&[b"bar", b"hello"], Place::Apart),
            (&[b"foo"], Place::There(12182, &nodes[2])),
            (&[b"foo", b"bar"], Place::Apart),
            (&[b"a"], Place::Nowhere),
        ];
        for (keys, place) in cases {
            assert_eq!(cluster.place(keys.iter().copied()), place, "{keys:?}");
        }
        let cluster = cluster.with_cross_slot(CrossSlot::Allowed);
        let cases: [(&[&[u8]], _); 4] = [
            (&[b"bar", b"hello"], Place::Here),
            (&[b"bar", b"foo"], Place::Apart),
            (&[b"bar", b"a"], Place::Apart),
            (&[b"foo"], Place::There(12182, &nodes[2])),
        ];
        for (keys, place) in cases {
            assert_eq!(cluster.place(keys.iter().copied()), place, "{keys:?}");
        }
    }

    #[test]
    fn neighbouring_slots_are_one_range() {
        let nodes = vec![node("a", &[5..=9, 0..=4, 100..=100]), node("b", &[10..=20, 16383..=16383])];
        let cluster = Cluster::new(nodes, "b").expect("a cluster");
        let ranges: Vec<_> = cluster.ranges().map(|(slots, node, _)| (slots, node.name.as_str())).collect();
        assert_eq!(ranges, [(0..=9, "a"), (10..=20, "b"), (100..=100, "a"), (16383..=16383, "b")]);
        assert_eq!((cluster.assigned(), cluster.me().0.name.as_str()), (23, "b"));
    }

    #[test]
    fn what_is_no_cluster_is_refused() {
        let a = || node("a", &[0..=4]);
        for (nodes, error) in [
            (vec![node("b", &[])], ClusterError::NoSuchNode("a".to_owned())),
            (vec![a(), node("a", &[])], ClusterError::SameName { name: "a".to_owned(), node: 1 }),
            (
                vec![a(), ClusterNode { name: "b".to_owned(), ..a() }],
                ClusterError::SameAddress { first: "a".to_owned(), node: 1 },
            ),
            (
                vec![a(), node("b", &[4..=5])],
                ClusterError::SameSlot { slot: 4, first: "a".to_owned(), node: 1 },
            ),
            (vec![node("a", &[16380..=16384])], ClusterError::NoSuchSlot(16384)),
            ((0..1001).map(|number| node(&number.to_string(), &[])).collect(), ClusterError::TooManyNodes),
        ] {
            assert_eq!(Cluster::new(nodes, "a"), Err(error));
        }
    }

    #[test]
    fn ids_follow_from_names() {
        let cluster = Cluster::new(vec![node("a", &[]), node("b", &[])], "a").expect("a cluster");
        let ids: Vec<_> = cluster.nodes().map(|(_, id)| id).collect();
        assert!(ids.iter().all(|id| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0], id_of("a"));
    }
}
