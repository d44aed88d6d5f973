//! Writes the reference pages from the tables of the other crates.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use caching::{FwdReason, NotReused, NotStored};
use gateway::{BodyError, RequestError};
use message::reason::{Reason, Refused};
use origin::OriginError;
use terminal::output;

use crate::config;

/// Writes every page, and the schema of the configuration, into `directory`, which is created if it doesn't exist.
pub(crate) fn write(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let schema = ("config.schema.json", config::reference::json_schema());
    for (name, text) in pages().into_iter().chain([schema]) {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        output::result(&path.display().to_string());
    }
    Ok(())
}

fn pages() -> [(&'static str, String); 6] {
    [
        ("config.md", config::reference::markdown()),
        ("limits.md", config::reference::limits_markdown()),
        ("metrics.md", telemetry::metrics_markdown()),
        ("admin-api.md", admin::admin_markdown()),
        ("cache-status.md", cache_status_markdown()),
        ("commands.md", kv::commands_markdown()),
    ]
}

fn cache_status_markdown() -> String {
    let mut page = String::from(CACHE_STATUS_PREFACE);
    let forwarded = FwdReason::ALL.iter().map(|code| [code.as_str(), code.meaning(), code.section()]);
    let reused = NotReused::ALL.iter().map(|code| [code.as_str(), code.meaning(), code.section()]);
    let stored = NotStored::ALL.iter().map(|code| [code.as_str(), code.meaning(), code.section()]);
    let others = Reason::ALL.iter().map(|code| [code.as_str(), code.meaning(), code.section()]);
    write_codes(&mut page, "Values of `fwd`", forwarded);
    write_codes(&mut page, "`detail`: why no stored response was used", reused);
    write_codes(&mut page, "`detail`: why the response was not stored", stored);
    let refused = Refused::ALL.iter().map(|code| [code.as_str(), code.meaning(), code.section()]);
    write_codes(&mut page, "`detail`: other reasons", others);
    write_codes(&mut page, "`detail`: why the gateway answered itself", refused);
    page.push_str(MALFORMED_PREFACE);
    let malformed = RequestError::ALL.iter().map(|error| (error.reason(), error.to_string()));
    let bodies = BodyError::ALL.iter().map(|error| (error.reason(), error.to_string()));
    for (code, meaning) in malformed.chain(bodies) {
        let _ = writeln!(page, "| `{code}` | {meaning} |");
    }
    page.push_str(CLIENT_ERRORS);
    page.push_str(CACHE_STATUS_CLOSING);
    let origins: Vec<_> = OriginError::REASONS.iter().map(|code| format!("`{code}`")).collect();
    let _ = writeln!(page, "{}.", origins.join(", "));
    page
}

fn write_codes<'a>(page: &mut String, heading: &str, codes: impl Iterator<Item = [&'a str; 3]>) {
    // Writing to a `String` can't fail, here and below.
    let _ = write!(page, "\n## {heading}\n\n| code | meaning | see |\n|---|---|---|\n");
    for [code, meaning, section] in codes {
        let _ = writeln!(page, "| `{code}` | {meaning} | {section} |");
    }
}

const CACHE_STATUS_PREFACE: &str = "# Cache-Status

Generated from the codes in `crates/caching` and `crates/message`; do not edit.

A response carries a `Cache-Status` line (RFC 9211) that shows what this cache did. Only responses to requests with an unreadable or
oversized head (400, 408, 414, 431, 501) have none; their code is in the access log and in a metric ([below](#detail-what-is-wrong-with-the-request)). A 431 over
HTTP/2 for a header section far above the limit has no `Cache-Status` either: the connection answers it before there is a request.

```text
cache-status: larder; hit; ttl=42
cache-status: larder; fwd=uri-miss; fwd-status=200; stored; ttl=59
cache-status: larder; fwd=stale; fwd-status=304; stored; ttl=59
```

Field names are in lower case, over HTTP/1.1 too: `grep -i cache-status` finds them. The first word of the value is `server_name` of the configuration. `fwd-status` is on every response
for which the origin answered. `ttl` counts the whole seconds until the response is stale, and is negative
once it is: right after `max-age=60` it is 59, and `stored; ttl=-1` is a response with a validator (`ETag`) and no lifetime, which is validated before
each use. `stored` means that the response is stored, or will be once its body has arrived. The field is sent before the
body, so a response that breaks off afterwards has `stored` but isn't stored as a whole; its client sees that it broke off. In the same way, a body
without `Content-Length` that turns out to be too large while it arrives (`object-too-large`), and one for which other bodies in progress leave no memory
(`memory-full`), may have `stored`; `larder_not_stored_total` counts both.
`collapsed` means that the request shared the forward of another one. `detail` is one of the codes below;
they are stable, and the label `reason` of `larder_not_stored_total` uses them too.
";

const MALFORMED_PREFACE: &str = "
## `detail`: what is wrong with the request

These codes appear in the label `reason` of `larder_client_errors_total` and in the access log. Responses to these requests have no `Cache-Status`.

| code | meaning |
|---|---|
";

const CLIENT_ERRORS: &str = "
The label `reason` also has the values below. If no status is named, the client gets no response:

| code | meaning |
|---|---|
| `client-closed` | the client left before its response began, or before its request body was complete: status 499 in the [access log](access-log.md) |
| `client-reset` | HTTP/2: the same; the client reset the stream, or the connection broke |
| `head-timeout`, `request-body-timeout`, `request-body-too-large` | [as above](#detail-why-the-gateway-answered-itself) (408, 413) |
| `http2-flood` | HTTP/2: too many streams were reset (`http2_resets_max`), or frames arrived that only an attack sends; the connection is closed |
| `http2-malformed` | HTTP/2: frames or a header section that violate the protocol. The connection is closed, and the access log has a line with status 400 that was not sent. If an error concerns only one request (an upper-case field name, a missing pseudo-header field), the stream is reset with `PROTOCOL_ERROR`, but the error is neither counted nor logged, because the HTTP/2 library doesn't report it |
| `memory-share` | the client read nothing of its response, and others needed the memory that the response occupied (`client_share_percent`): the response was cut off |
| `plain-http` | HTTP on an address for TLS (400) |
| `preface-timeout` | HTTP/2: the connection preface did not arrive within `head_read_timeout` |
| `tunnel-idle` | no byte went through a tunnel for `tunnel_idle_timeout` |
| `write-timeout` | the client read nothing of its response for `write_timeout`, read it too slowly (`write_rate_min`), or held up other clients that read the same response |
";

const CACHE_STATUS_CLOSING: &str = "
## `detail`: why the origin gave no response

Error types of RFC 9209 if one fits; the label `reason` of `larder_origin_errors_total` uses the same words:
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Run `cargo run -p larder -- reference --out docs/reference` to update the pages.
    #[test]
    fn committed_pages_are_current() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for (name, text) in pages() {
            let committed = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            assert_eq!(committed, text, "docs/reference/{name} is not what `larder reference` writes");
        }
    }
}
