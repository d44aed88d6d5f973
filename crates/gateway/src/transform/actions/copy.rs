//! `copy`: sets a field to the values of another one, if that is present.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::Kind::{Map, Text};
use option_table::{KeyForm, row};

use crate::transform::field::{readable, writable};
use crate::transform::terms::Author;
use crate::transform::{ActionKey, Change, Phase, Phases, RuleTerms, Trail};

row! {
    /// Fields set to the values of another field, if that is present: `copy = { New = "Old" }`.
    ///
    /// Within a rule, `copy` is applied first, then `remove`, `set` and `add`, so `copy` and `remove` together rename a field.
    OPTION("copy") = Map(KeyForm::FieldName, &Text("name of the field to copy from")).default("{}");
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
    /// A message with the problem.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::ChosenBy;

    fn terms(phase: Phase) -> RuleTerms<'static> {
        RuleTerms { phase, chosen_by: Some(ChosenBy::NothingPlain), credential_fields: &["x-token"] }
    }

    #[test]
    fn all_lines_of_a_field_are_replaced() {
        let check = |from: &str, expected: &[(&str, &[u8])]| {
            let copy = Copy::new("x-new", from, &terms(Phase::ClientResponse)).unwrap();
            let mut fields =
                PackedFields::from_lines([("x-new", &b"0"[..]), ("x-old", b"1"), ("x-old", b"2")]);
            copy.edit(&mut fields);
            assert_eq!(fields.to_lines()[..], *expected, "{from}");
        };
        check("x-old", &[("x-old", b"1"), ("x-old", b"2"), ("x-new", b"1"), ("x-new", b"2")]);
        check("x-absent", &[("x-new", b"0"), ("x-old", b"1"), ("x-old", b"2")]);
        check("x-new", &[("x-new", b"0"), ("x-old", b"1"), ("x-old", b"2")]);
    }

    #[test]
    fn what_a_client_says_is_no_credential_of_the_origin_s_request() {
        let check = |phase, to: &str, is_right: bool| {
            assert_eq!(Copy::new(to, "x-a", &terms(phase)).is_ok(), is_right, "{to} in {phase:?}");
        };
        check(Phase::ClientRequest, "x-token", true);
        check(Phase::OriginRequest, "x-token", false);
        check(Phase::OriginRequest, "authorization", false);
        check(Phase::OriginRequest, "x-b", true);
    }
}
