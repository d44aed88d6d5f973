//! Keyspace notifications: classes of events, and channels.

use std::fmt;

use engine::Database;

/// An event of a key, or of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Append,
    CopyTo,
    Del,
    Evicted,
    Expire,
    Expired,
    IncrBy,
    IncrByFloat,
    /// A lookup found no key.
    KeyMiss,
    MoveFrom,
    MoveTo,
    /// The key did not exist before.
    New,
    Persist,
    RenameFrom,
    RenameTo,
    Restore,
    Set,
    SetBit,
    SetRange,
}

/// `notify-keyspace-events`: enabled classes of events, and whether to publish them by key, by event, or
/// both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(u16);

/// The setting contains an unknown letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownEvent;

const KEYSPACE: u16 = 1;
const KEYEVENT: u16 = 1 << 1;
const GENERIC: u16 = 1 << 2;
const STRING: u16 = 1 << 3;
const EXPIRED: u16 = 1 << 4;
const EVICTED: u16 = 1 << 5;
const NEW: u16 = 1 << 12;
const MISS: u16 = 1 << 13;
/// The classes that `A` stands for.
const ALL: u16 = (1 << 12) - GENERIC;

/// The classes in the order in which Redis prints them. Classes of other data types can be set, but have no
/// events.
const CLASSES: [(u8, u16); 11] = [
    (b'g', GENERIC),
    (b'$', STRING),
    (b'l', 1 << 6),
    (b's', 1 << 7),
    (b'h', 1 << 8),
    (b'z', 1 << 9),
    (b'x', EXPIRED),
    (b'e', EVICTED),
    (b't', 1 << 10),
    (b'd', 1 << 11),
    (b'n', NEW),
];
const OTHERS: [(u8, u16); 3] = [(b'K', KEYSPACE), (b'E', KEYEVENT), (b'm', MISS)];

impl Change {
    /// The event name that clients see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::CopyTo => "copy_to",
            Self::Del => "del",
            Self::Evicted => "evicted",
            Self::Expire => "expire",
            Self::Expired => "expired",
            Self::IncrBy => "incrby",
            Self::IncrByFloat => "incrbyfloat",
            Self::KeyMiss => "keymiss",
            Self::MoveFrom => "move_from",
            Self::MoveTo => "move_to",
            Self::New => "new",
            Self::Persist => "persist",
            Self::RenameFrom => "rename_from",
            Self::RenameTo => "rename_to",
            Self::Restore => "restore",
            Self::Set => "set",
            Self::SetBit => "setbit",
            Self::SetRange => "setrange",
        }
    }

    /// Returns whether the event changes a key or its value.
    pub(crate) fn is_change(self) -> bool {
        !matches!(self, Self::KeyMiss | Self::New)
    }

    fn class(self) -> u16 {
        match self {
            Self::Append | Self::IncrBy | Self::IncrByFloat | Self::Set | Self::SetBit | Self::SetRange => {
                STRING
            }
            Self::Evicted => EVICTED,
            Self::Expired => EXPIRED,
            Self::KeyMiss => MISS,
            Self::New => NEW,
            Self::CopyTo
            | Self::Del
            | Self::Expire
            | Self::MoveFrom
            | Self::MoveTo
            | Self::Persist
            | Self::RenameFrom
            | Self::RenameTo
            | Self::Restore => GENERIC,
        }
    }
}

impl Events {
    /// Parses the letters of the setting.
    pub(crate) fn parse(letters: &[u8]) -> Result<Self, UnknownEvent> {
        let known = |letter: u8| match letter {
            b'A' => Ok(ALL),
            _ => {
                let mut all = CLASSES.iter().chain(&OTHERS);
                all.find(|(other, _)| *other == letter).map(|(_, bit)| *bit).ok_or(UnknownEvent)
            }
        };
        letters.iter().try_fold(0, |bits, letter| Ok(bits | known(*letter)?)).map(Self)
    }

