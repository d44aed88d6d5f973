//! The client side: connections in, responses out.

mod deadline;
mod http1;
mod http2;
pub(crate) mod listener;
mod prefixed;
pub(crate) mod tls;
mod tunnel;
mod wire;
