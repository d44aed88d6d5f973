//! Commands for features that Larder doesn't have: replication, ACL users, modules, an append-only file.
//! Clients send these commands nevertheless.

use std::time::Duration;

use engine::Database;

use super::{Call, Outcome, Refusal};
use crate::repeated;
use crate::reply::Reply;

/// Maximum duration of DEBUG SLEEP in seconds. A longer sleep would be an outage.
const SLEEP_S_MAX: f64 = 60.0;

pub(super) fn role(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

/// WAIT numreplicas timeout: returns 0 immediately, because there are no replicas.
pub(super) fn wait(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.integer(1)?;
    let timeout =
        call.integer(2).map_err(|_| Refusal::Other("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Refusal::Other("ERR timeout is negative"));
    }
    reply.integer(0);
    Ok(())
}

pub(super) fn whoami(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.bulk(b"default");
    Ok(())
}

pub(super) fn users(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(1);
    reply.bulk(b"default");
    Ok(())
}

pub(super) fn acl_list(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let is_open = call.shared.access.read().passwords.is_empty();
    reply.array(1);
    // Not even digests of passwords are shown.
    let passwords = if is_open { "nopass" } else { "#(hidden)" };
    reply.bulk(format!("user default on {passwords} ~* &* +@all").as_bytes());
    Ok(())
}

const CATEGORIES: [&str; 13] = [
    "keyspace",
    "read",
    "write",
    "string",
    "bitmap",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// ACL CAT [category]
pub(super) fn cat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.length() == 2 {
        reply.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|category| reply.bulk(category.as_bytes()));
        return Ok(());
    }
    let wanted = call.argument(2).to_ascii_lowercase();
    let Some(category) = CATEGORIES.into_iter().find(|category| category.as_bytes() == wanted) else {
        return Err(Refusal::UnknownCategory(repeated::text(call.argument(2))));
    };
    let commands = call.shared.table.with_parts().iter();
    let found: Vec<_> = commands.filter(|command| command.categories().contains(&category)).collect();
    reply.array(found.len());
    found.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    Ok(())
}

/// ACL GETUSER username: `default` is the only user.
pub(super) fn getuser(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.argument(2) != USER {
        reply.null();
        return Ok(());
    }
    let is_open = call.shared.access.read().passwords.is_empty();
    let (flags, passwords): (&[&str], &[&str]) =
        if is_open { (&["on", "nopass"], &[]) } else { (&["on"], &["(hidden)"]) };
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(passwords.len());
    passwords.iter().for_each(|password| reply.bulk(password.as_bytes()));
    for (what, allowed) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(what.as_bytes());
        reply.bulk(allowed.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

const USER: &[u8] = b"default";

/// ACL LOG [count | RESET]: always empty, because no command is ever denied.
pub(super) fn acl_log(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        2 => reply.array(0),
        3 if call.is_word(2, "reset") => reply.ok(),
        3 => {
            call.integer(2)?;
            reply.array(0);
        }
        _ => {
            let name = repeated::text(call.argument(1));
            return Err(Refusal::Told(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP."
            )));
        }
    }
    Ok(())
}

/// ACL DRYRUN username command [arg ...]: always OK, because the user may execute everything.
pub(super) fn dryrun(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if call.argument(2) != USER {
        let user = repeated::text(call.argument(2));
        return Err(Refusal::Told(format!("ERR User '{user}' not found")));
    }
    let Some(command) = call.shared.table.find(call.argument(3)) else {
        let name = repeated::text(call.argument(3));
        return Err(Refusal::Told(format!("ERR Command '{name}' not found")));
    };
    if !command.takes(call.length() - 3) {
        return Err(Refusal::Arity(command.name.to_owned()));
    }
    reply.ok();
    Ok(())
}

/// MODULE LIST: always empty.
pub(super) fn module_list(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(0);
    Ok(())
}

/// REPLICAOF NO ONE: OK, because the server is not a replica.
pub(super) fn replicaof(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !(call.is_word(1, "no") && call.is_word(2, "one")) {
        return Err(Refusal::Other("ERR this server can't be a replica: each instance has keys of its own"));
    }
    reply.ok();
    Ok(())
}

/// BGREWRITEAOF: accepted, because there is no append-only file.
pub(super) fn bgrewriteaof(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.simple("Background append only file rewriting started");
    Ok(())
}

/// DEBUG SLEEP seconds: blocks the worker.
#[expect(clippy::disallowed_methods, reason = "its purpose is to block the worker")]
pub(super) fn sleep(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let text = std::str::from_utf8(call.argument(2)).unwrap_or_default();
    let seconds: f64 = text.parse().unwrap_or_default();
    std::thread::sleep(Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_S_MAX)));
    reply.ok();
    Ok(())
}

/// DEBUG PANIC: stops the server like an internal error.
pub(super) fn panic(_call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    panic!("requested by a client with DEBUG PANIC");
}

/// DEBUG SET-ACTIVE-EXPIRE 0 | 1
pub(super) fn set_active_expire(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.shared.set_active_expiry(call.argument(2) != b"0");
    reply.ok();
    Ok(())
}

/// DEBUG OBJECT key
pub(super) fn debug_object(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let key = call.key(2);
    let mut shard = call.engine().lock(&key);
    let bytes = shard.memory_bytes(call.now_ms);
    let found = shard.get(engine::Access::Peek, call.now_ms);
    let (Some(bytes), Some(found)) = (bytes, found) else { return Err(Refusal::NoSuchKey) };
    reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:raw serializedlength:{} lru:0 lru_seconds_idle:{} frequency:{} bytes:{bytes}",
        found.value.length(),
        found.idle_s,
        found.frequency,
    ));
    Ok(())
}

/// DEBUG HTSTATS dbid
pub(super) fn debug_htstats(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let number = usize::try_from(call.integer(2)?).map_err(|_| Refusal::Database)?;
    let database = Database::new(number).ok_or(Refusal::Database)?;
    let keys = call.engine().counts().keys[call.shared.databases.of_engine(database).number()];
    let longest = call.engine().shards_as_they_are().map(|shard| shard.longest_search()).max();
    let text = format!(
        "[Dictionary HT]\n number of elements: {keys}\n max chain length: {}\n",
        longest.unwrap_or_default()
    );
    reply.bulk(text.as_bytes());
    Ok(())
}

/// DEBUG ERROR text
pub(super) fn debug_error(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.error(&repeated::whole(call.argument(2)));
    Ok(())
}
