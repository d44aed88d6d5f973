//! Connection of one instance to the double: its pushes, and how long copies can be relied upon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::super::rng::Rng;
use super::super::watch::{CopyStatus, Source, Watchers};
use super::behaviour::{Behaviour, Delivery, InjectedFaults};
use super::state::LinkId;

pub(super) struct Link {
    pub(super) id: LinkId,
    verification: Duration,
    pub(super) behaviour: Mutex<Behaviour>,
    chance: Mutex<Rng>,
    pub(super) watchers: Watchers,
    connection: Mutex<Connection>,
    pub(super) operations: AtomicU64,
}

struct Connection {
    generation: u32,
    /// Time at which pushes stopped arriving, unless the instance has noticed it.
    broken_since: Option<Instant>,
}

/// Message from the server to an instance.
#[derive(Clone)]
pub(super) enum Push {
    Suspect(Box<[u8]>),
    Log,
}

impl Link {
    pub(super) fn new(id: LinkId, verification: Duration, behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self {
            id,
            verification,
            behaviour: Mutex::new(behaviour),
            chance: Mutex::new(Rng::new(behaviour.seed)),
            watchers: Watchers::default(),
            connection: Mutex::new(Connection { generation: 1, broken_since: None }),
            operations: AtomicU64::new(0),
        })
    }

    pub(super) fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock()
    }

    pub(super) fn faults(&self) -> InjectedFaults {
        self.operations.fetch_add(1, Relaxed);
        self.chance.lock().faults(&self.behaviour())
    }

    pub(super) fn source(&self) -> Source {
        Source { node: 0, generation: self.connection.lock().generation }
    }

    pub(super) fn standing(&self, source: Source) -> CopyStatus {
        let connection = self.connection.lock();
        let is_heard = connection.broken_since.is_none_or(|since| since.elapsed() < self.verification);
        let is_current = source.node == 0 && source.generation == connection.generation;
        match is_heard {
            true if is_current => CopyStatus::Verified,
            true => CopyStatus::Ended,
            false => CopyStatus::Unverified,
        }
    }

    /// Marks the connection as silent. Returns `true` the first time.
    fn mark_silent(&self) -> bool {
        let mut connection = self.connection.lock();
        let is_first = connection.broken_since.is_none();
        connection.broken_since.get_or_insert_with(Instant::now);
        is_first
    }

    /// Begins a new generation, and announces copies from the last one as suspect.
    pub(super) fn reconnect(&self) {
        let before = self.source();
        let mut connection = self.connection.lock();
        *connection = Connection { generation: before.generation + 1, broken_since: None };
        drop(connection);
        self.watchers.tell(|watcher| watcher.all_suspect(Some(before)));
    }

    fn is_silent(&self) -> bool {
        self.connection.lock().broken_since.is_some()
    }

    fn deliver(&self, push: &Push) {
        match push {
            Push::Suspect(key) => self.watchers.tell(|watcher| watcher.suspect(&[key])),
            Push::Log => self.watchers.tell(|watcher| watcher.log_changed()),
        }
    }
}

/// Sends a push. If it is lost, calls `give_up` later, when the connection is found to be broken.
pub(super) fn send(link: &Arc<Link>, push: &Push, give_up: impl FnOnce() + Send + 'static) {
    let behaviour = link.behaviour();
    let delivery = link.chance.lock().delivery(&behaviour);
    match delivery {
        _ if link.is_silent() => {}
        Delivery::Lost => {
            if link.mark_silent() {
                let verification = link.verification;
                tokio::spawn(async move {
                    sleep(verification).await;
                    give_up();
                });
            }
        }
        Delivery::After(times) => {
            times.into_iter().for_each(|late| send_after(link, push.clone(), late.min(link.verification)));
        }
    }
}

fn send_after(link: &Arc<Link>, push: Push, late: Duration) {
    if late.is_zero() {
        return link.deliver(&push);
    }
    let link = Arc::clone(link);
    tokio::spawn(async move {
        sleep(late).await;
        link.deliver(&push);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_relied_upon_for_the_time_of_verification() {
        let verification = Duration::from_secs(2);
        let link = Link::new(0, verification, Behaviour::default());
        let source = link.source();
        assert!(link.mark_silent() && !link.mark_silent());
        tokio::time::advance(verification - Duration::from_millis(1)).await;
        assert_eq!(link.standing(source), CopyStatus::Verified);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(link.standing(source), CopyStatus::Unverified);
    }
}
