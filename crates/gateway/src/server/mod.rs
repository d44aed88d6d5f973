//! The client side: connections in, responses out.

mod client_socket;
mod deadline;
mod http1;
mod http2;
pub(crate) mod listener;
mod opening;
pub(crate) mod sockets;
pub(crate) mod tls;
mod tunnel;
mod wire;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use self::wire::WireError;
use crate::request::respond::Problem;

/// The reason why a request body can't be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BodyProblem {
    /// A problem to report to the client.
    Refused(Problem),
    /// The client reset the stream, or the connection broke.
    ClientLeft,
}

impl BodyProblem {
    fn timed_out() -> Self {
        Self::Refused(Problem::new(408, "request-body-timeout", "the request body did not arrive in time"))
    }
}

impl From<::http1::BodyError> for BodyProblem {
    fn from(error: ::http1::BodyError) -> Self {
        Self::Refused(Problem::new(400, error.reason(), error.to_string()))
    }
}

impl From<WireError> for BodyProblem {
    fn from(error: WireError) -> Self {
        if matches!(error, WireError::TimedOut) { Self::timed_out() } else { Self::ClientLeft }
    }
}

/// Whether a response answers HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    HeadAndBody,
    HeadOnly,
}

impl Wanted {
    fn by(method: &str) -> Self {
        if method == "HEAD" { Self::HeadOnly } else { Self::HeadAndBody }
    }
}

/// Maximum number of pieces of a request body between client and origin, in addition to the one held by each side.
const REQUEST_PIECES_MAX: usize = 1;

/// Returns the output of a future, if it is ready now.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
