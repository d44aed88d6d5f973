//! Scripts and functions, which are not supported. Queries are answered as by an empty Redis; commands that
//! need a script are refused.

use super::{Call, Command, Outcome, Refusal};
use crate::repeated;
use crate::reply::Reply;

/// A permanent error: after `NOSCRIPT`, clients would send the script, and some retry forever after `unknown
/// command`, assuming that the server is not ready yet.
pub(super) const NO_SCRIPTS: Refusal =
    Refusal::Other("ERR scripts are not supported: this server has no Lua and no functions");

impl Command {
    /// Returns whether the command runs or loads a script.
    pub(super) fn runs_script(&self) -> bool {
        self.group == "scripting"
            && matches!(
                self.name,
                "eval"
                    | "eval_ro"
                    | "evalsha"
                    | "evalsha_ro"
                    | "fcall"
                    | "fcall_ro"
                    | "script|load"
                    | "function|load"
                    | "function|restore"
            )
    }
}

pub(super) fn refuse(_call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    Err(NO_SCRIPTS)
}

/// SCRIPT KILL and FUNCTION KILL
pub(super) fn kill(_call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    Err(Refusal::Other("NOTBUSY No scripts in execution right now."))
}

/// SCRIPT EXISTS sha1 [sha1 ...]
pub(super) fn script_exists(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(call.length() - 2);
    call.from(2).for_each(|_| reply.integer(0));
    Ok(())
}

/// SCRIPT FLUSH [ASYNC | SYNC]
pub(super) fn script_flush(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    flush(call, reply, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")
}

/// FUNCTION FLUSH [ASYNC | SYNC]
pub(super) fn function_flush(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    flush(call, reply, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
}

fn flush(call: &Call<'_>, reply: &mut Reply<'_>, refused: &'static str) -> Outcome {
    match call.length() {
        2 => {}
        3 if call.is_word(2, "async") || call.is_word(2, "sync") => {}
        _ => return Err(Refusal::Other(refused)),
    }
    reply.ok();
    Ok(())
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
pub(super) fn function_list(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (mut has_name, mut has_code, mut at) = (false, false, 2);
    while at < call.length() {
        match () {
            () if !has_code && call.is_word(at, "withcode") => has_code = true,
            () if !has_name && call.is_word(at, "libraryname") => {
                (has_name, at) = (true, at + 1);
                if at == call.length() {
                    return Err(Refusal::Other("ERR library name argument was not given"));
                }
            }
            () => {
                let argument = repeated::text(call.argument(at));
                return Err(Refusal::Told(format!("ERR Unknown argument {argument}")));
            }
        }
        at += 1;
    }
    reply.array(0);
    Ok(())
}

pub(super) fn function_stats(_call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.map(2);
    reply.bulk(b"running_script");
    reply.null();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    for count in ["libraries_count", "functions_count"] {
        reply.bulk(count.as_bytes());
        reply.integer(0);
    }
    Ok(())
}

/// FUNCTION DELETE library-name
pub(super) fn function_delete(_call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    Err(Refusal::Other("ERR Library not found"))
}
