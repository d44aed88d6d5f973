//! Responses that the gateway generates, with their statuses, reasons and bodies. Some of them are default responses, which the
//! operator writes. A default response is sent if the origin fails and no stored response may be used.

use std::sync::Arc;

use bytes::Bytes;
use cache::entry::stored::Hit;
use cache::failure;
use caching::Outcome;
use caching::explain::Finding;
use message::explain_record::note;
use message::fields::PackedFields;
use message::reason::Reason;
use origin::OriginError;
use telemetry::CacheResult;
use tokio::time::Instant;

use crate::config::{DefaultResponse, ErrorExposure, ErrorPage, Maintenance, Page, PathSpellings};
use crate::request::context::{RequestContext, SiteContext};
use crate::request::reply::{Account, Body, Length, OwnHead, Reply, ReplyHead, has_no_content};
use crate::routing::{Ambiguity, LiveSite};
use crate::worker::Worker;

/// Status in logs and metrics of a request whose client left before its response began. Never sent.
pub(crate) const CLIENT_LEFT: u16 = 499;

/// Cause of a generated response, with its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    /// Stable kebab-case word for logs, metrics and `Cache-Status`.
    pub(crate) reason: &'static str,
    /// One line of text, which clients get only if the site permits it.
    pub(crate) text: String,
    /// Value of `Retry-After`, for a 503.
    pub(crate) retry_after_s: u64,
}

impl Problem {
    pub(crate) fn new(status: u16, reason: &'static str, text: impl Into<String>) -> Self {
        Self { status, reason, text: text.into(), retry_after_s: 1 }
    }

    /// No site is configured for the request.
    pub(crate) fn no_site(authority: &str) -> Self {
        Self::new(421, "no-site", format!("no site serves {authority:?} and this path"))
    }

    /// Returns the problem of a path that may belong to another site or to other rules, depending on the origin's interpretation.
    pub(crate) fn ambiguous_path(ambiguity: Ambiguity<'_>) -> Self {
        let text = match ambiguity {
            Ambiguity::Spelled(part, spellings) => misspelt(shortened(part), spellings),
            Ambiguity::OtherSite(read) => format!(
                "some origins read the path as `{}`, which belongs to another site (`path_prefix`): write it without encoded characters",
                shortened(read)
            ),
        };
        Self::new(400, "ambiguous-path", text)
    }

    /// The content of the request exceeds the limit of its rule or the global limit.
    //= RFC 9110 section 15.5.14: 413
    pub(crate) fn request_body_too_large(bytes_max: u64) -> Self {
        let text = format!("the request body is larger than {bytes_max} bytes");
        Self::new(413, "request-body-too-large", text)
    }

    /// Rules have made the header section of a request or a reply too large.
    pub(crate) fn transformed(status: u16) -> Self {
        Self::new(status, "transform-too-large", "transformation rules make the header section too large")
    }

    /// The request forbids forwarding, and no stored response can be used (RFC 9111 section 5.2.1.7).
    //= RFC 9111 section 5.2.1.7: only-if-cached
    pub(crate) fn only_if_cached() -> Self {
        Self::new(504, "only-if-cached", "only-if-cached: no stored response can be used")
    }

    /// The origin gave no response, and no stored response may be used.
    //= RFC 9111 section 5.2.2.2: the error is a 504
    pub(crate) fn origin(error: &OriginError, stored: Option<&Hit>) -> Self {
        let is_forbidden = stored.is_some_and(|hit| hit.head.facts.must_revalidate);
        let status = if is_forbidden && error.is_unreachable() { 504 } else { failure::status_of(error) };
        Self { retry_after_s: error.retry_after_s(), ..Self::new(status, error.reason(), error.to_string()) }
    }

    /// Returns the body of the response: the status, and the cause if the site permits it.
    pub(crate) fn body(&self, exposure: ErrorExposure) -> Bytes {
        let phrase = match http1::reason_phrase(self.status) {
            "" => "error",
            phrase => phrase,
        };
        match exposure {
            ErrorExposure::Hide => Bytes::from(format!("{} {phrase}\n", self.status)),
            ErrorExposure::Expose => {
                Bytes::from(format!("{} {phrase}\n{}: {}\n", self.status, self.reason, self.text))
            }
        }
    }

