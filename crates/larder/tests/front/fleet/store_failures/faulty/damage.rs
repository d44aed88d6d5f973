//! Damage to the keys of a store, unnoticed by the instances that share it.

use std::collections::HashMap;

use testkit::{Random, RespClient};

/// Kind of a key: record or segment under a cache key, log of purges, record of an instance, list of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Record,
    Segment,
    Log,
    Member,
    List,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Record, Kind::Segment, Kind::Log, Kind::Member, Kind::List];

/// Damage to a key. A flipped key has one inverted bit. A swapped key has the value of another key, of its kind if possible. A key set back
/// has its earlier value. A foreign key isn't a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    Deleted,
    Flipped,
    Truncated,
    Swapped,
    SetBack,
    Foreign,
}

pub(crate) const DAMAGES: [Damage; 6] =
    [Damage::Deleted, Damage::Flipped, Damage::Truncated, Damage::Swapped, Damage::SetBack, Damage::Foreign];

/// Values of keys by name.
pub(crate) type Contents = HashMap<Vec<u8>, Vec<u8>>;

pub(crate) fn contents(client: &mut RespClient) -> Contents {
    let names = client.names("larder:*");
    names.into_iter().filter_map(|name| client.value(&name).map(|value| (name, value))).collect()
}

fn kind(name: &[u8], value: &[u8]) -> Option<Kind> {
    let of_record = match value.get(4) {
        Some(b'I') => Kind::Member,
        Some(b'M') => Kind::List,
        _ => Kind::Record,
    };
    match name.strip_prefix(b"larder:")? {
        b"log" => Some(Kind::Log),
        [b's', b':', ..] => Some(Kind::Segment),
        [b'r', b':', ..] => Some(of_record),
        _ => None,
    }
}

/// Damages all keys of a kind, cycling through [`DAMAGES`] from `turn` on, and returns their number. `before` is the earlier contents.
pub(crate) fn damage(
    client: &mut RespClient,
    kind_wanted: Kind,
    turn: usize,
    before: &Contents,
    random: &mut Random,
) -> usize {
    let now = contents(client);
    let mut victims: Vec<(&Vec<u8>, &Vec<u8>)> =
        now.iter().filter(|(name, value)| kind(name, value) == Some(kind_wanted)).collect();
    victims.sort();
    let others = now.values().next().expect("there are keys");
    for (place, (name, value)) in victims.iter().enumerate() {
        let damage = DAMAGES[(turn + place) % DAMAGES.len()];
        let next = victims[(place + 1) % victims.len()].1;
        let other = if victims.len() > 1 { next } else { others };
        match damaged(damage, value, other, before.get(*name), random) {
            Some(bytes) => drop(client.ask(&[b"SET", name, &bytes, b"KEEPTTL"])),
            None => drop(client.ask(&[b"DEL", name])),
        }
        if damage == Damage::Foreign {
            client.ask(&[b"LPUSH", name, b"x"]);
        }
    }
    victims.len()
}

/// Removes stored responses, and leaves the data that instances exchange.
pub(crate) fn clear(client: &mut RespClient) {
    for (name, value) in contents(client) {
        if matches!(kind(&name, &value), Some(Kind::Record | Kind::Segment)) {
            client.ask(&[b"DEL", &name]);
        }
    }
}

/// Value of a key after the damage, or `None` if the key is deleted.
fn damaged(
    damage: Damage,
    value: &[u8],
    other: &[u8],
    before: Option<&Vec<u8>>,
    random: &mut Random,
) -> Option<Vec<u8>> {
    let mut bytes = value.to_vec();
    match damage {
        Damage::Deleted | Damage::Foreign => return None,
        Damage::Flipped => bytes[random.below(value.len())] ^= 1 << random.below(8),
        Damage::Truncated => bytes.truncate(random.below(value.len())),
        Damage::Swapped => bytes = other.to_vec(),
        Damage::SetBack => bytes = before.cloned()?,
    }
    Some(bytes)
}
