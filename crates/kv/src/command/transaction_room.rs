//! Memory for transactions: either all commands fit, or none is executed.
//!
//! As in Redis, a command that may store data is refused when it is queued if there is no room for it, and
//! EXEC is refused if there is no room left. An admitted transaction is executed completely: during EXEC, the
//! limit is raised by the memory that the commands may need, because their exact need depends on the segments
//! that they fill.

use std::collections::BTreeMap;

use engine::{Access, Database, Stretched};
use resp::{Arguments, Limits, RequestScanner};

use super::arguments::parse_integer;
use super::editing::VALUE_BYTES_MAX;
use super::table::Command;
use super::{Call, Refusal};
use crate::databases::Databases;
use crate::rdb;
use crate::transaction::{Need, Queue};

/// Overhead of an item, and of a large value on the heap.
const WRITE_BYTES: usize = 128;

/// A value longer than this isn't copied when its key is renamed.
const MOVED_MAX: usize = 16 << 10;

/// A value of this size has its own allocation, which is freed as soon as a longer value replaces it.
const FREED_FROM: usize = 64 << 10;

impl Need {
    /// Adds the overhead of items. The allocator may round a large value up by an eighth.
    fn with_overhead(self) -> usize {
        self.bytes.saturating_add(self.bytes / 8).saturating_add(self.writes * WRITE_BYTES)
    }
}

impl<'a> Call<'a> {
    /// Checks that there is room for the arguments of a command and of those queued before it.
    pub(super) fn admit_to_memory(&mut self, command: &Command) -> Result<(), Refusal> {
        let (shared, now_ms) = (self.shared, self.now_ms);
        let Some(queue) = self.session.queue.as_mut() else { return Ok(()) };
        if matches!(
            command.name,
            "append" | "setrange" | "setbit" | "restore" | "copy" | "rename" | "renamenx" | "move"
        ) {
            queue.note_growth();
        }
        if !command.has("denyoom") {
            return Ok(());
        }
        let need = queue.note_need(&self.arguments);
        if shared.engine.make_room(need.with_overhead(), now_ms) {
            return Ok(());
        }
        queue.abort();
        Err(Refusal::OutOfMemory)
    }

    /// Makes room for all queued commands, if one of them writes.
    pub(super) fn make_room_for_all(&self) -> Result<Option<Stretched<'a>>, Refusal> {
        let Some(queue) = self.session.queue.as_ref().filter(|queue| queue.has_writes()) else {
            return Ok(None);
        };
        let Growth { grown_bytes, moved_bytes } = self.growth(queue);
        let need = Need { bytes: queue.need().bytes.saturating_add(grown_bytes), ..queue.need() };
        let (engine, bytes) = (&self.shared.engine, need.with_overhead());
        // Commands that remove keys or change expiries are not refused.
        if need.writes > 0 && !engine.make_room(bytes, self.now_ms) {
            return Err(Refusal::OutOfMemory);
        }
        Ok(Some(engine.stretch(need.writes.max(queue.len()), bytes.saturating_add(moved_bytes))))
    }

    /// Memory that commands need in addition to their arguments, for existing values or values stored earlier
    /// in the transaction.
    fn growth(&self, queue: &Queue) -> Growth {
        if !queue.need().is_growing {
            return Growth::default();
        }
        let mut sizes = Sizes::new(self);
        let mut scanner = RequestScanner::new(Limits::default());
        let mut rest = queue.requests();
        let mut grown_bytes = 0_usize;
        while let Ok(Some(arguments)) = scanner.scan(rest) {
            rest = &rest[arguments.bytes..];
            let command = arguments.at(0).and_then(|name| self.shared.table.find(name));
            grown_bytes =
                grown_bytes.saturating_add(command.map_or(0, |command| sizes.grow(command, &arguments)));
        }
        let grown_bytes = grown_bytes.saturating_add(sizes.replaced_bytes);
        Growth { grown_bytes, moved_bytes: sizes.moved_bytes }
    }
}

/// Memory that a transaction needs in addition to its arguments.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    grown_bytes: usize,
    /// Size of renamed values. Renamed values need this memory only temporarily, but it must not be missing
    /// for later commands.
    moved_bytes: usize,
}

/// Upper bounds of the sizes of values after some commands.
struct Sizes<'a> {
    call: &'a Call<'a>,
    /// The database mapping and the selected database after these commands.
    databases: Databases,
    chosen: Database,
    known: BTreeMap<(Database, Vec<u8>), usize>,
    /// Memory counted for values that have grown.
    grown: BTreeMap<(Database, Vec<u8>), usize>,
    /// Largest value that is replaced by another one: for a moment, both are in memory.
    replaced_bytes: usize,
    moved_bytes: usize,
}

impl<'a> Sizes<'a> {
    fn new(call: &'a Call<'a>) -> Self {
        let (known, grown, databases) = (BTreeMap::default(), BTreeMap::default(), Databases::default());
        databases.restore(call.shared.databases.note());
        Self { call, databases, chosen: call.session.chosen, known, grown, replaced_bytes: 0, moved_bytes: 0 }
    }

