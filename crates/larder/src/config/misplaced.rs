//! Handles keys in the wrong table, and tables with the wrong brackets: finds the table to which they belong. Keys appended to a file land
//! in its last table.

use toml::de::DeValue;

use super::table::{Kind, Opt, ROOT, Section};

/// The table to which an unknown key belongs.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) message: String,
    /// The option that the key sets in that table, if there is only one such table.
    pub(super) option: Option<&'static Opt>,
}

/// A table of the configuration file in which the key is allowed.
#[derive(Clone, Copy)]
struct Home {
    section: &'static Section,
    is_list: bool,
    option: &'static Opt,
}

/// Finds the table for a key that `section` lacks, in a file with the top level `document`.
pub(super) fn elsewhere(
    document: &'static Section,
    section: &'static Section,
    key: &str,
    value: &DeValue<'_>,
) -> Option<Elsewhere> {
    let is_word = |(sections, word, _): &&(&[&str], &str, &str)| {
        sections.contains(&section.name) && word.eq_ignore_ascii_case(key)
    };
    if let Some((.., message)) = OTHER_WORDS.iter().find(is_word) {
        return Some(Elsewhere { message: (*message).to_owned(), option: None });
    }
    let homes = nearest_homes(section, key, value);
    let Home { section: home, option, .. } = *homes.first()?;
    let message = match (home.name, is_table(value) && may_be_table(&option.kind)) {
        ("", _) if document.option(key).is_none() => format!("`{key}` belongs in the main file"),
        ("", false) => format!("`{key}` is a top-level key: move it above the first table"),
        (_, false) => {
            format!(
                "`{key}` is a key of {}",
                alternatives(&homes, |home| header(home.section.name, home.is_list))
            )
        }
        (_, true) => {
            let written = |home: &Home| header(&path_in(home), matches!(home.option.kind, Kind::List(_)));
            let below = match &homes[..] {
                [Home { is_list: true, .. }] => format!(" below its {}", home.name),
                _ => String::new(),
            };
            format!("write {}{below}", alternatives(&homes, written))
        }
    };
    Some(Elsewhere { message, option: Some(option) })
}

/// Returns the correct spelling for a table with one pair of brackets too few or too many, or for text in place of a
/// list of tables.
pub(super) fn written_otherwise(kind: &Kind, value: &DeValue<'_>, path: &str) -> Option<String> {
    // In paths, elements of lists have a number or a name in brackets; headers have neither.
    let keys: Vec<_> = path.split('.').map(|key| key.split('[').next().unwrap_or(key)).collect();
    let written = |is_list| header(&keys.join("."), is_list);
    match (kind, value) {
        (Kind::List(element), DeValue::Table(_)) if element.section().is_some() => {
            Some(format!("expected a list of tables: write {}", written(true)))
        }
        (Kind::Table(_), DeValue::Array(_)) if is_table(value) => {
            Some(format!("expected a single table: write {}", written(false)))
        }
        (Kind::List(Kind::Table(_)), DeValue::String(_)) if path == "origin" => {
            Some(ORIGIN_OF_A_SITE.to_owned())
        }
        _ => None,
    }
}

/// Returns the tables that have the key: those inside `section`, else the nearest enclosing ones, else others. Returns an empty list if too
/// many tables have the key to guess the intent.
fn nearest_homes(section: &'static Section, key: &str, value: &DeValue<'_>) -> Vec<Home> {
    let mut homes = Vec::new();
    collect(&ROOT, false, key, &mut homes);
    // A value that fits none of the tables is wrong, too, and doesn't narrow the choice.
    if homes.iter().any(|home| fits(&home.option.kind, value)) {
        homes.retain(|home| fits(&home.option.kind, value));
    }
    let rank = |home: &Home| match home.section.name {
        name if is_inside(name, section.name) => (0, 0),
        name if is_inside(section.name, name) => (1, usize::MAX - name.len()),
        _ => (2, 0),
    };
    let best = homes.iter().map(rank).min();
    homes.retain(|home| Some(rank(home)) == best);
    homes.truncate(if homes.len() > HOMES_MAX { 0 } else { HOMES_MAX });
    homes
}

fn collect(section: &'static Section, is_list: bool, key: &str, homes: &mut Vec<Home>) {
    let is_new = !homes.iter().any(|home| std::ptr::eq(home.section, section));
    homes.extend(section.option(key).filter(|_| is_new).map(|option| Home { section, is_list, option }));
    for option in section.options() {
        if let Some(inner) = option.kind.section() {
            collect(inner, matches!(option.kind, Kind::List(_)), key, homes);
        }
    }
}

fn is_inside(name: &str, outer: &str) -> bool {
    outer.is_empty() || name.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether a value has a form that the key accepts in its table: several tables have a key `store`.
fn fits(kind: &Kind, value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => may_be_table(kind),
        DeValue::Array(_) => true,
        _ => !matches!(kind, Kind::Table(_) | Kind::List(Kind::Table(_))),
    }
}

fn may_be_table(kind: &Kind) -> bool {
    kind.section().is_some() || matches!(kind, Kind::Map(..))
}

fn is_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(array) => {
            !array.is_empty() && array.iter().all(|element| matches!(element.get_ref(), DeValue::Table(_)))
        }
        _ => false,
    }
}

fn path_in(home: &Home) -> String {
    match home.section.name {
        "" => home.option.key.to_owned(),
        name => format!("{name}.{}", home.option.key),
    }
}

fn header(path: &str, is_list: bool) -> String {
    if is_list { format!("`[[{path}]]`") } else { format!("`[{path}]`") }
}

fn alternatives(homes: &[Home], shown: impl Fn(&Home) -> String) -> String {
    homes.iter().map(shown).collect::<Vec<_>>().join(" or ")
}

/// Maximum number of tables to suggest: a key that more tables have is a common word.
const HOMES_MAX: usize = 3;

/// Tables, words of other programs, and the keys to use instead.
const OTHER_WORDS: [(&[&str], &str, &str); 6] = [
    (&["", "site"], "tls", TLS_OF_A_LISTENER),
    (&["", "site"], "ssl", TLS_OF_A_LISTENER),
    (&["origin"], "tls", TLS_OF_AN_ORIGIN),
    (&["origin"], "ssl", TLS_OF_AN_ORIGIN),
    (&["site.error_page"], "status", "did you mean `statuses`, a list?"),
    (&["site.error_page", "site.maintenance"], "body", "did you mean `body_file`, which names a file?"),
];

const TLS_OF_A_LISTENER: &str = "TLS belongs to `listen`: set `certificates` in a `[[listen]]` table";
const TLS_OF_AN_ORIGIN: &str = "TLS comes with a `url` of `https://`; `ca_file`, `verify`, `server_name` and `client_certificate` are keys of `[[origin]]`";
const ORIGIN_OF_A_SITE: &str = "`origin` is a key of a site: write the three lines `[[site]]`, `name = \"default\"` and `origin = \"URL\"`";
