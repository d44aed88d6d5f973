//! A configuration whose keys, types and ranges fit the option table, with all defaults filled in.

use std::time::Duration;

use super::locate::Place;
use super::setting::{Field, Setting};
use super::table::Section;

/// A table: the values of all keys that have one, given or by default.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) section: &'static Section,
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) entries: Vec<(&'static str, Node)>,
    /// Keys with a wrong value: each has its default, or none, and a problem is noted.
    pub(crate) wrong: Vec<&'static str>,
}

/// A value and its place in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
    pub(crate) path: String,
}

/// A value of the type in the option table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    /// A number, or a size in bytes.
    Number(u64),
    Duration(Duration),
    Text(String),
    /// One of the words in the option table, shared by reference because 10,000 sites would need as many copies.
    Choice(&'static str),
    List(Vec<Node>),
    /// Free keys, each with the place of the key.
    Map(Vec<(String, Node)>),
    Table(Table),
}

impl Table {
    /// Returns the value of a key, given or by default.
    pub(crate) fn node(&self, key: &str) -> Option<&Node> {
        self.assert_known(key);
        #[cfg(test)]
        reads::note(self.section, key);
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    pub(crate) fn node_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.assert_known(key);
        self.entries.iter_mut().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// Asserts, in debug builds, that the section has the key. The test `every_key_is_read` finds misspelt keys.
    fn assert_known(&self, key: &str) {
        debug_assert!(
            self.section.option(key).is_some(),
            "{}.{key} is not in the option table",
            self.section.name
        );
    }

    /// Returns the values at a path of keys, such as `rule.name`, in every table and list element on the way.
    pub(crate) fn nodes(&self, path: &str) -> Vec<&Node> {
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        self.node(key).map_or_else(Vec::new, |node| node.within(rest))
    }

    /// Calls `act` for each value at a path of keys.
    pub(crate) fn each_node(&mut self, path: &str, act: &mut dyn FnMut(&mut Node)) {
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        self.node_mut(key).into_iter().for_each(|node| node.each_within(rest, act));
    }

    /// Returns the value of a key if it is given, not a default.
    pub(crate) fn given(&self, key: &str) -> Option<&Node> {
        self.node(key).filter(|node| node.place != Place::Preset)
    }

    /// Returns whether the value of the key was wrong and has been replaced.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        self.assert_known(key);
        self.wrong.contains(&key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.node(key).map(Node::as_text)
    }

    /// Returns the value of a key, converted to the type of its setting.
    pub(crate) fn get<T: Field>(&self, key: &str) -> T {
        T::of_key(self, key)
    }

    /// Returns the value of a key if it is given, converted to `T`.
    pub(crate) fn written<T: Setting>(&self, key: &str) -> Option<T> {
        self.given(key).map(|_| self.get(key))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key)
    }

    pub(crate) fn duration(&self, key: &str) -> Duration {
        self.get(key)
    }

    /// Returns the elements of a list; none if the key has no value.
    pub(crate) fn list(&self, key: &str) -> &[Node] {
        match self.node(key).map(|node| &node.value) {
            None => &[],
            Some(Value::List(nodes)) => nodes,
            Some(other) => other.mismatch(key),
        }
    }

    /// Returns the tables in a list.
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

    pub(crate) fn table_mut(&mut self, key: &str) -> Option<&mut Self> {
        match &mut self.node_mut(key)?.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Sets the value of a key, replacing the present one.
    pub(crate) fn set(&mut self, key: &'static str, node: Node) {
        self.entries.retain(|(name, _)| *name != key);
        self.entries.push((key, node));
    }
}

impl Node {
    fn within(&self, path: &str) -> Vec<&Self> {
        match &self.value {
            Value::List(nodes) => nodes.iter().flat_map(|node| node.within(path)).collect(),
            Value::Table(table) if !path.is_empty() => table.nodes(path),
            _ => vec![self],
        }
    }

    fn each_within(&mut self, path: &str, act: &mut dyn FnMut(&mut Self)) {
        match &mut self.value {
            Value::List(nodes) => nodes.iter_mut().for_each(|node| node.each_within(path, act)),
            Value::Table(table) if !path.is_empty() => table.each_node(path, act),
            _ => act(self),
        }
    }

    /// Returns the text of an element that the option table declares as text or as a choice.
    pub(crate) fn as_text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Choice(text) => text,
            other => other.mismatch(&self.path),
        }
    }
}

/// Compares values, regardless of their places.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        let is_in_other = |(key, node): &(&'static str, Node)| other.node(key) == Some(node);
        self.entries.len() == other.entries.len() && self.entries.iter().all(is_in_other)
    }
}

impl Value {
    /// Returns whether the value contains nodes, which have paths of their own.
    pub(super) fn has_nodes(&self) -> bool {
        match self {
            Self::Flag(_) | Self::Number(_) | Self::Duration(_) | Self::Text(_) | Self::Choice(_) => false,
            Self::List(nodes) => !nodes.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
            Self::Table(_) => true,
        }
    }

    pub(super) fn mismatch(&self, key: &str) -> ! {
        panic!("{key} is read as another type than the option table declares: {self:?}")
    }
}

/// Records the keys that were read.
#[cfg(test)]
pub(super) mod reads {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use crate::config::table::Section;

    thread_local! {
        static NOTED: RefCell<BTreeSet<String>> = RefCell::default();
    }

    pub(super) fn note(section: &Section, key: &str) {
        NOTED.with_borrow_mut(|noted| noted.insert(format!("{}.{key}", section.name)));
    }

    /// Returns the keys that this thread has read, each with its table.
    pub(in crate::config) fn noted() -> BTreeSet<String> {
        NOTED.with_borrow(Clone::clone)
    }
}
