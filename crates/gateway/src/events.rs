//! Events of one site, logged as far as the site's `log_level` says.
//!
//! They have a log target of their own, [`TARGET`], which the process lets through at every level: the site decides,
//! so that one noisy or new site can be quiet or talkative while the others are not.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Level;

use crate::origin::OriginError;
use crate::route::LiveSite;
use crate::worker::now;

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

/// Warnings of one site in a second. Requests cause them, and whoever sends many is not to fill the disk; metrics count all.
const WARNINGS_PER_SECOND_MAX: u64 = 10;

/// How many warnings a site has written, and left out.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// The second of the last one, and how many there were in it.
    latest: AtomicU64,
    left_out: AtomicU64,
}

impl Warnings {
    /// Room for one more: how many were left out since the last one. `None` where there were enough in this second.
    fn take(&self, second: u64) -> Option<u64> {
        let taken = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| {
            let written = if latest / COUNTED == second { latest % COUNTED } else { 0 };
            (written < WARNINGS_PER_SECOND_MAX).then_some(second * COUNTED + written + 1)
        });
        match taken {
            Ok(_) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// The count stands behind the second.
const COUNTED: u64 = WARNINGS_PER_SECOND_MAX + 1;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_warnings_are_written_in_a_second() {
        let warnings = Warnings::default();
        for second in [7, 8, 100] {
            let before = if second == 7 { 0 } else { 90 };
            let taken: Vec<_> = (0..100).map(|_| warnings.take(second)).collect();
            assert_eq!(taken[0], Some(before), "{second}");
            assert!(taken[1..10].iter().all(|taken| *taken == Some(0)), "{second}");
            assert!(taken[10..].iter().all(Option::is_none), "{second}");
        }
    }
}
