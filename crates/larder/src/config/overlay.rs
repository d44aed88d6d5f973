//! Overrides the value of a key in the file. The new value is checked like those of the file.

use serde_spanned::Spanned;
use toml::de::{DeString, DeValue};

use super::locate::Place;
use super::problem::Problems;
use super::raw::{self, Reader};
use super::table::KV;
use super::tree::{Node, Table, Value};

/// Adds a `[kv]` table with defaults to a file that has none.
pub(super) fn add_kv(tree: &mut Table) {
    if tree.node("kv").is_none() {
        let value = Value::Table(raw::defaults(&KV));
        tree.set("kv", Node { value, place: Place::Preset, path: "kv".to_owned() });
    }
}

/// Overrides the value at a path of keys, such as `kv.limits.clients_max`, with that of `flag`.
pub(super) fn put(
    tree: &mut Table,
    path: &str,
    (flag, value): (&'static str, DeValue<'_>),
    problems: &mut Problems,
) {
    let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut tables_in = tables.split('.').filter(|key| !key.is_empty());
    let Some(table) = tables_in.try_fold(tree, |table, key| table.table_mut(key)) else {
        return problems.error(&Place::Flag(flag), tables, "the file has no such table");
    };
    let option = table.section.option(key);
    let option = option.unwrap_or_else(|| panic!("{path} is not in the option table"));
    if let Some(node) = Reader::new(Place::Flag(flag), problems).lone_value(option, value, path.to_owned()) {
        table.set(option.key, node);
    }
}

pub(super) fn put_number(
    tree: &mut Table,
    path: &str,
    (flag, number): (&'static str, u32),
    problems: &mut Problems,
) {
    let digits = number.to_string();
    let value = DeValue::parse(&digits).expect("digits are a TOML value").into_inner();
    put(tree, path, (flag, value), problems);
}

pub(super) fn text(value: &str) -> DeValue<'_> {
    DeValue::String(DeString::from(value))
}

pub(super) fn list<'a>(elements: impl IntoIterator<Item = DeValue<'a>>) -> DeValue<'a> {
    DeValue::Array(elements.into_iter().map(spanned).collect())
}

pub(super) fn table<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> DeValue<'a> {
    let entries = entries.into_iter();
    DeValue::Table(entries.map(|(key, value)| (spanned(DeString::from(key)), spanned(text(value)))).collect())
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
