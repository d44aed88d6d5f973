//! Changes that a site makes to messages: its transformation rules, and their conditions.

use caching::StatusMatch;
use globset::GlobMatcher;
use http::HeaderName;

use super::rule::{MethodSet, PathPattern};
use crate::transform::actions::rewrite::Rewrite;
use crate::transform::{Action, Phase};

/// The transformation rules of a site, by phase, each list in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Transforms {
    /// Rules of [`Phase::ClientRequest`].
    pub client_request: Vec<TransformRule>,
    /// Rules of [`Phase::OriginRequest`].
    pub origin_request: Vec<TransformRule>,
    /// Rules of [`Phase::OriginResponse`].
    pub origin_response: Vec<TransformRule>,
    /// Rules of [`Phase::ClientResponse`].
    pub client_response: Vec<TransformRule>,
}

/// A rule that changes the messages that match. All matching rules apply, in the order of the file.
#[derive(Clone, Debug)]
pub struct TransformRule {
    /// Name in metrics and explanations, unique in the site.
    pub name: String,
    /// Messages that match.
    pub on: Conditions,
    /// Actions, in this order.
    pub actions: Vec<Action>,
}

impl TransformRule {
    /// Returns the request fields that determine the result of the rule in a phase. Fields that only change a forwarded value are
    /// left out, because the origin names those in `Vary`.
    pub(crate) fn deciding_fields(&self, phase: Phase) -> Vec<&HeaderName> {
        let mut names = Vec::new();
        if phase == Phase::ClientResponse || self.actions.iter().any(Action::chooses_answer) {
            names.extend(self.on.request_fields.iter().map(|field| &field.name));
        }
        names.extend(self.actions.iter().flat_map(|action| action.deciding_fields(phase)));
        names
    }
}

/// Conditions on a message, all of which must hold. A condition with an empty list always holds.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Host names in lower case, or `*.` followed by a host name.
    pub hosts: Vec<String>,
    /// Path of the request, with its query if the pattern includes the query.
    pub path: Option<PathPattern>,
    /// Methods of the request.
    pub methods: MethodSet,
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
    /// Fields of the request.
    pub request_fields: Vec<FieldPattern>,
    /// Statuses of the response.
    pub statuses: Vec<StatusMatch>,
    /// Fields of the response.
    pub response_fields: Vec<FieldPattern>,
    /// Media types of the response, without parameters, in lower case.
    pub content_types: Vec<GlobMatcher>,
}

/// A field with a pattern; at least one of its lines must match.
#[derive(Clone, Debug)]
pub struct FieldPattern {
    /// Field name.
    pub name: HeaderName,
    /// Glob over the value.
    pub value: GlobMatcher,
}

impl Transforms {
    /// Returns whether rules change paths, so that responses are stored under paths that differ from the requested ones.
    pub(crate) fn write_paths(&self) -> bool {
        let mut actions = self.client_request.iter().flat_map(|rule| &rule.actions);
        actions.any(|action| action.as_rewrite().is_some_and(Rewrite::changes_path))
    }

    /// Request fields that rules test, or whose values they use.
    pub(crate) fn request_fields_read(&self) -> impl Iterator<Item = &HeaderName> {
        let rules =
            Phase::ALL.into_iter().flat_map(|phase| self.of(phase).iter().map(move |rule| (phase, rule)));
        rules.flat_map(|(phase, rule)| {
            let used = rule.actions.iter().flat_map(move |action| action.request_fields_read(phase));
            rule.on.request_fields.iter().map(|field| &field.name).chain(used)
        })
    }

    /// Request fields that rules write or remove.
    pub(crate) fn request_fields_written(&self) -> impl Iterator<Item = &HeaderName> {
        let rules = self.client_request.iter().chain(&self.origin_request);
        rules.flat_map(|rule| &rule.actions).filter_map(Action::field_written)
    }

    /// Rules of a phase.
    pub fn of(&self, phase: Phase) -> &[TransformRule] {
        match phase {
            Phase::ClientRequest => &self.client_request,
            Phase::OriginRequest => &self.origin_request,
            Phase::OriginResponse => &self.origin_response,
            Phase::ClientResponse => &self.client_response,
        }
    }

    /// Returns the rules of a phase, mutably.
    pub fn of_mut(&mut self, phase: Phase) -> &mut Vec<TransformRule> {
        match phase {
            Phase::ClientRequest => &mut self.client_request,
            Phase::OriginRequest => &mut self.origin_request,
            Phase::OriginResponse => &mut self.origin_response,
            Phase::ClientResponse => &mut self.client_response,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            path: None,
            methods: MethodSet::Any,
            scheme: None,
            request_fields: Vec::new(),
            statuses: Vec::new(),
            response_fields: Vec::new(),
            content_types: Vec::new(),
        }
    }
}
