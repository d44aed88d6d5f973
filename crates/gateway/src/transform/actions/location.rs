//! `location`: replaces the start of `Location` and `Content-Location`.

use message::fields::PackedFields;
use option_table::row;

use crate::transform::prefix::{PREFIX_CHANGES, change_values, changed_prefix};
use crate::transform::{ActionKey, Change, Phases, PrefixChange};

row! {
    /// Replacements for the start of `Location` and `Content-Location`; the first match is used. Only for responses.
    ///
    /// A match ends at the boundary of a URL component. Scheme and host are compared case-insensitively.
    OPTION("location") = PREFIX_CHANGES.default("[]");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::OfResponses };

/// Replaces the start of `Location` and `Content-Location`.
#[derive(Clone, Debug)]
pub struct Location(Vec<PrefixChange>);

impl Location {
    /// Creates the action from these changes, if there are any.
    pub fn new(changes: Vec<PrefixChange>) -> Option<Self> {
        (!changes.is_empty()).then_some(Self(changes))
    }

    pub(super) fn edit(&self, fields: &mut PackedFields) {
        for name in ["location", "content-location"] {
            change_values(name, fields, |value| changed_prefix(&self.0, value));
        }
    }

    pub(super) fn described(&self) -> Change {
        ("rewrite", "location, content-location".to_owned())
    }
}
