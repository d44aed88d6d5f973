//! The job of a forward, driven by the request that leads it.
//!
//! A forward belongs to nobody's connection. But while the request that caused it has nothing else to do than to wait for
//! the answer, a task of its own would only add wake-ups between the two: most forwards end in one go with their answer.
//! So the leader drives the job, and lets go of it when it has news to hand on or goes away; what is left of it then
//! becomes a task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::fetch::Job;
use super::flight::{Answer, News, Participant, Pilot};

/// A job without a task.
pub(super) struct Driven {
    left: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Driven {
    pub(super) fn new(job: Job, pilot: Pilot) -> Self {
        Self { left: Some(Box::pin(job.run(pilot))) }
    }

    /// The first news of the flight. The job goes on in a task if it isn't over by then: whoever hands the news on may
    /// be as slow as its client, and others wait for this job.
    pub(super) async fn first_news(mut self, participant: &mut Participant) -> News {
        poll_fn(|context| {
            let polled = self.poll(context);
            match participant.poll_news() {
                Some(news) => Poll::Ready(news),
                None => polled.map(|()| News::Answer(Answer::GivenUp)),
            }
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(job) = &mut self.left else { return Poll::Ready(()) };
        let polled = job.as_mut().poll(context);
        if polled.is_ready() {
            self.left = None;
        }
        polled
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // A job that panicked has told its waiters already.
        let left = self.left.take().filter(|_| !std::thread::panicking());
        if let (Some(job), Ok(runtime)) = (left, Handle::try_current()) {
            drop(runtime.spawn(job));
        }
    }
}
