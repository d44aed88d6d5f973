//! Interim (1xx) responses on their way to a client, before the final one.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use origin::Interim;
use parking_lot::Mutex;

use crate::request::reply::Reply;

/// Interim responses kept for a slow client. More are dropped: they are only hints.
const INTERIMS_MAX: usize = 16;

/// Interim responses between a forward and the connection of the request that waits for it. One task puts them in and takes them out,
/// so no wake-up is needed.
#[derive(Default)]
pub(crate) struct Interims(Mutex<VecDeque<Arc<Interim>>>);

impl Interims {
    /// Adds an interim response, from inside the future that brings the reply; drops it if the queue is full.
    pub(crate) fn push(&self, interim: Arc<Interim>) {
        let mut waiting = self.0.lock();
        if waiting.len() < INTERIMS_MAX {
            waiting.push_back(interim);
        }
    }
}

/// A reply on its way, and the interim responses before it.
pub(crate) struct Awaited<'a, F> {
    reply: Pin<&'a mut F>,
    interims: &'a Interims,
    arrived: Option<Box<Reply>>,
}

/// Next response for a request.
pub(crate) enum Coming {
    Interim(Arc<Interim>),
    /// The final response.
    Reply(Box<Reply>),
}

impl<'a, F: Future<Output = Reply>> Awaited<'a, F> {
    pub(crate) fn new(reply: Pin<&'a mut F>, interims: &'a Interims) -> Self {
        Self { reply, interims, arrived: None }
    }

    /// Waits for the next response. Interim responses go before a final one that arrives with them. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Coming {
        poll_fn(|context| {
            if self.arrived.is_none()
                && let Poll::Ready(reply) = self.reply.as_mut().poll(context)
            {
                self.arrived = Some(Box::new(reply));
            }
            let coming = match self.interims.0.lock().pop_front() {
                Some(interim) => Some(Coming::Interim(interim)),
                None => self.arrived.take().map(Coming::Reply),
            };
            coming.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
