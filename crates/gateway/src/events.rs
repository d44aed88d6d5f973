//! Events of one site, logged at the site's `log_level`.
//!
//! The events have their own log target, [`TARGET`]. The process enables this target at every level, so that the `log_level` of each
//! site decides.

use std::net::IpAddr;

use message::clock::now;
use origin::OriginError;
use tracing::Level;

use crate::routing::LiveSite;

/// The log target of site events.
pub const TARGET: &str = "site";

/// An event of a site.
pub(crate) enum Event<'a> {
    /// The origin gave no response. `server` is the server tried last, if any.
    OriginFailed { error: &'a OriginError, server: Option<&'a str> },
    /// A request came back to this gateway.
    Loop,
    /// A response body was cut short.
    FillAborted(&'static str),
    /// A client's PURGE request was refused for this reason.
    PurgeRefused { client: IpAddr, reason: &'static str },
    /// The content of a request exceeded its limits.
    UploadCut { client: IpAddr, reason: &'static str },
    /// A response was delivered without being stored.
    NotStored(&'static str),
}

impl Event<'_> {
    fn level(&self) -> Level {
        match self {
            Self::OriginFailed { .. }
            | Self::Loop
            | Self::FillAborted(_)
            | Self::PurgeRefused { .. }
            | Self::UploadCut { .. } => Level::WARN,
            Self::NotStored(_) => Level::DEBUG,
        }
    }

    /// Returns the kind of warning. Each kind has its own allowance.
    fn kind(&self) -> &'static str {
        match self {
            Self::OriginFailed { error, .. } => error.reason(),
            Self::Loop => "loop",
            Self::PurgeRefused { .. } => "purge-refused",
            Self::UploadCut { .. } => "upload-broken-off",
            Self::FillAborted(_) | Self::NotStored(_) => "body-broken-off",
        }
    }
}

/// Logs an event with the target of a request, unless the log level or the allowance of the site forbids it. The query is left out,
/// because it may contain secrets.
pub(crate) fn emit(live: &LiveSite, path_and_query: &str, event: &Event<'_>) {
    let site = &live.config;
    if event.level() > site.log_level {
        return;
    }
    if event.level() == Level::WARN {
        match live.warnings.take(event.kind(), now().whole_seconds().unsigned_abs()) {
            None => return,
            Some(0) => {}
            Some(left_out) => {
                let (site, kind) = (&site.name, event.kind());
                tracing::warn!(target: TARGET, %site, kind, left_out, "further warnings were suppressed");
            }
        }
    }
    let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path);
    let (name, origin) = (&site.name, &site.origin.name);
    match event {
        Event::OriginFailed { error, server } => {
            let reason = error.reason();
            tracing::warn!(target: TARGET, site = %name, %origin, server, path, reason, %error, "the origin gave no response");
        }
        Event::Loop => {
            tracing::warn!(
                target: TARGET, site = %name, %origin, path,
                "a request that was forwarded came back: the origin is this gateway, or forwards to it"
            );
        }
        Event::FillAborted(reason) => {
            tracing::warn!(target: TARGET, site = %name, %origin, path, reason, "a response body was cut short");
        }
        Event::PurgeRefused { client, reason } => {
            tracing::warn!(target: TARGET, site = %name, path, %client, reason, "a PURGE was refused");
        }
        Event::UploadCut { client, reason } => {
            tracing::warn!(target: TARGET, site = %name, path, %client, reason, "a request body exceeded its limits");
        }
        Event::NotStored(reason) => {
            tracing::debug!(target: TARGET, site = %name, path, reason, "a response was not stored");
        }
    }
}
