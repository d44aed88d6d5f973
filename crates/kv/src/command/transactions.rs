//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use resp::{Limits, RequestScanner};

use super::room::Room;
use super::{Call, Outcome, Refusal};
use crate::effort::{Effort, Scope};
use crate::endings::Ending;
use crate::reply::Reply;
use crate::session::Gates;
use crate::transaction::{Queue, State, Watching};

pub(super) fn multi(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.session.queue.is_some() {
        return Err(Refusal::Other("ERR MULTI calls can not be nested"));
    }
    call.session.queue = Some(Box::default());
    call.session.gates.close(Gates::QUEUE);
    reply.ok();
    Ok(())
}

pub(super) fn discard(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.session.queue.is_none() {
        return Err(Refusal::Other("ERR DISCARD without MULTI"));
    }
    call.session.discard(call.shared);
    reply.ok();
    Ok(())
}

pub(super) fn watch(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.session.queue.is_some() {
        return Err(Refusal::Other("ERR WATCH inside MULTI is not allowed"));
    }
    let keys = call.arguments.iter().skip(1);
    call.keep(Watching::bytes_of(keys))?;
    let interests = &call.shared.interests;
    let watching = call.session.watching.get_or_insert_with(|| Box::new(interests.watches.begin()));
    let watched = call.arguments.iter().skip(1).try_for_each(|key| {
        // Expire the key first, so that a key that has already expired isn't watched.
        let key = call.shared.engine.key(call.session.database, key);
        call.shared.engine.lock(&key).contains(call.now_ms);
        call.shared.settle();
        interests.watches.watch(watching, call.session.chosen, key.bytes())
    });
    interests.refresh(&call.shared.engine);
    call.account_tables();
    watched.map_err(|error| Refusal::Told(error.to_string()))?;
    reply.ok();
    Ok(())
}

pub(super) fn unwatch(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.session.unwatch(call.shared);
    reply.ok();
    Ok(())
}

/// Executes the queued commands, while no other worker executes commands.
pub(super) fn exec(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let Some(state) = call.session.queue.as_ref().map(|queue| queue.state) else {
        return Err(Refusal::Other("ERR EXEC without MULTI"));
    };
    call.alone()?;
    let stretched = call.make_room_for_all();
    let stretched = stretched.map_err(|refusal| abort(call, refusal))?;
    let is_touched = is_touched(call);
    let queue = call.session.queue.take();
    call.session.discard(call.shared);
    let outcome = match queue {
        Some(queue) if state == State::Ready && !is_touched => execute(call, &queue, reply),
        _ if state == State::Aborted => {
            return Err(Refusal::Other("EXECABORT Transaction discarded because of previous errors."));
        }
        _ => {
            reply.null_array();
            Ok(())
        }
    };
    if stretched.is_some() {
        drop(stretched);
        call.shared.make_up(call.now_ms);
    }
    outcome.map_err(|refusal| abort(call, refusal))
}

/// Handles an EXEC that can't be executed, which ends its transaction.
pub(super) fn abort(call: &mut Call<'_>, refusal: Refusal) -> Refusal {
    call.session.discard(call.shared);
    if refusal == Refusal::CrossSlot {
        return refusal;
    }
    let text = refusal.to_string();
    let text = text.strip_prefix("ERR ").unwrap_or(&text);
    Refusal::Told(format!("EXECABORT Transaction discarded because of: {text}"))
}

/// Returns whether a watched key has changed or expired.
fn is_touched(call: &Call<'_>) -> bool {
    let Some(watching) = &call.session.watching else { return false };
    for (database, key) in watching.keys() {
        let key = call.engine().key(call.shared.databases.of_engine(database), key);
        call.engine().lock(&key).contains(call.now_ms);
    }
    call.shared.settle();
    watching.is_touched()
}

/// Executes the commands. If the replies don't fit and no command has acted yet, the transaction is refused.
fn execute(call: &mut Call<'_>, queue: &Queue, reply: &mut Reply<'_>) -> Outcome {
    let (mut room, mut is_over, mut has_acted) = (Room::new(call), false, false);
    let begin = reply.out.len();
    reply.array(queue.len());
    call.leave_out_if_mute(begin, reply);
    let effort = &Effort::new(Scope::Transaction);
    let mut scanner = RequestScanner::new(Limits::default());
    let mut rest = queue.requests();
    while let Ok(Some(arguments)) = scanner.scan(rest) {
        rest = &rest[arguments.bytes..];
        let mut one = Call {
            arguments,
            session: &mut *call.session,
            shared: call.shared,
            statistics: call.statistics,
            isolation: call.isolation,
            body: None,
            cells: &mut *call.cells,
            effort,
            now_ms: call.now_ms,
        };
        has_acted |= one.perform_queued(reply) == Deed::Acts;
        // From now on, this reply is charged together with those of the other commands.
        reply.out.release();
        is_over = reply.out.take_refusal() || is_over || room.make(reply.out.own_bytes()).is_err();
        reply.out.set_counted(room.bytes());
        if is_over && !has_acted {
            return Err(Refusal::ReplyOverLimit);
        }
        if is_over {
            // Every command must be executed, but the replies don't fit.
            reply.out.truncate(begin);
        }
    }
    if is_over {
        tracing::warn!(client = %call.session.client.ends.client, "client closed: the replies of its transaction exceed the available memory");
        call.session.is_over = true;
        call.shared.endings.add(Ending::Replies);
    }
    Ok(())
}

/// Whether a command has an effect apart from its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// No effect.
    Tells,
    Acts,
}

impl Call<'_> {
    fn perform_queued(&mut self, reply: &mut Reply<'_>) -> Deed {
        let begin = reply.out.len();
        let command = self.find(self.argument(0)).and_then(|command| self.part(command));
        let command = command.and_then(|command| match command.name {
            "monitor" => Err(Refusal::Other("ERR MONITOR isn't allowed for DENY BLOCKING client")),
            "ssubscribe" => Err(Refusal::Other("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")),
            _ => Ok(command),
        });
        let acts = command.as_ref().is_ok_and(|command| !command.only_tells());
        if let Err(refusal) = command.and_then(|command| self.perform(command, reply)) {
            reply.out.truncate(begin);
            let text = refusal.to_string();
            self.shared.errors.add(&text);
            reply.error(&text);
        }
        self.leave_out_if_mute(begin, reply);
        if acts { Deed::Acts } else { Deed::Tells }
    }

    /// Leaves out the part of EXEC's reply since `begin` if replies are off. As in Redis, CLIENT REPLY
    /// applies to each part, so elements may be missing from an array, or the array's header may be missing.
    fn leave_out_if_mute(&self, begin: usize, reply: &mut Reply<'_>) {
        if self.session.gates.is_closed(Gates::REPLIES) && self.session.is_mute() {
            reply.out.truncate(begin);
        }
    }
}
