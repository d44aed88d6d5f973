//! One purge, as it is written into a log.

use std::fmt;

/// Names one purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeId(pub [u8; 16]);

impl fmt::Display for PurgeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// What a purge leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PurgeMode {
    /// Nothing: it is as if the responses had never been stored.
    #[default]
    Hard,
    /// Stale responses: used only after validation, or where stale responses may be.
    Soft,
    /// The same, and what can be is fetched anew at once.
    Refresh,
}

impl PurgeMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hard, Self::Soft, Self::Refresh];

    /// The word of the API and of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Refresh => "refresh",
        }
    }

    /// The mode of a word of the API.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// The scheme of a URL that is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlScheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl UrlScheme {
    /// As it stands in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Which of several tags a response must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagsMatch {
    /// One of them.
    #[default]
    Any,
    /// All of them.
    All,
}

/// What is purged: all that fits each thing that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Tags; none: whatever the tags.
    pub tags: Vec<String>,
    /// Which of them; [`TagsMatch::Any`] where there are fewer than two.
    pub tags_match: TagsMatch,
    /// The name of a site.
    pub site: Option<String>,
    /// A host in lower case. With a port, or with a scheme, that port alone.
    pub host: Option<String>,
    /// Only where there is a host.
    pub scheme: Option<UrlScheme>,
    /// With what the path begins, byte for byte.
    pub prefix: Option<String>,
}

/// What is purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// One absolute URL, with all that is stored for it.
    Url(String),
    /// What fits.
    Selected(Selection),
    /// All there is.
    Everything,
}

impl What {
    /// Every form, as [`Self::form`] has them.
    pub const FORMS: [&'static str; 6] = ["url", "tag", "site", "host", "prefix", "everything"];

    /// The word for what decides most, for the metric's label.
    pub fn form(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Everything => "everything",
            Self::Selected(selection) if !selection.tags.is_empty() => "tag",
            Self::Selected(Selection { prefix: Some(_), .. }) => "prefix",
            Self::Selected(Selection { host: Some(_), .. }) => "host",
            Self::Selected(_) => "site",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(formatter, "{url}"),
            Self::Everything => write!(formatter, "everything"),
            Self::Selected(selection) => write!(formatter, "{selection}"),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(first) = self.tags.first() {
            let tags = match (self.tags.len(), self.tags_match) {
                (1, _) => format!("tag {first}"),
                (_, TagsMatch::Any) => format!("any of the tags {}", self.tags.join(", ")),
                (_, TagsMatch::All) => format!("all of the tags {}", self.tags.join(", ")),
            };
            parts.push(tags);
        }
        let scheme = self.scheme.map_or_else(String::new, |scheme| format!("{}://", scheme.as_str()));
        parts.extend(self.site.iter().map(|site| format!("site {site}")));
        parts.extend(self.host.iter().map(|host| format!("host {scheme}{host}")));
        parts.extend(self.prefix.iter().map(|prefix| format!("paths that begin with {prefix}")));
        write!(formatter, "{}", parts.join(", "))
    }
}

/// One purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeRecord {
    /// Which one.
    pub id: PurgeId,
    /// When, by the clock of who asked, in milliseconds since 1970.
    pub at_ms: u64,
    /// What stays.
    pub mode: PurgeMode,
    /// What goes.
    pub what: What,
}

/// Bytes of a URL.
pub const URL_BYTES_MAX: usize = 16 << 10;
/// Tags of one purge.
pub const TAGS_MAX: usize = 30;
/// Bytes of a tag: what the largest services take.
pub const TAG_BYTES_MAX: usize = 1024;
/// Bytes of a site's name.
pub const SITE_BYTES_MAX: usize = 255;
/// Bytes of a host with its port.
pub const HOST_BYTES_MAX: usize = 261;
/// Bytes that a path begins with.
pub const PREFIX_BYTES_MAX: usize = 8 << 10;

