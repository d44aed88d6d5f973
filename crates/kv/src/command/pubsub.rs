//! SUBSCRIBE and its variants, PUBLISH, and PUBSUB.

use super::{Call, Outcome, Refusal};
use crate::effort::Scope;
use crate::output::Output;
use crate::pubsub;
use crate::repeated;
use crate::reply::{Reply, SHARED_FROM};
use crate::session::Gates;
use crate::subscriptions::{Kind, NAMES_AT_ONCE};

pub(super) fn subscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    begin(call, reply, Kind::Channel, "subscribe")
}

pub(super) fn psubscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    begin(call, reply, Kind::Pattern, "psubscribe")
}

pub(super) fn ssubscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    begin(call, reply, Kind::Shard, "ssubscribe")
}

pub(super) fn unsubscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    end(call, reply, Kind::Channel, "unsubscribe")
}

pub(super) fn punsubscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    end(call, reply, Kind::Pattern, "punsubscribe")
}

pub(super) fn sunsubscribe(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    end(call, reply, Kind::Shard, "sunsubscribe")
}

fn begin(call: &mut Call<'_>, reply: &mut Reply<'_>, kind: Kind, word: &str) -> Outcome {
    let subscriptions = &call.shared.interests.subscriptions;
    if call.session.names_done == 0 {
        let own = call.session.subscribed.get_or_insert_default();
        let names = call.arguments.iter().skip(1);
        let more = own.check_more(kind, names).map_err(|error| Refusal::Told(error.to_string()));
        let more_bytes = more?;
        let told_bytes = next_names(call).iter().map(|name| name.len() + CONFIRMATION_BYTES).sum::<usize>();
        call.keep(more_bytes + told_bytes)?;
    }
    let names = next_names(call);
    let own = call.session.subscribed.get_or_insert_default();
    let mut told = Output::default();
    let mut confirmation = Reply { out: &mut told, version: reply.version };
    for name in &names {
        subscriptions.add(kind, name, &call.session.client, own);
        confirm(&mut confirmation, word, Some(name), own.count_told(kind));
    }
    settle(call);
    say(call, reply, &told);
    go_on(call, names.len(), call.length() - 1)
}

/// The names among the arguments to process in this turn.
fn next_names<'a>(call: &Call<'a>) -> Vec<&'a [u8]> {
    let names = call.from(1).skip(call.session.names_done);
    some_of(call, names, |name| name.len())
}

/// The names to process in this turn: all of them in a transaction; otherwise only some, so that other
/// clients get turns in between and the client reads its confirmations. The request is parsed again in each
/// turn.
fn some_of<T>(call: &Call<'_>, names: impl Iterator<Item = T>, bytes_of: impl Fn(&T) -> usize) -> Vec<T> {
    if call.effort.scope() == Scope::Transaction {
        return names.collect();
    }
    let mut bytes = 0;
    let is_next = |name: &T| {
        let before_bytes = bytes;
        bytes += bytes_of(name);
        before_bytes < NAMES_BYTES_AT_ONCE
    };
    names.take(4 * NAMES_AT_ONCE).take_while(is_next).collect()
}

/// Maximum size of the names confirmed in one turn.
const NAMES_BYTES_AT_ONCE: usize = 256 << 10;
/// Size of a confirmation without the name.
const CONFIRMATION_BYTES: usize = 48;

/// Records that `more` of `all` names are done, and continues if any are left.
fn go_on(call: &mut Call<'_>, more: usize, all: usize) -> Outcome {
    call.session.names_done += more;
    if call.session.names_done < all { Err(Refusal::NotYet) } else { Ok(()) }
}

