//! What a table of the file is made of, and what rows have in common.

/// A table of the file and its keys.
#[derive(Debug)]
pub(crate) struct Section {
    /// Dotted name, such as `site.timeouts`; empty for the top level.
    pub(crate) name: &'static str,
    /// What the table is for.
    pub(crate) about: &'static str,
    pub(crate) options: &'static [Opt],
}

/// One key.
#[derive(Debug)]
pub(crate) struct Opt {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) preset: Preset,
    pub(crate) reload: Reload,
    /// What the value decides, in one line.
    pub(crate) short: &'static str,
    /// Why one would change it, and what to mind; may be empty.
    pub(crate) long: &'static str,
}

/// Type, unit and range of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A number from `min` to `max`.
    Integer { min: u64, max: u64 },
    /// Bytes: an integer, or text with a unit.
    Size { min: u64, max: u64 },
    /// Text with a unit; the range is in milliseconds.
    Duration { min_ms: u64, max_ms: u64 },
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
    Map { keys: KeyForm, values: &'static Self },
    /// A table with keys of its own.
    Table(&'static Section),
    /// A table, or in short only the text of one of its keys.
    TextOrTable { short_for: &'static str, section: &'static Section },
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
    /// A value, in TOML.
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
    /// Whether it names files with secrets. Whoever misspells it may have written the secret itself. Header fields may be secret too.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(
            self.kind,
            Kind::SecretFile | Kind::List(Kind::SecretFile) | Kind::Map { keys: KeyForm::FieldName, .. }
        )
    }
}

impl Kind {
    /// The table that values of this kind hold, directly, as elements or under free keys.
    pub(crate) const fn section(&self) -> Option<&'static Section> {
        match self {
            Self::Table(section) | Self::TextOrTable { section, .. } => Some(section),
            Self::List(element) => element.section(),
            Self::Map { values, .. } => values.section(),
            _ => None,
        }
    }
}

/// A row of the table, in the order in which rows read best.
pub(super) const fn row(
    key: &'static str,
    kind: Kind,
    preset: Preset,
    reload: Reload,
    short: &'static str,
    long: &'static str,
) -> Opt {
    Opt { key, kind, preset, reload, short, long }
}

const SECOND_MS: u64 = 1_000;
pub(super) const HOUR_MS: u64 = 3_600 * SECOND_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const TIB: u64 = 1 << 40;

/// A time limit: never zero, which some would read as "at once" and some as "never".
pub(super) const LIMIT: Kind = Kind::Duration { min_ms: 1, max_ms: DAY_MS };
pub(super) const FILE: Kind = Kind::Text("path of a file, relative to the configuration file");
pub(super) const NETWORKS: Kind = Kind::List(&Kind::Text("IP address or network, such as `10.0.0.0/8`"));
pub(super) const FIELD_NAMES: Kind = Kind::List(&Kind::Text("header field name"));
pub(super) const LEVEL: Kind = Kind::Choice(&["error", "warn", "info", "debug", "trace"]);
pub(super) const STATUSES: Kind = Kind::List(&Kind::Status);
