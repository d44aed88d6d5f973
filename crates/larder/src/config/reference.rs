//! The reference page and the JSON schema, generated from the option table.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use terminal::quantity::format_duration;

use super::quantity::format_size;
use super::raw::expectation;
use super::table::{KeyForm, Kind, Opt, Preset, ROOT, Reload, Section};

/// Returns the page of all keys.
pub(crate) fn markdown() -> String {
    let mut page = String::from(PREFACE);
    write_section(&mut page, &ROOT);
    page
}

/// Returns the page of all limits. Every key that is a limit is included.
pub(crate) fn limits_markdown() -> String {
    let mut page = String::from(LIMITS_PREFACE);
    write_limits(&mut page, &ROOT);
    page.push_str("\n## Without a key\n");
    write_fixed_limits(&mut page, "the admin API", admin_limits());
    write_fixed_limits(&mut page, "the kv server", kv_limits());
    page
}

fn write_fixed_limits(page: &mut String, of: &str, limits: impl IntoIterator<Item = (String, &'static str)>) {
    // Writing to a String can't fail.
    let _ = write!(page, "\n| limit of {of} | meaning |\n|---|---|\n");
    for (amount, meaning) in limits {
        let _ = writeln!(page, "| {amount} | {meaning} |");
    }
}

/// Returns the fixed limits of the Redis-compatible server.
fn kv_limits() -> impl Iterator<Item = (String, &'static str)> {
    let text = |amount| match amount {
        kv::Amount::Count(count) => count.to_string(),
        kv::Amount::Bytes(bytes) => format_size(bytes),
        kv::Amount::Time(time) => format_duration(time),
    };
    kv::fixed_limits().into_iter().map(move |(amount, meaning)| (text(amount), meaning))
}

fn write_limits(page: &mut String, section: &'static Section) {
    for option in section.options().filter(|option| is_limit(option)) {
        let key = match section.name {
            "" => option.key.to_owned(),
            name => format!("{name}.{}", option.key),
        };
        let default = default(option).replace('"', "");
        // Writing to a String can't fail.
        let _ = writeln!(page, "| `{key}` | {} | {} |", cell(&default), cell(&option.short()));
    }
    for section in section.options().filter_map(own_section) {
        write_limits(page, section);
    }
}

/// Returns whether the key is a limit: all numbers, sizes and durations are, with few exceptions.
fn is_limit(option: &Opt) -> bool {
    let is_quantity = matches!(option.kind, Kind::Integer(_) | Kind::Size(_) | Kind::Duration(_));
    is_quantity && !option.is_no_limit
}

/// Returns the fixed limits of the admin API.
fn admin_limits() -> [(String, &'static str); 5] {
    let limits = admin::AdminLimits::default();
    let duration = |ms| format_duration(Duration::from_millis(ms));
    [
        (
            limits.connections_max.to_string(),
            "Connections to a listener of the admin API at a time; more are closed at accept.",
        ),
        (duration(limits.head_timeout_ms), "Time for a request head, including idle time before it."),
        (duration(limits.body_timeout_ms), "Time for a request body."),
        (format_size(limits.body_bytes_max as u64), "Request body (413)."),
        (
            duration(limits.connection_age_ms),
            "Age at which a connection is closed after the request in progress.",
        ),
    ]
}

const LIMITS_PREFACE: &str = "# Limits

Generated from the option table in `crates/larder/src/config/table/`; do not edit. Everything that can grow has a limit with a default. The page on
[security](../operate/security.md) describes the risks, and [configuration](config.md) lists the ranges and details.

| key | default | meaning |
|---|---|---|
";

/// Returns a JSON schema (2020-12) of the main file, for editors.
pub(crate) fn json_schema() -> String {
    let mut schema = object(&ROOT);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of Larder");
    let mut text = serde_json::to_string_pretty(&schema).expect("a tree of strings and numbers");
    text.push('\n');
    text
}

fn write_section(page: &mut String, section: &'static Section) {
    // Writing to a String can't fail, here and below.
    let _ = write!(page, "{}\n{}\n\n", heading(section), section.about());
    page.push_str("| key | value | default | reload | meaning |\n|---|---|---|---|---|\n");
    for option in section.options() {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            option.key,
            cell(&value(option)),
            cell(&default(option)),
            reload(option),
            cell(&option.short()),
        );
    }
    let details: Vec<_> = section.options().filter(|option| !option.long().is_empty()).collect();
    if !details.is_empty() {
        page.push('\n');
    }
    for option in details {
        let _ = writeln!(page, "- `{}`: {}", option.key, option.long());
    }
    for section in section.options().filter_map(own_section) {
        // Several keys may share a table, which is described once.
        if !page.contains(&heading(section)) {
            write_section(page, section);
        }
    }
}

fn heading(section: &Section) -> String {
    let name = if section.name.is_empty() { "Top level".to_owned() } else { format!("`{}`", section.name) };
    format!("\n## {name}\n")
}

/// Returns the section of the option's own table. A map with free keys has none: its tables are described at another key.
fn own_section(option: &Opt) -> Option<&'static Section> {
    option.kind.section().filter(|_| !matches!(option.kind, Kind::Map(..)))
}

