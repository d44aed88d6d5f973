//! The properties of a rule that the checks of its actions depend on.

use caching::sharing;
use http::HeaderName;

use super::phase::Phase;

/// The rule that an action belongs to.
#[derive(Clone, Copy, Debug)]
pub struct RuleTerms<'a> {
    /// Phase of the rule.
    pub phase: Phase,
    /// Client fields in the conditions of the rule; absent if an error in the configuration leaves them unknown.
    pub chosen_by: Option<ChosenBy>,
    /// Fields that rules of the site treat as credentials, in addition to those that always are.
    pub credential_fields: &'a [&'a str],
}

/// Client fields in the conditions of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// No fields, or at least one credential: a request with a credential counts as one with credentials anyway.
    NothingPlain,
    /// Fields that aren't credentials.
    PlainFields,
}

/// The party that determines the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    Operator,
    Client,
}

impl ChosenBy {
    /// Classifies the fields in the conditions of a rule.
    pub fn fields<'a>(mut names: impl Iterator<Item = &'a HeaderName> + Clone) -> Self {
        let has_any = names.clone().next().is_some();
        match has_any && !names.any(|name| sharing::is_credential(name.as_str())) {
            true => Self::PlainFields,
            false => Self::NothingPlain,
        }
    }
}

impl RuleTerms<'_> {
    /// Checks the value that an action writes to a field. Credentials are detected before the phase of the request to the origin, so
    /// client data that becomes a credential must be set earlier.
    pub(super) fn check_value(&self, name: &HeaderName, author: Author) -> Result<(), String> {
        let Some(chosen_by) = self.chosen_by.filter(|_| self.phase == Phase::OriginRequest) else {
            return Ok(());
        };
        let is_client_s = author == Author::Client || chosen_by == ChosenBy::PlainFields;
        match is_client_s && self.is_credential(name) {
            true => Err(format!(
                "`{name}` is a credential: set it from data of the client in phase `client_request`"
            )),
            false => Ok(()),
        }
    }

    /// Returns whether any rule of the site treats a field as a credential.
    fn is_credential(&self, name: &HeaderName) -> bool {
        let is_name = |field: &&str| field.eq_ignore_ascii_case(name.as_str());
        sharing::is_credential(name.as_str()) || self.credential_fields.iter().any(is_name)
    }
}
