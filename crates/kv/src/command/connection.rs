//! Commands of the connection.

use engine::Database;

use super::arguments::parse_integer;
use super::{Call, Outcome, Refusal};
use crate::reply::{Reply, Version};
use crate::session::{Replies, Session};

pub(super) fn ping(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
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
    call.session.reset();
    reply.simple("RESET");
    Ok(())
}

pub(super) fn select(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let number = usize::try_from(call.integer(1)?).map_err(|_| Refusal::Database)?;
    call.session.database = Database::new(number).ok_or(Refusal::Database)?;
    reply.ok();
    Ok(())
}

pub(super) fn auth(call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        2 => Err(Refusal::Other(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        )),
        3 if call.is_word(1, "default") => Err(WRONG_PASSWORD),
        3 => Err(WRONG_PASSWORD),
        _ => Err(Refusal::Syntax),
    }
}

const WRONG_PASSWORD: Refusal =
    Refusal::Other("WRONGPASS invalid username-password pair or user is disabled.");

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
    let mut at = 2;
    let mut name = None;
    while at < call.length() {
        let left = call.length() - at;
        match () {
            () if call.is_word(at, "setname") && left >= 2 => {
                name = Some(client_name(call.argument(at + 1))?);
                at += 2;
            }
            () if call.is_word(at, "auth") && left >= 3 => return Err(WRONG_PASSWORD),
            () => {
                let option = String::from_utf8_lossy(call.argument(at)).into_owned();
                return Err(Refusal::HelloOption(option));
            }
        }
    }
    call.session.version = version;
    if let Some(name) = name {
        call.session.name = name;
    }
    greet(call, reply)
}

fn greet(call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.version = call.session.version;
    reply.map(7);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("server", "redis");
    pair("version", REDIS_VERSION);
    reply.bulk(b"proto");
    reply.integer(if call.session.version == Version::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(call.session.id as i64);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("mode", "standalone");
    pair("role", "master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Clients choose what they may send by this version.
pub(super) const REDIS_VERSION: &str = "7.0.0";

pub(super) fn client(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let is = |word| call.is_word(1, word);
    match call.length() {
        2 if is("id") => reply.integer(call.session.id as i64),
        2 if is("getname") => {
            let name = &call.session.name;
            reply.bulk_or_null(Some(name.as_slice()).filter(|name| !name.is_empty()));
        }
        2 if is("info") => {
            let line = format!("{}\n", describe(call.session, call.now_ms));
            reply.text(&line);
        }
        3 if is("setname") => {
            call.session.name = client_name(call.argument(2))?;
            reply.ok();
        }
        4 if is("setinfo") => set_info(call, reply)?,
        3 if is("reply") => set_replies(call, reply)?,
        3 if is("no-evict") || is("no-touch") => reply.ok(),
        _ => {
            let name = String::from_utf8_lossy(call.argument(1)).into_owned();
            return Err(Refusal::UnknownSubcommand { command: "CLIENT", name });
        }
    }
    Ok(())
}

fn client_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Ok(name.to_vec());
    }
    Err(Refusal::Other("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn set_info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let value = client_name(call.argument(3))?;
    match () {
        () if call.is_word(2, "lib-name") => call.session.library.name = value,
        () if call.is_word(2, "lib-ver") => call.session.library.version = value,
        () => return Err(Refusal::Other("ERR Unrecognized option")),
    }
    reply.ok();
    Ok(())
}

fn set_replies(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.session.replies = match () {
        () if call.is_word(2, "on") => Replies::On,
        () if call.is_word(2, "off") => Replies::Off,
        () if call.is_word(2, "skip") => Replies::SkipNext,
        () => return Err(Refusal::Syntax),
    };
    reply.ok();
    Ok(())
}

/// As a line of CLIENT LIST.
fn describe(session: &Session, now_ms: u64) -> String {
    let age_s = now_ms.saturating_sub(session.since_ms) / 1000;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "id={} addr={} name={} age={age_s} db={} resp={} lib-name={} lib-ver={}",
        session.id,
        session.address,
        text(&session.name),
        session.database.number(),
        if session.version == Version::Resp3 { 3 } else { 2 },
        text(&session.library.name),
        text(&session.library.version),
    )
}