/// Escapes bars, which would end a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn value(option: &Opt) -> String {
    match &option.kind {
        Kind::Table(section) => format!("table [{0}](#{1})", section.name, anchor(section)),
        Kind::List(Kind::Table(section)) => {
            format!("list of tables [{0}](#{1})", section.name, anchor(section))
        }
        Kind::Map(_, Kind::Table(section)) => {
            format!("tables [{0}](#{1}), each under a name", section.name, anchor(section))
        }
        kind => expectation(kind),
    }
}

fn anchor(section: &Section) -> String {
    section.name.replace('.', "")
}

fn default(option: &Opt) -> String {
    match (&option.preset, &option.kind) {
        (Preset::Required, _) => "required".to_owned(),
        (Preset::Absent(meaning), _) => (*meaning).to_owned(),
        (Preset::Is(_), Kind::Table(_)) => "that of its keys".to_owned(),
        (Preset::Is(_), _) => format!("`{}`", option.default_toml().unwrap_or_default()),
    }
}

fn reload(option: &Opt) -> &'static str {
    match option.reload {
        Reload::Yes => "yes",
        Reload::No => "no",
        Reload::Inside => "by key",
    }
}

fn object(section: &'static Section) -> Value {
    let properties: Map<String, Value> =
        section.options().map(|option| (option.key.to_owned(), property(option))).collect();
    let required = section.options().filter(|option| matches!(option.preset, Preset::Required));
    json!({
        "type": "object",
        "description": section.about(),
        "additionalProperties": false,
        "properties": properties,
        "required": required.map(|option| option.key).collect::<Vec<_>>(),
    })
}

fn property(option: &'static Opt) -> Value {
    let mut schema = kind_schema(&option.kind);
    let description = format!("{} {}", option.short(), option.long());
    schema["description"] = json!(description.trim_end());
    let scalar = !matches!(option.kind, Kind::Table(_) | Kind::Map(..) | Kind::List(_));
    if let (Some(text), true) = (option.default_toml(), scalar) {
        // Scalars of the option table are written the same in TOML and in JSON.
        schema["default"] = serde_json::from_str(&text).expect("defaults of scalars are JSON as well");
    }
    schema
}

fn kind_schema(kind: &'static Kind) -> Value {
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        Kind::Size(_) => json!({ "type": ["integer", "string"], "pattern": SIZE_PATTERN, "minimum": 0 }),
        Kind::Duration(_) => json!({ "type": "string", "pattern": DURATION_PATTERN }),
        Kind::Text(_) | Kind::SecretFile => json!({ "type": "string", "minLength": 1 }),
        Kind::Status => json!({ "anyOf": [
            { "type": "integer", "minimum": 100, "maximum": 599 },
            { "type": "string", "minLength": 3 }
        ] }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::List(element) => json!({ "type": "array", "items": kind_schema(element) }),
        Kind::Map(keys, values) => {
            let pattern = match keys {
                KeyForm::Status => STATUS_PATTERN,
                KeyForm::FieldName => FIELD_NAME_PATTERN,
                KeyForm::Name => NAME_PATTERN,
            };
            json!({
                "type": "object",
                "propertyNames": { "pattern": pattern },
                "additionalProperties": kind_schema(values),
            })
        }
        Kind::Table(section) => object(section),
        Kind::TextOrTable(_, section) => json!({ "anyOf": [{ "type": "string" }, object(section)] }),
    }
}

const PREFACE: &str = "# Configuration keys

Generated from the option table in `crates/larder/src/config/table/`; do not edit. The
[guide](../operate/configuration.md) describes their use. Editors can use the JSON schema in `/usr/share/larder/config.schema.json`, which
`larder reference --out DIR` writes, too.

The file is TOML. Sizes are a number of bytes, or text with a unit in any case, as in Redis: `kb` or `KiB`, `mb` or `MiB`, `gb` or `GiB`,
`tb` or `TiB` are powers of 1024, and `k`, `m`, `g`, `t` powers of 1000. Durations are text with units: `ms`, `s`, `m`, `h`, `d`, `w`, such as `\"500ms\"` or
`\"1h30m\"`; a bare number is refused, because it has no unit. Paths of files are relative to the file that names
them. The column *reload* shows whether a reload applies a changed value; if not, the running value stays
until the next start, with a warning.
";

const SIZE_PATTERN: &str = "^[0-9]+ *([kKmMgGtT]([iI]?[bB])?|[bB])?$";
const DURATION_PATTERN: &str = "^([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";
const STATUS_PATTERN: &str = "^([2-5]([0-9][0-9]|xx)|default)$";
const NAME_PATTERN: &str = "^[0-9A-Za-z._-]{1,64}$";
const FIELD_NAME_PATTERN: &str = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_listed_with_their_defaults() {
        let page = limits_markdown();
        for row in [
            "| `limits.connections_max` | `10000` | ",
            "| `kv.limits.clients_max` | `10000` | ",
            "| `site.timeouts.total` | no limit | ",
            "| 64 | Connections to a listener of the admin API",
            "| 1KiB | Text value of a setting without effect in `CONFIG SET`",
        ] {
            assert!(page.contains(row), "{row}");
        }
    }
}