/// Why something is no purge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeInvalid {
    /// It is empty, or longer than its limit.
    #[error("{what} has {bytes} bytes; expected 1 to {bytes_max}")]
    Length {
        /// Which part.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// It is not what such a part looks like.
    #[error("{what} is invalid: {must}")]
    Form {
        /// Which part.
        what: &'static str,
        /// The rule.
        must: &'static str,
    },
    /// Too many tags.
    #[error("{count} tags: a purge has up to {TAGS_MAX}; make several")]
    TagsTooMany {
        /// How many there are.
        count: usize,
    },
    /// Nothing is said: what it would select is everything, which has a form of its own.
    #[error("nothing selected: give a URL, a tag, a site, a host, a prefix, or everything")]
    NothingSaid,
    /// A rule of what goes together.
    #[error("{0}")]
    Together(&'static str),
}

impl What {
    /// # Errors
    /// When no log takes it.
    pub fn check(&self) -> Result<(), PurgeInvalid> {
        match self {
            Self::Url(url) => check_url(url),
            Self::Everything => Ok(()),
            Self::Selected(selection) => selection.check(),
        }
    }
}

impl Selection {
    fn check(&self) -> Result<(), PurgeInvalid> {
        if *self == Self::default() {
            return Err(PurgeInvalid::NothingSaid);
        }
        if self.tags.len() > TAGS_MAX {
            return Err(PurgeInvalid::TagsTooMany { count: self.tags.len() });
        }
        if self.tags_match == TagsMatch::All && self.tags.len() < 2 {
            return Err(PurgeInvalid::Together("`all` is for two tags or more"));
        }
        if self.scheme.is_some() && self.host.is_none() {
            return Err(PurgeInvalid::Together("a scheme is for a host"));
        }
        self.tags.iter().try_for_each(|tag| check_tag(tag))?;
        self.site.iter().try_for_each(|site| length("the site", site, SITE_BYTES_MAX))?;
        self.host.iter().try_for_each(|host| check_host(host))?;
        self.prefix.iter().try_for_each(|prefix| check_prefix(prefix))
    }
}

fn check_url(url: &str) -> Result<(), PurgeInvalid> {
    length("the URL", url, URL_BYTES_MAX)?;
    let is_one = !url.contains('#') && !url.bytes().any(|byte| byte.is_ascii_control() || byte == b' ');
    holds(
        is_one && url.contains("://"),
        "the URL",
        "it must begin with a scheme and can't contain spaces or a fragment",
    )
}

fn check_tag(tag: &str) -> Result<(), PurgeInvalid> {
    length("a tag", tag, TAG_BYTES_MAX)?;
    holds(!tag.bytes().any(|byte| byte.is_ascii_control()), "a tag", "a tag can't contain control characters")
}

fn check_host(host: &str) -> Result<(), PurgeInvalid> {
    length("the host", host, HOST_BYTES_MAX)?;
    let is_one = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && !b"/?#@".contains(&byte);
    holds(
        host.bytes().all(is_one),
        "the host",
        "it must be a lower-case name or an address, with an optional port",
    )
}

fn check_prefix(prefix: &str) -> Result<(), PurgeInvalid> {
    length("the prefix", prefix, PREFIX_BYTES_MAX)?;
    let is_one = |byte: u8| !byte.is_ascii_control() && !b" ?#".contains(&byte);
    let is_path = prefix.starts_with('/') && prefix.bytes().all(is_one);
    holds(is_path, "the prefix", "its path must begin with / and can't contain spaces, a query or a fragment")
}

fn length(what: &'static str, text: &str, bytes_max: usize) -> Result<(), PurgeInvalid> {
    let bytes = text.len();
    if (1..=bytes_max).contains(&bytes) {
        Ok(())
    } else {
        Err(PurgeInvalid::Length { what, bytes, bytes_max })
    }
}

fn holds(is_so: bool, what: &'static str, must: &'static str) -> Result<(), PurgeInvalid> {
    if is_so { Ok(()) } else { Err(PurgeInvalid::Form { what, must }) }
}
