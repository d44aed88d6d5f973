//! Counters of the server, for metrics.

use std::collections::BTreeMap;

use crate::endings::Ending;
use crate::server::Control;
use crate::statistics::{Statistics, Sum};

/// Counters since the start, or since CONFIG RESETSTAT, and gauges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Open connections.
    pub clients: u64,
    /// Connections accepted since the start.
    pub clients_made: u64,
    /// Limit of open connections.
    pub clients_max: u64,
    /// Connections refused.
    pub clients_refused: u64,
    /// Open connections that have not authenticated, or not finished the TLS handshake.
    pub strangers: u64,
    /// Connections closed by the server, by reason.
    pub endings: Vec<(Ending, u64)>,
    /// Bytes of requests and replies in buffers of all connections.
    pub buffers_bytes: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Lookups of keys that existed.
    pub hits: u64,
    /// Lookups of keys that did not exist.
    pub misses: u64,
    /// Commands that were called.
    pub commands: Vec<CommandMeasures>,
    /// Freed memory returned to the system, because resident memory would have exceeded its limit, or a
    /// client requested it.
    pub trimmed_bytes: u64,
    /// Save files refused at the start.
    pub saves_refused: u64,
    /// Changes of keys since the last save, or since the start.
    pub changes_unsaved: u64,
    /// State of the save file, if there is one.
    pub saving: Option<SavingMeasures>,
    /// Commands recorded in the slow log.
    pub slow_commands: u64,
    /// Error replies by their first word.
    pub errors_by_code: BTreeMap<String, u64>,
}

/// Counters of one command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandMeasures {
    /// In lower case.
    pub name: &'static str,
    pub calls: u64,
    /// Total time of all calls, extrapolated from samples. It may decrease, because each sample changes the
    /// extrapolation.
    pub total_us: u64,
    /// Total time of the sampled calls in nanoseconds.
    pub samples_ns: u64,
    /// Histogram of the sampled calls: the upper bound of each bucket in nanoseconds, and its count.
    pub times: Vec<(u64, u64)>,
}

/// State of the save file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavingMeasures {
    /// Time of the last save; before the first save, the time of the start.
    pub saved_at_ms: u64,
    /// Whether the last background save failed.
    pub has_failed: bool,
}

impl Measures {
    /// Calls of all commands.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls).sum()
    }

    /// Number of error replies.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors_by_code.values().sum()
    }
}

impl Control {
    /// Sums the counters of all workers without blocking them.
    #[must_use]
    pub fn measures(&self) -> Measures {
        let shared = self.shared();
        let total = |count: fn(&Statistics) -> u64| shared.statistics.iter().map(count).sum();
        let commands = shared.table.with_parts().iter().enumerate().map(|(number, command)| {
            let sum = Sum::of(shared.statistics.iter(), number);
            let (samples_ns, times) = (sum.samples_ns(), sum.times());
            CommandMeasures {
                name: command.name,
                calls: sum.calls,
                total_us: sum.total_us(),
                samples_ns,
                times,
            }
        });
        let changes = shared.changes();
        let save_file = shared.save_file.as_ref();
        Measures {
            clients: shared.clients.count() as u64,
            clients_max: shared.limits().clients_max as u64,
            clients_made: shared.clients.made(),
            clients_refused: shared.refused(),
            strangers: shared.strangers.count() as u64,
            endings: shared.endings.counts().to_vec(),
            buffers_bytes: (shared.buffers_bytes() + shared.strangers.bytes()) as u64,
            input_bytes: total(|worker| worker.input_bytes.get()),
            output_bytes: total(|worker| worker.output_bytes.get()),
            hits: total(|worker| worker.hits.get()),
            misses: total(|worker| worker.misses.get()),
            trimmed_bytes: shared.trimming.trimmed_bytes(),
            saves_refused: save_file.map_or(0, |file| u64::from(file.is_refused())),
            changes_unsaved: save_file.map_or(changes, |file| file.unsaved(changes)),
            saving: save_file.map(|file| file.measures()),
            slow_commands: shared.slow.logged(),
            commands: commands.filter(|command| command.calls > 0).collect(),
            errors_by_code: shared.errors.all(),
        }
    }
}
