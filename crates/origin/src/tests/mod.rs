//! Exchanges with scripted origin servers on loopback.

mod http1;
mod http2;
mod limits;
mod pool;
mod resolve;
mod scripted;
mod tls;
mod transfer;
