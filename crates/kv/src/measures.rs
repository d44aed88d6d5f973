//! What the server has counted, for whoever watches it.

use std::collections::BTreeMap;

use crate::endings::Ending;
use crate::server::Control;
use crate::statistics::{Statistics, Sum};

/// Counts since the start, or since CONFIG RESETSTAT, and what there is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Connections that are open.
    pub clients: u64,
    /// Connections since the start.
    pub clients_made: u64,
    /// How many may be open.
    pub clients_max: u64,
    /// Connections that were not admitted.
    pub clients_refused: u64,
    /// Connections of clients that were not let in yet: they have given no password, or not finished the handshake of TLS.
    pub strangers: u64,
    /// Connections that the server has ended, and why.
    pub endings: Vec<(Ending, u64)>,
    /// Requests and replies of all connections.
    pub buffers_bytes: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Keys that were asked for and there.
    pub hits: u64,
    /// Keys that were asked for and not there.
    pub misses: u64,
    /// Those that were called.
    pub commands: Vec<CommandMeasures>,
    /// Freed memory that was given back to the system at once: resident memory would have passed its limit, or a client asked.
    pub trimmed_bytes: u64,
    /// Save files that were of no use at the start.
    pub saves_refused: u64,
    /// Changes of keys since all were written to disk, or since the start.
    pub changes_unsaved: u64,
    /// Of the save file, where there is one.
    pub saving: Option<SavingMeasures>,
    /// Commands that were slow enough for the slow log.
    pub slow_commands: u64,
    /// Replies that were errors, by the first word of each.
    pub errors_by_code: BTreeMap<String, u64>,
}

/// What was counted of one command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandMeasures {
    /// In small letters.
    pub name: &'static str,
    pub calls: u64,
    /// Of all calls, by samples. It may fall: each sample changes what the others stand for.
    pub total_us: u64,
    /// Of those calls whose time was taken, in nanoseconds.
    pub samples_ns: u64,
    /// How many of these took so long at most, in nanoseconds, and longer than the one before.
    pub times: Vec<(u64, u64)>,
}

/// What a save file tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavingMeasures {
    /// When all keys were written to it last; the start until then.
    pub saved_at_ms: u64,
    /// Whether the last attempt to write it beside those who go on has failed.
    pub has_failed: bool,
}

impl Measures {
    /// Calls of all commands.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls).sum()
    }

    /// Replies that were errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors_by_code.values().sum()
    }
}

impl Control {
    /// Adds up what the workers have counted; none of them waits for it.
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
