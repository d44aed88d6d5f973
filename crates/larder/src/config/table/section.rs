//! What a table of the file is made of, and what rows have in common.

use std::ops::RangeInclusive;

use crate::config::words::Word;

/// A table of the file and its keys.
#[derive(Debug)]
pub(crate) struct Section {
    /// Dotted name, such as `site.timeouts`; empty for the top level.
    pub(crate) name: &'static str,
    /// What the table is for, in lines.
    pub(super) doc: &'static [&'static str],
    pub(crate) options: &'static [Opt],
}

/// One key.
#[derive(Debug)]
pub(crate) struct Opt {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) preset: Preset,
    pub(crate) reload: Reload,
    /// A quantity that bounds nothing: it chooses how something is done.
    pub(crate) is_no_limit: bool,
    /// Two paragraphs, in lines.
    pub(super) doc: &'static [&'static str],
}

/// Type, unit and range of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A number within a range.
    Integer(RangeInclusive<u64>),
    /// Bytes: an integer, or text with a unit.
    Size(RangeInclusive<u64>),
    /// Text with a unit; the range is in milliseconds.
    Duration(RangeInclusive<u64>),
    /// Text; the words say of what form.
    Text(&'static str),
    /// A status code, as text or as a number, or the text of a class such as `5xx`.
    Status,
    /// A file whose first line is a secret. Unknown keys beside it may hold the secret itself, so excerpts hide them.
    SecretFile,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of one kind.
    List(&'static Self),
    /// Free keys with values of one kind.
    Map(KeyForm, &'static Self),
    /// A table with keys of its own.
    Table(&'static Section),
    /// A table, or in short only the text of one of its keys.
    TextOrTable(&'static str, &'static Section),
}

/// What the free keys of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// A status code, a class such as `5xx`, or `default`.
    Status,
    /// A header field name. The values may be secret and are never shown.
    FieldName,
    /// What the operator calls something.
    Name,
}

/// The value of an absent key.
#[derive(Debug)]
pub(crate) enum Preset {
    /// The key must be given.
    Required,
    /// No value; the words say what that means.
    Absent(&'static str),
    /// A value, as [`Opt::default_toml`] writes it, but for the quotes around text.
    Is(&'static str),
}

/// Whether a reload takes a changed value over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reload {
    /// Yes.
    Yes,
    /// No: the running value stays until the next start, with a warning.
    No,
    /// Each key of the tables inside decides for itself; adding and removing tables needs a start.
    Inside,
}

impl Section {
    /// What the table is for.
    pub(crate) fn about(&self) -> String {
        paragraph(self.doc)
    }

    /// Whether somebody may have written a secret here.
    pub(crate) fn may_hold_secrets(&self) -> bool {
        self.options.iter().any(Opt::is_secret)
    }

    /// The option with this key.
    pub(crate) fn option(&self, key: &str) -> Option<&'static Opt> {
        self.options.iter().find(|option| option.key == key)
    }
}

impl Opt {
    /// What the value decides, in a sentence.
    pub(crate) fn short(&self) -> String {
        paragraph(self.paragraphs().next().unwrap_or_default())
    }

    /// Why one would change it, and what to mind; may be empty.
    pub(crate) fn long(&self) -> String {
        paragraph(self.paragraphs().nth(1).unwrap_or_default())
    }

    pub(super) fn paragraphs(&self) -> impl Iterator<Item = &'static [&'static str]> {
        self.doc.split(|line| line.is_empty())
    }

    /// The default in TOML, if there is one.
    pub(crate) fn default_toml(&self) -> Option<String> {
        let Preset::Is(text) = self.preset else { return None };
        let is_text = match self.kind {
            Size(_) => text.parse::<u64>().is_err(),
            Duration(_) | Text(_) | Choice(_) => true,
            _ => false,
        };
        Some(if is_text { format!("\"{text}\"") } else { text.to_owned() })
    }

    /// Whether it names files with secrets. Whoever misspells it may have written the secret itself. Header fields may be secret too.
    pub(crate) fn is_secret(&self) -> bool {
        self.kind.is_secret()
    }
}

impl Kind {
    /// Whether values may be secrets, or are written where secrets are.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, SecretFile | List(SecretFile) | Map(KeyForm::FieldName, _))
    }

    /// The table that values of this kind hold, directly, as elements or under free keys.
    pub(crate) const fn section(&self) -> Option<&'static Section> {
        match self {
            Table(section) | TextOrTable(_, section) => Some(section),
            List(values) | Map(_, values) => values.section(),
            _ => None,
        }
    }
}

/// The lines of a comment as one.
fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a table and its keys. A comment is what the reference says: of a key a sentence and, after an empty line, the rest.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $visibility:vis $section:ident = $name:literal;
        $($(#[doc = $doc:literal])* $key:ident = $row:expr,)*
    ) => {
        $visibility static $section: Section = Section {
            name: $name,
            doc: &[$($about),+],
            options: &[$($row.under(stringify!($key), &[$($doc),*])),*],
        };
    };
}

/// Declares a row that several tables have.
macro_rules! row {
    ($(#[doc = $doc:literal])+ $name:ident = $row:expr;) => {
        const $name: Opt = $row.under("", &[$($doc),+]);
    };
}
pub(super) use {row, section};

/// How a row begins: with a [`Kind`].
pub(super) use Kind::*;

/// One of the words of a type.
pub(super) const fn one_of<T: Word>() -> Kind {
    Choice(T::WORDS)
}

/// How it goes on: what an absent key means.
impl Kind {
    pub(super) const fn required(self) -> Opt {
        self.row(Preset::Required)
    }

    pub(super) const fn absent(self, meaning: &'static str) -> Opt {
        self.row(Preset::Absent(meaning))
    }

    pub(super) const fn default(self, value: &'static str) -> Opt {
        self.row(Preset::Is(value))
    }

    const fn row(self, preset: Preset) -> Opt {
        Opt { key: "", kind: self, preset, reload: Reload::Yes, is_no_limit: false, doc: &[] }
    }
}

/// And how it ends: what a reload does, unless it takes the value over, and what the page of limits leaves out.
impl Opt {
    pub(super) const fn kept(self) -> Self {
        Self { reload: Reload::No, ..self }
    }

    pub(super) const fn inside(self) -> Self {
        Self { reload: Reload::Inside, ..self }
    }

    pub(super) const fn no_limit(self) -> Self {
        Self { is_no_limit: true, ..self }
    }

    /// Without lines it keeps those that it has.
    pub(super) const fn under(self, key: &'static str, doc: &'static [&'static str]) -> Self {
        let doc = if doc.is_empty() { self.doc } else { doc };
        Self { key, doc, ..self }
    }
}

const SECOND_MS: u64 = 1_000;
pub(super) const HOUR_MS: u64 = 3_600 * SECOND_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const TIB: u64 = 1 << 40;

/// A time limit: never zero, which some would read as "at once" and some as "never".
pub(super) const LIMIT: Kind = Duration(1..=DAY_MS);
pub(super) const FILE: Kind = Text("path of a file, relative to the configuration file");
pub(super) const NETWORKS: Kind = List(&Text("IP address or network, such as `10.0.0.0/8`"));
pub(super) const FIELD_NAMES: Kind = List(&Text("header field name"));
pub(super) const STATUSES: Kind = List(&Status);