    /// Memory that a command needs for a value that isn't its argument.
    fn grow(&mut self, command: &Command, arguments: &Arguments<'_>) -> usize {
        let argument = |index| arguments.at(index).unwrap_or_default();
        let (first, second) = (argument(1), argument(2));
        let here = self.here();
        let ((database, changed), bytes) = match command.name {
            "select" => {
                self.chosen = database(first).unwrap_or(self.chosen);
                return 0;
            }
            "swapdb" => {
                if let (Some(one), Some(other)) = (database(first), database(second)) {
                    self.databases.swap(one, other);
                }
                return 0;
            }
            "append" => ((here, first), self.of(first).saturating_add(second.len())),
            "setrange" => ((here, first), self.of(first).max(end_of_part(second, argument(3)))),
            "setbit" => ((here, first), self.of(first).max(end_of_bit(second))),
            "restore" => ((here, first), rdb::restored_bytes(argument(3))),
            "copy" => ((self.there(copied_to(arguments)), second), self.of(first)),
            "rename" | "renamenx" => {
                self.moved(first, here, second);
                return 0;
            }
            "move" => {
                self.moved(first, self.there(second), first);
                return 0;
            }
            _ => {
                // A value may have moved to another key, so its memory isn't freed when its old key is
                // overwritten.
                if command.may_write() && !command.has("denyoom") {
                    self.grown.clear();
                }
                let given_bytes = if command.has("denyoom") { arguments.bytes_everywhere() } else { 0 };
                let keys = command.keys.positions(arguments.len(), argument);
                keys.into_iter().flatten().for_each(|at| self.note(here, argument(at), given_bytes));
                return 0;
            }
        };
        let bytes = if bytes > VALUE_BYTES_MAX { 0 } else { bytes };
        self.note(database, changed, bytes);
        self.count(database, changed, bytes)
    }

    /// Records that a value has moved to another key, so that its memory isn't freed when the old key is
    /// overwritten.
    fn moved(&mut self, from: &[u8], database: Database, name: &[u8]) {
        let bytes = self.of(from);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes.min(MOVED_MAX) + name.len());
        self.note(database, name, bytes);
        self.grown.clear();
    }

    /// The engine's database for the selected number.
    fn here(&self) -> Database {
        self.databases.of_engine(self.chosen)
    }

    /// The engine's database for a number. If the number is invalid, the command has no effect.
    fn there(&self, number: &[u8]) -> Database {
        self.databases.of_engine(database(number).unwrap_or(self.chosen))
    }

    /// Memory needed in addition to that counted for this value before.
    fn count(&mut self, database: Database, name: &[u8], bytes: usize) -> usize {
        // A growing value may get a quarter more than it needs.
        let bytes = bytes + bytes / 4;
        let counted = self.grown.entry((database, name.to_vec())).or_default();
        if *counted < FREED_FROM {
            *counted = bytes;
            return bytes;
        }
        self.replaced_bytes = self.replaced_bytes.max(bytes);
        let more = bytes.saturating_sub(*counted);
        *counted += more;
        more
    }

    /// Size of a value in the selected database.
    fn of(&self, name: &[u8]) -> usize {
        self.of_other(self.here(), name)
    }

    fn of_other(&self, database: Database, name: &[u8]) -> usize {
        let key = self.call.shared.engine.key(database, name);
        let stored = || {
            let mut located = self.call.shared.engine.lock(&key);
            located.get(Access::Peek, self.call.now_ms).map_or(0, |found| found.value.length())
        };
        self.known.get(&(database, name.to_vec())).copied().unwrap_or_else(stored)
    }

    /// Records that a value may have this size or its previous one, because some commands are conditional.
    fn note(&mut self, database: Database, name: &[u8], bytes: usize) {
        let before = if bytes == 0 { 0 } else { self.of_other(database, name) };
        if bytes > before {
            self.known.insert((database, name.to_vec()), bytes);
        }
    }
}

/// Parses a client's database number.
fn database(number: &[u8]) -> Option<Database> {
    let number = parse_integer(number).ok().and_then(|number| usize::try_from(number).ok());
    number.and_then(Database::new)
}

/// The destination database of COPY; empty if it is the selected one.
fn copied_to<'a>(arguments: &Arguments<'a>) -> &'a [u8] {
    let options = (3..arguments.len()).filter_map(|at| arguments.at(at));
    options.skip_while(|word| !word.eq_ignore_ascii_case(b"db")).nth(1).unwrap_or_default()
}

/// The length of a value up to the bit that SETBIT writes; 0 if the offset is not a number.
fn end_of_bit(offset: &[u8]) -> usize {
    let offset = parse_integer(offset).ok().and_then(|offset| usize::try_from(offset).ok());
    offset.map_or(0, |offset| offset / 8 + 1)
}

fn end_of_part(offset: &[u8], part: &[u8]) -> usize {
    let offset = parse_integer(offset).ok().and_then(|offset| usize::try_from(offset).ok());
    let end = offset.map_or(0, |offset| offset.saturating_add(part.len()));
    if part.is_empty() || end > VALUE_BYTES_MAX { 0 } else { end }
}