    pub(crate) fn fields(&self, date: &[u8]) -> PackedFields {
        let mut fields = PackedFields::with_capacity(4);
        fields.push("date", date);
        fields.push("content-type", b"text/plain; charset=utf-8");
        fields.push("cache-control", b"no-store");
        if self.status == 503 {
            fields.push("retry-after", itoa::Buffer::new().format(self.retry_after_s).as_bytes());
        }
        fields
    }
}

/// Returns an error text with the part of a path that its rule doesn't allow, and the configuration key that allows it.
fn misspelt(part: &str, spellings: PathSpellings) -> String {
    let names: Vec<_> = spellings.names().collect();
    let names = names.join(", ");
    match spellings.is_allowable() {
        true => format!(
            "origins interpret the part `{part}` of the path in different ways ({names}): write it differently, or allow it with `spellings_allowed = [\"{names}\"]` in its rule"
        ),
        false if names.is_empty() => format!(
            "origins interpret the part `{part}` of the path in different ways: write it differently; `spellings_allowed` can't allow it"
        ),
        false => format!(
            "origins interpret the part `{part}` of the path in different ways ({names}): write it differently; `spellings_allowed` can't allow it"
        ),
    }
}

/// Shortens a text so that it fits on one line.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN_CHARACTERS_MAX).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

const SHOWN_CHARACTERS_MAX: usize = 80;

/// Replies that a site generates itself.
impl SiteContext<'_> {
    /// Returns the reply for a problem.
    pub(crate) fn failure(&self, problem: &Problem) -> Reply {
        reply(problem, Some(self.site), self.started, self.worker)
    }

    /// Returns a reply that doesn't count as a failure of cache or origin.
    pub(crate) fn reply(&self, problem: &Problem) -> Reply {
        self.failure(problem).locally()
    }

    /// Redirects a client.
    pub(crate) fn redirect(&self, status: u16, location: &[u8]) -> Reply {
        let mut reply =
            self.reply(&Problem::new(status, "redirect", "a rule of the site redirects this request"));
        let lines = [
            ("date", &self.worker.date()[..]),
            ("location", location),
            ("content-type", b"text/plain; charset=utf-8"),
        ];
        reply.head = ReplyHead::own(PackedFields::from_lines(lines));
        reply
    }

    /// Returns the reply to a preflight (Fetch: CORS).
    pub(crate) fn preflight(&self, fields: &PackedFields) -> Reply {
        let mut reply = self.reply(&Problem::new(204, PREFLIGHT, ""));
        let mut own = PackedFields::from_lines([("date", &self.worker.date()[..])]);
        fields.lines().for_each(|(name, value)| own.push(name, value));
        reply.head = ReplyHead::own(own);
        (reply.length, reply.body) = (Length::None, Body::Empty);
        reply
    }

    /// Returns the reply of a site that is in maintenance.
    pub(crate) fn maintenance(&self, maintenance: &Maintenance) -> Reply {
        let mut reply = self.reply(&Problem::new(503, "maintenance", "this site is in maintenance"));
        maintenance.page.iter().for_each(|page| show(page, &mut reply));
        if let ReplyHead::Own(own) = &mut reply.head {
            own.fields.set("retry-after", itoa::Buffer::new().format(maintenance.retry_after_s).as_bytes());
        }
        reply
    }
}

/// The parameter `detail` of `Cache-Status` in the reply to a preflight.
pub(crate) const PREFLIGHT: &str = "preflight";

/// Replaces the text of a reply with a page.
fn show(page: &Page, reply: &mut Reply) {
    (reply.length, reply.body) = Body::of(page.body.clone());
    if let ReplyHead::Own(own) = &mut reply.head {
        own.fields.set("content-type", page.content_type.as_bytes());
    }
}

