//! Describes keys of the configuration: the structure of each table of the file, and each key with its type, default and reference text.
//!
//! A crate declares the keys of its settings next to their types; `larder` joins them to form the option table, which it uses to read
//! files and to generate the reference. This crate reads no files. Main types: [`Section`] and [`Opt`]; main entries: [`section!`] and
//! [`row!`].
//!
//! ```
//! use option_table::{Kind::*, section};
//!
//! section! {
//!     /// Time limits.
//!     TIMES = "times";
//!     /// Longest wait.
//!     ///
//!     /// After this time, the request fails.
//!     wait = Duration(1..=1000).default("1s"),
//! }
//! let [wait] = TIMES.rows else { unreachable!() };
//! assert_eq!((wait.key, wait.short().as_str()), ("wait", "Longest wait."));
//! assert_eq!(wait.default_toml().as_deref(), Some("\"1s\""));
//! ```

use std::ops::RangeInclusive;

use Kind::{Choice, Duration, List, Map, SecretFile, Size, Table, Text, TextOrTable};

/// A table of the file and its keys.
#[derive(Debug)]
pub struct Section {
    /// Dotted name, such as `site.timeouts`; empty for the top level.
    pub name: &'static str,
    /// Purpose of the table, in lines.
    pub doc: &'static [&'static str],
    /// The keys that are declared with it.
    pub rows: &'static [Opt],
    /// Keys that are declared elsewhere; they come after `rows`.
    pub more: &'static [&'static Opt],
}

/// One key.
#[derive(Debug)]
pub struct Opt {
    pub key: &'static str,
    pub kind: Kind,
    pub preset: Preset,
    pub reload: Reload,
    /// Whether the key is left out of the page of limits, because its number or size selects a behaviour.
    pub is_no_limit: bool,
    /// Documentation: two paragraphs, in lines.
    pub doc: &'static [&'static str],
}

/// Type, unit and range of a value.
#[derive(Debug)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A number within a range.
    Integer(RangeInclusive<u64>),
    /// Bytes: an integer, or text with a unit.
    Size(RangeInclusive<u64>),
    /// Text with a unit; the range is in milliseconds.
    Duration(RangeInclusive<u64>),
    /// Text; the words describe its form.
    Text(&'static str),
    /// A status code, as text or as a number, or the text of a class such as `5xx`.
    Status,
    /// A file whose first line is a secret. Unknown keys in the same table may hold the secret itself, so excerpts hide
    /// them.
    SecretFile,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of one kind.
    List(&'static Self),
    /// Free keys with values of one kind.
    Map(KeyForm, &'static Self),
    /// A table with keys of its own.
    Table(&'static Section),
    /// A table, or as a short form, the text of one of its keys.
    TextOrTable(&'static str, &'static Section),
}

/// Form of the free keys of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// A status code, a class such as `5xx`, or `default`.
    Status,
    /// A header field name. The values may be secret and are never shown.
    FieldName,
    /// A name that the operator chooses.
    Name,
}

/// The value of an absent key.
#[derive(Debug)]
pub enum Preset {
    /// The key must be given.
    Required,
    /// No value; the words describe the effect.
    Absent(&'static str),
    /// A value, as [`Opt::default_toml`] writes it, but without quotes around text.
    Is(&'static str),
}

/// Whether a reload applies a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// Yes.
    Yes,
    /// No: the running value stays until the next start, with a warning.
    No,
    /// The answer depends on the keys of the tables inside. Adding or removing a table needs a restart.
    Inside,
}

impl Section {
    /// Returns the purpose of the table.
    pub fn about(&self) -> String {
        paragraph(self.doc)
    }

    /// Returns the keys, in the order of the reference.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> + Clone + use<> {
        self.rows.iter().chain(self.more.iter().copied())
    }

    /// Returns whether the table may contain a secret.
    pub fn may_hold_secrets(&self) -> bool {
        self.options().any(Opt::is_secret)
    }

    /// Returns the option with this key.
    pub fn option(&self, key: &str) -> Option<&'static Opt> {
        self.options().find(|option| option.key == key)
    }
}

impl Opt {
    /// Returns the first paragraph of the documentation: the purpose of the value, in a sentence.
    pub fn short(&self) -> String {
        paragraph(self.paragraphs().next().unwrap_or_default())
    }

    /// Returns the second paragraph: reasons to change the value, and caveats; may be empty.
    pub fn long(&self) -> String {
        paragraph(self.paragraphs().nth(1).unwrap_or_default())
    }

    pub fn paragraphs(&self) -> impl Iterator<Item = &'static [&'static str]> {
        self.doc.split(|line| line.is_empty())
    }

    /// Returns the default in TOML, if there is one.
    pub fn default_toml(&self) -> Option<String> {
        let Preset::Is(text) = self.preset else { return None };
        let is_text = match self.kind {
            Size(_) => text.parse::<u64>().is_err(),
            Duration(_) | Text(_) | Choice(_) => true,
            _ => false,
        };
        Some(if is_text { format!("\"{text}\"") } else { text.to_owned() })
    }

    /// Returns whether the key names files with secrets: under a misspelt key, the value may be the secret itself. Header fields may
    /// be secret too.
    pub fn is_secret(&self) -> bool {
        self.kind.is_secret()
    }
}

