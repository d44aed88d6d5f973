//! Memory for transactions: all of their commands have room, or none is executed.
//!
//! As in Redis, a command that may store something is refused when it is queued for which there is no room, and EXEC when there is none any more. What has
//! been admitted is executed as a whole: for the time of EXEC the limit is stretched by what the commands may need, because which segments they fill
//! is known only afterwards.

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

/// What an item, and a large value in memory of the allocator, take beside their bytes.
const WRITE_BYTES: usize = 128;

/// Of a longer value nothing is written anew when its key gets another name.
const MOVED_MAX: usize = 16 << 10;

/// A value of so many bytes has memory of its own, which is free as soon as a longer one has taken its place.
const FREED_FROM: usize = 64 << 10;

impl Need {
    /// With what items take beside their bytes: the allocator gives a large value up to an eighth more.
    fn with_overhead(self) -> usize {
        self.bytes.saturating_add(self.bytes / 8).saturating_add(self.writes * WRITE_BYTES)
    }
}

impl<'a> Call<'a> {
    /// Whether there is room for what a command and those that were queued before it are given to store.
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

    /// Room for all that is queued, if something is written.
    pub(super) fn make_room_for_all(&self) -> Result<Option<Stretched<'a>>, Refusal> {
        let Some(queue) = self.session.queue.as_ref().filter(|queue| queue.has_writes()) else {
            return Ok(None);
        };
        let Growth { grown_bytes, moved_bytes } = self.growth(queue);
        let need = Need { bytes: queue.need().bytes.saturating_add(grown_bytes), ..queue.need() };
        let (engine, bytes) = (&self.shared.engine, need.with_overhead());
        // What removes keys, or changes when they expire, is not refused.
        if need.writes > 0 && !engine.make_room(bytes, self.now_ms) {
            return Err(Refusal::OutOfMemory);
        }
        Ok(Some(engine.stretch(need.writes.max(queue.len()), bytes.saturating_add(moved_bytes))))
    }

    /// What commands store beside what they are given: values that are there, or that others of the transaction have stored before.
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

/// What a transaction stores that it is not given.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    grown_bytes: usize,
    /// What gets another name. It needs no room, but takes some for a while, which those that come behind it are not to lack.
    moved_bytes: usize,
}

/// How long values are after some commands, at most.
struct Sizes<'a> {
    call: &'a Call<'a>,
    /// As they will be, and the number that the client will have chosen.
    databases: Databases,
    chosen: Database,
    known: BTreeMap<(Database, Vec<u8>), usize>,
    /// What was counted for values that have grown.
    grown: BTreeMap<(Database, Vec<u8>), usize>,
    /// The most that is there twice, while a value takes the place of another that was counted.
    replaced_bytes: usize,
    moved_bytes: usize,
}

impl<'a> Sizes<'a> {
    fn new(call: &'a Call<'a>) -> Self {
        let (known, grown, databases) = (BTreeMap::default(), BTreeMap::default(), Databases::default());
        databases.restore(call.shared.databases.note());
        Self { call, databases, chosen: call.session.chosen, known, grown, replaced_bytes: 0, moved_bytes: 0 }
    }

    /// What a command needs for a value that it does not get as an argument.
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
                // A value may be elsewhere now, so that its memory is not free when another comes.
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

    /// A value has another key now, so that its memory is not free when another comes.
    fn moved(&mut self, from: &[u8], database: Database, name: &[u8]) {
        let bytes = self.of(from);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes.min(MOVED_MAX) + name.len());
        self.note(database, name, bytes);
        self.grown.clear();
    }

    /// The database of the engine that is chosen.
    fn here(&self) -> Database {
        self.databases.of_engine(self.chosen)
    }

    /// That of a number; where it is none, nothing will be done.
    fn there(&self, number: &[u8]) -> Database {
        self.databases.of_engine(database(number).unwrap_or(self.chosen))
    }

    /// What is needed beside what was counted for this value before.
    fn count(&mut self, database: Database, name: &[u8], bytes: usize) -> usize {
        // A value that grows may get a quarter more than it needs.
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

    /// Of a value in the database that is chosen.
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

    /// It may be so long, or as long as before: some commands have conditions.
    fn note(&mut self, database: Database, name: &[u8], bytes: usize) {
        let before = if bytes == 0 { 0 } else { self.of_other(database, name) };
        if bytes > before {
            self.known.insert((database, name.to_vec()), bytes);
        }
    }
}

/// As clients number them.
fn database(number: &[u8]) -> Option<Database> {
    let number = parse_integer(number).ok().and_then(|number| usize::try_from(number).ok());
    number.and_then(Database::new)
}

/// The number of the database to which COPY copies; nothing where it is the chosen one.
fn copied_to<'a>(arguments: &Arguments<'a>) -> &'a [u8] {
    let options = (3..arguments.len()).filter_map(|at| arguments.at(at));
    options.skip_while(|word| !word.eq_ignore_ascii_case(b"db")).nth(1).unwrap_or_default()
}

/// Where SETRANGE ends; nothing is written there if it is too far.
fn end_of_bit(offset: &[u8]) -> usize {
    let offset = parse_integer(offset).ok().and_then(|offset| usize::try_from(offset).ok());
    offset.map_or(0, |offset| offset / 8 + 1)
}

fn end_of_part(offset: &[u8], part: &[u8]) -> usize {
    let offset = parse_integer(offset).ok().and_then(|offset| usize::try_from(offset).ok());
    let end = offset.map_or(0, |offset| offset.saturating_add(part.len()));
    if part.is_empty() || end > VALUE_BYTES_MAX { 0 } else { end }
}
