//! CONFIG: settings that can be read, and changed while clients are connected.

use std::time::Duration;

use super::{Call, Outcome, Refusal};
use crate::glob;
use crate::notify::Events;
use crate::reply::Reply;
use crate::shared::Shared;

/// One of them, in the names and units of Redis.
struct Setting {
    name: &'static str,
    read: fn(&Shared) -> String,
    /// Says why not, in the words of Redis. None where a restart is needed.
    write: Option<Write>,
}

type Write = fn(&Shared, &[u8]) -> Result<(), &'static str>;

/// In the order of their names.
const SETTINGS: &[Setting] = &[
    Setting { name: "appendonly", read: |_| "no".to_owned(), write: None },
    Setting { name: "client-output-buffer-limit", read: output_limits, write: Some(set_output_limits) },
    Setting {
        name: "cluster-enabled",
        read: |shared| if shared.cluster.is_some() { "yes" } else { "no" }.to_owned(),
        write: None,
    },
    Setting { name: "databases", read: |_| engine::Database::COUNT.to_string(), write: None },
    Setting { name: "maxmemory", read: |shared| shared.engine.bytes_max().to_string(), write: None },
    Setting {
        name: "maxmemory-policy",
        read: |shared| shared.engine.policy().name().to_owned(),
        write: None,
    },
    Setting {
        name: "notify-keyspace-events",
        read: |shared| shared.interests.events().to_string(),
        write: Some(|shared, letters| {
            let events = Events::parse(letters)
                .map_err(|_| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            shared.interests.set_events(events, &shared.engine);
            Ok(())
        }),
    },
    Setting { name: "save", read: |_| String::new(), write: None },
    Setting {
        name: "tracking-table-max-keys",
        read: |shared| shared.interests.tracking.keys_max().to_string(),
        write: Some(|shared, value| {
            shared.interests.tracking.set_keys_max(number(value)?);
            Ok(())
        }),
    },
];

fn number(value: &[u8]) -> Result<usize, &'static str> {
    let number = super::arguments::parse_integer(value);
    let number = number.map_err(|_| "argument couldn't be parsed into an integer")?;
    usize::try_from(number).map_err(|_| "argument must be between 0 and 18446744073709551615 inclusive")
}

/// There are limits of messages alone: replies wait for the client, which is not read from meanwhile.
fn output_limits(shared: &Shared) -> String {
    let limits = shared.limits();
    let (hard, soft, seconds) =
        (limits.mail_bytes_max, limits.mail_bytes_soft, limits.mail_patience.as_secs());
    format!("normal 0 0 0 slave 0 0 0 pubsub {hard} {soft} {seconds}")
}

fn set_output_limits(shared: &Shared, value: &[u8]) -> Result<(), &'static str> {
    let text = str::from_utf8(value).map_err(|_| WRONG_LIMITS)?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut limits = shared.limits();
    for class in words.chunks(4) {
        let [name, hard, soft, seconds] = class else { return Err(WRONG_LIMITS) };
        let numbers = (bytes(hard), bytes(soft), seconds.parse().ok());
        let (Some(hard), Some(soft), Some(seconds)) = numbers else { return Err(WRONG_LIMITS) };
        match name.to_ascii_lowercase().as_str() {
            "pubsub" => {
                (limits.mail_bytes_max, limits.mail_bytes_soft) = (hard, soft);
                limits.mail_patience = Duration::from_secs(seconds);
            }
            "normal" | "slave" | "replica" if (hard, soft, seconds) == (0, 0, 0) => {}
            "normal" | "slave" | "replica" => return Err("only clients of class pubsub have limits"),
            _ => return Err("Invalid client class specified in buffer limit configuration."),
        }
    }
    shared.set_limits(limits);
    Ok(())
}

const WRONG_LIMITS: &str = "Wrong number of arguments in buffer limit configuration.";

/// A number with a unit as Redis has them: `k` is 1000, `kb` 1024.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: usize = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// CONFIG GET pattern [pattern ...]
pub(super) fn get(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let is_wanted = |setting: &&Setting| {
        call.from(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), setting.name.as_bytes()))
    };
    let found: Vec<_> = SETTINGS.iter().filter(is_wanted).collect();
    reply.map(found.len());
    for setting in found {
        reply.bulk(setting.name.as_bytes());
        reply.bulk((setting.read)(call.shared).as_bytes());
    }
    Ok(())
}

/// CONFIG SET name value [name value ...]: all, or none.
pub(super) fn set(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    if !call.length().is_multiple_of(2) {
        return Err(Refusal::Arity("config|set".to_owned()));
    }
    let pairs: Vec<_> = (2..call.length()).step_by(2).map(|at| (at, call.argument(at))).collect();
    let found: Vec<_> = pairs.iter().map(|(at, _)| find(call, *at)).collect::<Result<_, _>>()?;
    for (index, setting) in found.iter().enumerate() {
        if found[..index].iter().any(|other| other.name == setting.name) {
            return Err(failed(setting, "duplicate parameter"));
        }
        if setting.write.is_none() {
            return Err(failed(setting, "can't set immutable config"));
        }
    }
    write_all(call, &found)?;
    reply.ok();
    Ok(())
}

fn write_all(call: &Call<'_>, settings: &[&Setting]) -> Outcome {
    let old: Vec<String> = settings.iter().map(|setting| (setting.read)(call.shared)).collect();
    for (index, setting) in settings.iter().enumerate() {
        let Some(write) = setting.write else { continue };
        let Err(reason) = write(call.shared, call.argument(3 + index * 2)) else { continue };
        for (setting, old) in settings[..index].iter().zip(&old) {
            // It was like this before: it can be so again.
            let _ = setting.write.map(|write| write(call.shared, old.as_bytes()));
        }
        return Err(failed(setting, reason));
    }
    Ok(())
}

fn find(call: &Call<'_>, at: usize) -> Result<&'static Setting, Refusal> {
    let name = call.argument(at).to_ascii_lowercase();
    SETTINGS.iter().find(|setting| setting.name.as_bytes() == name).ok_or_else(|| {
        let name = String::from_utf8_lossy(call.argument(at)).into_owned();
        Refusal::Told(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"))
    })
}

fn failed(setting: &Setting, reason: &str) -> Refusal {
    let name = setting.name;
    Refusal::Told(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_redis() {
        let cases = [("0", Some(0)), ("32mb", Some(32 << 20)), ("1K", Some(1000)), ("2GB", Some(2 << 30))];
        for (text, expected) in cases {
            assert_eq!(bytes(text), expected, "{text}");
        }
        for text in ["", "kb", "1 kb", "-1", "1tb", "99999999999999999999", "99999999999999999gb"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn settings_are_in_order() {
        assert!(SETTINGS.is_sorted_by(|one, next| one.name < next.name));
    }
}
