//! Events of one site, logged as far as the site's `log_level` says.
//!
//! They have a log target of their own, [`TARGET`], which the process lets through at every level: the site decides,
//! so that one noisy or new site can be quiet or talkative while the others are not.

use tracing::Level;

use crate::clock::now;
use crate::route::LiveSite;
use crate::upstream::OriginError;

/// The log target of site events.
pub const TARGET: &str = "site";

/// Something worth a line.
pub(crate) enum Event<'a> {
    /// The origin gave no response.
    OriginFailed(&'a OriginError),
    /// A request came back to this gateway.
    Loop,
    /// A response body broke off.
    FillAborted(&'static str),
    /// A response was passed on without being stored.
    NotStored(&'static str),
}

impl Event<'_> {
    fn level(&self) -> Level {
        match self {
            Self::OriginFailed(_) | Self::Loop | Self::FillAborted(_) => Level::WARN,
            Self::NotStored(_) => Level::DEBUG,
        }
    }
}

/// Writes a line about a request's target unless the site wants to hear less, or has heard enough for now. The query stays
/// out: it may hold secrets.
pub(crate) fn emit(live: &LiveSite, path_and_query: &str, event: &Event<'_>) {
    let site = &live.config;
    if event.level() > site.log_level {
        return;
    }
    if event.level() == Level::WARN {
        match live.warnings.take(now().whole_seconds().unsigned_abs()) {
            None => return,
            Some(0) => {}
            Some(left_out) => {
                tracing::warn!(target: TARGET, site = %site.name, left_out, "more warnings than are written")
            }
        }
    }
    let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path);
    let (name, origin) = (&site.name, &site.origin.name);
    match event {
        Event::OriginFailed(error) => {
            let reason = error.reason();
            tracing::warn!(target: TARGET, site = %name, %origin, path, reason, %error, "the origin gave no response");
        }
        Event::Loop => {
            tracing::warn!(
                target: TARGET, site = %name, %origin, path,
                "a request that was forwarded came back: the origin is this gateway, or forwards to it"
            );
        }
        Event::FillAborted(reason) => {
            tracing::warn!(target: TARGET, site = %name, %origin, path, reason, "a response body broke off");
        }
        Event::NotStored(reason) => {
            tracing::debug!(target: TARGET, site = %name, path, reason, "a response was not stored");
        }
    }
}
