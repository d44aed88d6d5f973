//! Reads the text of a file into a [`Table`] that fits the option table, and notes every problem on the way.
//!
//! serde isn't used: deserialization stops at the first error, and a second list of keys (the fields of structs) would have to be kept in
//! sync with the option table. The parser recovers from syntax errors, and returns a document tree in which each key and value has its byte
//! range. This module walks that tree along the option table. A wrong value is noted and replaced by its default, so that the checks that
//! follow can find more problems.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::ptr;
use std::time::Duration;

use serde_spanned::Spanned;
use terminal::nearest;
use terminal::quantity::{format_duration, parse_duration};
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::locate::Place;
use super::misplaced::{self, Elsewhere};
use super::problem::Problems;
use super::quantity::{format_size, parse_size};
use super::status::status;
use super::table::{KeyForm, Kind, Opt, Preset, ROOT, Section};
use super::tree::{Node, Table, Value};

/// Reads one file.
pub(crate) struct Reader<'a> {
    /// Place of the whole text.
    whole: Place,
    /// Top level of the document.
    document: &'static Section,
    pub(crate) problems: &'a mut Problems,
    /// Byte ranges that excerpts must not show.
    pub(crate) hidden: Vec<Range<usize>>,
    /// Whether there are syntax errors: absent keys may have been lost in recovery.
    is_broken: bool,
}

impl<'a> Reader<'a> {
    /// Returns a reader for the text at `whole`.
    pub(crate) fn new(whole: Place, problems: &'a mut Problems) -> Self {
        Self { whole, document: &ROOT, problems, hidden: Vec::new(), is_broken: false }
    }

    /// Reads a whole file as `section`.
    pub(crate) fn document(&mut self, section: &'static Section, text: &str) -> Table {
        let (document, errors) = DeTable::parse_recoverable(text);
        self.document = section;
        self.is_broken = !errors.is_empty();
        let errors: Vec<_> =
            errors.iter().map(|error| (error.span().unwrap_or_default(), error.message())).collect();
        let swallowed = swallowed_from(&errors);
        for (span, message) in
            errors.iter().filter(|(span, _)| swallowed.is_none_or(|from| span.start < from))
        {
            let said = said(message, text.get(span.clone()).unwrap_or_default());
            self.problems.error(&self.place(span.clone()), "", format!("invalid TOML: {said}"));
        }
        if let (Some(from), &Place::Text { source, .. }) = (swallowed, &self.whole) {
            let message = "invalid TOML: expected `,` or `]`: an array that starts above is not closed";
            self.problems.error(&self.place(from..from + 1), "", message);
            self.problems.ignore_from(source, from);
        }
        let place = self.place(0..0);
        let mut table = self.table(section, document.get_ref(), place, String::new());
        if self.is_broken {
            // Recovery may have lost tables, so a missing key may be in the file.
            table.wrong.extend(section.options().map(|option| option.key));
        }
        table
    }

    /// Reads a single value, such as an argument.
    pub(crate) fn lone_value(
        &mut self,
        option: &'static Opt,
        value: DeValue<'_>,
        path: String,
    ) -> Option<Node> {
        self.value(&option.kind, &Spanned::new(0..0, value), path)
    }

