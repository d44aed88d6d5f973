//! `remove`: removes fields.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::{FIELD_NAMES, row};

use crate::transform::field::deletable;
use crate::transform::{ActionKey, Change, Phases, RuleTerms, Trail};

row! {
    /// Fields to remove.
    OPTION("remove") = FIELD_NAMES.default("[]");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::Any };

/// Removes all lines with this name.
#[derive(Clone, Debug)]
pub struct Remove(HeaderName);

impl Remove {
    /// Checks the name of a field.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn new(name: &str, terms: &RuleTerms<'_>) -> Result<Self, String> {
        deletable(name, terms.phase).map(Self)
    }

    pub(super) fn edit(&self, fields: &mut PackedFields) {
        fields.retain(|other| !other.eq_ignore_ascii_case(self.0.as_str().as_bytes()));
    }

    pub(super) fn field_written(&self) -> &HeaderName {
        &self.0
    }

    pub(super) fn follow(&self, trail: &mut Trail<'_>) {
        trail.remove(self.0.as_str());
    }

    pub(super) fn described(&self) -> Change {
        ("remove", self.0.to_string())
    }
}
