//! CLIENT TRACKING and related commands.

use super::{Call, Outcome, Refusal};
use crate::reply::Reply;
use crate::session::Caching;
use crate::tracking::{Mode, OwnChanges, Tracker, prefixes_bytes};

/// CLIENT TRACKING (ON|OFF) [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
pub(super) fn tracking(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let options = options(call)?;
    let (id, interests) = (call.session.client.id, &call.shared.interests);
    match () {
        () if call.is_word(2, "on") => {
            let mode = check(&options, call.session.tracking)?;
            let tracker = Tracker {
                mode,
                own_changes: options.own_changes,
                redirect: options.redirect,
                ..Tracker::default()
            };
            let more_bytes = prefixes_bytes(&options.prefixes);
            call.keep(more_bytes)?;
            let started = interests.tracking.start(id, tracker, options.prefixes);
            started.map_err(|error| Refusal::Told(format!("ERR {error}")))?;
            call.session.tracking = Some(mode);
            call.session.prefixes_bytes += more_bytes;
        }
        () if call.is_word(2, "off") => {
            interests.tracking.stop(id);
            call.session.tracking = None;
            call.session.prefixes_bytes = 0;
            call.shared.account_tracking();
        }
        () => return Err(Refusal::Syntax),
    }
    call.session.caching = Caching::Unsaid;
    call.session.set_gates();
    interests.refresh(call.engine());
    call.account_tables();
    reply.ok();
    Ok(())
}

#[derive(Debug, Default)]
struct Options {
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    own_changes: OwnChanges,
    redirect: Option<u64>,
    prefixes: Vec<Box<[u8]>>,
}

fn options(call: &Call<'_>) -> Result<Options, Refusal> {
    let mut options = Options::default();
    let mut at = 3;
    while at < call.length() {
        let has_value = at + 1 < call.length();
        match () {
            () if has_value && call.is_word(at, "redirect") => {
                at += 1;
                options.redirect = Some(redirect(call, at, options.redirect)?);
            }
            () if has_value && call.is_word(at, "prefix") => {
                at += 1;
                options.prefixes.push(call.argument(at).into());
            }
            () if call.is_word(at, "bcast") => options.is_broadcast = true,
            () if call.is_word(at, "optin") => options.is_opt_in = true,
            () if call.is_word(at, "optout") => options.is_opt_out = true,
            () if call.is_word(at, "noloop") => options.own_changes = OwnChanges::NotTold,
            () => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    Ok(options)
}

fn redirect(call: &Call<'_>, at: usize, old: Option<u64>) -> Result<u64, Refusal> {
    if old.is_some() {
        return Err(Refusal::Other("ERR A client can only redirect to a single other client"));
    }
    let id = u64::try_from(call.integer(at)?).unwrap_or(0);
    match call.shared.clients.find(id) {
        Some(_) => Ok(id),
        None => Err(Refusal::Other("ERR The client ID you want redirect to does not exist")),
    }
}

/// Returns the requested mode. The order of these checks, and of those before and after them, is that of
/// Redis.
fn check(options: &Options, old: Option<Mode>) -> Result<Mode, Refusal> {
    let is_switched = old.is_some_and(|old| (old == Mode::Broadcast) != options.is_broadcast);
    let is_opt = options.is_opt_in || options.is_opt_out;
    match () {
        () if is_switched => Ok(if options.is_broadcast { Mode::Broadcast } else { Mode::Reads }),
        () if options.is_broadcast && is_opt => {
            Err(Refusal::Other("ERR OPTIN and OPTOUT are not compatible with BCAST"))
        }
        () if options.is_opt_in && options.is_opt_out => {
            Err(Refusal::Other("ERR You can't specify both OPTIN mode and OPTOUT mode"))
        }
        () if options.is_broadcast => Ok(Mode::Broadcast),
        () if options.is_opt_in => Ok(Mode::OptIn),
        () if options.is_opt_out => Ok(Mode::OptOut),
        () => Ok(Mode::Reads),
    }
}

/// CLIENT CACHING (YES|NO)
pub(super) fn caching(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mode = call.session.tracking.ok_or(Refusal::Other(CACHING_WITHOUT_TRACKING))?;
    match () {
        () if call.is_word(2, "yes") && mode != Mode::OptIn => Err(Refusal::Other(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )),
        () if call.is_word(2, "no") && mode != Mode::OptOut => Err(Refusal::Other(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )),
        () if call.is_word(2, "yes") || call.is_word(2, "no") => {
            call.session.caching = Caching::Said;
            reply.ok();
            Ok(())
        }
        () => Err(Refusal::Syntax),
    }
}

const CACHING_WITHOUT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";

/// CLIENT GETREDIR: -1 without tracking, 0 without redirection.
pub(super) fn getredir(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let tracker = call.shared.interests.tracking.tracker(call.session.client.id);
    reply.integer(redirection(tracker.as_ref()));
    Ok(())
}

pub(super) fn redirection(tracker: Option<&Tracker>) -> i64 {
    tracker.map_or(-1, |tracker| tracker.redirect.map_or(0, |id| id as i64))
}

pub(super) fn trackinginfo(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let tracker = call.shared.interests.tracking.tracker(call.session.client.id);
    let flags = flags(tracker.as_ref(), call.session.caching);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirection(tracker.as_ref()));
    reply.bulk(b"prefixes");
    let prefixes = tracker.map(|tracker| tracker.prefixes).unwrap_or_default();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

fn flags(tracker: Option<&Tracker>, caching: Caching) -> Vec<&'static str> {
    let Some(tracker) = tracker else { return vec!["off"] };
    let is_said = caching == Caching::Said;
    let all = [
        ("on", true),
        ("bcast", tracker.mode == Mode::Broadcast),
        ("optin", tracker.mode == Mode::OptIn),
        ("caching-yes", tracker.mode == Mode::OptIn && is_said),
        ("optout", tracker.mode == Mode::OptOut),
        ("caching-no", tracker.mode == Mode::OptOut && is_said),
        ("noloop", tracker.own_changes == OwnChanges::NotTold),
        ("broken_redirect", tracker.is_broken),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
}
