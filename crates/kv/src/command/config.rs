//! CONFIG: reading and changing settings at run time.

use std::time::Duration;

use super::arguments::parse_integer;
use super::info::unlimited_as_zero;
use super::output_limits;
use super::{Call, Outcome, Refusal};
use crate::accepted::{ACCEPTED, Accepted};
use crate::access::{DebugCommands, Passwords, ProtectedMode};
use crate::glob::{self, Matcher};
use crate::limits::{BuffersLimit, Limits};
use crate::notify::Events;
use crate::repeated;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::size::parse_size;
use crate::statistics::Statistics;

/// A setting with Redis' name and units.
struct Setting {
    name: &'static str,
    read: fn(&Shared) -> String,
    /// Sets the value, or returns Redis' error text. `None` if a change needs a restart.
    write: Option<Write>,
}

type Write = fn(&Shared, &[u8]) -> Result<(), String>;

/// A read-only setting, which exists because clients read it.
const fn fixed(name: &'static str, read: fn(&Shared) -> String) -> Setting {
    Setting { name, read, write: None }
}

const fn free(name: &'static str, read: fn(&Shared) -> String, write: Write) -> Setting {
    Setting { name, read, write: Some(write) }
}

/// Sorted by name.
const SETTINGS: &[Setting] = &[
    free("client-output-buffer-limit", output_limits::read, output_limits::write),
    free(
        "client-query-buffer-limit",
        |shared| shared.limits().query_bytes_max.to_string(),
        |shared, value| {
            let bytes = memory(value)?;
            if !(QUERY_BYTES_LEAST..=i64::MAX as u64).contains(&bytes) {
                return Err(format!(
                    "argument must be between {QUERY_BYTES_LEAST} and {} inclusive",
                    i64::MAX
                ));
            }
            set_limits(shared, bytes, |limits, bytes| limits.query_bytes_max = bytes as usize)
        },
    ),
    fixed("cluster-enabled", |shared| if shared.cluster.is_some() { "yes" } else { "no" }.to_owned()),
    fixed("databases", |_| engine::Database::COUNT.to_string()),
    fixed("enable-debug-command", |shared| {
        match shared.access.read().debug_commands {
            DebugCommands::No => "no",
            DebugCommands::Yes => "yes",
            DebugCommands::Local => "local",
        }
        .to_owned()
    }),
    fixed("io-threads", |shared| shared.statistics.len().to_string()),
    free(
        "latency-monitor-threshold",
        |shared| shared.slow.monitored_ms().to_string(),
        |shared, value| {
            shared.slow.set_monitored_ms(number(value, 0, i64::MAX)? as u64);
            Ok(())
        },
    ),
    free(
        "maxclients",
        |shared| shared.limits().clients_max.to_string(),
        |shared, value| {
            let clients = number(value, 1, i64::from(u32::MAX))?;
            set_limits(shared, clients as u64, |limits, clients| limits.clients_max = clients as usize)
        },
    ),
    free(
        "maxmemory",
        |shared| unlimited_as_zero(shared.engine.bytes_max()).to_string(),
        |shared, value| {
            let bytes = memory(value)?;
            shared.engine.set_bytes_max(if bytes == 0 { u64::MAX } else { bytes });
            Ok(())
        },
    ),
    free(
        "maxmemory-clients",
        |shared| shared.limits().buffers_max.to_string(),
        |shared, value| {
            let buffers_max = buffers_limit(value)?;
            shared.change_limits(|limits| limits.buffers_max = buffers_max);
            Ok(())
        },
    ),
    free(
        "maxmemory-policy",
        |shared| shared.engine.policy().name().to_owned(),
        |shared, value| {
            let policy = String::from_utf8_lossy(value).parse::<engine::Policy>();
            let names = engine::Policy::ALL.map(engine::Policy::name).join(", ");
            shared.engine.set_policy(
                policy.map_err(|_| format!("argument(s) must be one of the following: {names}"))?,
            );
            Ok(())
        },
    ),
    free(
        "notify-keyspace-events",
        |shared| shared.interests.events().to_string(),
        |shared, letters| {
            let events = Events::parse(letters)
                .map_err(|_| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned())?;
            shared.interests.set_events(events, &shared.engine);
            Ok(())
        },
    ),
    // The port of the connection: see `get`.
    fixed("port", |_| String::new()),
    free(
        "protected-mode",
        |shared| {
            let is_on = shared.access.read().protected_mode == ProtectedMode::On;
            if is_on { "yes" } else { "no" }.to_owned()
        },
        |shared, value| {
            let mode = match value.to_ascii_lowercase().as_slice() {
                b"yes" => ProtectedMode::On,
                b"no" => ProtectedMode::Off,
                _ => return Err("argument must be 'yes' or 'no'".to_owned()),
            };
            shared.access.write().protected_mode = mode;
            Ok(())
        },
    ),
    // Never shown.
    free(
        PASSWORD,
        |shared| if shared.access.read().passwords.is_empty() { "" } else { "(hidden)" }.to_owned(),
        |shared, value| {
            shared.change_access(|access| access.passwords = Passwords::new([value.to_vec()]));
            Ok(())
        },
    ),
    free(
        "slowlog-log-slower-than",
        |shared| shared.slow.slower_us().to_string(),
        |shared, value| {
            shared.slow.set_slower_us(number(value, -1, i64::MAX)?);
            Ok(())
        },
    ),
    free(
        "slowlog-max-len",
        |shared| shared.slow.length_max().to_string(),
        |shared, value| {
            shared.slow.set_length_max(number(value, 0, i64::MAX)? as usize);
            Ok(())
        },
    ),
    free(
        "tcp-keepalive",
        |shared| shared.limits().keepalive.as_secs().to_string(),
        |shared, value| {
            let seconds = number(value, 0, i64::from(i32::MAX))? as u64;
            set_limits(shared, seconds, |limits, seconds| limits.keepalive = Duration::from_secs(seconds))
        },
    ),
    free(
        "timeout",
        |shared| shared.limits().idle.as_secs().to_string(),
        |shared, value| {
            let seconds = number(value, 0, i64::from(i32::MAX))? as u64;
            set_limits(shared, seconds, |limits, seconds| limits.idle = Duration::from_secs(seconds))
        },
    ),
    free(
        "tracking-table-max-keys",
        |shared| shared.interests.tracking.keys_max().to_string(),
        |shared, value| {
            shared.interests.tracking.set_keys_max(number(value, 0, i64::MAX)? as usize);
            Ok(())
        },
    ),
];

