//! MONITOR: clients that receive every command.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Database;
use parking_lot::RwLock;

use crate::clients::Client;
use crate::output::Output;
use crate::shared::Shared;

/// The monitors of all workers.
#[derive(Debug, Default)]
pub(crate) struct Monitors(RwLock<Vec<Arc<Client>>>);

impl Monitors {
    pub(crate) fn add(&self, client: &Arc<Client>) {
        self.0.write().push(Arc::clone(client));
    }

    pub(crate) fn remove(&self, id: u64) {
        self.0.write().retain(|client| client.id != id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}

impl Shared {
    /// Sends a command to all monitors. A monitor that doesn't read is closed like a subscriber.
    pub(crate) fn tell_monitors<'a>(
        &self,
        client: &Client,
        database: Database,
        arguments: impl Iterator<Item = &'a [u8]>,
    ) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes_max = self.limits().messages.bytes_max;
        let bytes_max = if bytes_max == 0 { usize::MAX } else { bytes_max };
        let origin = format!("{} {}", database.number(), client.ends.client);
        let mut written = Output::default();
        *written.bytes_mut() = line(at, &origin, arguments, bytes_max);
        let line = self.message(written);
        for monitor in self.interests.monitors.0.read().iter().filter(|monitor| !monitor.is_killed()) {
            self.post(monitor, &line);
        }
    }
}

/// Formats a command as Redis does. A line that exceeds `bytes_max` is cut off.
fn line<'a>(
    at: Duration,
    origin: &str,
    arguments: impl Iterator<Item = &'a [u8]>,
    bytes_max: usize,
) -> Vec<u8> {
    let mut line = format!("+{}.{:06} [{origin}]", at.as_secs(), at.subsec_micros()).into_bytes();
    for argument in arguments {
        line.extend_from_slice(b" \"");
        let rest = bytes_max.saturating_sub(line.len()).saturating_add(1);
        argument.iter().take(rest).for_each(|byte| quote(*byte, &mut line));
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

fn quote(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x07 => out.extend_from_slice(b"\\a"),
        0x08 => out.extend_from_slice(b"\\b"),
        b' '..=b'~' => out.push(byte),
        _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_redis() {
        let at = Duration::from_micros(1_795_295_356_006_756);
        let arguments = [&b"SET"[..], b"q\\\"\n\r\t\x07\x08", b"\x00~\x7f\xff", b""];
        let told = line(at, "1 127.0.0.1:39334", arguments.into_iter(), usize::MAX);
        let expected = "+1795295356.006756 [1 127.0.0.1:39334] \"SET\" \"q\\\\\\\"\\n\\r\\t\\a\\b\" \"\\x00~\\x7f\\xff\" \"\"\r\n";
        assert_eq!(String::from_utf8_lossy(&told), expected);
    }

    #[test]
    fn what_nobody_may_be_told_is_not_written() {
        let long = vec![b'v'; 1000];
        let told = line(Duration::ZERO, "0 x", [&long[..], &long[..]].into_iter(), 100);
        assert!((101..120).contains(&told.len()), "{}", told.len());
    }
}
