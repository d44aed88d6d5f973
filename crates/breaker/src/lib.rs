//! A circuit breaker: decides whether a call to a service that may be failing is worth a try.
//!
//! The breaker never reads a clock, waits, calls anything or takes a lock. `now_ms` is an argument of every function that needs it:
//! milliseconds of a clock that the caller chooses and that doesn't jump (a monotonic one). Threads that share a breaker need their own
//! lock; if clock readings arrive out of order, the latest counts.
//!
//! - [`Breaker`] is the state machine: call [`Breaker::admit`] before a call and [`Breaker::report`] after it. [`Breaker::admit_apart`]
//!   is for calls whose duration a third party determines.
//! - [`Caller`] names the caller that a call is made for. Only the latest result of a known caller within the window counts. If its
//!   probe failed, it may be a probe again only `reset_ms` after the open time has ended; other callers go first.
//! - [`Permit`] is one admitted call, consumed by its report. Drop it instead to report nothing (the client went away) and to free its
//!   slot.
//! - [`Settings`] are checked [`Options`]; each option documents its range and the reason for its default.
//!
//! | state | calls | becomes |
//! |---|---|---|
//! | [`State::Closed`] | are admitted | Open by a failure if `requests_min` results within `window_ms`, and `error_percent` of all, are failures |
//! | [`State::Open`] | are refused | HalfOpen by the first call after `reset_ms`, which is a probe |
//! | [`State::HalfOpen`] | up to `probes_max` at a time are probes, and as many apart | Closed by `successes_to_close` successes, Open by one failure |
//!
//! `crates/breaker/tests/machine.txt` lists every state with every event.
//!
//! A breaker has at most [`Options::WINDOW_BUCKETS`] counters of 8 bytes, twice [`Options::PROBES_MAX`] probe slots of 16 bytes, and 48 KiB
//! from the first known caller on. In the state Closed, admitting and reporting cost a few comparisons, and a failure adds up the window;
//! only a probe and the first known caller allocate.
//!
//! ```
//! use breaker::{Breaker, Caller, Effect, Options, Outcome, Settings, State};
//!
//! let settings = Settings::new(Options { requests_min: 1, successes_to_close: 1, ..Options::default() })?;
//! let mut breaker = Breaker::new(settings);
//!
//! let permit = breaker.admit(Caller::Anyone, 0).expect("closed");
//! assert_eq!(breaker.report(permit, Outcome::Failure, 20), Effect::Opened { reset_ms: 5_000 });
//! assert_eq!(breaker.admit(Caller::Anyone, 1_020).unwrap_err().retry_ms, 4_000);
//!
//! let probe = breaker.admit(Caller::Anyone, 5_020).expect("the time is over");
//! assert_eq!(breaker.state(), State::HalfOpen);
//! assert!(breaker.admit(Caller::Anyone, 5_020).is_err(), "one probe at a time");
//! assert_eq!(breaker.report(probe, Outcome::Success, 5_040), Effect::Closed);
//! # Ok::<(), breaker::SettingsError>(())
//! ```

#![deny(missing_docs)]

mod call;
mod circuit;
mod settings;
mod suspects;
mod trial;
mod window;

pub use call::{Caller, Outcome};
pub use circuit::{Breaker, Effect, Permit, Refusal, State};
pub use settings::{Options, Settings, SettingsError};
pub use window::Counts;
