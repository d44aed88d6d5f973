//! SAVE, BGSAVE, LASTSAVE and SHUTDOWN.

use std::sync::Arc;

use super::{Call, Outcome, Refusal};
use crate::reply::Reply;
use crate::saved::{SaveError, SaveFile};

const NO_FILE: Refusal = Refusal::Other("ERR there is no save file: start the server with --save-file PATH");

const FAILED: Refusal = Refusal::Other("ERR Errors trying to SHUTDOWN. Check logs.");

const STOPPING: Refusal = Refusal::Other("ERR the server is stopping already");

pub(super) fn save(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let file = save_file(call)?;
    call.alone()?;
    file.write(call.engine(), call.shared.changes()).map_err(|error| refusal(&error))?;
    reply.ok();
    Ok(())
}

pub(super) fn bgsave(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        1 => {}
        2 if call.is_word(1, "schedule") => {}
        _ => return Err(Refusal::Syntax),
    }
    let file = save_file(call)?;
    file.write_in_background(&call.shared.engine, call.shared.changes()).map_err(|error| refusal(&error))?;
    reply.simple("Background saving started");
    Ok(())
}

pub(super) fn lastsave(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let file = call.shared.save_file.as_ref();
    let saved_at_s = file.map_or(0, |file| file.saved_at_s());
    // As in Redis, the start of the server counts as a save.
    reply.integer(saved_at_s.max(call.shared.rates.began_s(call.now_ms)) as i64);
    Ok(())
}

fn save_file<'a>(call: &Call<'a>) -> Result<&'a Arc<SaveFile>, Refusal> {
    call.shared.save_file.as_ref().ok_or(NO_FILE)
}

fn refusal(error: &SaveError) -> Refusal {
    match error {
        SaveError::Busy => Refusal::Other("ERR Background save already in progress"),
        SaveError::Write { .. } => Refusal::Told(format!("ERR the data set was not saved: {error}")),
    }
}

/// Whether SHUTDOWN saves the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Save if there is a save file.
    Usual,
    Save,
    NoSave,
}

/// Options of SHUTDOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shutdown {
    wish: Wish,
    /// Stop even if saving fails.
    is_forced: bool,
    is_taken_back: bool,
}

pub(super) fn shutdown(call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    let Shutdown { wish, is_forced, is_taken_back } = options(call)?;
    if is_taken_back {
        return Err(Refusal::Other("ERR No shutdown in progress."));
    }
    if wish == Wish::Save {
        save_file(call)?;
    }
    call.alone()?;
    // The first SHUTDOWN takes precedence, because other clients may rely on their data being saved.
    if call.shared.is_stopping() {
        return Err(STOPPING);
    }
    if let Some(file) = &call.shared.save_file {
        match wish {
            Wish::NoSave => file.skip_at_stop(),
            // If saving fails, the client has to be notified before the server is gone.
            _ => match call.shared.save_for_end(file) {
                Ok(()) => {}
                Err(_) if is_forced => file.skip_at_stop(),
                Err(_) => return Err(FAILED),
            },
        }
    }
    tracing::info!("shutdown requested by a client");
    call.session.is_over = true;
    call.shared.stop();
    (call.shared.on_shutdown)();
    Ok(())
}

fn options(call: &Call<'_>) -> Result<Shutdown, Refusal> {
    let mut told = Shutdown { wish: Wish::Usual, is_forced: false, is_taken_back: false };
    for at in 1..call.length() {
        match () {
            () if call.is_word(at, "nosave") && told.wish == Wish::Usual => told.wish = Wish::NoSave,
            () if call.is_word(at, "save") && told.wish == Wish::Usual => told.wish = Wish::Save,
            // There are no replicas to wait for, so every shutdown is immediate.
            () if call.is_word(at, "now") => {}
            () if call.is_word(at, "force") => told.is_forced = true,
            () if call.is_word(at, "abort") && call.length() == 2 => told.is_taken_back = true,
            () => return Err(Refusal::Syntax),
        }
    }
    Ok(told)
}
