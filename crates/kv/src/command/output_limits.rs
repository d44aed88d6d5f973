//! `client-output-buffer-limit` in CONFIG: classes of clients, each with a hard limit, a soft limit and a
//! time.

use std::time::Duration;

use super::config::memory;
use crate::limits::OutputLimit;
use crate::shared::Shared;

/// There are no replicas: limits for them are accepted and ignored.
pub(super) fn read(shared: &Shared) -> String {
    let limits = shared.limits();
    let class =
        |limit: OutputLimit| format!("{} {} {}", limit.bytes_max, limit.bytes_soft, limit.patience.as_secs());
    format!("normal {} slave 0 0 0 pubsub {}", class(limits.replies), class(limits.messages))
}

pub(super) fn write(shared: &Shared, value: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits = shared.limits();
    for class in words.chunks_exact(4) {
        let limit = parse(class).ok_or_else(|| {
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()
        })?;
        match class[0] {
            "pubsub" => limits.messages = limit,
            "normal" => limits.replies = limit,
            "slave" | "replica" => {}
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        }
    }
    shared.set_limits(limits);
    Ok(())
}

fn parse(class: &[&str]) -> Option<OutputLimit> {
    let bytes = |text: &str| usize::try_from(memory(text.as_bytes()).ok()?).ok();
    let patience = Duration::from_secs(u64::from(class[3].parse::<u32>().ok()?));
    Some(OutputLimit { bytes_max: bytes(class[1])?, bytes_soft: bytes(class[2])?, patience })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_two_limits_and_a_time() {
        let check = |text: &str, expected: Option<(usize, usize, u64)>| {
            let class: Vec<&str> = text.split(' ').collect();
            let limit =
                parse(&class).map(|limit| (limit.bytes_max, limit.bytes_soft, limit.patience.as_secs()));
            assert_eq!(limit, expected, "{text}");
        };
        check("pubsub 32mb 8mb 60", Some((32 << 20, 8 << 20, 60)));
        check("normal 0 0 0", Some((0, 0, 0)));
        check("normal 18446744073709551615 1 4294967295", Some((usize::MAX, 1, 4_294_967_295)));
        for bad in ["normal x 0 0", "normal 0 -1 0", "normal 0 0 1s", "normal 0 0 -1"] {
            check(bad, None);
        }
    }
}