fn end(call: &mut Call<'_>, reply: &mut Reply<'_>, kind: Kind, word: &str) -> Outcome {
    let subscriptions = &call.shared.interests.subscriptions;
    let mut own = call.session.subscribed.take().unwrap_or_default();
    let id = call.session.client.id;
    let mut told = Output::default();
    let mut confirmation = Reply { out: &mut told, version: reply.version };
    let (is_begin, count) = (call.session.names_done == 0, own.count(kind));
    let own_names =
        if call.length() == 1 { some_of(call, own.names(kind), |name| name.len()) } else { Vec::new() };
    let given: Vec<&[u8]> = match call.length() {
        1 => own_names.iter().map(|name| &**name).collect(),
        _ => next_names(call),
    };
    for name in &given {
        subscriptions.remove(kind, name, id, &mut own);
        confirm(&mut confirmation, word, Some(name), own.count_told(kind));
    }
    if given.is_empty() && is_begin {
        confirm(&mut confirmation, word, None, own.count_told(kind));
    }
    call.session.subscribed = Some(own).filter(|own| !own.is_empty());
    settle(call);
    // Earlier messages must precede the confirmation: after it, the client may take them for replies.
    call.flush_mail(reply);
    say(call, reply, &told);
    // Without arguments, the next turn begins with the remaining subscriptions.
    let all = if call.length() == 1 { call.session.names_done + count } else { call.length() - 1 };
    go_on(call, given.len(), all)
}

fn confirm(reply: &mut Reply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    reply.bulk_or_null(name);
    reply.count(count);
}

/// Publishes the number of subscriptions, and updates the gates.
fn settle(call: &mut Call<'_>) {
    let count = |kind| call.session.subscribed.as_ref().map_or(0, |own| own.count(kind));
    call.session.client.set_subscribed([Kind::Channel, Kind::Pattern, Kind::Shard].map(count));
    call.session.set_gates();
    call.account_tables();
}

/// Confirmations are sent even with CLIENT REPLY OFF.
fn say(call: &Call<'_>, reply: &mut Reply<'_>, told: &Output) {
    if call.session.gates.is_closed(Gates::REPLIES) {
        call.shared.post(&call.session.client, told);
    } else {
        reply.out.extend_from_slice(told.bytes());
    }
}

pub(super) fn publish(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_message(call)?;
    reply.count(pubsub::publish(call.shared, call.argument(1), call.argument(2))?);
    Ok(())
}

pub(super) fn spublish(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_message(call)?;
    reply.count(pubsub::publish_to_shard(call.shared, call.argument(1), call.argument(2)));
    Ok(())
}

/// Checks that there is room for a long message, as for a reply. The message is copied once for all
/// recipients.
fn check_message(call: &Call<'_>) -> Outcome {
    let bytes = call.argument(1).len().saturating_add(call.argument(2).len());
    let subscriptions = &call.shared.interests.subscriptions;
    let is_anybody =
        [Kind::Channel, Kind::Pattern, Kind::Shard].iter().any(|kind| subscriptions.count(*kind) > 0);
    if bytes < SHARED_FROM || !is_anybody || call.shared.could_reply(0, bytes) {
        return Ok(());
    }
    Err(Refusal::MessageOverLimit)
}

pub(super) fn channels(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    list(call, reply, Kind::Channel, "CHANNELS")
}

pub(super) fn shardchannels(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    list(call, reply, Kind::Shard, "SHARDCHANNELS")
}

fn list(call: &Call<'_>, reply: &mut Reply<'_>, kind: Kind, name: &str) -> Outcome {
    if call.length() > 3 {
        let name = repeated::text(call.arguments.at(1).unwrap_or(name.as_bytes()));
        return Err(Refusal::Told(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
        )));
    }
    let names = call.shared.interests.subscriptions.names(kind, call.arguments.at(2))?;
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

pub(super) fn numsub(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    count(call, reply, Kind::Channel);
    Ok(())
}

pub(super) fn shardnumsub(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    count(call, reply, Kind::Shard);
    Ok(())
}

fn count(call: &Call<'_>, reply: &mut Reply<'_>, kind: Kind) {
    reply.array((call.length() - 2) * 2);
    for name in call.from(2) {
        reply.bulk(name);
        reply.count(call.shared.interests.subscriptions.receivers(kind, name));
    }
}

pub(super) fn numpat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.count(call.shared.interests.subscriptions.count(Kind::Pattern));
    Ok(())
}