    fn table(&mut self, section: &'static Section, raw: &DeTable<'_>, place: Place, path: String) -> Table {
        let mut entries = Vec::with_capacity(section.options().count());
        let mut wrong = Vec::new();
        // Recovery turns a line without a key into an empty key; the line has already been reported.
        let unknown =
            |key: &Spanned<DeString<'_>>| !key.span().is_empty() && section.option(key.get_ref()).is_none();
        for (key, value) in raw.iter().filter(|(key, _)| unknown(key)) {
            let meant = self.unknown_key(section, (key, value.get_ref()), &path);
            let is_secret = meant.map_or_else(|| section.may_hold_secrets(), Opt::is_secret);
            let is_secret = is_secret || names_secret(key.get_ref());
            self.hide_values(value, Hidden::of(is_secret));
        }
        for option in section.options() {
            let key_path = join(&path, option.key);
            let read = raw.get(option.key).map(|value| self.value(&option.kind, value, key_path.clone()));
            let is_wrong = read.as_ref().is_some_and(|read| is_less(read.as_ref(), raw.get(option.key)));
            wrong.extend(is_wrong.then_some(option.key));
            if read.is_none() && matches!(option.preset, Preset::Required) && !self.is_broken {
                let message = format!("missing; expected {}", expectation(&option.kind));
                self.problems.error(&place, &key_path, message);
            }
            let node = read.flatten().or_else(|| preset(option, key_path));
            entries.extend(node.map(|node| (option.key, node)));
        }
        Table { section, place, path, entries, wrong }
    }

    fn value(&mut self, kind: &'static Kind, raw: &Spanned<DeValue<'_>>, path: String) -> Option<Node> {
        let place = self.place(raw.span());
        if raw.get_ref().as_str().is_some_and(may_have_password) {
            self.hidden.push(raw.span());
        }
        let value = match (kind, raw.get_ref()) {
            (Kind::List(element), DeValue::Array(array)) => self.list(element, array, &path),
            (Kind::Map(keys, values), DeValue::Table(map)) => self.map(*keys, values, map, &path),
            (Kind::Table(section) | Kind::TextOrTable(_, section), DeValue::Table(table)) => {
                let path = named(&path, table);
                Value::Table(self.table(section, table, place.clone(), path))
            }
            (Kind::TextOrTable(short_for, section), DeValue::String(_)) => {
                let table: DeTable<'_> =
                    [(Spanned::new(raw.span(), DeString::from(*short_for)), raw.clone())]
                        .into_iter()
                        .collect();
                Value::Table(self.table(section, &table, place.clone(), path.clone()))
            }
            (_, value) => match scalar(kind, value) {
                Ok(value) => value,
                Err(wrong) => {
                    let message = misplaced::written_otherwise(kind, value, &path).unwrap_or(wrong);
                    self.hide_values(raw, Hidden::of(kind.is_secret()));
                    self.problems.error(&place, &path, message);
                    return None;
                }
            },
        };
        Some(Node { value, place, path })
    }

    fn list(&mut self, element: &'static Kind, array: &DeArray<'_>, path: &str) -> Value {
        let read = |(index, raw): (usize, &Spanned<DeValue<'_>>)| {
            self.value(element, raw, format!("{path}[{}]", index + 1))
        };
        Value::List(array.iter().enumerate().filter_map(read).collect())
    }

    fn map(&mut self, keys: KeyForm, values: &'static Kind, map: &DeTable<'_>, path: &str) -> Value {
        let mut entries = Vec::with_capacity(map.len());
        for (key, raw) in map {
            let place = self.place(key.span());
            let path = join(path, key.get_ref());
            if keys == KeyForm::FieldName {
                self.hidden.push(raw.span());
            }
            if let Err(message) = check_key(keys, key.get_ref()) {
                self.problems.error(&place, &path, message);
                continue;
            }
            if let Some(node) = self.value(values, raw, path) {
                entries.push((key.get_ref().to_string(), Node { place, ..node }));
            }
        }
        Value::Map(entries)
    }

