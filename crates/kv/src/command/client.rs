//! CLIENT: inspecting and managing connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::connection::client_name;
use super::room::Watch;
use super::tracking::redirection;
use super::{Call, Outcome, Refusal};
use crate::clients::Client;
use crate::pause::Paused;
use crate::repeated;
use crate::reply::Reply;
use crate::session::Replies;
use crate::shared::Shared;
use crate::tracking::{Mode, Tracker};

pub(super) fn id(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.integer(call.session.client.id as i64);
    Ok(())
}

pub(super) fn getname(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let name = &call.session.client.names.lock().name;
    reply.bulk_or_null(Some(name.as_slice()).filter(|name| !name.is_empty()));
    Ok(())
}

pub(super) fn setname(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let name = client_name(call.argument(2))?;
    call.session.client.names.lock().name = name;
    call.account_tables();
    reply.ok();
    Ok(())
}

pub(super) fn setinfo(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let value = client_name(call.argument(3))?;
    let mut names = call.session.client.names.lock();
    match () {
        () if call.is_word(2, "lib-name") => names.library = value,
        () if call.is_word(2, "lib-ver") => names.library_version = value,
        () => return Err(Refusal::Other("ERR Unrecognized option")),
    }
    drop(names);
    call.account_tables();
    reply.ok();
    Ok(())
}

pub(super) fn reply(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let replies = match () {
        () if call.is_word(2, "on") => Replies::On,
        () if call.is_word(2, "off") => Replies::OffNext,
        () if call.is_word(2, "skip") => Replies::SkipNext,
        () => return Err(Refusal::Syntax),
    };
    call.session.set_replies(replies);
    if replies == Replies::On {
        reply.ok();
    }
    Ok(())
}

/// CLIENT NO-EVICT (ON|OFF)
pub(super) fn no_evict(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let is_kept = on_or_off(call)?;
    call.session.client.facts.is_kept.store(is_kept, Relaxed);
    reply.ok();
    Ok(())
}

pub(super) fn no_touch(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    on_or_off(call)?;
    reply.ok();
    Ok(())
}

fn on_or_off(call: &Call<'_>) -> Result<bool, Refusal> {
    match () {
        () if call.is_word(2, "on") => Ok(true),
        () if call.is_word(2, "off") => Ok(false),
        () => Err(Refusal::Syntax),
    }
}

