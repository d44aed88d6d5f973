//! What an operator can change, where a response was not stored.

use caching::NotStored;
use caching::explain::Finding;
use message::reason::Reason;

/// What to change, by the reason; `{path}` stands for that of the request, quoted. Reasons that are the client's doing, or that pass by themselves, have none.
const REMEDIES: &[(&str, &str)] = &[
    (
        NotStored::NoFreshness.as_str(),
        "have the origin send a lifetime, such as `Cache-Control: max-age=60`, or set `ttl_default` in a rule",
    ),
    (
        NotStored::SetCookie.as_str(),
        "have the origin set the cookie on other pages. If this page is the same for everyone, and begins no session, remove the cookie from it with a rule at the end of the site:\n\n    [[site.transform]]\n    phase = \"origin_response\"\n    path = { exact = {path} }\n    remove = [\"Set-Cookie\"]",
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

/// For the last decision that kept the response for a path out of the store.
pub(super) fn of(findings: &[Finding], path: &str) -> Option<String> {
    let last = findings.iter().rev().find(|finding| finding.step == "store")?;
    let reason = last.values.iter().find(|value| value.name == "reason")?;
    let (_, remedy) = REMEDIES.iter().find(|(code, _)| *code == reason.value)?;
    Some(remedy.replace("{path}", &format!("{path:?}")))
}
