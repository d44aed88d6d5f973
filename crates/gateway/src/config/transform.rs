//! What a site changes of the messages that pass: conditions, actions and phases of its transformation rules.

use caching::{KeyRules, StatusMatch};
use globset::GlobMatcher;
use http::{HeaderName, HeaderValue};
use regex::Regex;

use super::rule::{MethodSet, PathPattern};
use super::template::{Template, Variable};

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client's request, before anything is read of it: key, `Vary` and origin see the changed one.
    ClientRequest,
    /// What the origin is sent of it.
    OriginRequest,
    /// The origin's response, before it is judged and stored.
    OriginResponse,
    /// Any response on its way to a client; what is stored stays as it is.
    ClientResponse,
}

/// The transformation rules of a site, by phase, each list in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Transforms {
    /// Of [`Phase::ClientRequest`].
    pub client_request: Vec<TransformRule>,
    /// Of [`Phase::OriginRequest`].
    pub origin_request: Vec<TransformRule>,
    /// Of [`Phase::OriginResponse`].
    pub origin_response: Vec<TransformRule>,
    /// Of [`Phase::ClientResponse`].
    pub client_response: Vec<TransformRule>,
}

/// What is done to the messages that match. All rules that match apply, in their order.
#[derive(Clone, Debug)]
pub struct TransformRule {
    /// Shown in metrics and explanations; unique in its site.
    pub name: String,
    /// Which messages.
    pub on: Conditions,
    /// What is done, in this order.
    pub actions: Vec<Action>,
}

impl TransformRule {
    /// The request fields that decide what the rule makes of a message in a phase. A field that is only forwarded with another value is the
    /// origin's to name.
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

/// What a message must have, all of it. An empty list asks for nothing.
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
    /// Its name.
    pub name: HeaderName,
    /// A glob over its value.
    pub value: GlobMatcher,
}

/// One change.
#[derive(Clone, Debug)]
pub enum Action {
    /// The lines of one field become those of another, if that is there.
    Copy {
        /// Where values come from.
        from: HeaderName,
        /// What they are called then.
        to: HeaderName,
    },
    /// No line has this name.
    Remove(HeaderName),
    /// One line in place of all of this name.
    Set(HeaderName, Template),
    /// One more line.
    Add(HeaderName, Template),
    /// `Cache-Control` by status; the most specific entry counts.
    CacheControl(Vec<(StatusMatch, HeaderValue)>),
    /// `Location` and `Content-Location` that begin so begin otherwise.
    Location(Vec<PrefixChange>),
    /// Attributes of `Set-Cookie`.
    Cookies(CookieChange),
    /// Path and query.
    Rewrite(Rewrite),
    /// The gateway answers with a redirection.
    Redirect(Redirect),
}

/// A beginning that becomes another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixChange {
    /// What it is.
    pub from: String,
    /// What it becomes.
    pub to: String,
}

/// What becomes of cookies that a response sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieChange {
    /// The `Domain` of those that have one; empty takes it out.
    pub domain: Option<String>,
    /// The `Path` of those that have one.
    pub paths: Vec<PrefixChange>,
}

/// What becomes of path and query.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Cut off the path where it has it, at the end of a segment.
    pub strip_prefix: Option<String>,
    /// Put before the path.
    pub add_prefix: Option<String>,
    /// Matched parts of the path become this text, in which `$1` stands for a capture.
    pub pattern: Option<(Regex, String)>,
    /// Which parameters the query keeps, and in which order.
    pub query: Option<KeyRules>,
}

/// Where a client is sent.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `Location`.
    pub to: Template,
    /// The expression over path and query whose captures its text names; absent where it names none.
    pub captured: Option<Regex>,
}

impl Action {
    /// The request fields whose values it uses in a phase.
    fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        match self {
            Self::Copy { from, .. } if !phase.is_of_responses() => vec![from],
            Self::Set(_, text) | Self::Add(_, text) | Self::Redirect(Redirect { to: text, .. }) => {
                text.variables().filter_map(|variable| variable.of_request(phase)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The field of the message that it writes or takes out.
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

    /// Whether this is a change of responses.
    pub fn is_of_responses(self) -> bool {
        matches!(self, Self::OriginResponse | Self::ClientResponse)
    }

    /// Whether a variable may be used here. What is stored is for all who ask for the same key, so nothing goes into it
    /// that only one of them says.
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
    /// The variables that may be used here, as they are written.
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
    /// Whether requests are stored under other paths than clients ask for.
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

    /// The request fields that rules ask for, or whose values they use.
    pub(crate) fn request_fields_read(&self) -> impl Iterator<Item = &HeaderName> {
        let rules =
            Phase::ALL.into_iter().flat_map(|phase| self.of(phase).iter().map(move |rule| (phase, rule)));
        rules.flat_map(|(phase, rule)| {
            let used = rule.actions.iter().flat_map(move |action| action.request_fields_read(phase));
            rule.on.request_fields.iter().map(|field| &field.name).chain(used)
        })
    }

    /// The request fields that rules write or take out.
    pub(crate) fn request_fields_written(&self) -> impl Iterator<Item = &HeaderName> {
        let rules = self.client_request.iter().chain(&self.origin_request);
        rules.flat_map(|rule| &rule.actions).filter_map(Action::field_written)
    }

    /// The rules of a phase.
    pub fn of(&self, phase: Phase) -> &[TransformRule] {
        match phase {
            Phase::ClientRequest => &self.client_request,
            Phase::OriginRequest => &self.origin_request,
            Phase::OriginResponse => &self.origin_response,
            Phase::ClientResponse => &self.client_response,
        }
    }

    /// The same, to be added to.
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