/// CLIENT PAUSE milliseconds [WRITE|ALL]
pub(super) fn pause(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let paused = match call.length() {
        3 => Paused::All,
        4 if call.is_word(3, "write") => Paused::Writes,
        4 if call.is_word(3, "all") => Paused::All,
        _ => return Err(Refusal::Other("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout =
        call.integer(2).map_err(|_| Refusal::Other("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| Refusal::Other("ERR timeout is negative"))?;
    let interests = &call.shared.interests;
    interests.pauses.pause(paused, call.now_ms.saturating_add(timeout_ms), call.now_ms);
    interests.refresh(call.engine());
    call.session.see(interests.flags());
    reply.ok();
    Ok(())
}

pub(super) fn unpause(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.shared.interests.pauses.end();
    call.shared.interests.refresh(call.engine());
    reply.ok();
    Ok(())
}

/// CLIENT UNBLOCK id [TIMEOUT|ERROR]: always 0, because no client is ever blocked.
pub(super) fn unblock(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        3 => {}
        4 if call.is_word(3, "timeout") || call.is_word(3, "error") => {}
        _ => return Err(Refusal::Other("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    }
    call.integer(2)?;
    reply.integer(0);
    Ok(())
}

pub(super) fn info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.show_itself();
    reply.text(&line(call.shared, &call.session.client, call.now_ms));
    Ok(())
}

/// CLIENT LIST [TYPE type | ID id [id ...]]
pub(super) fn list(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.show_itself();
    let clients = match call.length() {
        2 => call.shared.clients.all(),
        4 if call.is_word(2, "type") => {
            let kind = Kind::parse(call.argument(3))?;
            let mut clients = call.shared.clients.all();
            clients.retain(|client| kind.has(client));
            clients
        }
        length if length > 3 && call.is_word(2, "id") => listed(call)?,
        _ => return Err(Refusal::Syntax),
    };
    let mut text = String::new();
    let mut watch = Watch::new(call);
    for client in clients.iter().filter(|client| !client.is_killed()) {
        text.push_str(&line(call.shared, client, call.now_ms));
        watch.look(text.len() * 2)?;
    }
    reply.text(&text);
    Ok(())
}

fn listed(call: &Call<'_>) -> Result<Vec<Arc<Client>>, Refusal> {
    let mut clients = Vec::new();
    for at in 3..call.length() {
        let id = call.integer(at).map_err(|_| Refusal::Other("ERR Invalid client ID"))?;
        clients.extend(u64::try_from(id).ok().and_then(|id| call.shared.clients.find(id)));
    }
    Ok(clients)
}

/// Client types in Redis' terms. There are no replicas and no masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    PubSub,
    None,
}

impl Kind {
    fn parse(name: &[u8]) -> Result<Self, Refusal> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::PubSub),
            b"master" | b"replica" | b"slave" => Ok(Self::None),
            _ => Err(Refusal::Told(format!("ERR Unknown client type '{}'", repeated::text(name)))),
        }
    }

    fn has(self, client: &Client) -> bool {
        match self {
            Self::Normal => !client.is_subscribed(),
            Self::PubSub => client.is_subscribed(),
            Self::None => false,
        }
    }
}

/// Filters of CLIENT KILL, all of which have to match.
#[derive(Debug, Default)]
struct Filter {
    id: Option<u64>,
    kind: Option<Kind>,
    address: Option<Vec<u8>>,
    own_address: Option<Vec<u8>>,
    age_s: Option<u64>,
    is_own_kept: bool,
}

/// CLIENT KILL address, or CLIENT KILL with filters.
pub(super) fn kill(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let is_old_form = call.length() == 3;
    let filter = if is_old_form {
        Filter { address: Some(call.argument(2).to_vec()), ..Filter::default() }
    } else {
        filter(call)?
    };
    let killed = kill_all(call, &filter);
    match killed {
        0 if is_old_form => return Err(Refusal::Other("ERR No such client")),
        _ if is_old_form => reply.ok(),
        _ => reply.count(killed),
    }
    Ok(())
}

fn kill_all(call: &mut Call<'_>, filter: &Filter) -> usize {
    let own = call.session.client.id;
    let mut clients = call.shared.clients.all();
    clients.retain(|client| !client.is_killed() && filter.applies(client, own, call.now_ms));
    for client in &clients {
        if client.id == own {
            // The reply is sent before the connection closes.
            call.session.is_over = true;
        } else {
            client.kill();
        }
    }
    clients.len()
}

fn filter(call: &Call<'_>) -> Result<Filter, Refusal> {
    let mut filter = Filter { is_own_kept: true, ..Filter::default() };
    let mut at = 2;
    while at < call.length() {
        if at + 1 >= call.length() {
            return Err(Refusal::Syntax);
        }
        let value = call.argument(at + 1);
        match () {
            () if call.is_word(at, "id") => filter.id = Some(client_id(call, at + 1)?),
            () if call.is_word(at, "type") => filter.kind = Some(Kind::parse(value)?),
            () if call.is_word(at, "addr") => filter.address = Some(value.to_vec()),
            () if call.is_word(at, "laddr") => filter.own_address = Some(value.to_vec()),
            () if call.is_word(at, "user") => check_user(value)?,
            () if call.is_word(at, "maxage") => filter.age_s = Some(age(call, at + 1)?),
            () if call.is_word(at, "skipme") && value.eq_ignore_ascii_case(b"yes") => {
                filter.is_own_kept = true
            }
            () if call.is_word(at, "skipme") && value.eq_ignore_ascii_case(b"no") => {
                filter.is_own_kept = false
            }
            () => return Err(Refusal::Syntax),
        }
        at += 2;
    }
    Ok(filter)
}

fn client_id(call: &Call<'_>, at: usize) -> Result<u64, Refusal> {
    let id = call.integer(at).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
    id.ok_or(Refusal::Other("ERR client-id should be greater than 0"))
}

fn age(call: &Call<'_>, at: usize) -> Result<u64, Refusal> {
    let age_s = call.integer(at).ok().and_then(|age_s| u64::try_from(age_s).ok()).filter(|age_s| *age_s > 0);
    age_s.ok_or(Refusal::Other("ERR maxage is not an integer or out of range"))
}

fn check_user(name: &[u8]) -> Outcome {
    if name == b"default" {
        return Ok(());
    }
    Err(Refusal::Told(format!("ERR No such user '{}'", repeated::text(name))))
}

impl Filter {
    fn applies(&self, client: &Client, own: u64, now_ms: u64) -> bool {
        let is_at = |wanted: &Option<Vec<u8>>, address: SocketAddr| {
            wanted.as_ref().is_none_or(|wanted| *wanted == address.to_string().into_bytes())
        };
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind.has(client))
            && is_at(&self.address, client.ends.client)
            && is_at(&self.own_address, client.ends.server)
            && self.age_s.is_none_or(|age_s| now_ms.saturating_sub(client.since_ms) / 1000 >= age_s)
            && !(self.is_own_kept && client.id == own)
    }
}

impl Call<'_> {
    /// Publishes the session's current state. Other clients see a client as of its last batch; the client
    /// itself sees its current state.
    fn show_itself(&self) {
        self.session.publish(|command| self.shared.table.number(command), self.now_ms);
    }
}

