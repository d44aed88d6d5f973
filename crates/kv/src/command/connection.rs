//! Connection commands.

use std::sync::atomic::Ordering::Relaxed;

use engine::Database;

use super::arguments::parse_integer;
use super::{Call, Outcome, Refusal};
use crate::repeated;
use crate::reply::{Reply, Version};
use crate::session::Gates;

pub(super) fn ping(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        1 | 2 if call.session.gates.is_closed(Gates::SUBSCRIBED) => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(call.arguments.at(1).unwrap_or_default());
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(call.argument(1)),
        _ => return Err(Refusal::Arity("ping".to_owned())),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.bulk(call.argument(1));
    Ok(())
}

pub(super) fn quit(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.session.is_over = true;
    reply.ok();
    Ok(())
}

pub(super) fn reset(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !call.session.unsubscribe_some(call.shared) {
        return Err(Refusal::NotYet);
    }
    call.session.leave(call.shared);
    call.flush_mail(reply);
    call.session.reset(call.shared.first_gates());
    call.session.see(call.shared.interests.flags());
    call.session.choose(Database::default(), &call.shared.databases);
    call.set_version(Version::default(), reply);
    reply.simple("RESET");
    Ok(())
}

/// MONITOR. As in Redis, a repeated MONITOR gets no reply.
pub(super) fn monitor(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if std::mem::replace(&mut call.session.is_monitor, true) {
        return Ok(());
    }
    let interests = &call.shared.interests;
    call.session.client.facts.is_monitor.store(true, Relaxed);
    interests.monitors.add(&call.session.client);
    interests.refresh(call.engine());
    call.session.see(interests.flags());
    reply.ok();
    Ok(())
}

pub(super) fn select(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let database = call.chosen_database(1)?;
    if database != Database::default() {
        call.check_no_cluster("ERR SELECT is not allowed in cluster mode")?;
    }
    call.session.choose(database, &call.shared.databases);
    reply.ok();
    Ok(())
}

pub(super) fn auth(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        2 if call.shared.access.read().passwords.is_empty() => return Err(Refusal::Other(NO_PASSWORD_SET)),
        2 => authenticate(call, b"default", call.argument(1))?,
        3 => authenticate(call, call.argument(1), call.argument(2))?,
        _ => return Err(Refusal::Syntax),
    }
    reply.ok();
    Ok(())
}

const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";

/// Authenticates the only user. Without passwords, any password is accepted, as in Redis.
fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let passwords = &call.shared.access.read().passwords;
    if user != b"default" || !(passwords.is_empty() || passwords.open_with(password)) {
        return Err(WRONG_PASSWORD);
    }
    call.session.gates.open(Gates::PASSWORD);
    Ok(())
}

const WRONG_PASSWORD: Refusal =
    Refusal::Other("WRONGPASS invalid username-password pair or user is disabled.");

/// Options of HELLO.
#[derive(Debug, Default)]
struct Greeting<'a> {
    name: Option<Vec<u8>>,
    user: Option<(&'a [u8], &'a [u8])>,
}

/// HELLO [version [AUTH user password] [SETNAME name]]
pub(super) fn hello(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let version = match call.length() {
        1 => call.session.version,
        _ => match parse_integer(call.argument(1)) {
            Ok(2) => Version::Resp2,
            Ok(3) => Version::Resp3,
            Ok(_) => return Err(Refusal::Other("NOPROTO unsupported protocol version")),
            Err(_) => {
                return Err(Refusal::Other("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let greeting = greeting(call)?;
    if let Some((user, password)) = greeting.user {
        authenticate(call, user, password)?;
    }
    if call.session.gates.is_closed(Gates::PASSWORD) {
        return Err(Refusal::Other(HELLO_BEFORE_AUTH));
    }
    call.flush_mail(reply);
    call.set_version(version, reply);
    if let Some(name) = greeting.name {
        call.session.client.names.lock().name = name;
        call.account_tables();
    }
    greet(call, reply)
}

const HELLO_BEFORE_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

fn greeting<'a>(call: &Call<'a>) -> Result<Greeting<'a>, Refusal> {
    let mut greeting = Greeting::default();
    let mut at = 2;
    while at < call.length() {
        let left = call.length() - at;
        match () {
            () if call.is_word(at, "setname") && left >= 2 => {
                greeting.name = Some(client_name(call.argument(at + 1))?);
                at += 2;
            }
            () if call.is_word(at, "auth") && left >= 3 => {
                greeting.user = Some((call.argument(at + 1), call.argument(at + 2)));
                at += 3;
            }
            () => {
                let option = repeated::text(call.argument(at));
                return Err(Refusal::HelloOption(option));
            }
        }
    }
    Ok(greeting)
}

fn greet(call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.map(7);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("server", "redis");
    pair("version", REDIS_VERSION);
    reply.bulk(b"proto");
    reply.count(call.session.version.number());
    reply.bulk(b"id");
    reply.integer(call.session.client.id as i64);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("mode", call.shared.mode());
    pair("role", "master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Clients choose features by this version: from 7.2 on they send CLIENT SETINFO, and from 7.4 on redis-py
/// and Jedis enable client-side caching. From 8 on they would send CLUSTER SHARDS instead of SLOTS, and use
/// data types that don't exist here.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// Maximum length of a name, because CLIENT LIST shows all names to every client that asks.
const NAME_BYTES_MAX: usize = 1024;

pub(super) fn client_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Refusal::Other("ERR names of clients and libraries can have at most 1024 bytes"));
    }
    if name.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Ok(name.to_vec());
    }
    Err(Refusal::Other("ERR Client names cannot contain spaces, newlines or special characters."))
}

impl Call<'_> {
    /// Sets the protocol version of further replies and messages.
    fn set_version(&mut self, version: Version, reply: &mut Reply<'_>) {
        self.session.version = version;
        self.session.client.facts.protocol.store(version.number(), Relaxed);
        self.session.set_gates();
        reply.version = version;
    }

    /// Sends pending messages before the reply, because the client would take messages after the reply for
    /// other replies.
    pub(super) fn flush_mail(&self, reply: &mut Reply<'_>) {
        let gates = self.session.gates;
        // If the reply is suppressed, messages written with it would be dropped, too. In RESP3, messages
        // can't be mistaken for replies.
        if reply.version == Version::Resp2 && !gates.is_closed(Gates::REPLIES) {
            self.session.client.take_mail(reply.out);
        }
    }
}
