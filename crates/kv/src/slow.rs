//! The slow log, and the samples of LATENCY.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

/// Maximum number of arguments per entry, and of bytes of each, because the log must not retain values.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// Capacity of the log that is kept when it shrinks.
const SPARE_ENTRIES: usize = 128;
/// Maximum number of samples per event.
const SAMPLES_MAX: usize = 160;
/// Below this threshold, every command is timed, which itself takes time.
const ALL_BELOW_US: i64 = 1000;

/// The slow log and latency events. Settings are those of Redis.
#[derive(Debug)]
pub(crate) struct Slow {
    /// `slowlog-log-slower-than`; negative disables the log.
    slower_us: AtomicI64,
    /// `slowlog-max-len`.
    length_max: AtomicUsize,
    /// `latency-monitor-threshold`; zero disables sampling.
    monitored_ms: AtomicU64,
    log: Mutex<Log>,
    events: Mutex<BTreeMap<&'static str, Event>>,
}

#[derive(Debug, Default)]
struct Log {
    next_id: u64,
    entries: VecDeque<Entry>,
    /// Memory of all entries.
    bytes: usize,
}

impl Log {
    fn shorten(&mut self, length_max: usize, bytes_max: usize) {
        while self.entries.len() > length_max || self.bytes > bytes_max {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.bytes -= oldest.bytes();
        }
        if self.entries.capacity() / 4 > self.entries.len().max(SPARE_ENTRIES) {
            self.entries.shrink_to_fit();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        let arguments: usize =
            self.arguments.iter().map(|argument| argument.len() + size_of::<Vec<u8>>()).sum();
        size_of::<Self>() + arguments + self.client.len() + self.client_name.len()
    }
}

/// An entry of the slow log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) at_s: u64,
    pub(crate) took_us: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) client: String,
    pub(crate) client_name: Vec<u8>,
}

/// Samples of a kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Time of the sample in seconds, and its latency in milliseconds.
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) max_ms: u64,
}

impl Default for Slow {
    /// The defaults of Redis: 10 ms, 128 entries, no latency monitoring.
    fn default() -> Self {
        Self {
            slower_us: AtomicI64::new(10_000),
            length_max: AtomicUsize::new(128),
            monitored_ms: AtomicU64::new(0),
            log: Mutex::default(),
            events: Mutex::default(),
        }
    }
}

impl Slow {
    /// Returns whether every command has to be timed, instead of a sample of them.
    pub(crate) fn wants_all(&self) -> bool {
        (0..ALL_BELOW_US).contains(&self.slower_us())
    }

    pub(crate) fn slower_us(&self) -> i64 {
        self.slower_us.load(Relaxed)
    }

    pub(crate) fn set_slower_us(&self, slower_us: i64) {
        self.slower_us.store(slower_us, Relaxed);
    }

    pub(crate) fn length_max(&self) -> usize {
        self.length_max.load(Relaxed)
    }

    pub(crate) fn set_length_max(&self, length_max: usize) {
        self.length_max.store(length_max, Relaxed);
        self.log.lock().shorten(length_max, usize::MAX);
    }

    pub(crate) fn monitored_ms(&self) -> u64 {
        self.monitored_ms.load(Relaxed)
    }

    pub(crate) fn set_monitored_ms(&self, monitored_ms: u64) {
        self.monitored_ms.store(monitored_ms, Relaxed);
    }

