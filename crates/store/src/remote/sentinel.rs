//! The current master of a service, according to its sentinels.
//!
//! All sentinels are connected, because each announces a fail-over when it learns of it itself. The master with the highest configuration
//! epoch counts: each fail-over has a higher one than all before it, so a sentinel that was cut off can't bring an old master back.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::dial::Transport;
use super::reply;
use super::settings::{Host, RemoteSettings, Sentinels};
use super::wire::{Connector, OpenError, Wire, with_causes};
use crate::backing::BackingError;

/// Follows the sentinels of one service.
pub(super) struct MasterFinder {
    service: Box<str>,
    sentinels: Vec<Connector>,
    /// Last view of each sentinel.
    views: Mutex<Vec<View>>,
    found: watch::Sender<Found>,
}

/// The master, or the reason why none is known.
pub(super) type Found = Result<FoundMaster, Arc<str>>;

/// The master of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundMaster {
    pub(super) host: Host,
    /// Whether the sentinel is replacing the master.
    is_changing: bool,
    epoch: u64,
    /// Number of its replicas, whether they are connected or not.
    pub(super) replicas: u32,
}

/// View of one sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
enum View {
    Master(FoundMaster),
    /// Reason why the sentinel can't be reached.
    Away(Arc<str>),
    /// Error with which the sentinel answers.
    Unknown(Arc<str>),
}

impl MasterFinder {
    pub(super) fn new(settings: &RemoteSettings, transport: &Transport, sentinels: &Sentinels) -> Self {
        let connectors =
            sentinels.hosts.iter().map(|host| Connector::to_sentinel(settings, transport.to(host))).collect();
        let views = vec![View::Away("not connected yet".into()); sentinels.hosts.len()];
        Self {
            service: sentinels.service.clone(),
            sentinels: connectors,
            views: Mutex::new(views),
            found: watch::channel(Err("no sentinel has answered yet".into())).0,
        }
    }

    /// Returns the current master, and each later change.
    pub(super) fn found(&self) -> watch::Receiver<Found> {
        self.found.subscribe()
    }

    /// Follows all sentinels, forever.
    pub(super) async fn run(&self) -> Infallible {
        let following = (0..self.sentinels.len()).map(|index| Box::pin(self.follow(index)));
        select_all(following).await.0
    }

    /// Asks the sentinels until the first one knows the master.
    pub(super) async fn find_once(&self) -> Found {
        let mut found = self.found();
        let asked = self.sentinels.iter().enumerate().map(|(index, sentinel)| {
            Box::pin(async move {
                let view = self.ask_once(sentinel).await;
                self.note(index, view);
            })
        });
        let mut asked: Vec<_> = asked.collect();
        while !asked.is_empty() && found.borrow_and_update().is_err() {
            (_, _, asked) = select_all(asked).await;
        }
        found.borrow_and_update().clone()
    }

    async fn ask_once(&self, sentinel: &Connector) -> View {
        match sentinel.open(REPLY_BYTES_MAX, |_| Ok::<(), ()>(()), Arc::default()).await {
            Ok((wire, _driving)) => self.ask(&wire, sentinel.timeout()).await.unwrap_or_else(View::Away),
            Err(error) => View::Away(with_causes(&error)),
        }
    }

    async fn follow(&self, index: usize) -> Infallible {
        loop {
            let Err(why) = self.listen(index).await;
            self.note(index, View::Away(why));
            sleep(ASKED_AGAIN_AFTER).await;
        }
    }

    /// Asks one sentinel, again at each announcement and once in a while, until the connection is lost.
    async fn listen(&self, index: usize) -> Result<Infallible, Arc<str>> {
        let sentinel = &self.sentinels[index];
        let announced = Arc::new(Notify::new());
        let heard = Arc::clone(&announced);
        let pushes = move |push: PushInfo| {
            if push.kind == PushKind::Message {
                heard.notify_one();
            }
            Ok::<(), ()>(())
        };
        let opened = sentinel.open(REPLY_BYTES_MAX, pushes, Arc::default()).await;
        let (wire, _driving) = opened.map_err(|error: OpenError| with_causes(&error))?;
        wire.subscribe(ANNOUNCEMENT).await.map_err(|error| with_causes(&error))?;
        loop {
            let view = self.ask(&wire, sentinel.timeout()).await?;
            self.note(index, view);
            let _ = timeout(ASKED_AGAIN_AFTER, announced.notified()).await;
            sleep(BURST).await;
        }
    }

    /// Asks for the master. Returns an error if there is no reply.
    async fn ask(&self, wire: &Wire, patience: Duration) -> Result<View, Arc<str>> {
        let question = cmd("SENTINEL").arg("MASTER").arg(&*self.service).clone();
        let answer = timeout(patience, wire.ask_one(&question)).await;
        let answer = answer.map_err(|_| "it does not reply")?.map_err(|error| with_causes(&error))?;
        Ok(match master(answer) {
            Ok(master) => View::Master(master),
            Err(error) => View::Unknown(with_causes(&error)),
        })
    }

    fn note(&self, index: usize, view: View) {
        let mut views = self.views.lock();
        // During a fail-over, a sentinel names the old master with the new epoch.
        let is_changing = matches!(view, View::Master(FoundMaster { is_changing: true, .. }));
        if is_changing && matches!(views[index], View::Master(_)) {
            return;
        }
        views[index] = view;
        let found = best(&views);
        self.found.send_if_modified(|known| {
            let is_new = match (&*known, &found) {
                (Ok(known), Ok(found)) => known != found && may_follow(known, found, &views),
                // A master that no sentinel knows any more may still work.
                (Ok(_), Err(_)) => false,
                (Err(known), Err(found)) => known != found,
                (Err(_), Ok(_)) => true,
            };
            if is_new {
                *known = found;
            }
            is_new
        });
    }
}

