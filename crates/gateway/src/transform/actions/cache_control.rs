//! `cache_control`: sets `Cache-Control` by status.

use caching::StatusMatch;
use http::HeaderValue;
use message::fields::PackedFields;
use option_table::Kind::{Map, Text};
use option_table::{KeyForm, row};

use crate::transform::{ActionKey, Change, Phases, Subject};

row! {
    /// `Cache-Control` by status, which replaces the origin's. Only in `origin_response`.
    ///
    /// Keys are status codes, classes such as `5xx`, or `default`; the most specific one applies. Unlike `ttl_override`, this is
    /// visible to clients. A targeted field such as `CDN-Cache-Control` still takes precedence.
    OPTION("cache_control") = Map(KeyForm::Status, &Text("value of `Cache-Control`")).default("{}");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::OriginResponse };

/// Sets `Cache-Control` by status; the most specific entries come first.
#[derive(Clone, Debug)]
pub struct CacheControl(Vec<(StatusMatch, HeaderValue)>);

impl CacheControl {
    /// Checks a value.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn value(text: &str) -> Result<HeaderValue, String> {
        HeaderValue::from_str(text).map_err(|_| "expected directives, such as `max-age=60`".to_owned())
    }

    /// Creates the action from these entries, if there are any.
    pub fn new(mut entries: Vec<(StatusMatch, HeaderValue)>) -> Option<Self> {
        entries.sort_by_key(|(status, _)| match status {
            StatusMatch::Exact(_) => 0,
            StatusMatch::Class(_) => 1,
            StatusMatch::Any => 2,
        });
        (!entries.is_empty()).then_some(Self(entries))
    }

    pub(super) fn edit(&self, subject: &Subject<'_>, fields: &mut PackedFields) {
        let status = subject.status.map_or(0, |(_, meant)| meant);
        if let Some((_, value)) = self.0.iter().find(|(known, _)| known.matches(status)) {
            fields.set("cache-control", value.as_bytes());
        }
    }

    pub(super) fn described(&self) -> Change {
        ("set", "cache-control by status".to_owned())
    }
}