    /// Returns whether an event is published.
    pub(crate) fn tell(self, event: Change) -> bool {
        self.0 & event.class() != 0 && self.0 & (KEYSPACE | KEYEVENT) != 0
    }

    /// Returns whether any event is published.
    pub(crate) fn is_any(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0 && self.0 & !(KEYSPACE | KEYEVENT) != 0
    }

    /// The messages of an event, as channel and payload, in Redis' order.
    pub(crate) fn messages(
        self,
        event: Change,
        database: Database,
        key: &[u8],
    ) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
        let channel = |bit: u16, space: &str, of: &[u8]| {
            (self.tell(event) && self.0 & bit != 0).then(|| {
                let mut channel = format!("__{space}@{}__:", database.number()).into_bytes();
                channel.extend_from_slice(of);
                channel
            })
        };
        let by_key = channel(KEYSPACE, "keyspace", key).map(|channel| (channel, event.name().as_bytes()));
        let by_event = channel(KEYEVENT, "keyevent", event.name().as_bytes()).map(|channel| (channel, key));
        by_key.into_iter().chain(by_event)
    }

    /// The setting as a number, to store in an atomic.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Events {
    /// Formats the setting as Redis does, which omits `n` if `A` is present.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_all = self.0 & ALL == ALL;
        let classes = CLASSES.iter().filter(|(_, bit)| !is_all && self.0 & bit != 0);
        let others = OTHERS.iter().filter(|(_, bit)| self.0 & bit != 0);
        f.write_str(if is_all { "A" } else { "" })?;
        classes.chain(others).try_for_each(|(letter, _)| write!(f, "{}", char::from(*letter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(letters: &str) -> Events {
        Events::parse(letters.as_bytes()).expect("letters of classes")
    }

    #[test]
    fn settings_are_written_as_redis_writes_them() {
        let cases = [
            ("", ""),
            ("KEA", "AKE"),
            ("KEAnm", "AKEm"),
            ("Egxn", "gxnE"),
            ("g$lshzxetdmnKE", "AKEm"),
            ("mt$K", "$tKm"),
        ];
        for (given, written) in cases {
            assert_eq!(events(given).to_string(), written, "{given}");
        }
        assert_eq!(Events::parse(b"Kq"), Err(UnknownEvent));
    }

    #[test]
    fn events_are_told_by_class_and_place() {
        let check = |letters: &str, event, expected: &[(&str, &str)]| {
            let database = Database::new(3).expect("a number below 16");
            let messages = events(letters).messages(event, database, b"key");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let messages: Vec<_> =
                messages.map(|(channel, payload)| (text(&channel), text(payload))).collect();
            let expected: Vec<_> =
                expected.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect();
            assert_eq!(messages, expected, "{letters} {event:?}");
        };
        let both = [("__keyspace@3__:key", "set"), ("__keyevent@3__:set", "key")];
        check("KEA", Change::Set, &both);
        check("K$", Change::Set, &both[..1]);
        check("E$", Change::Set, &both[1..]);
        for letters in ["", "$", "KE", "KEgxe"] {
            check(letters, Change::Set, &[]);
        }
        check("KEA", Change::KeyMiss, &[]);
        check("KEA", Change::New, &[]);
        check("Em", Change::KeyMiss, &[("__keyevent@3__:keymiss", "key")]);
        check("En", Change::New, &[("__keyevent@3__:new", "key")]);
        check("Ex", Change::Expired, &[("__keyevent@3__:expired", "key")]);
        check("Ee", Change::Evicted, &[("__keyevent@3__:evicted", "key")]);
    }

    #[test]
    fn nothing_is_told_without_place_or_class() {
        let is_any = ["", "K", "KE", "A", "KA", "Em"].map(|letters| events(letters).is_any());
        assert_eq!(is_any, [false, false, false, false, true, true]);
        assert_eq!(Events::of_bits(events("KEx").bits()), events("KEx"));
    }
}
