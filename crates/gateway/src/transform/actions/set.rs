//! `set` and `add`: replace all values of a field by one, or add a line.

use std::fmt;

use http::HeaderName;
use message::fields::PackedFields;
use option_table::row;

use crate::transform::field::writable;
use crate::transform::template::VALUES;
use crate::transform::{ActionKey, Change, Phase, Phases, RuleTerms, Subject, Template, Trail};

row! {
    /// Fields and their new values, which replace all existing ones, with variables such as `{host}`.
    OPTION("set") = VALUES.default("{}");
}

row! {
    /// Fields to which a line is added.
    ADD_OPTION("add") = VALUES.default("{}");
}

/// The keys.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::Any };
pub const ADD_KEY: ActionKey = ActionKey { option: ADD_OPTION, phases: Phases::Any };

/// Writes a line with a name and a value.
#[derive(Clone)]
pub struct Set {
    name: HeaderName,
    value: Template,
    others: Others,
}

/// Treatment of existing lines of the field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Replaced,
    Kept,
}

impl Set {
    /// Checks an entry of `set`.
    ///
    /// # Errors
    /// A message with the problem; also below.
    pub fn new(name: &str, value: &str, terms: &RuleTerms<'_>) -> Result<Self, String> {
        let (name, value) = (writable(name, terms.phase)?, Template::in_phase(value, terms.phase)?);
        terms.check_value(&name, value.author())?;
        Ok(Self { name, value, others: Others::Replaced })
    }

    /// Checks an entry of `add`.
    pub fn adding(name: &str, value: &str, terms: &RuleTerms<'_>) -> Result<Self, String> {
        Ok(Self { others: Others::Kept, ..Self::new(name, value, terms)? })
    }

    pub(super) fn edit(&self, subject: &Subject<'_>, fields: &mut PackedFields) {
        let name = self.name.as_str();
        let adds = self.others == Others::Kept;
        // A field in a 304 replaces all stored lines with its name, and a 304 need not repeat the origin's lines.
        if adds && subject.is_304() && fields.value(name).is_none() {
            return;
        }
        match subject.value(&self.value, fields) {
            Some(value) if adds => fields.push(name, &value),
            Some(value) => fields.set(name, &value),
            None => {}
        }
    }

    pub(super) fn field_written(&self) -> &HeaderName {
        &self.name
    }

    pub(super) fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        self.value.request_fields(phase).collect()
    }

    /// If fields only change a value sent to the origin, the origin names them in `Vary`.
    pub(super) fn deciding_fields(&self, phase: Phase) -> Vec<&HeaderName> {
        if phase == Phase::ClientResponse { self.request_fields_read(phase) } else { Vec::new() }
    }

    pub(super) fn follow<'a>(&'a self, trail: &mut Trail<'a>) {
        if trail.is_chosen || trail.is_in(&self.value) {
            trail.add(self.name.as_str());
        } else if self.others == Others::Replaced && self.value.is_fixed() {
            // A template with variables may produce no valid value; then the field stays unchanged.
            trail.remove(self.name.as_str());
        }
    }

    pub(super) fn described(&self) -> Change {
        let action = if self.others == Others::Kept { "add" } else { "set" };
        (action, self.value.described(&self.name))
    }
}

/// Writes the text for imprints.
impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = if self.others == Others::Kept { "Add" } else { "Set" };
        f.debug_tuple(action).field(&self.name).field(&self.value).finish()
    }
}
