//! Applies the actions of transformation rules to a header section. Pure: a section in, a section out.

use message::fields::PackedFields;
use origin::{FIELDS_MAX, HEAD_BYTES_MAX};

use super::rules::{Matching, SeenAnswer};
use crate::config::TransformRule;
use crate::transform::{Seen, Subject};

/// Message that rules are applied to.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a>(pub(super) Subject<'a>);

/// The section exceeds the limits of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl<'a> Context<'a> {
    pub(crate) fn of_request(seen: &'a Seen<'a>) -> Self {
        Self(Subject { seen, status: None })
    }

    pub(crate) fn of_answer(seen: &'a Seen<'a>, answer: &SeenAnswer<'_>) -> Self {
        Self(Subject { seen, status: Some((answer.status, answer.status_meant())) })
    }

    /// Applies the `matching` rules, in their order.
    ///
    /// # Errors
    /// If the section becomes too large for any message.
    pub(crate) fn apply(
        &self,
        rules: &[TransformRule],
        matching: &Matching,
        fields: &mut PackedFields,
    ) -> Result<(), TooLarge> {
        let matching = matching.iter().filter_map(|place| rules.get(usize::from(*place)));
        for action in matching.flat_map(|rule| &rule.actions) {
            action.edit(&self.0, fields);
            if fields.len() > FIELDS_MAX || fields.view().wire().len() > HEAD_BYTES_MAX {
                return Err(TooLarge);
            }
        }
        Ok(())
    }
}

/// Adds a request field that a response depends on to its `Vary`.
pub(crate) fn nominate(name: &str, fields: &mut PackedFields) {
    let is_listed = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes());
    if !caching::fields::members(&fields.to_lines(), "vary").any(is_listed) {
        fields.append_to_list("vary", &[name.as_bytes()]);
    }
}
