//! The client side: connections in, responses out.

mod client_socket;
mod deadline;
mod http1;
mod http2;
pub(crate) mod listener;
mod prefixed;
pub(crate) mod tls;
mod tunnel;
mod wire;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Returns the output of a future that is ready now.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
