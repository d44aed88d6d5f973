//! Applies rules to the client's request: they change its fields, path and query, or redirect it. The functions are pure.
//!
//! The result replaces the client's request in all further steps: in its facts, its cache key, `Vary` and the request to the
//! origin. Fields that `Connection` names are removed first, so that a client can't remove a field that a rule has added.

use std::borrow::Cow;
use std::net::IpAddr;

use caching::{FieldLine, HopByHop, target};
use message::fields::PackedFields;
use message::head::{Nominations, RequestHead};

use super::rules::{Context, TooLarge};
use super::rules::{Matching, Seen, matching};
use crate::config::{Action, Phase, TransformRule};
use crate::transform::actions::rewrite::rewritten;

/// Outcome of the rules for a request.
pub(crate) enum Shape {
    /// The gateway answers with this status and `Location`.
    Redirect { status: u16, location: Vec<u8> },
    /// The changed request is processed further.
    Request(Shaped),
}

/// Replacement for a client's request.
pub(crate) struct Shaped {
    pub(crate) fields: PackedFields,
    pub(crate) path_and_query: String,
    /// Rules that have changed the request.
    pub(crate) matching: Matching,
}

impl Shaped {
    /// Returns the request with the lines of [`Self::fields`], which the caller passes as `lines`.
    pub(crate) fn over<'a>(
        &'a self,
        client: &RequestHead<'a>,
        lines: &'a [FieldLine<'a>],
    ) -> RequestHead<'a> {
        RequestHead {
            path_and_query: &self.path_and_query,
            fields: lines,
            nominations: Nominations::None,
            ..*client
        }
    }
}

/// Returns the rules that a client's request matches.
pub(crate) fn matching_client(
    rules: &[TransformRule],
    request: &RequestHead<'_>,
    client: IpAddr,
) -> Matching {
    matching(rules, &Seen::of(request, client, Phase::ClientRequest), None)
}

/// Applies the matching rules to a request.
///
/// # Errors
/// If the request becomes too large for any message.
pub(crate) fn shape(
    rules: &[TransformRule],
    matching: &Matching,
    request: &RequestHead<'_>,
    client: IpAddr,
) -> Result<Shape, TooLarge> {
    let seen = Seen::of(request, client, Phase::ClientRequest);
    let context = Context::of_request(&seen);
    let hop_by_hop = HopByHop::of(request.fields);
    let is_kept = |(name, _): &&FieldLine<'_>| !hop_by_hop.contains(name) || is_of_larder(name);
    let mut fields = PackedFields::from_lines(request.fields.iter().filter(is_kept).copied());
    let rules_matching = || matching.iter().filter_map(|place| rules.get(usize::from(*place)));
    for action in rules_matching().flat_map(|rule| &rule.actions) {
        if let Some((status, location)) = action.answer(&context.0, &fields) {
            return Ok(Shape::Redirect { status, location });
        }
    }
    context.apply(rules, matching, &mut fields)?;
    let rewrites = rules_matching().flat_map(|rule| &rule.actions).filter_map(Action::as_rewrite);
    let path_and_query = rewrites.fold(Cow::Borrowed(request.path_and_query), rewritten);
    let path_and_query = target::normal_form(&path_and_query).unwrap_or_else(|| path_and_query.into_owned());
    Ok(Shape::Request(Shaped { fields, path_and_query, matching: matching.clone() }))
}

/// Returns whether the gateway itself reads a connection-specific field.
fn is_of_larder(name: &str) -> bool {
    name.eq_ignore_ascii_case("te")
}
