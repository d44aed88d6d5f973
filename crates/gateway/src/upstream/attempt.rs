//! One attempt to get an answer from an endpoint, and what its end means for another one.

use std::sync::Arc;

use http::Method;

use super::admission::Permit;
use super::endpoint::{Connection, Eligible, Endpoint, Kept};
use super::error::OriginError;
use super::exchange::{Exchange, Processing};
use super::request::RequestHead;
use super::request_body::RequestBody;
use super::response::OriginResponse;
use super::stats::Working;
use super::timing::HeadWait;
use super::{http1, http2};

/// What an attempt is made with.
pub(super) struct Attempt<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) eligible: Eligible,
    /// Held until the response body has ended.
    pub(super) permit: &'a Arc<Permit>,
}

/// What came of an attempt.
pub(super) enum Outcome {
    Answered(Box<OriginResponse>),
    /// There is no answer, and the request may be sent again with this body: it was not processed, or may be repeated.
    Again {
        error: OriginError,
        body: Box<RequestBody>,
    },
    Failed(OriginError),
}

impl Attempt<'_> {
    /// Sends the request on a connection, and waits for the response head.
    pub(super) async fn run(
        &self,
        head: &RequestHead<'_>,
        body: RequestBody,
        waiting: &mut HeadWait<'_>,
    ) -> Outcome {
        let replay = body.replay();
        let working = Working::begin(self.endpoint.work());
        let (connection, kept) = match self.endpoint.acquire(self.eligible, head, waiting.limits).await {
            Ok(acquired) => acquired,
            Err(error) => return Outcome::Failed(error),
        };
        let pool = Arc::clone(self.endpoint.pool());
        let exchange = Exchange::new(pool, waiting.limits, Arc::clone(self.permit), working);
        let answer = match connection {
            Connection::Http1(connection) => http1::exchange(connection, head, body, waiting, exchange).await,
            Connection::Http2(slot) => Box::pin(http2::exchange(slot, head, body, waiting, exchange)).await,
        };
        let failure = match answer {
            Ok(response) => return Outcome::Answered(response),
            Err(failure) => failure,
        };
        let may_be_sent_again = may_be_sent_again(&failure.error, failure.processing, kept, head.method);
        match failure.body.or(replay) {
            Some(body) if may_be_sent_again => Outcome::Again { error: failure.error, body: Box::new(body) },
            _ => Outcome::Failed(failure.error),
        }
    }
}

/// Whether a request may be sent once more after a failure: it was certainly not processed, or a kept connection died
/// under a request that may be repeated.
//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
fn may_be_sent_again(error: &OriginError, processing: Processing, kept: Kept, method: &Method) -> bool {
    let is_allowed = match (processing, kept) {
        (Processing::Never, _) => true,
        //= RFC 10008 section 2: QUERY is safe and idempotent
        (Processing::Possible, Kept::Yes) => method.is_idempotent() || method == "QUERY",
        (Processing::Possible, Kept::No) => false,
    };
    is_allowed && *error == OriginError::ClosedBeforeResponse
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    //= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
    //= RFC 10008 section 2: QUERY is safe and idempotent
    #[test]
    fn what_may_be_sent_again() {
        use Processing::{Never, Possible};
        let closed = OriginError::ClosedBeforeResponse;
        let check = |processing, kept, repeatable: bool, others: bool| {
            let methods = |names: &[&str], expected: bool| {
                for name in names {
                    let method = Method::from_bytes(name.as_bytes()).unwrap();
                    let got = may_be_sent_again(&closed, processing, kept, &method);
                    assert_eq!(got, expected, "{processing:?} {kept:?} {name}");
                }
            };
            methods(&["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"], repeatable);
            methods(&["POST", "PATCH", "CONNECT", "query", "PURGE"], others);
        };
        check(Never, Kept::Yes, true, true);
        check(Never, Kept::No, true, true);
        check(Possible, Kept::Yes, true, false);
        check(Possible, Kept::No, false, false);
        for error in [
            OriginError::Connect(io::ErrorKind::ConnectionRefused),
            OriginError::FirstByteTimeout,
            OriginError::TotalTimeout,
            OriginError::protocol("what is no HTTP"),
            OriginError::RequestBody,
        ] {
            assert!(!may_be_sent_again(&error, Never, Kept::Yes, &Method::GET), "{error}");
        }
    }
}
