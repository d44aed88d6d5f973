//! Reads ahead in a response that is not stored, for a client that doesn't keep up.
//!
//! As long as a client keeps up, pieces go straight from the origin to it. Once it doesn't, a task reads ahead, up to a window: most
//! responses are shorter, so the origin is done with them however slow the client is.

use std::sync::Arc;

use origin::{BodyFrame, OriginBody};
use store::Budget;

use crate::fill::{Fill, FillReader, Writer, Written};

/// Reads the rest of a response in a task of its own, which ends when the reader does.
pub fn read_ahead(body: OriginBody, budget: &Arc<Budget>) -> Option<FillReader> {
    let fill = Fill::window(Arc::clone(budget));
    let reader = fill.reader(0, None);
    drop(tokio::spawn(pump(body, Writer(fill))));
    reader
}

async fn pump(mut body: OriginBody, writer: Writer) {
    let fill = &writer.0;
    let mut trailers = None;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = fill.nobody_reads() => return,
        };
        match frame {
            Some(Ok(BodyFrame::Data(data))) => {
                let written = body.pass_on(fill.write(data, || body.wait_for_client())).await;
                if matches!(written, Some(Written::Abandoned | Written::TooSlow)) {
                    return;
                }
            }
            Some(Ok(BodyFrame::Trailers(map))) => trailers = Some(map),
            Some(Err(error)) => return fill.fail(error.reason()),
            None => return fill.complete(trailers),
        }
    }
}
