//! The option table: the only list of configuration keys.
//!
//! The reader checks files against it, defaults come from it, and the reference page and the JSON schema are generated from it. A key that
//! is missing here can't be read anywhere. To add one, write its reference text as a doc comment, and below it `key =
//! kind.default("value")`.

mod answer;
mod compression;
mod kv;
mod origin;
mod protection;
mod region;
mod section;
mod server;
mod site;
mod store;
mod tracing;
mod transform;

pub(crate) use kv::KV;
pub(crate) use origin::ORIGIN;
pub(crate) use server::{INCLUDED, ROOT};

pub(crate) use option_table::{KeyForm, Kind, Opt, Preset, Reload, Section};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn visit(section: &'static Section, seen: &mut BTreeSet<&'static str>) {
        let first_visit = seen.insert(section.name);
        assert!(first_visit || !section.name.is_empty());
        let mut keys = BTreeSet::new();
        for option in section.options() {
            let name = format!("{}.{}", section.name, option.key);
            assert!(keys.insert(option.key), "{name} stands twice");
            assert!(option.short().ends_with('.'), "{name}: the short text is a sentence");
            assert!(
                option.long().is_empty() || option.long().ends_with('.'),
                "{name}: the long text is sentences"
            );
            assert!(option.paragraphs().count() <= 2, "{name}: the long text is one paragraph");
            let inside = option.reload == Reload::Inside;
            assert!(!inside || option.kind.section().is_some(), "{name}: nothing is inside");
            if let Some(section) = option.kind.section() {
                visit(section, seen);
            }
        }
    }

    #[test]
    fn rows_are_well_formed() {
        visit(&ROOT, &mut BTreeSet::new());
        visit(&INCLUDED, &mut BTreeSet::new());
    }
}
