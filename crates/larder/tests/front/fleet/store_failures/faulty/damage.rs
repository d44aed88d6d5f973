//! Damage to the keys of a store, unnoticed by the instances that share it.

use std::collections::HashMap;

use testkit::{Random, RespClient};

/// Kinds of keys: record and segment under a cache key, log of purges, record of an instance, list of instances.
pub(crate) const KINDS: [&str; 5] = ["record", "segment", "log", "member", "list"];

/// Kinds of damage. A flipped key has one inverted bit. A swapped key has the value of another key, of its kind if possible. A key set back
/// has its earlier value. A foreign key isn't a string.
pub(crate) const DAMAGES: [&str; 6] = ["deleted", "flipped", "truncated", "swapped", "set back", "foreign"];

pub(crate) type Contents = HashMap<Vec<u8>, Vec<u8>>;

pub(crate) fn contents(client: &mut RespClient) -> Contents {
    let names = client.names("larder:*");
    names.into_iter().filter_map(|name| client.value(&name).map(|value| (name, value))).collect()
}

fn kind(name: &[u8], value: &[u8]) -> Option<&'static str> {
    let of_record = match value.get(4) {
        Some(b'I') => "member",
        Some(b'M') => "list",
        _ => "record",
    };
    match name.strip_prefix(b"larder:")? {
        b"log" => Some("log"),
        [b's', b':', ..] => Some("segment"),
        [b'r' | b'm', b':', ..] => Some(of_record),
        _ => None,
    }
}

/// Damages all keys of a kind, cycling through [`DAMAGES`] from `turn` on, and returns their number. `before` is the earlier contents.
pub(crate) fn damage(
    client: &mut RespClient,
    kind_wanted: &str,
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
        if damage == "foreign" {
            client.ask(&[b"LPUSH", name, b"x"]);
        }
    }
    victims.len()
}

/// Removes stored responses, and leaves the data that instances exchange.
pub(crate) fn clear(client: &mut RespClient) {
    for (name, value) in contents(client) {
        if matches!(kind(&name, &value), Some("record" | "segment")) {
            client.ask(&[b"DEL", &name]);
        }
    }
}

/// Value of a key after the damage, or `None` if the key is deleted.
fn damaged(
    damage: &str,
    value: &[u8],
    other: &[u8],
    before: Option<&Vec<u8>>,
    random: &mut Random,
) -> Option<Vec<u8>> {
    let mut bytes = value.to_vec();
    match damage {
        "flipped" => bytes[random.below(value.len())] ^= 1 << random.below(8),
        "truncated" => bytes.truncate(random.below(value.len())),
        "swapped" => bytes = other.to_vec(),
        "set back" => bytes = before.cloned()?,
        _ => return None,
    }
    Some(bytes)
}
