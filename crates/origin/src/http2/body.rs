//! The receiving half of a stream.

use std::task::{Context, Poll, ready};

use h2::RecvStream;
use tokio::task::JoinSet;

use super::connection::StreamSlot;
use crate::error::OriginError;
use crate::frame::BodyFrame;

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct Http2Body {
    receive: RecvStream,
    state: ReceiveState,
    slot: StreamSlot,
    /// Stops sending the request body when the exchange is given up.
    _upload: Option<JoinSet<()>>,
}

#[derive(Debug, PartialEq, Eq)]
enum ReceiveState {
    Data,
    Trailers,
}

impl Http2Body {
    pub(crate) fn new(receive: RecvStream, slot: StreamSlot, upload: Option<JoinSet<()>>) -> Self {
        Self { receive, state: ReceiveState::Data, slot, _upload: upload }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }

    /// Stops new streams on this connection: its peer stopped answering.
    pub(crate) fn suspect(&self) {
        self.slot.suspect();
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, OriginError>>> {
        while self.state == ReceiveState::Data {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Fails only when the stream is gone, which the next poll reports.
                    let _ = self.receive.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(OriginError::BodyTruncated))),
                None => self.state = ReceiveState::Trailers,
            }
        }
        Poll::Ready(match ready!(self.receive.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(BodyFrame::Trailers(trailers))),
            Err(_) => Some(Err(OriginError::BodyTruncated)),
        })
    }
}
