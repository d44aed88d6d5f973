//! Changes that a site makes to messages: conditions, actions and phases of its transformation rules.

use caching::{KeyRules, StatusMatch};
use globset::GlobMatcher;
use http::{HeaderName, HeaderValue};
use regex::Regex;

use super::rule::{MethodSet, PathPattern};
use super::template::{Template, Variable};

/// Point at which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client's request, before anything is read of it: key, `Vary` and origin see the changed one.
    ClientRequest,
    /// The request sent to the origin.
    OriginRequest,
    /// The origin's response, before it is judged and stored.
    OriginResponse,
    /// Any response on its way to a client; the stored response does not change.
    ClientResponse,
}

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

/// Changes to the messages that match. All matching rules apply, in their order.
#[derive(Clone, Debug)]
pub struct TransformRule {
    /// Shown in metrics and explanations; unique in its site.
    pub name: String,
    /// Messages that match.
    pub on: Conditions,
    /// Actions, in this order.
    pub actions: Vec<Action>,
}

impl TransformRule {
    /// Request fields that decide the result of the rule in a phase. Fields that only change a forwarded value are left out: the
    /// origin names those in `Vary`.
    pub(crate) fn deciding_fields(&self, phase: Phase) -> Vec<&HeaderName> {
        let mut names = Vec::new();
        let is_answer = |action: &Action| matches!(action, Action::Redirect(_) | Action::Rewrite(_));
        if phase == Phase::ClientResponse || self.actions.iter().any(is_answer) {
            names.extend(self.on.request_fields.iter().map(|field| &field.name));
        }
        for action in &self.actions {
            let value = match action {
                Action::Set(_, value) | Action::Add(_, value) if phase == Phase::ClientResponse => value,
                Action::Redirect(redirect) => &redirect.to,
                _ => continue,
            };
            names.extend(value.variables().filter_map(|variable| match variable {
                Variable::Field(name) if phase == Phase::ClientRequest => Some(name),
                Variable::RequestField(name) => Some(name),
                _ => None,
            }));
        }
        names
    }
}

/// Conditions on a message, all of which must hold. An empty list always holds.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Host names in lower case, or `*.` and one.
    pub hosts: Vec<String>,
    /// Path of the request, and its query for expressions that name it.
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

/// A field of which one line must match.
#[derive(Clone, Debug)]
pub struct FieldPattern {
    /// Field name.
    pub name: HeaderName,
    /// Glob over the value.
    pub value: GlobMatcher,
}

/// A change to a message.
#[derive(Clone, Debug)]
pub enum Action {
    /// Replaces the lines of one field by those of another, if that is present.
    Copy {
        /// Field with the values.
        from: HeaderName,
        /// Field to replace.
        to: HeaderName,
    },
    /// Removes all lines of this name.
    Remove(HeaderName),
    /// Replaces all lines of this name by one.
    Set(HeaderName, Template),
    /// Adds a line.
    Add(HeaderName, Template),
    /// Sets `Cache-Control` by status; the most specific entry counts.
    CacheControl(Vec<(StatusMatch, HeaderValue)>),
    /// Replaces the beginning of `Location` and `Content-Location`.
    Location(Vec<PrefixChange>),
    /// Changes attributes of `Set-Cookie`.
    Cookies(CookieChange),
    /// Changes path and query.
    Rewrite(Rewrite),
    /// Answers with a redirection.
    Redirect(Redirect),
}

/// Replacement of the beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixChange {
    /// The beginning to look for.
    pub from: String,
    /// The text that replaces it.
    pub to: String,
}

/// Changes to cookies that a response sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieChange {
    /// New `Domain` of cookies that have one; empty removes it.
    pub domain: Option<String>,
    /// Changes to the `Path` of cookies that have one.
    pub paths: Vec<PrefixChange>,
}

/// Changes to path and query.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Prefix to cut off paths that have it, up to the end of a segment.
    pub strip_prefix: Option<String>,
    /// Prefix to put before the path.
    pub add_prefix: Option<String>,
    /// Expression whose matches in the path are replaced by the text, in which `$1` stands for a capture.
    pub pattern: Option<(Regex, String)>,
    /// Query parameters to keep, and their order.
    pub query: Option<KeyRules>,
}

/// A redirection of the client.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `Location`.
    pub to: Template,
    /// Expression over path and query whose captures `to` names; absent if it names none.
    pub captured: Option<Regex>,
}

impl Action {
    /// Request fields whose values it uses in a phase.
    fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        match self {
            Self::Copy { from, .. } if !phase.is_of_responses() => vec![from],
            Self::Set(_, text) | Self::Add(_, text) | Self::Redirect(Redirect { to: text, .. }) => {
                text.variables().filter_map(|variable| variable.of_request(phase)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Field of the message that it writes or removes.
    fn field_written(&self) -> Option<&HeaderName> {
        match self {
            Self::Copy { to: name, .. } | Self::Remove(name) | Self::Set(name, _) | Self::Add(name, _) => {
                Some(name)
            }
            _ => None,
        }
    }
}

impl Phase {
    const ALL: [Self; 4] =
        [Self::ClientRequest, Self::OriginRequest, Self::OriginResponse, Self::ClientResponse];

    /// Whether the phase changes responses.
    pub fn is_of_responses(self) -> bool {
        matches!(self, Self::OriginResponse | Self::ClientResponse)
    }

    /// Whether a variable may be used in this phase. A stored response is for all requests with the same key, so it must not
    /// contain anything that only one of them says.
    pub fn has(self, variable: &Variable) -> bool {
        match variable {
            Variable::Authority | Variable::Host | Variable::Path | Variable::Scheme | Variable::Field(_) => {
                true
            }
            Variable::Status => self.is_of_responses(),
            Variable::Query | Variable::ClientAddress => self != Self::OriginResponse,
            Variable::RequestField(_) => self == Self::ClientResponse,
        }
    }
}

impl Phase {
    /// Variables that may be used in this phase, as they are written.
    pub fn variables(self) -> Vec<String> {
        let any = HeaderName::from_static("name");
        let all = [
            Variable::Authority,
            Variable::ClientAddress,
            Variable::Field(any.clone()),
            Variable::Host,
            Variable::Path,
            Variable::Query,
            Variable::RequestField(any),
            Variable::Scheme,
            Variable::Status,
        ];
        let shown =
            all.iter().filter(|variable| self.has(variable)).map(|variable| format!("`{{{variable}}}`"));
        shown.map(|text| text.replace(".name}", ".NAME}")).collect()
    }
}

impl Transforms {
    /// Whether rules change paths, so that responses are stored under other paths than clients ask for.
    pub(crate) fn write_paths(&self) -> bool {
        let actions = self.client_request.iter().flat_map(|rule| &rule.actions);
        let mut rewrites = actions.filter_map(|action| match action {
            Action::Rewrite(rewrite) => Some(rewrite),
            _ => None,
        });
        rewrites.any(|Rewrite { strip_prefix, add_prefix, pattern, query: _ }| {
            strip_prefix.is_some() || add_prefix.is_some() || pattern.is_some()
        })
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

    /// Rules of a phase, for changes.
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