/// Minimum of `client-query-buffer-limit`, as in Redis.
const QUERY_BYTES_LEAST: u64 = 1 << 20;
fn set_limits(shared: &Shared, value: u64, change: fn(&mut Limits, u64)) -> Result<(), String> {
    shared.change_limits(|limits| change(limits, value));
    Ok(())
}

pub(crate) fn number(value: &[u8], least: i64, most: i64) -> Result<i64, String> {
    let number = parse_integer(value);
    let number = number.map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    let is_within = (least..=most).contains(&number);
    if is_within { Ok(number) } else { Err(format!("argument must be between {least} and {most} inclusive")) }
}

/// Parses a size as in the configuration file.
pub(crate) fn memory(value: &[u8]) -> Result<u64, String> {
    let bytes = std::str::from_utf8(value).ok().and_then(parse_size);
    bytes.ok_or_else(|| "argument must be a memory value".to_owned())
}

/// Parses a size, or a percentage of `maxmemory`.
fn buffers_limit(value: &[u8]) -> Result<BuffersLimit, String> {
    let Some(percent) = value.strip_suffix(b"%") else {
        let bytes = memory(value).map_err(|_| "argument must be a memory or percent value".to_owned())?;
        return Ok(BuffersLimit::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)));
    };
    let percent = parse_integer(percent).ok().filter(|percent| *percent >= 0);
    match percent.ok_or_else(|| "argument must be a memory or percent value".to_owned())? {
        0 => Ok(BuffersLimit::Bytes(0)),
        percent @ 1..=100 => Ok(BuffersLimit::Percent(percent as u8)),
        _ => Err("percentage argument must be less or equal to 100".to_owned()),
    }
}