    /// Returns whether a command that took this long belongs in the log.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        u64::try_from(self.slower_us()).is_ok_and(|slower_us| took.as_micros() >= u128::from(slower_us))
    }

    /// Adds an entry, and removes the oldest entries beyond `bytes_max`.
    pub(crate) fn log(&self, entry: Entry, bytes_max: usize) {
        let mut log = self.log.lock();
        let id = log.next_id;
        log.next_id += 1;
        log.bytes += entry.bytes();
        log.entries.push_front(Entry { id, ..entry });
        log.shorten(self.length_max(), bytes_max);
    }

    /// Number of entries logged since the start.
    pub(crate) fn logged(&self) -> u64 {
        self.log.lock().next_id
    }

    /// Memory of the log.
    pub(crate) fn bytes(&self) -> usize {
        self.log.lock().bytes
    }

    /// At most `count` entries, the newest first.
    pub(crate) fn entries(&self, count: usize) -> Vec<Entry> {
        self.log.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn length(&self) -> usize {
        self.log.lock().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.log.lock().shorten(0, 0);
    }

    /// Records the latency of an event.
    pub(crate) fn took(&self, event: &'static str, took: Duration, now_ms: u64) {
        let (threshold_ms, took_ms) = (self.monitored_ms(), took.as_millis() as u64);
        if threshold_ms == 0 || took_ms < threshold_ms {
            return;
        }
        let mut events = self.events.lock();
        let event = events.entry(event).or_default();
        event.max_ms = event.max_ms.max(took_ms);
        let now_s = now_ms / 1000;
        match event.samples.back_mut() {
            // One sample per second, the largest.
            Some((at_s, longest_ms)) if *at_s == now_s => *longest_ms = took_ms.max(*longest_ms),
            _ => event.samples.push_back((now_s, took_ms)),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, Event> {
        self.events.lock().clone()
    }

    /// Drops the samples of these events, or of all. Returns how many had samples.
    pub(crate) fn forget(&self, names: &[&[u8]]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|name, _| {
            !names.is_empty() && !names.iter().any(|other| other.eq_ignore_ascii_case(name.as_bytes()))
        });
        before - events.len()
    }
}

/// Shortens the arguments of a request for a log, with Redis' wording.
pub(crate) fn abridge<'a>(count: usize, arguments: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let is_cut = count > ARGUMENTS_MAX;
    let told = if is_cut { ARGUMENTS_MAX - 1 } else { count };
    let mut abridged: Vec<Vec<u8>> = arguments.take(told).map(abridge_one).collect();
    if is_cut {
        abridged.push(format!("... ({} more arguments)", count - told).into_bytes());
    }
    abridged
}

fn abridge_one(argument: &[u8]) -> Vec<u8> {
    let mut told = argument[..argument.len().min(ARGUMENT_BYTES_MAX)].to_vec();
    if told.len() < argument.len() {
        told.extend_from_slice(format!("... ({} more bytes)", argument.len() - told.len()).as_bytes());
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_holds_no_values() {
        let long = vec![b'v'; 200];
        let arguments: Vec<&[u8]> = std::iter::repeat_n(long.as_slice(), 40).collect();
        let abridged = abridge(arguments.len(), arguments.into_iter());
        assert_eq!(abridged.len(), 32);
        assert!(abridged[0].ends_with(b"vv... (72 more bytes)") && abridged[0].len() == 128 + 19);
        assert_eq!(abridged[31], b"... (9 more arguments)");
        assert_eq!(abridge(1, [&b"PING"[..]].into_iter()), [b"PING"]);
    }

    #[test]
    fn a_log_is_bounded_in_bytes() {
        let slow = Slow::default();
        slow.set_length_max(usize::MAX);
        let entry = Entry {
            id: 0,
            at_s: 0,
            took_us: 0,
            arguments: vec![vec![b'a'; 128]; 32],
            client: String::new(),
            client_name: Vec::new(),
        };
        (0..1000).for_each(|_| slow.log(entry.clone(), 100_000));
        assert!((90_000..=100_000).contains(&slow.bytes()), "{} bytes", slow.bytes());
        assert_eq!(slow.entries(1)[0].id, 999);
        slow.clear();
        assert_eq!((slow.length(), slow.bytes()), (0, 0));
    }

    #[test]
    fn events_are_sampled_once_a_second() {
        let slow = Slow::default();
        slow.took("command", Duration::from_secs(1), 1000);
        assert!(slow.events().is_empty(), "nothing is sampled before it is wanted");
        slow.set_monitored_ms(100);
        for (took_ms, now_ms) in [(99, 1000), (100, 1000), (300, 1500), (200, 1900), (150, 2000)] {
            slow.took("command", Duration::from_millis(took_ms), now_ms);
        }
        let event = slow.events().remove("command").expect("there is one");
        assert_eq!(
            (event.samples.into_iter().collect::<Vec<_>>(), event.max_ms),
            (vec![(1, 300), (2, 150)], 300)
        );
        assert_eq!((slow.forget(&[b"other"]), slow.forget(&[b"COMMAND"])), (0, 1));
    }
}