/// Returns a generated reply, with the site's error page for its status, if any.
pub(crate) fn reply(
    problem: &Problem,
    site: Option<&Arc<LiveSite>>,
    started: Instant,
    worker: &Worker,
) -> Reply {
    // The status already shows that there is no site, so the text may say it.
    let exposure = site.map_or(ErrorExposure::Expose, |site| site.config.expose_errors);
    let result = if site.is_some() { CacheResult::Error } else { CacheResult::Local };
    let head = OwnHead { reason: None, fields: problem.fields(&worker.date()) };
    let told = (Outcome::Generated, Some(problem.reason));
    let account = Account::new(site, result, started);
    let mut reply = Reply::new(problem.status, head, Body::of(problem.body(exposure)), told, account);
    if let Some(site) = site
        && problem.status >= 400
    {
        let mut pages = site.config.error_pages.iter();
        let fits = |page: &&ErrorPage| page.statuses.iter().any(|known| known.matches(problem.status));
        pages.find(fits).into_iter().for_each(|fitting| show(&fitting.page, &mut reply));
    }
    reply
}

/// Replaces a failure from any source with the default response of the rule. The default response replaces only replies to
/// retrieving methods, because the client of an unsafe request must see the failure.
pub(crate) fn replace_failure(context: &RequestContext<'_>, reply: &mut Reply) {
    let Some(default) = context.rule.protection.default_response.as_deref() else { return };
    if context.facts.method.is_reusing() && stands_in_for(default, reply) {
        note(context.request.record, || {
            Finding::new("deliver", "the origin fails: the default response of the rule is sent", "")
                .with("in place of", reply.status.to_string(), "")
                .with("status", default.status.to_string(), "")
        });
        write(context.worker, default, reply);
    }
}

/// Returns whether the default response replaces a reply. The reply may also be a response of the origin, whether new, collapsed or
/// stored.
fn stands_in_for(default: &DefaultResponse, reply: &Reply) -> bool {
    match reply.account.result {
        CacheResult::Local => false,
        CacheResult::Error => {
            matches!(reply.cache_status.outcome, Outcome::Forwarded { status: None, .. })
                && reply.status >= 500
        }
        CacheResult::Hit
        | CacheResult::Stale
        | CacheResult::Revalidated
        | CacheResult::Collapsed
        | CacheResult::Miss
        | CacheResult::Bypass => default.statuses.iter().any(|known| known.matches(reply.status)),
    }
}

fn write(worker: &Worker, default: &DefaultResponse, reply: &mut Reply) {
    let mut fields = PackedFields::with_capacity(default.fields.len() + 1);
    fields.push("date", &worker.date());
    default.fields.iter().for_each(|(name, value)| fields.push(name.as_str(), value.as_bytes()));
    (reply.length, reply.body) = match has_no_content(default.status) {
        true => (Length::None, Body::Empty),
        false => Body::of(default.body.clone()),
    };
    reply.status = default.status;
    reply.head = ReplyHead::own(fields);
    reply.extra = PackedFields::default();
    reply.age_s = None;
    reply.cache_status.detail = Some(Reason::DefaultResponse.as_str());
    reply.cache_status.ttl_s = None;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use message::reason::Refused;

    /// Returns the codes of the problems that a source file creates. A code is a string literal as the second argument.
    fn codes(text: &str) -> Vec<&str> {
        let calls = text.split("Problem::new(").chain(text.split("Self::new(")).map(str::trim_start);
        let arguments = calls.filter_map(|call| call.split_once(','));
        let of_status = arguments.filter(|(status, _)| *status == "status" || status.parse::<u16>().is_ok());
        of_status.filter_map(|(_, rest)| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
    }

    fn visit(folder: &Path, check: &dyn Fn(&Path, &str)) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => visit(&path, check),
                false => check(&path, &fs::read_to_string(&path).expect("a source")),
            }
        }
    }

    /// The page about the codes of `Cache-Status` is generated from these lists.
    #[test]
    fn every_code_is_listed() {
        let own = Refused::ALL.iter().map(|code| code.as_str());
        let malformed = http1::RequestError::ALL.map(http1::RequestError::reason);
        let known: Vec<_> = own.chain(malformed).collect();
        visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &|path, text| {
            for code in codes(text) {
                assert!(known.contains(&code), "{code} of {} isn't listed", path.display());
            }
        });
        assert!(codes(include_str!("respond.rs")).contains(&"no-site"), "codes are found");
    }
}
