//! A configuration whose keys, types and ranges fit the option table, with every default filled in.

use std::time::Duration;

use super::locate::Place;
use super::setting::{Field, Setting};
use super::table::Section;

/// A table: a value for each key that has one or has a default.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) section: &'static Section,
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) entries: Vec<(&'static str, Node)>,
    /// Keys whose value was wrong: they have their default, or none, and a problem is noted already.
    pub(crate) wrong: Vec<&'static str>,
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
    pub(crate) path: String,
}

/// A value of the type that the option table asks for.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Flag(bool),
    Integer(u64),
    Size(u64),
    Duration(Duration),
    Text(String),
    Choice(&'static str),
    List(Vec<Node>),
    /// Free keys, each with the place of the key.
    Map(Vec<(String, Node)>),
    Table(Table),
}

impl Table {
    /// The value of a key, if it was given or has a default.
    pub(crate) fn node(&self, key: &str) -> Option<&Node> {
        debug_assert!(
            self.section.option(key).is_some(),
            "{}.{key} is not in the option table",
            self.section.name
        );
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// The value of a key that was written down, not a default.
    pub(crate) fn given(&self, key: &str) -> Option<&Node> {
        self.node(key).filter(|node| node.place != Place::Preset)
    }

    /// Whether the key has a value that isn't what the file meant.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        self.wrong.contains(&key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.node(key)?.value {
            Value::Text(text) => Some(text),
            Value::Choice(text) => Some(text),
            other => other.mismatch(key),
        }
    }

    /// The value of a key, in the type that its owner has for it.
    pub(crate) fn get<T: Field>(&self, key: &str) -> T {
        T::of_key(self, key)
    }

    /// The value of a key that was written down.
    pub(crate) fn written<T: Setting>(&self, key: &str) -> Option<T> {
        self.given(key).map(|_| self.get(key))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key)
    }

    pub(crate) fn duration(&self, key: &str) -> Duration {
        self.get(key)
    }

    /// The elements of a list; none if the key has no value.
    pub(crate) fn list(&self, key: &str) -> &[Node] {
        match self.node(key).map(|node| &node.value) {
            None => &[],
            Some(Value::List(nodes)) => nodes,
            Some(other) => other.mismatch(key),
        }
    }

    /// The tables in a list.
    pub(crate) fn tables(&self, key: &str) -> impl Iterator<Item = &Self> {
        self.list(key).iter().filter_map(|node| match &node.value {
            Value::Table(table) => Some(table),
            _ => None,
        })
    }

    pub(crate) fn map(&self, key: &str) -> &[(String, Node)] {
        match self.node(key).map(|node| &node.value) {
            None => &[],
            Some(Value::Map(entries)) => entries,
            Some(other) => other.mismatch(key),
        }
    }

    pub(crate) fn optional_table(&self, key: &str) -> Option<&Self> {
        match &self.node(key)?.value {
            Value::Table(table) => Some(table),
            other => other.mismatch(key),
        }
    }

    pub(crate) fn table(&self, key: &str) -> &Self {
        self.optional_table(key).unwrap_or_else(|| panic!("{key} has a default in the option table"))
    }

    /// Takes a value over the one that is there.
    pub(crate) fn set(&mut self, key: &'static str, node: Node) {
        self.entries.retain(|(name, _)| *name != key);
        self.entries.push((key, node));
    }
}

impl Node {
    /// The text of an element that the option table declares as text, or as one of some.
    pub(crate) fn as_text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Choice(text) => text,
            other => other.mismatch(&self.path),
        }
    }
}

impl Value {
    /// Whether two values mean the same, wherever they were written.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let same_nodes = |ours: &[Node], theirs: &[Node]| {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.value.same(&b.value))
        };
        match (self, other) {
            (Self::Flag(a), Self::Flag(b)) => a == b,
            (Self::Integer(a), Self::Integer(b)) | (Self::Size(a), Self::Size(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Choice(a), Self::Choice(b)) => a == b,
            (Self::List(a), Self::List(b)) => same_nodes(a, b),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((ak, av), (bk, bv))| ak == bk && av.value.same(&bv.value))
            }
            (Self::Table(a), Self::Table(b)) => {
                a.entries.len() == b.entries.len()
                    && a.entries
                        .iter()
                        .all(|(key, node)| b.node(key).is_some_and(|b| node.value.same(&b.value)))
            }
            _ => false,
        }
    }

    pub(super) fn mismatch(&self, key: &str) -> ! {
        panic!("{key} is read as another type than the option table declares: {self:?}")
    }
}