/// Returns whether a master may take the place of the known one. An older epoch is that of a sentinel that was cut off, unless most of the
/// sentinels name this master, because their configuration was reset.
fn may_follow(known: &FoundMaster, found: &FoundMaster, views: &[View]) -> bool {
    let names_it = |view: &&View| matches!(view, View::Master(master) if master.host == found.host);
    found.epoch >= known.epoch || views.iter().filter(names_it).count() > views.len() / 2
}

/// Returns the master that counts; if no sentinel knows one, the reason.
fn best(views: &[View]) -> Found {
    let known = views.iter().filter_map(|view| match view {
        View::Master(master) => Some(master),
        View::Away(_) | View::Unknown(_) => None,
    });
    // Of equal epochs, the first one in the order of the URL.
    if let Some(master) = known.rev().max_by_key(|master| master.epoch) {
        return Ok(master.clone());
    }
    let why = views.iter().find_map(|view| match view {
        View::Unknown(why) => Some(format!("a sentinel answers: {why}")),
        View::Master(_) | View::Away(_) => None,
    });
    let away = views.iter().find_map(|view| match view {
        View::Away(why) => Some(format!("no sentinel can be reached: {why}")),
        View::Master(_) | View::Unknown(_) => None,
    });
    Err(why.or(away).unwrap_or_default().into())
}

/// Parses the reply to `SENTINEL MASTER`: a map of fields, or an array of names and values.
fn master(answer: Value) -> Result<FoundMaster, BackingError> {
    let fields: HashMap<String, String> = match reply::of(answer)? {
        Value::Map(pairs) => {
            pairs.into_iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
        }
        Value::Array(values) => {
            let texts: Vec<_> = values.into_iter().map(|value| text(value).unwrap_or_default()).collect();
            texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        other => return Err(reply::unexpected(&other)),
    };
    let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
    let port = number("port").and_then(|port| u16::try_from(port).ok());
    match fields.get("ip").zip(port).and_then(|(name, port)| Host::reported(name, port)) {
        Some(host) => Ok(FoundMaster {
            host,
            is_changing: fields.get("flags").is_some_and(|flags| flags.contains("failover_in_progress")),
            epoch: number("config-epoch").unwrap_or(0),
            replicas: number("num-slaves").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        }),
        None => Err(reply::unexpected(&Value::Nil)),
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Channel on which a sentinel announces a fail-over, of any of its services.
const ANNOUNCEMENT: &str = "+switch-master";
/// Pause between two questions to a sentinel, and before it is connected again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Minimum pause between two questions, so that a burst of announcements leads to few of them.
const BURST: Duration = Duration::from_millis(20);
/// Maximum size of a reply.
const REPLY_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, epoch: u64) -> View {
        View::Master(found(name, epoch))
    }

    fn found(name: &str, epoch: u64) -> FoundMaster {
        FoundMaster { host: Host { name: name.into(), port: 6379 }, is_changing: false, epoch, replicas: 1 }
    }

    #[test]
    fn the_latest_configuration_counts() {
        let away = || View::Away("refused".into());
        let unknown = || View::Unknown("no such master".into());
        for (views, expected) in [
            (vec![known("a", 1), known("b", 2), away()], Ok("b")),
            (vec![known("a", 3), known("b", 2), unknown()], Ok("a")),
            (vec![known("a", 0), known("b", 0)], Ok("a")),
            (vec![away(), unknown()], Err("a sentinel answers: no such master")),
            (vec![away()], Err("no sentinel can be reached: refused")),
        ] {
            let found = best(&views);
            let found = found.as_ref().map(|master| &*master.host.name).map_err(|why| &**why);
            assert_eq!(found, expected, "{views:?}");
        }
    }

    #[test]
    fn a_sentinel_that_was_cut_off_brings_no_old_master_back() {
        let away = || View::Away("refused".into());
        for (views, expected) in [
            (vec![known("old", 1), away(), away()], false),
            (vec![known("old", 1), known("old", 1), away()], true),
            (vec![known("next", 6), away(), away()], true),
        ] {
            let best = best(&views).unwrap();
            assert_eq!(may_follow(&found("new", 5), &best, &views), expected, "{views:?}");
        }
    }

    #[test]
    fn masters_are_read_from_both_protocols() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let fields = [
            ("ip", "10.0.0.7"),
            ("port", "6380"),
            ("config-epoch", "12"),
            ("num-slaves", "2"),
            ("flags", "master"),
        ];
        let map = Value::Map(fields.iter().map(|(name, value)| (bulk(name), bulk(value))).collect());
        let array = Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect());
        let expected = FoundMaster {
            host: Host { name: "10.0.0.7".into(), port: 6380 },
            is_changing: false,
            epoch: 12,
            replicas: 2,
        };
        for answer in [map, array] {
            assert_eq!(master(answer).unwrap(), expected);
        }
        for broken in [
            Value::Nil,
            Value::Array(vec![bulk("ip"), bulk("a"), bulk("port"), bulk("x")]),
            Value::Array(vec![]),
        ] {
            assert!(master(broken.clone()).is_err(), "{broken:?}");
        }
    }
}
