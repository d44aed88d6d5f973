//! Encoding of a purge in a log: `docs/internals/purge-log.md`.

use super::record::{
    PurgeId, PurgeInvalid, PurgeMode, PurgeRecord, PurgeTarget, Selection, TAG_BYTES_MAX, TAGS_MAX,
    TagsMatch, UrlScheme,
};

/// Upper bound on the length of a record: all tags with their lengths, plus 16 KiB for the other
/// fields.
pub const PURGE_RECORD_BYTES_MAX: usize = TAGS_MAX * (TAG_BYTES_MAX + 2) + (16 << 10);

/// Reason why bytes can't be read as a purge by this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeBytesError {
    /// The bytes were written by another version of Larder.
    #[error("version {0} is not known")]
    UnknownVersion(u8),
    /// The bytes end too early, or continue after the record.
    #[error("the length differs from the declared one")]
    Length,
    /// A number has no meaning in this version.
    #[error("{what} {value} is not known")]
    Unknown {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: u8,
    },
    /// A text isn't UTF-8.
    #[error("not text")]
    NotText,
    /// The decoded purge is invalid.
    #[error(transparent)]
    Invalid(#[from] PurgeInvalid),
}

const VERSION: u8 = 1;
const FORM_URL: u8 = 1;
const FORM_SELECTED: u8 = 2;
const FORM_EVERYTHING: u8 = 3;

const ALL_TAGS: u8 = 1;
const HAS_SITE: u8 = 2;
const HAS_HOST: u8 = 4;
const HAS_HTTP: u8 = 8;
const HAS_HTTPS: u8 = 16;
const HAS_PREFIX: u8 = 32;
const FLAGS_KNOWN: u8 = 63;

impl PurgeRecord {
    /// Encodes the record.
    ///
    /// # Errors
    /// If it exceeds a limit.
    pub fn encode(&self) -> Result<Vec<u8>, PurgeInvalid> {
        self.what.check()?;
        let (form, flags) = match &self.what {
            PurgeTarget::Url(_) => (FORM_URL, 0),
            PurgeTarget::Selected(selection) => (FORM_SELECTED, flags(selection)),
            PurgeTarget::Everything => (FORM_EVERYTHING, 0),
        };
        let mut out = vec![VERSION, form, self.mode as u8, flags];
        out.extend_from_slice(&self.at_ms.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        match &self.what {
            PurgeTarget::Url(url) => write_text(url, &mut out),
            PurgeTarget::Selected(selection) => write_selection(selection, &mut out),
            PurgeTarget::Everything => {}
        }
        debug_assert!(out.len() <= PURGE_RECORD_BYTES_MAX);
        Ok(out)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the bytes can't have been written by [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PurgeBytesError> {
        let mut rest = bytes;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(PurgeBytesError::UnknownVersion(version));
        }
        let [form, mode, flags] = take(&mut rest)?;
        let at_ms = u64::from_le_bytes(take(&mut rest)?);
        let id = PurgeId(take(&mut rest)?);
        let what = match (form, flags) {
            (FORM_URL, 0) => PurgeTarget::Url(read_text(&mut rest)?),
            (FORM_SELECTED, _) => PurgeTarget::Selected(read_selection(flags, &mut rest)?),
            (FORM_EVERYTHING, 0) => PurgeTarget::Everything,
            (FORM_URL | FORM_EVERYTHING, value) => {
                return Err(PurgeBytesError::Unknown { what: "the flag", value });
            }
            (value, _) => return Err(PurgeBytesError::Unknown { what: "the form", value }),
        };
        if !rest.is_empty() {
            return Err(PurgeBytesError::Length);
        }
        what.check()?;
        Ok(Self { id, at_ms, mode: read_mode(mode)?, what })
    }
}

fn flags(selection: &Selection) -> u8 {
    let Selection { tags: _, tags_match, site, host, scheme, prefix } = selection;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(*tags_match == TagsMatch::All, ALL_TAGS)
        | flag(site.is_some(), HAS_SITE)
        | flag(host.is_some(), HAS_HOST)
        | flag(*scheme == Some(UrlScheme::Http), HAS_HTTP)
        | flag(*scheme == Some(UrlScheme::Https), HAS_HTTPS)
        | flag(prefix.is_some(), HAS_PREFIX)
}

fn write_selection(selection: &Selection, out: &mut Vec<u8>) {
    // The number of tags was checked before, so it fits into a byte.
    out.push(selection.tags.len() as u8);
    let Selection { tags, site, host, prefix, .. } = selection;
    tags.iter().chain(site).chain(host).chain(prefix).for_each(|text| write_text(text, out));
}

fn read_selection(flags: u8, rest: &mut &[u8]) -> Result<Selection, PurgeBytesError> {
    let unknown = PurgeBytesError::Unknown { what: "the flag", value: flags };
    let has = |flag: u8| flags & flag != 0;
    if flags & !FLAGS_KNOWN != 0 {
        return Err(unknown);
    }
    let scheme = match (has(HAS_HTTP), has(HAS_HTTPS)) {
        (false, false) => None,
        (true, false) => Some(UrlScheme::Http),
        (false, true) => Some(UrlScheme::Https),
        (true, true) => return Err(unknown),
    };
    let [count] = take(rest)?;
    let tags = (0..count).map(|_| read_text(rest)).collect::<Result<_, _>>()?;
    let mut text_if = |flag: u8| has(flag).then(|| read_text(rest)).transpose();
    Ok(Selection {
        tags,
        tags_match: if has(ALL_TAGS) { TagsMatch::All } else { TagsMatch::Any },
        site: text_if(HAS_SITE)?,
        host: text_if(HAS_HOST)?,
        scheme,
        prefix: text_if(HAS_PREFIX)?,
    })
}

fn read_mode(value: u8) -> Result<PurgeMode, PurgeBytesError> {
    let unknown = PurgeBytesError::Unknown { what: "the mode", value };
    PurgeMode::ALL.into_iter().find(|mode| *mode as u8 == value).ok_or(unknown)
}

/// Writes a text. Its length was checked before, so it fits into two bytes.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn read_text(rest: &mut &[u8]) -> Result<String, PurgeBytesError> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (text, after) = rest.split_at_checked(length).ok_or(PurgeBytesError::Length)?;
    *rest = after;
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| PurgeBytesError::NotText)
}

fn take<const COUNT: usize>(rest: &mut &[u8]) -> Result<[u8; COUNT], PurgeBytesError> {
    let (taken, after) = rest.split_first_chunk::<COUNT>().ok_or(PurgeBytesError::Length)?;
    *rest = after;
    Ok(*taken)
}
