//! `copy`: a field gets the values of another one, if that is there.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::Kind::{Map, Text};
use option_table::{KeyForm, row};

use crate::transform::field::{readable, writable};
use crate::transform::terms::Author;
use crate::transform::{ActionKey, Change, Phase, Phases, RuleTerms, Trail};

row! {
    /// Fields that get the values of another field, if that is there: `copy = { New = "Old" }`.
    ///
    /// In one rule `copy` comes first, then `remove`, `set` and `add`; so `copy` and `remove` rename a field.
    OPTION("copy") = Map(KeyForm::FieldName, &Text("name of the field that it gets the values of")).default("{}");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::Any };

/// Replaces the lines of one field by those of another, if that is present.
#[derive(Clone, Debug)]
pub struct Copy {
    from: HeaderName,
    to: HeaderName,
}

impl Copy {
    /// Checks an entry.
    ///
    /// # Errors
    /// The problem with it, for people.
    pub fn new(to: &str, from: &str, terms: &RuleTerms<'_>) -> Result<Self, String> {
        let (from, to) = (readable(from)?, writable(to, terms.phase)?);
        terms.check_value(&to, Author::Client)?;
        Ok(Self { from, to })
    }

    pub(super) fn edit(&self, fields: &mut PackedFields) {
        let (from, to) = (self.from.as_str(), self.to.as_str());
        let values: Vec<Vec<u8>> = fields.values(from).map(<[u8]>::to_vec).collect();
        if values.is_empty() || from.eq_ignore_ascii_case(to) {
            return;
        }
        fields.retain(|other| !other.eq_ignore_ascii_case(to.as_bytes()));
        values.iter().for_each(|value| fields.push(to, value));
    }

    pub(super) fn field_written(&self) -> &HeaderName {
        &self.to
    }

    pub(super) fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        if phase.is_of_responses() { Vec::new() } else { vec![&self.from] }
    }

    pub(super) fn follow<'a>(&'a self, trail: &mut Trail<'a>) {
        if trail.is_chosen || trail.has(self.from.as_str()) {
            trail.add(self.to.as_str());
        }
    }

    pub(super) fn described(&self) -> Change {
        ("copy", format!("{} to {}", self.from, self.to))
    }
}
