//! stub, replaced by the HTTP/2 server.
use super::wire::Stream;
use crate::head::Peer;
use crate::worker::Worker;
use std::sync::Arc;
pub(crate) async fn serve<S: Stream + 'static>(_io: S, _worker: Arc<Worker>, _peer: Peer) {}
