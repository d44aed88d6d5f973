//! What all workers share.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use tokio::sync::Semaphore;

use super::{access_log::AccessLog, content::scramble, counters::Counters, metrics::Metrics, prefix::Prefix};

/// Shared by all workers and connections; its locks are leaves and never held over an await.
pub(crate) struct State {
    pub(crate) counters: Counters,
    pub(crate) metrics: Metrics,
    pub(crate) access_log: AccessLog,
    pub(crate) prefix: Prefix,
    /// Busy work per handler of the products API.
    pub(crate) cpu: Duration,
    /// Whoever sits out a delay has one.
    pub(crate) delay_slots: Semaphore,
    /// The base of `lm=SECONDS`: Last-Modified must not move from one request to the next.
    pub(crate) started_at: SystemTime,
    pub(crate) draws: Draws,
}

/// A fixed sequence of draws: the same run of requests sees the same failures.
#[derive(Default)]
pub(crate) struct Draws {
    drawn: AtomicU64,
}

impl Draws {
    /// True with the given probability (0 never, 1 always).
    pub(crate) fn hit(&self, probability: f64) -> bool {
        let draw = scramble(self.drawn.fetch_add(1, Ordering::Relaxed));
        // 53 bits are what a double holds exactly.
        let unit = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_hit_as_often_as_asked() {
        for (probability, least, most) in [(0.0, 0, 0), (0.3, 250, 350), (1.0, 1000, 1000)] {
            let draws = Draws::default();
            let hits = (0..1000).filter(|_| draws.hit(probability)).count();
            assert!((least..=most).contains(&hits), "{probability}: {hits}");
        }
    }
}
