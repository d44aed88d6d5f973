//! Load on servers that speak the Redis protocol, or the 0x1F text protocol.
//!
//! Every reply is compared, byte for byte, with the expected one. The value of a key is a function of the key ([`ValuePool`]), so the
//! load stores nothing, and keys that are never set have a distinct first byte. A batch is one write, and an expected reply costs a
//! comparison and no allocation. Other replies take the slow path, through the codec.

mod client;
mod collect;
mod dialect;
mod keys;
mod load;
mod side;
mod tally;
mod verify;

pub use client::Client;
pub use collect::{RespRun, prepare, run};
pub(crate) use dialect::{Dialect, Due, Verb};
pub use keys::ValuePool;
pub use load::{Choice, Login, Pace, Preload, Protocol, RespError, RespLoad, Reuse, Until, Values, Workload};