impl Kind {
    /// Returns whether values may be secrets, or are written where a secret may be put by mistake.
    pub fn is_secret(&self) -> bool {
        matches!(self, SecretFile | List(SecretFile) | Map(KeyForm::FieldName, _))
    }

    /// Returns the table that values of this kind hold: directly, as elements, or under free keys.
    pub const fn section(&self) -> Option<&'static Section> {
        match self {
            Table(section) | TextOrTable(_, section) => Some(section),
            List(values) | Map(_, values) => values.section(),
            _ => None,
        }
    }
}

/// Joins the lines of a comment into one.
fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a table and its keys. Their comments are the text of the reference: for a key, one sentence and, after an empty line, the rest.
/// Keys that are declared elsewhere come last, after two dots.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $visibility:vis $section:ident = $name:literal;
        $($(#[doc = $doc:literal])* $key:ident = $row:expr,)*
        $(..$more:expr)?
    ) => {
        $visibility static $section: $crate::Section = $crate::Section {
            name: $name,
            doc: &[$($about),+],
            rows: &[$($row.under(stringify!($key), &[$($doc),*])),*],
            more: $crate::section!(@more $($more)?),
        };
    };
    (@more) => { &[] };
    (@more $more:expr) => { $more };
}

/// Declares a row outside of its table: one that several tables share, or, with its key in parentheses, one that a table
/// includes.
#[macro_export]
macro_rules! row {
    ($(#[doc = $doc:literal])+ $visibility:vis $name:ident = $row:expr;) => {
        $visibility const $name: $crate::Opt = $row.under("", &[$($doc),+]);
    };
    ($(#[doc = $doc:literal])+ $visibility:vis $name:ident($key:literal) = $row:expr;) => {
        $visibility const $name: $crate::Opt = $row.under($key, &[$($doc),+]);
    };
}

/// The beginning of a row: a [`Kind`], and the meaning of an absent key.
impl Kind {
    pub const fn required(self) -> Opt {
        self.row(Preset::Required)
    }

    pub const fn absent(self, meaning: &'static str) -> Opt {
        self.row(Preset::Absent(meaning))
    }

    pub const fn default(self, value: &'static str) -> Opt {
        self.row(Preset::Is(value))
    }

    const fn row(self, preset: Preset) -> Opt {
        Opt { key: "", kind: self, preset, reload: Reload::Yes, is_no_limit: false, doc: &[] }
    }
}

/// The end of a row: the effect of a reload, unless it applies the value, and exclusion from the page of limits.
impl Opt {
    pub const fn kept(self) -> Self {
        Self { reload: Reload::No, ..self }
    }

    pub const fn inside(self) -> Self {
        Self { reload: Reload::Inside, ..self }
    }

    pub const fn no_limit(self) -> Self {
        Self { is_no_limit: true, ..self }
    }

    /// Sets key and documentation. An empty `doc` keeps the present documentation.
    pub const fn under(self, key: &'static str, doc: &'static [&'static str]) -> Self {
        let doc = if doc.is_empty() { self.doc } else { doc };
        Self { key, doc, ..self }
    }
}

/// Names of query parameters.
pub const PARAMETERS: Kind = List(&Text("name of a query parameter"));
/// Names of header fields.
pub const FIELD_NAMES: Kind = List(&Text("header field name"));
