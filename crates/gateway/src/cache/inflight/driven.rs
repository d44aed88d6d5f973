//! The job of a forward, driven by the request that leads it.
//!
//! A forward belongs to nobody's connection. But while the request that caused it has nothing else to do than to wait for
//! the answer, a task of its own would only add wake-ups between the two: most forwards end in one go with their answer.
//! So the leader drives the job, and lets go of it when it has news to hand on or goes away; what is left of it then
//! becomes a task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use message::client::Client;
use origin::Upstream;
use tokio::runtime::Handle;

use crate::cache::inflight::answer::Answer;
use crate::cache::inflight::table::{InFlight, LeaderGuard, News, Waiter};
use crate::cache::publish::in_turn::Awaiting;
use crate::cache::publish::job::Job;
use crate::rewrite::reading::Inbound;

/// A job without a task.
pub(crate) struct Driven {
    left: Option<Running>,
    permit: HeldPermit,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a job takes from others while it waits for the origin.
#[derive(Clone)]
struct HeldPermit {
    in_flight: Arc<InFlight>,
    upstream: Arc<Upstream>,
    client: Option<Client>,
    request: Arc<Inbound>,
}

impl Driven {
    pub(crate) fn new(job: Job, leader: LeaderGuard) -> Self {
        let permit = HeldPermit::of(&job, &leader);
        Self { left: Some(Box::pin(job.run(leader))), permit }
    }

    /// One that asks the origin when it is this instance's turn.
    pub(crate) fn in_turn(job: Job, leader: LeaderGuard) -> Self {
        let permit = HeldPermit::of(&job, &leader);
        Self { left: Some(Box::pin(job.run_in_turn(leader, Awaiting::Answer))), permit }
    }

    /// The first news of the flight. The job goes on in a task if it isn't over by then: whoever hands the news on may
    /// be as slow as its client, and others wait for this job.
    pub(crate) async fn first_news(mut self, waiter: &mut Waiter) -> News {
        poll_fn(|context| {
            let polled = self.poll(context);
            match waiter.poll_news() {
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

impl HeldPermit {
    fn of(job: &Job, leader: &LeaderGuard) -> Self {
        Self {
            in_flight: Arc::clone(leader.shared_in_flight()),
            upstream: Arc::clone(&job.site.upstream),
            client: Client::of_request(&job.request, &job.live.config.trusted_proxies),
            request: Arc::clone(&job.request),
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // A job that panicked has told its waiters already.
        let left = self.left.take().filter(|_| !std::thread::panicking());
        if let (Some(job), Ok(runtime)) = (left, Handle::try_current()) {
            let permit = self.permit.clone();
            drop(runtime.spawn(go_on(job, permit)));
        }
    }
}

/// Brings a job to its end. One that nobody waits for may bring something to store, but that is worth less than a request that
/// somebody waits for.
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
    // Nor is it worth the turn of one that waits for the same.
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
    // The place is free before anybody else is asked for one.
    drop(job);
    upstream.permit_given_up(client);
}
