//! Puts a value over what the file has for a key; it is checked like those of the file.

use serde_spanned::Spanned;
use toml::de::{DeArray, DeString, DeValue};

use super::locate::Place;
use super::problem::Problems;
use super::raw::{self, Reader};
use super::table::{KV, Opt, Section};
use super::tree::{Node, Table, Value};

/// The `[kv]` of the file, or one with defaults.
pub(super) fn kv_table(tree: &mut Table) -> &mut Table {
    if tree.node("kv").is_none() {
        let value = Value::Table(raw::defaults(&KV));
        tree.set("kv", Node { value, place: Place::Preset, path: "kv".to_owned() });
    }
    inner_table(tree, "kv").expect("a table was set where there was none")
}

pub(super) fn override_number(
    table: &mut Table,
    key: &'static str,
    flag: &'static str,
    number: u32,
    problems: &mut Problems,
) {
    let digits = number.to_string();
    let value = DeValue::parse(&digits).expect("digits are a TOML value").into_inner();
    override_key(table, key, flag, value, problems);
}

pub(super) fn override_key(
    table: &mut Table,
    key: &'static str,
    flag: &'static str,
    value: DeValue<'_>,
    problems: &mut Problems,
) {
    let path = match table.path.as_str() {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    let option = option(table.section, key);
    if let Some(node) = Reader::of_flag(flag, problems).lone_value(option, value, path) {
        table.set(key, node);
    }
}

fn option(section: &'static Section, key: &str) -> &'static Opt {
    section.option(key).unwrap_or_else(|| panic!("arguments name keys of the option table: {key}"))
}

pub(super) fn inner_table<'a>(tree: &'a mut Table, key: &str) -> Option<&'a mut Table> {
    let (_, node) = tree.entries.iter_mut().find(|(name, _)| *name == key)?;
    match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

pub(super) fn text(value: &str) -> DeValue<'_> {
    DeValue::String(DeString::from(value))
}

pub(super) fn array(elements: Vec<Spanned<DeValue<'_>>>) -> DeArray<'_> {
    elements.into_iter().collect()
}

pub(super) fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