    /// Hides the values inside a wrong value, at any depth. Keys stay visible, because the mistake is more often in a key.
    fn hide_values(&mut self, value: &Spanned<DeValue<'_>>, hidden: Hidden) {
        match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().for_each(|(_, value)| self.hide_values(value, hidden));
            }
            DeValue::Array(array) => array.iter().for_each(|value| self.hide_values(value, hidden)),
            scalar => {
                let is_hidden = hidden == Hidden::All || scalar.as_str().is_some_and(may_have_password);
                self.hidden.extend(is_hidden.then(|| value.span()));
            }
        }
    }

    /// Reports an unknown key, and returns the key that was probably meant.
    fn unknown_key(
        &mut self,
        section: &'static Section,
        (key, value): (&Spanned<DeString<'_>>, &DeValue<'_>),
        path: &str,
    ) -> Option<&'static Opt> {
        let place = self.place(key.span());
        let known = section.options().map(|option| option.key);
        let near = nearest(key.get_ref(), known.clone());
        let is_slip = near.is_some_and(|near| strsim::damerau_levenshtein(key.get_ref(), near) == 1);
        let elsewhere = misplaced::elsewhere(self.document, section, key.get_ref(), value);
        let (message, meant) = match (elsewhere.filter(|_| !is_slip), near) {
            (Some(Elsewhere { message, option }), _) => (format!("unknown key; {message}"), option),
            (None, Some(near)) => (format!("unknown key; did you mean `{near}`?"), section.option(near)),
            (None, None) => {
                (format!("unknown key; expected one of: {}", known.collect::<Vec<_>>().join(", ")), None)
            }
        };
        self.problems.error(&place, &join(path, key.get_ref()), message);
        meant
    }

    fn place(&self, span: Range<usize>) -> Place {
        match &self.whole {
            Place::Text { source, .. } => Place::Text { source: *source, span },
            whole => whole.clone(),
        }
    }
}

/// Returns the parser's message about `found`, or a plainer text for some messages.
fn said(message: &str, found: &str) -> String {
    match message {
        "duplicate key" if !found.contains('\n') => format!("`{found}` is set twice"),
        _ if message.starts_with("string values must be quoted") && !found.is_empty() => {
            "put the value in quotes".to_owned()
        }
        _ if message.starts_with("key with no value") || message.starts_with("missing value for key") => {
            "no value after the key: write `key = value`".to_owned()
        }
        _ if message.starts_with("missing value") || message.starts_with("string values must be quoted") => {
            "no value after `=`".to_owned()
        }
        _ => message.to_owned(),
    }
}

/// Returns the start of an unclosed array that swallows the rest of the file: all later problems follow from it.
fn swallowed_from(errors: &[(Range<usize>, &str)]) -> Option<usize> {
    let is_open = errors.iter().any(|(_, message)| message.starts_with(UNCLOSED_ARRAY));
    let first = errors
        .iter()
        .find(|(_, message)| message.starts_with(UNCLOSED_ARRAY) || message.starts_with(MISSING_COMMA));
    first.filter(|_| is_open).map(|(span, _)| span.start)
}

/// Wording of the parser for values: its message about the header of an array of tables differs.
const UNCLOSED_ARRAY: &str = "unclosed array,";
const MISSING_COMMA: &str = "missing comma between array elements";

/// Example sizes in messages: for a limit on one item, and for memory.
const EXAMPLES: [u64; 3] = [64 << 10, 512 << 20, 64 << 30];

/// Describes valid values of this kind, with their range.
pub(crate) fn expectation(kind: &Kind) -> String {
    match kind {
        Kind::Flag => "true or false".to_owned(),
        Kind::Integer(range) => format!("a whole number from {} to {}", range.start(), range.end()),
        Kind::Size(range) => {
            let [min, max] = [*range.start(), *range.end()];
            let example = EXAMPLES.into_iter().find(|size| range.contains(size)).unwrap_or(min);
            let [min, max, example] = [min, max, example].map(format_size);
            format!("a size from {min} to {max}, such as \"{example}\" or a number of bytes")
        }
        Kind::Duration(range) => {
            let [min, max] =
                [range.start(), range.end()].map(|ms| format_duration(Duration::from_millis(*ms)));
            format!("a duration from {min} to {max}, such as \"500ms\" or \"1h30m\"")
        }
        Kind::Text(form) => format!("a string: {form}"),
        Kind::Status => "a status code, such as 503, or the string of a class, such as `5xx`".to_owned(),
        Kind::SecretFile => "a string: path of a file whose first line is the secret".to_owned(),
        Kind::Choice(words) => format!("one of {}", quoted(words)),
        Kind::List(element) => format!("a list; each element {}", expectation(element)),
        Kind::Map(keys, values) => {
            let keys = match keys {
                KeyForm::Status => "status codes",
                KeyForm::FieldName => "header field names",
                KeyForm::Name => "names",
            };
            format!("a table of {keys}, each with {}", expectation(values))
        }
        Kind::Table(section) => {
            let keys: Vec<_> = section.options().map(|option| option.key).collect();
            format!("a table with any of these keys: {}", keys.join(", "))
        }
        Kind::TextOrTable(short_for, section) => {
            let short = section.option(short_for).map(|option| expectation(&option.kind)).unwrap_or_default();
            format!("{short}, or a table (`{}`)", section.name)
        }
    }
}