/// A line of CLIENT LIST in the format of Redis 7.0, with the additions of 7.2.
fn line(shared: &Shared, client: &Client, now_ms: u64) -> String {
    let facts = &client.facts;
    let names = client.names.lock().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    let tracker = shared.interests.tracking.tracker(client.id);
    let [channels, patterns, shards] = [0, 1, 2].map(|kind: usize| facts.subscribed[kind].load(Relaxed));
    let queued = facts.queued.load(Relaxed);
    let queued = if queued == usize::MAX { -1 } else { queued as i64 };
    let (unread, unsent) = (facts.unread_bytes.load(Relaxed), client.unsent_bytes());
    let command = shared.table.name(facts.command.load(Relaxed)).unwrap_or("NULL");
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={} db={} sub={channels} psub={patterns} ssub={shards} multi={queued} \
         qbuf={unread} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem={unsent} tot-mem={} events=r cmd={command} \
         user=default redir={} resp={} lib-name={} lib-ver={}\n",
        client.id,
        client.ends.client,
        client.ends.server,
        text(&names.name),
        seconds(client.since_ms),
        seconds(facts.seen_ms.load(Relaxed)),
        flags(client, queued, tracker.as_ref()),
        facts.database.load(Relaxed),
        usize::from(unsent > 0),
        unread + unsent,
        redirection(tracker.as_ref()),
        facts.protocol.load(Relaxed),
        text(&names.library),
        text(&names.library_version),
    )
}

/// One letter per flag that applies, in Redis' order.
fn flags(client: &Client, queued: i64, tracker: Option<&Tracker>) -> String {
    let letters = [
        ('O', client.facts.is_monitor.load(Relaxed)),
        ('P', client.is_subscribed()),
        ('x', queued >= 0),
        ('t', tracker.is_some()),
        ('R', tracker.is_some_and(|tracker| tracker.is_broken)),
        ('B', tracker.is_some_and(|tracker| tracker.mode == Mode::Broadcast)),
        ('e', client.facts.is_kept.load(Relaxed)),
    ];
    let letters: String =
        letters.into_iter().filter(|(_, applies)| *applies).map(|(letter, _)| letter).collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}
