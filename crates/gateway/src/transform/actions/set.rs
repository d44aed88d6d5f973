//! `set`: a field gets one value in place of all that it has.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::row;

use crate::transform::field::writable;
use crate::transform::template::VALUES;
use crate::transform::{ActionKey, Change, Phase, Phases, RuleTerms, Subject, Template, Trail};

row! {
    /// Fields that get one value in place of all that they have, with variables such as `{host}`.
    OPTION("set") = VALUES.default("{}");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::Any };

/// Replaces all lines of this name by one.
#[derive(Clone, Debug)]
pub struct Set(HeaderName, Template);

impl Set {
    /// Checks an entry.
    ///
    /// # Errors
    /// The problem with it, for people.
    pub fn new(name: &str, value: &str, terms: &RuleTerms<'_>) -> Result<Self, String> {
        let (name, value) = (writable(name, terms.phase)?, Template::in_phase(value, terms.phase)?);
        terms.check_value(&name, value.author())?;
        Ok(Self(name, value))
    }

    pub(super) fn edit(&self, subject: &Subject<'_>, fields: &mut PackedFields) {
        if let Some(value) = subject.value(&self.1, fields) {
            fields.set(self.0.as_str(), &value);
        }
    }

    pub(super) fn field_written(&self) -> &HeaderName {
        &self.0
    }

    pub(super) fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        self.1.request_fields(phase).collect()
    }

    /// The origin names in `Vary` the fields that only change a value which it is sent.
    pub(super) fn deciding_fields(&self, phase: Phase) -> Vec<&HeaderName> {
        if phase == Phase::ClientResponse { self.request_fields_read(phase) } else { Vec::new() }
    }

    pub(super) fn follow<'a>(&'a self, trail: &mut Trail<'a>) {
        let Self(name, value) = self;
        if trail.is_chosen || trail.is_in(value) {
            trail.add(name.as_str());
        } else if value.is_fixed() {
            // A template with variables may come to nothing, and then the field stays as it is.
            trail.remove(name.as_str());
        }
    }

    pub(super) fn described(&self) -> Change {
        ("set", self.1.described(&self.0))
    }
}