/// Returns an empty table: every key has its default.
pub(crate) fn defaults(section: &'static Section) -> Table {
    let entries =
        section.options().filter_map(|option| Some((option.key, preset(option, option.key.to_owned())?)));
    Table {
        section,
        place: Place::Preset,
        path: section.name.to_owned(),
        entries: entries.collect(),
        wrong: Vec::new(),
    }
}

/// Returns the option table's default as a node, or `None` if absence has its own meaning.
fn preset(option: &'static Opt, path: String) -> Option<Node> {
    if let Some(value) = PRESETS.with_borrow(|presets| presets.get(&ptr::from_ref(option)).cloned()) {
        return Some(Node { value, place: Place::Preset, path });
    }
    let node = read_preset(option, path)?;
    if !node.value.has_nodes() {
        PRESETS.with_borrow_mut(|presets| presets.insert(option, node.value.clone()));
    }
    Some(node)
}

thread_local! {
    /// Parsed defaults that contain no key paths: parsing them again for each of 10,000 sites would take a second.
    static PRESETS: RefCell<HashMap<*const Opt, Value>> = RefCell::default();
}

fn read_preset(option: &'static Opt, path: String) -> Option<Node> {
    let text = option.default_toml()?;
    let value = DeValue::parse(&text).expect("defaults in the option table are TOML");
    let mut problems = Problems::default();
    let mut reader = Reader::new(Place::Preset, &mut problems);
    let node = reader.value(&option.kind, &value, path);
    debug_assert!(!problems.has_errors(), "the default of {} is out of its range", option.key);
    node
}

/// Returns whether the value, or elements of a list, were left out because they are wrong.
fn is_less(read: Option<&Node>, raw: Option<&Spanned<DeValue<'_>>>) -> bool {
    match (read.map(|node| &node.value), raw.map(Spanned::get_ref)) {
        (None, _) => true,
        (Some(Value::List(nodes)), Some(DeValue::Array(array))) => nodes.len() < array.len(),
        _ => false,
    }
}