/// A setting found by name.
#[derive(Clone, Copy)]
enum Named {
    Own(&'static Setting),
    Accepted(&'static Accepted),
}

impl Named {
    fn all() -> impl Iterator<Item = Self> {
        SETTINGS.iter().map(Self::Own).chain(ACCEPTED.iter().map(Self::Accepted))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Own(setting) => setting.name,
            Self::Accepted(setting) => setting.name,
        }
    }

    fn read(self, shared: &Shared) -> String {
        match self {
            Self::Own(setting) => (setting.read)(shared),
            Self::Accepted(setting) => shared.choices.get(setting),
        }
    }

    fn write(self, shared: &Shared, value: &[u8]) -> Result<(), String> {
        match self {
            Self::Own(Setting { write: Some(write), .. }) => write(shared, value),
            Self::Own(Setting { write: None, .. }) => Err(IMMUTABLE.to_owned()),
            Self::Accepted(setting) => shared.choices.set(setting, value),
        }
    }

    fn is_immutable(self) -> bool {
        matches!(self, Self::Own(Setting { write: None, .. }))
    }
}

/// Maximum product of the numbers of patterns and settings: that many comparisons take a few hundredths of a
/// second.
const COMPARED_MAX: usize = 1 << 22;

const IMMUTABLE: &str = "can't set immutable config";

/// The only setting whose value can't be read, so it can't be restored after a failed CONFIG SET.
const PASSWORD: &str = "requirepass";

/// Returns whether the value of a setting is kept out of logs and MONITOR. Unknown names count as secret,
/// because they may be misspelled.
pub(super) fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let is_known = Named::all().any(|setting| setting.name().as_bytes() == name);
    !is_known || [PASSWORD, "masterauth", "masteruser"].iter().any(|secret| name == secret.as_bytes())
}

/// CONFIG GET pattern [pattern ...]
pub(super) fn get(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if (call.length() - 2) * Named::all().count() > COMPARED_MAX {
        return Err(glob::TooLong.into());
    }
    let patterns: Vec<_> = call.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    let mut matcher = Matcher::default();
    let is_wanted =
        |setting: &Named| patterns.iter().any(|pattern| matcher.matches(pattern, setting.name().as_bytes()));
    let mut found: Vec<_> = Named::all().filter(is_wanted).collect();
    matcher.check()?;
    found.sort_unstable_by_key(|setting| setting.name());
    reply.map(found.len());
    for setting in found {
        let value = match setting.name() {
            "port" => call.session.client.ends.server.port().to_string(),
            _ => setting.read(call.shared),
        };
        reply.bulk(setting.name().as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// CONFIG SET name value [name value ...]. Sets all or none.
pub(super) fn set(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !call.length().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    let places = (2..call.length()).step_by(2);
    let mut found: Vec<_> =
        places.map(|at| Ok::<_, Refusal>((find(call, at)?, at + 1))).collect::<Result<_, _>>()?;
    for (index, (setting, _)) in found.iter().enumerate() {
        if found[..index].iter().any(|(other, _)| other.name() == setting.name()) {
            return Err(failed(*setting, "duplicate parameter"));
        }
        if setting.is_immutable() {
            return Err(failed(*setting, IMMUTABLE));
        }
    }
    // The sort is stable. Setting the password can't fail, so it comes last.
    found.sort_by_key(|(setting, _)| setting.name() == PASSWORD);
    write_all(call, &found)?;
    // Other clients notice in their next batch, this one immediately.
    call.session.see(call.shared.interests.flags());
    reply.ok();
    Ok(())
}

/// Sets each setting to the argument at the given position; if one can't be set, restores those before it.
fn write_all(call: &Call<'_>, settings: &[(Named, usize)]) -> Outcome {
    let old: Vec<String> = settings.iter().map(|(setting, _)| setting.read(call.shared)).collect();
    for (index, (setting, at)) in settings.iter().enumerate() {
        let Err(reason) = setting.write(call.shared, call.argument(*at)) else { continue };
        for ((setting, _), old) in settings[..index].iter().zip(&old) {
            // The old value was valid, so it can be restored.
            let _ = setting.write(call.shared, old.as_bytes());
        }
        return Err(failed(*setting, &reason));
    }
    Ok(())
}

fn find(call: &Call<'_>, at: usize) -> Result<Named, Refusal> {
    let name = call.argument(at).to_ascii_lowercase();
    Named::all().find(|setting| setting.name().as_bytes() == name).ok_or_else(|| {
        let name = repeated::text(call.argument(at));
        Refusal::Told(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"))
    })
}

fn failed(setting: Named, reason: &str) -> Refusal {
    let name = setting.name();
    Refusal::Told(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

/// CONFIG REWRITE: refused, because the operator owns the configuration file.
pub(super) fn rewrite(_call: &mut Call<'_>, _reply: &mut Reply<'_>) -> Outcome {
    Err(Refusal::Other("ERR CONFIG REWRITE is not supported: the server never writes its config file"))
}

/// CONFIG RESETSTAT
pub(super) fn resetstat(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.alone()?;
    let shared = call.shared;
    shared.statistics.iter().for_each(Statistics::reset);
    shared.errors.reset();
    shared.rates.reset(shared.engine.used_bytes());
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_order() {
        assert!(SETTINGS.is_sorted_by(|one, next| one.name < next.name));
    }
}
