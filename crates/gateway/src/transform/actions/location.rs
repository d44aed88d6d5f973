//! `location`: beginnings of `Location` and `Content-Location` become others.

use message::fields::PackedFields;
use option_table::row;

use crate::transform::prefix::{PREFIX_CHANGES, change_values, changed_prefix};
use crate::transform::{ActionKey, Change, Phases, PrefixChange};

row! {
    /// Beginnings of `Location` and `Content-Location` that become others; the first that fits counts. Only for responses.
    ///
    /// A beginning ends where a component of the URL does; scheme and host are compared without regard to case.
    OPTION("location") = PREFIX_CHANGES.default("[]");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::OfResponses };

/// Replaces the beginning of `Location` and `Content-Location`.
#[derive(Clone, Debug)]
pub struct Location(Vec<PrefixChange>);

impl Location {
    /// The action of these changes, if there are any.
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
