//! `add`: a field gets one more line.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::row;

use crate::transform::field::writable;
use crate::transform::template::VALUES;
use crate::transform::{ActionKey, Change, Phase, Phases, RuleTerms, Subject, Template, Trail};

row! {
    /// Fields that get one more line.
    OPTION("add") = VALUES.default("{}");
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::Any };

/// Adds a line.
#[derive(Clone, Debug)]
pub struct Add(HeaderName, Template);

impl Add {
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
        let Self(name, value) = self;
        // A field in a 304 replaces all stored lines of its name, and a 304 need not repeat those of the origin.
        if subject.is_304() && fields.value(name.as_str()).is_none() {
            return;
        }
        if let Some(value) = subject.value(value, fields) {
            fields.push(name.as_str(), &value);
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
        if trail.is_chosen || trail.is_in(&self.1) {
            trail.add(self.0.as_str());
        }
    }

    pub(super) fn described(&self) -> Change {
        ("add", self.1.described(&self.0))
    }
}
