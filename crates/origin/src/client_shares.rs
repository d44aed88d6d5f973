//! Shares of a limited resource by client.
//!
//! Mostly few clients have a share, and searching through those costs a fraction of a keyed hash. Further clients are in a table.

use std::collections::HashMap;

use message::client::Client;
use smallvec::SmallVec;

/// Places and queue entries of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) used: usize,
    pub(super) waiting: usize,
}

/// Shares of all clients that have any.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClientShares {
    /// Unordered. None of them is in `others` too.
    few: SmallVec<[(Client, Part); FEW]>,
    others: HashMap<Client, Part>,
}

const FEW: usize = 8;

impl ClientShares {
    /// Returns the share of a client, which may be empty.
    pub(super) fn of(&self, client: Client) -> Part {
        match self.few.iter().find(|(known, _)| *known == client) {
            Some((_, part)) => *part,
            None if self.others.is_empty() => Part::default(),
            None => self.others.get(&client).copied().unwrap_or_default(),
        }
    }

    pub(super) fn change(&mut self, client: Client, change: impl FnOnce(&mut Part)) {
        let permit = self.few.iter().position(|(known, _)| *known == client);
        let mut part = match permit {
            Some(permit) => self.few[permit].1,
            None => self.take_of_others(client),
        };
        change(&mut part);
        match permit {
            Some(permit) if part == Part::default() => {
                self.few.swap_remove(permit);
            }
            Some(permit) => self.few[permit].1 = part,
            None if part == Part::default() => {}
            None if self.few.len() < FEW => self.few.push((client, part)),
            None => {
                self.others.insert(client, part);
            }
        }
    }

    fn take_of_others(&mut self, client: Client) -> Part {
        if self.others.is_empty() { Part::default() } else { self.others.remove(&client).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a plain list, however many clients come and go.
        #[test]
        fn every_client_has_its_part(
            changes in prop::collection::vec((0..3 * FEW as u8, 0..3_usize, 0..2_usize), 1..200),
        ) {
            let (mut parts, mut expected) = (ClientShares::default(), BTreeMap::new());
            let client = |number| Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)));
            for (number, used, waiting) in changes {
                parts.change(client(number), |part| *part = Part { used, waiting });
                expected.insert(number, Part { used, waiting });
                for (number, part) in &expected {
                    prop_assert_eq!(parts.of(client(*number)), *part);
                }
                let with_any = expected.values().filter(|part| **part != Part::default()).count();
                prop_assert_eq!(parts.few.len() + parts.others.len(), with_any);
            }
        }
    }
}
