//! A kernel timer that wakes the poll: epoll counts in milliseconds, but schedules need microseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    set_to: Option<Instant>,
}

impl Alarm {
    /// Registers a timer whose events carry the token.
    pub(crate) fn register(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer, set_to: None })
    }

    /// Sets the time of the next wake-up, in place of the previous one. `None` disarms the timer.
    pub(crate) fn set(&mut self, at: Option<Instant>, now: Instant) -> io::Result<()> {
        if self.set_to == at {
            return Ok(());
        }
        // A value of zero would disarm the timer, so a time in the past becomes one nanosecond from now.
        let rest = at.map(|at| at.saturating_duration_since(now).max(Duration::from_nanos(1)));
        let rest = rest.unwrap_or(Duration::ZERO);
        let it_value = Timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(rest.subsec_nanos()),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        self.set_to = at;
        Ok(())
    }
}
