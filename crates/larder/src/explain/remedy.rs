//! What an operator can change, where a response was not stored.

use caching::NotStored;
use caching::explain::Finding;
use gateway::Reason;

/// What to change, by the reason. Reasons that are the client's doing, or that pass by themselves, have none.
const REMEDIES: &[(&str, &str)] = &[
    (
        NotStored::NoFreshness.as_str(),
        "have the origin send a lifetime, such as `Cache-Control: max-age=60`, or set `ttl_default` in a rule",
    ),
    (
        NotStored::SetCookie.as_str(),
        "have the origin set the cookie elsewhere, or hide it with `response_fields_hidden = [\"Set-Cookie\"]` in a rule",
    ),
    (
        NotStored::Credentials.as_str(),
        "if everyone may have this response, have the origin send `Cache-Control: public, max-age=60`, or set `ttl_default` in a rule",
    ),
    (
        NotStored::Private.as_str(),
        "if everyone may have this response, have the origin send `public` in place of `private`: no rule overrides it",
    ),
    (
        Reason::TooLarge.as_str(),
        "raise `object_bytes_max` in a rule, or `store.memory` if the store is the limit",
    ),
];

/// For the last decision that kept a response out of the store.
pub(super) fn of(findings: &[Finding]) -> Option<&'static str> {
    let last = findings.iter().rev().find(|finding| finding.step == "store")?;
    let reason = last.values.iter().find(|value| value.name == "reason")?;
    REMEDIES.iter().find(|(code, _)| *code == reason.value).map(|(_, remedy)| *remedy)
}