fn scalar(kind: &'static Kind, raw: &DeValue<'_>) -> Result<Value, String> {
    let wrong = || match (kind, raw.as_str()) {
        // Free text may be a secret; a wrong quantity or word is more useful when it is shown.
        (Kind::Size(_) | Kind::Duration(_) | Kind::Choice(_), Some(text))
            if text.len() < 32 && !may_have_password(text) =>
        {
            format!("expected {}; found {text:?}", expectation(kind))
        }
        _ => format!("expected {}; found {}", expectation(kind), describe(raw)),
    };
    let value = match (kind, raw) {
        (Kind::Flag, DeValue::Boolean(flag)) => Value::Flag(*flag),
        (Kind::Integer(range), DeValue::Integer(_)) => {
            Value::Number(integer(raw).filter(|number| range.contains(number)).ok_or_else(wrong)?)
        }
        (Kind::Size(range), DeValue::Integer(_) | DeValue::String(_)) => {
            let size = raw.as_str().map_or_else(|| integer(raw), parse_size);
            Value::Number(size.filter(|size| range.contains(size)).ok_or_else(wrong)?)
        }
        (Kind::Duration(range), DeValue::String(text)) => {
            let is_within =
                |duration: &Duration| u64::try_from(duration.as_millis()).is_ok_and(|ms| range.contains(&ms));
            Value::Duration(parse_duration(text).filter(is_within).ok_or_else(wrong)?)
        }
        (Kind::Text(_) | Kind::SecretFile | Kind::Status, DeValue::String(text)) if !text.is_empty() => {
            Value::Text(text.to_string())
        }
        (Kind::Status, DeValue::Integer(_)) => {
            Value::Text(integer(raw).filter(|code| (100..=599).contains(code)).ok_or_else(wrong)?.to_string())
        }
        (Kind::Choice(words), DeValue::Integer(_)) => {
            let number = integer(raw).map(|number| number.to_string());
            let choice = words.iter().find(|word| Some(**word) == number.as_deref());
            Value::Choice(choice.ok_or_else(wrong)?)
        }
        (Kind::Choice(words), DeValue::String(text)) => {
            let choice = words.iter().find(|word| *word == text);
            Value::Choice(choice.ok_or_else(|| match nearest(text, words.iter().copied()) {
                Some(near) => format!("{}; did you mean \"{near}\"?", wrong()),
                None => wrong(),
            })?)
        }
        _ => return Err(wrong()),
    };
    Ok(value)
}

fn integer(raw: &DeValue<'_>) -> Option<u64> {
    let integer = raw.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The parts of a wrong value that are hidden.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    All,
    /// Values that look as if they contain a password.
    Passwords,
}

impl Hidden {
    fn of(is_secret: bool) -> Self {
        if is_secret { Self::All } else { Self::Passwords }
    }
}

/// Returns whether the name of an unknown key suggests that its value is secret.
fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "secret", "token", "auth", "credential"].iter().any(|word| key.contains(word))
}

/// Returns whether a text may be a URL with a password, even a mistyped one: before an `@`, in a query, or in place of
/// a port.
fn may_have_password(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let is_port = |port: &str| port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
    let has_odd_port = authority.rsplit_once(':').is_some_and(|(_, port)| !is_port(port));
    rest.contains('@') && (scheme.is_some() || rest.contains(':'))
        || scheme.is_some() && has_odd_port
        || rest.to_ascii_lowercase().contains("password=")
}

/// Describes the value that was found. Text is described by its type only.
fn describe(raw: &DeValue<'_>) -> String {
    match raw {
        DeValue::String(text) if text.is_empty() => "an empty string".to_owned(),
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(integer) => format!("{integer}"),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn check_key(form: KeyForm, key: &str) -> Result<(), String> {
    match form {
        // Statuses of final responses only.
        KeyForm::Status if key == "default" || !key.starts_with('1') && status(key).is_ok() => Ok(()),
        KeyForm::Status => {
            Err("expected a status code (200 to 599), a class such as `5xx`, or `default`".to_owned())
        }
        KeyForm::FieldName if http::HeaderName::from_bytes(key.as_bytes()).is_ok() => Ok(()),
        KeyForm::FieldName => Err("not a header field name".to_owned()),
        // The module that defines the names decides which are valid.
        KeyForm::Name => Ok(()),
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn join(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.to_owned(),
        (path, key) => [path, ".", key].concat(),
    }
}

/// Adds the name of a table to the path of a list element: `site[shop]` is clearer than `site[3]`.
fn named(path: &str, table: &DeTable<'_>) -> String {
    let name = table.get("name").and_then(|name| name.get_ref().as_str());
    match (name, path.rfind('[')) {
        (Some(name), Some(bracket)) if path.ends_with(']') => format!("{}[{name}]", &path[..bracket]),
        _ => path.to_owned(),
    }
}
