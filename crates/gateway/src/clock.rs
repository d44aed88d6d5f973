//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use caching::Timestamp;

/// The wall clock. A clock before 1970 counts as 1970: ages are then too small, never negative.
pub(crate) fn now() -> Timestamp {
    #[cfg(test)]
    if let Ok(now) = test::WALL.try_with(test::Wall::now) {
        return now;
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Clocks of tests, each of one task.
#[cfg(test)]
pub(crate) mod test {
    use caching::Timestamp;
    use tokio::time::Instant;

    tokio::task_local! {
        pub(crate) static WALL: Wall;
    }

    /// A wall clock that goes with the time of the runtime, which a test may pause.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Wall {
        pub(crate) begun: Instant,
        pub(crate) began_at: Timestamp,
    }

    impl Wall {
        pub(super) fn now(&self) -> Timestamp {
            let elapsed_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
            self.began_at.plus_ms(elapsed_ms)
        }
    }
}
