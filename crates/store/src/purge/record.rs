//! A single purge, as written to a log.

use std::fmt;

use crate::address::FillId;

/// Id of one purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeId(pub [u8; 16]);

impl PurgeId {
    /// Returns an id that has never been used.
    pub fn next() -> Self {
        let FillId { process, sequence } = FillId::next();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&process.to_be_bytes());
        id[8..].copy_from_slice(&sequence.to_be_bytes());
        Self(id)
    }
}

impl fmt::Display for PurgeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Effect of a purge on the responses that it matches. The values are those in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PurgeMode {
    /// Removes the responses, as if they had never been stored.
    #[default]
    Hard = 1,
    /// Makes the responses stale: they are used only after validation, or where stale responses are allowed.
    Soft = 2,
    /// They become stale, and are refetched in the background where possible.
    Refresh = 3,
}

impl PurgeMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Hard, Self::Soft, Self::Refresh];

    /// Returns the name of the mode, as used in the API and in metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Refresh => "refresh",
        }
    }

    /// Returns the mode for a word used in the API.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// Scheme of a cached URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlScheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl UrlScheme {
    /// Returns the scheme as written in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// How many of the given tags a response must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagsMatch {
    /// At least one.
    #[default]
    Any,
    /// All of them.
    All,
}

/// Conditions of a purge. A response must meet every given condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Required tags; empty if tags don't matter.
    pub tags: Vec<String>,
    /// How many of the tags must match; [`TagsMatch::Any`] for fewer than two.
    pub tags_match: TagsMatch,
    /// Name of the site.
    pub site: Option<String>,
    /// Host in lower case. A port, or the port of a given scheme, restricts the match to that port.
    pub host: Option<String>,
    /// Scheme; requires a host.
    pub scheme: Option<UrlScheme>,
    /// Prefix of the path, compared byte for byte.
    pub prefix: Option<String>,
}

/// Target of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTarget {
    /// One absolute URL, with all responses stored for it.
    Url(String),
    /// Responses that meet these conditions.
    Selected(Selection),
    /// All responses.
    Everything,
}

impl PurgeTarget {
    /// Returns the kind of the target's most specific part, as used in metric labels.
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

impl fmt::Display for PurgeTarget {
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
    /// Id of the purge.
    pub id: PurgeId,
    /// Time of the request, by the clock of its sender, in milliseconds since 1970.
    pub at_ms: u64,
    /// Effect on the matching responses.
    pub mode: PurgeMode,
    /// Responses to purge.
    pub what: PurgeTarget,
}

/// Maximum length of a URL in bytes.
pub const URL_BYTES_MAX: usize = 16 << 10;
/// Maximum number of tags in a purge.
pub const TAGS_MAX: usize = 30;
/// Maximum length of a tag in bytes, which is the limit of the largest CDNs.
pub const TAG_BYTES_MAX: usize = 1024;
/// Maximum length of the name of a site in bytes.
pub const SITE_BYTES_MAX: usize = 255;
/// Maximum length of a host with its port in bytes.
pub const HOST_BYTES_MAX: usize = 261;
/// Maximum length of a path prefix in bytes.
pub const PREFIX_BYTES_MAX: usize = 8 << 10;

/// Reason why a purge is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeInvalid {
    /// A part is empty, or exceeds its limit.
    #[error("{what} has {bytes} bytes; expected 1 to {bytes_max}")]
    Length {
        /// Name of the part.
        what: &'static str,
        /// Length of the part in bytes.
        bytes: usize,
        /// Maximum length of the part in bytes.
        bytes_max: usize,
    },
    /// A part is malformed.
    #[error("{what} is invalid: {must}")]
    Form {
        /// Name of the part.
        what: &'static str,
        /// Rule that the part breaks.
        must: &'static str,
    },
    /// Too many tags.
    #[error("{count} tags; expected at most {TAGS_MAX}: split them between several purges")]
    TagsTooMany {
        /// Number of tags.
        count: usize,
    },
    /// No conditions are given. To purge everything, use [`PurgeTarget::Everything`].
    #[error("nothing selected: give a URL, a tag, a site, a host, a prefix, or everything")]
    NothingSelected,
    /// The conditions can't be combined.
    #[error("{0}")]
    Combination(&'static str),
}

impl PurgeTarget {
    /// Checks the limits and the form of all parts.
    ///
    /// # Errors
    /// If a part is invalid.
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
            return Err(PurgeInvalid::NothingSelected);
        }
        if self.tags.len() > TAGS_MAX {
            return Err(PurgeInvalid::TagsTooMany { count: self.tags.len() });
        }
        if self.tags_match == TagsMatch::All && self.tags.len() < 2 {
            return Err(PurgeInvalid::Combination("`all` needs at least two tags"));
        }
        if self.scheme.is_some() && self.host.is_none() {
            return Err(PurgeInvalid::Combination("a scheme needs a host"));
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
