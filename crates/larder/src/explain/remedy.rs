//! Changes by which an operator can have a response stored.

use caching::NotStored;
use caching::explain::Finding;
use message::reason::Reason;

/// Remedies by reason code; `{path}` stands for the quoted path of the request. Reasons that a client causes, or that
/// resolve by themselves, have no remedy.
const REMEDIES: &[(&str, &str)] = &[
    (
        NotStored::NoFreshness.as_str(),
        "have the origin send a lifetime, such as `Cache-Control: max-age=60`, or set `ttl_default` in a rule. With `no-cache`, the origin has to send an `ETag` or `Last-Modified`, too: no rule overrides it",
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

/// Returns the remedy for the last decision against storing the response.
pub(super) fn of(findings: &[Finding], path: &str) -> Option<String> {
    let last = findings.iter().rev().find(|finding| finding.step == "store")?;
    let reason = last.values.iter().find(|value| value.name == "reason")?;
    let (_, remedy) = REMEDIES.iter().find(|(code, _)| *code == reason.value)?;
    Some(remedy.replace("{path}", &format!("{path:?}")))
}
