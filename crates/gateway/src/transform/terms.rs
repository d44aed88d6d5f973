//! The rule around an action, as far as the check of the action depends on it.

use caching::sharing;
use http::HeaderName;

use super::phase::Phase;

/// The rule that an action stands in.
#[derive(Clone, Copy, Debug)]
pub struct RuleTerms<'a> {
    /// Phase of the rule.
    pub phase: Phase,
    /// Fields of the client by which the rule is chosen; absent where a mistake leaves that open.
    pub chosen_by: Option<ChosenBy>,
    /// Fields that rules of the site take for credentials, beside those that always are.
    pub credential_fields: &'a [&'a str],
}

/// Fields of the client by which a rule is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// None that isn't a credential: a request that a rule knows by a credential is one with credentials already.
    NothingPlain,
    /// Fields that are no credentials.
    PlainFields,
}

/// Author of the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    Operator,
    Client,
}

impl ChosenBy {
    /// The kind of these fields, which the conditions of a rule name.
    pub fn fields<'a>(mut names: impl Iterator<Item = &'a HeaderName> + Clone) -> Self {
        let has_any = names.clone().next().is_some();
        match has_any && !names.any(|name| sharing::is_credential(name.as_str())) {
            true => Self::PlainFields,
            false => Self::NothingPlain,
        }
    }
}

impl RuleTerms<'_> {
    /// Checks the value that an action gives a field: whose request it is, is read before the phase of the origin, so what a client says must be
    /// a credential by then.
    pub(super) fn check_value(&self, name: &HeaderName, author: Author) -> Result<(), String> {
        let Some(chosen_by) = self.chosen_by.filter(|_| self.phase == Phase::OriginRequest) else {
            return Ok(());
        };
        let is_client_s = author == Author::Client || chosen_by == ChosenBy::PlainFields;
        match is_client_s && self.is_credential(name) {
            true => Err(format!(
                "`{name}` tells whose request it is: make it of what the client says in phase `client_request`"
            )),
            false => Ok(()),
        }
    }

    /// Whether a field is a credential to any rule of the site.
    fn is_credential(&self, name: &HeaderName) -> bool {
        let is_name = |field: &&str| field.eq_ignore_ascii_case(name.as_str());
        sharing::is_credential(name.as_str()) || self.credential_fields.iter().any(is_name)
    }
}
