//! Runs the job of a forward within the request that leads it.
//!
//! A forward belongs to no connection. But while the request that caused it only waits for the answer, a separate task would just add
//! wake-ups: most forwards end at once with their answer. So the leader drives the job, and lets go of it when it has news to pass on or
//! goes away; the rest of the job then becomes a task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use cache::collapse::answer::Answer;
use cache::collapse::table::{InFlight, LeaderGuard, News, Waiter};
use message::client::Client;
use origin::Upstream;
use tokio::runtime::Handle;

use crate::request::fetch::fetch_spec::Sharing;
use crate::request::fetch::fleet_fetch::Awaiting;
use crate::request::fetch::job::Job;
use crate::rewrite::reading::Inbound;

/// A job driven by its leader instead of a task.
pub(crate) struct LeaderTask {
    left: Option<Running>,
    permit: HeldPermit,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Permit that a job holds while it waits for the origin, with the handles to give it up.
#[derive(Clone)]
struct HeldPermit {
    in_flight: Arc<InFlight>,
    upstream: Arc<Upstream>,
    client: Option<Client>,
    request: Arc<Inbound>,
}

impl LeaderTask {
    /// Creates a job that asks the origin: when it is this instance's turn, if instances take turns.
    pub(crate) fn new(job: Job, leader: LeaderGuard, sharing: Sharing) -> Self {
        let permit = HeldPermit {
            in_flight: Arc::clone(&leader.in_flight),
            upstream: Arc::clone(&job.site.upstream),
            client: job.client(),
            request: Arc::clone(&job.request),
        };
        let left: Running = match job.takes_turn(sharing, Awaiting::Answer) {
            false => Box::pin(job.run(None, leader)),
            true => Box::pin(job.run_in_turn(leader, Awaiting::Answer)),
        };
        Self { left: Some(left), permit }
    }

    /// Returns the first news of the fetch. If the job isn't over by then, it goes on in a task: the leader may pass the news on as
    /// slowly as its client reads, and others wait for this job.
    pub(crate) async fn first_news(mut self, waiter: &mut Waiter) -> News {
        poll_fn(|context| {
            let polled = self.left.as_mut().map_or(Poll::Ready(()), |job| job.as_mut().poll(context));
            if polled.is_ready() {
                self.left = None;
            }
            match waiter.poll_news() {
                Some(news) => Poll::Ready(news),
                None => polled.map(|()| News::Answer(Answer::GivenUp)),
            }
        })
        .await
    }
}

impl Drop for LeaderTask {
    fn drop(&mut self) {
        // The waiters of a job that panicked have been told already.
        let left = self.left.take().filter(|_| !std::thread::panicking());
        if let (Some(job), Ok(runtime)) = (left, Handle::try_current()) {
            let permit = self.permit.clone();
            drop(runtime.spawn(go_on(job, permit)));
        }
    }
}

/// Runs a job to its end. A job without waiters may bring a response to store, but a request that waits is worth more.
async fn go_on(mut job: Running, permit: HeldPermit) {
    let HeldPermit { in_flight, upstream, client, request } = permit;
    let given_up = async {
        loop {
            in_flight.nobody_waits().await;
            tokio::select! {
                () = upstream.permit_wanted(client) => return,
                () = in_flight.somebody_waits() => {}
            }
        }
    };
    // Nor is it worth the place of a request that waits for the same key.
    let left = async {
        request.place_wanted.wait().await;
        in_flight.client_left().await;
    };
    tokio::select! {
        biased;
        () = &mut job => return,
        () = given_up => {}
        () = left => {}
    }
    // Frees the place before another request is offered one.
    drop(job);
    upstream.permit_given_up(client);
}
