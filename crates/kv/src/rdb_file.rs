//! Import of strings from an RDB file of Redis or Valkey. Values of other types are skipped and counted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Database, Engine, Expiry};

use crate::cluster::Cluster;
use crate::command::VALUE_BYTES_MAX;
use crate::databases::Databases;
use crate::rdb::{RdbError, Reader, Summed};
use crate::repeated;
use crate::saved::SaveFile;

/// Result of an import, as numbers of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Keys that were set, including those evicted since.
    pub strings: u64,
    /// Keys evicted during the import, including those that existed before.
    pub evicted: u64,
    /// Keys that had expired.
    pub expired: u64,
    /// Keys that did not fit into memory.
    pub without_room: u64,
    /// Keys in databases that this server doesn't have.
    pub of_no_database: u64,
    /// Keys in slots of other cluster nodes.
    pub of_other_nodes: u64,
    /// Values of other types, by type.
    pub others: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} strings", self.strings)?;
        write!(f, ", {} expired before, {} without room", self.expired, self.without_room)?;
        let told = [
            (self.evicted, "keys evicted to make room"),
            (self.of_no_database, "left out from databases that this server doesn't have"),
            (self.of_other_nodes, "left out from slots of other nodes"),
        ];
        told.iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, what)| write!(f, ", {count} {what}"))?;
        self.others.iter().try_for_each(|(kind, count)| write!(f, ", {count} of type {kind} left out"))
    }
}

/// Sets the strings of a file, overwriting existing keys.
///
/// # Errors
/// If the file can't be read or is invalid. Strings before the error are set.
pub fn import(
    path: &Path,
    engine: &Engine,
    save_file: Option<&SaveFile>,
    cluster: Option<&Cluster>,
) -> Result<Imported, RdbError> {
    let databases = Databases::default();
    let databases = save_file.map_or(&databases, |file| file.databases());
    let evicted_before = engine.counts().evicted;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(RdbError::Read)?);
    let mut import = Import {
        // A string without room is skipped like any other key, and doesn't end the import.
        reader: Reader::new(Summed::new(file), VALUE_BYTES_MAX),
        database: Some(Database::default()),
        expires_at_ms: None,
        imported: Imported::default(),
    };
    import.run(&Place { engine, databases, cluster, now_ms })?;
    let evicted = engine.counts().evicted - evicted_before;
    Ok(Imported { evicted, ..import.imported })
}

/// The destination of the strings.
#[derive(Clone, Copy)]
struct Place<'a> {
    engine: &'a Engine,
    databases: &'a Databases,
    cluster: Option<&'a Cluster>,
    now_ms: u64,
}

struct Import<R> {
    reader: Reader<Summed<R>>,
    database: Option<Database>,
    expires_at_ms: Option<u64>,
    imported: Imported,
}

impl<R: Read> Import<R> {
    fn run(&mut self, place: &Place<'_>) -> Result<(), RdbError> {
        let version = header(&self.reader.array()?)?;
        loop {
            let [opcode] = self.reader.array()?;
            match opcode {
                EOF if version >= CHECKSUM_SINCE => {
                    self.reader.check_sum()?;
                    return self.reader.input.end();
                }
                EOF => return self.reader.input.end(),
                0xfe => {
                    let number = usize::try_from(self.reader.plain_length()?).ok();
                    // Clients of a cluster can reach database 0 only.
                    let number = number.filter(|number| *number == 0 || place.cluster.is_none());
                    self.database = number.and_then(Database::new);
                }
                0xfd => self.expires_at_ms = Some(u64::from(u32::from_le_bytes(self.reader.array()?)) * 1000),
                0xfc => self.expires_at_ms = Some(u64::from_le_bytes(self.reader.array()?)),
                STRING => self.take_string(place)?,
                0xf4..=0xfb => self.reader.skip_about(opcode)?,
                kind => {
                    let at = self.reader.input.read_bytes - 1;
                    let key = self.reader.string()?;
                    let name = type_name(kind).ok_or_else(|| unknown_type(kind, at, &key))?;
                    self.reader.skip_value(kind)?;
                    *self.imported.others.entry(name).or_default() += 1;
                    self.expires_at_ms = None;
                }
            }
        }
    }

    fn take_string(&mut self, place: &Place<'_>) -> Result<(), RdbError> {
        let (name, value) = (self.reader.string()?, self.reader.string()?);
        let expires_at_ms = self.expires_at_ms.take();
        *self.count_of(place, &name, &value, expires_at_ms) += 1;
        Ok(())
    }

    /// Sets a string if it belongs on this server, and returns the counter to increment.
    fn count_of(
        &mut self,
        place: &Place<'_>,
        name: &[u8],
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> &mut u64 {
        let (Place { engine, databases, cluster, now_ms }, imported) = (*place, &mut self.imported);
        let Some(database) = self.database else { return &mut imported.of_no_database };
        if cluster.is_some_and(|cluster| !cluster.has(name)) {
            return &mut imported.of_other_nodes;
        }
        if expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            return &mut imported.expired;
        }
        let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::At);
        let key = engine.key(databases.of_engine(database), name);
        let set = engine.with_room(&key, now_ms, || engine.lock(&key).set(value, expiry, now_ms));
        if set.is_ok() { &mut imported.strings } else { &mut imported.without_room }
    }
}

const STRING: u8 = 0;
const EOF: u8 = 0xff;
/// The first version with a checksum.
const CHECKSUM_SINCE: u32 = 5;

/// Parses the version that follows the name of the format.
fn header(header: &[u8; 9]) -> Result<u32, RdbError> {
    let digits = header.strip_prefix(b"REDIS").or_else(|| header.strip_prefix(b"VALKEY"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).ok_or(RdbError::Header)
}

/// The name of a value type other than strings, in Redis and Valkey.
fn type_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        1 | 10 | 14 | 18 => "list",
        2 | 11 | 20 => "set",
        3 | 5 | 12 | 17 => "zset",
        4 | 9 | 13 | 16 | 22 | 24 | 25 => "hash",
        15 | 19 | 21 => "stream",
        7 => "module",
        _ => return None,
    })
}

/// The error for an unknown type, whose end can't be found.
fn unknown_type(kind: u8, at: u64, key: &[u8]) -> RdbError {
    RdbError::Type { kind, at, key: repeated::text_within(key, KEY_BYTES_TOLD) }
}

/// Bytes of a key shown in an error.
const KEY_BYTES_TOLD: usize = 128;

impl<R: Read> Reader<Summed<R>> {
    fn check_sum(&mut self) -> Result<(), RdbError> {
        let expected = self.input.checksum;
        let sum = u64::from_le_bytes(self.array()?);
        // Zero means that the writer computed no checksum.
        if sum == 0 || sum == expected { Ok(()) } else { Err(RdbError::Checksum) }
    }
}

/// Skips metadata and values of other types.
impl<R: Read> Reader<R> {
    fn skip_strings(&mut self, count: u64) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.string().map(drop))
    }

    fn skip_lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.plain_length().map(drop))
    }

    /// Skips metadata of the file, of a database, or of the next key.
    fn skip_about(&mut self, opcode: u8) -> Result<(), RdbError> {
        match opcode {
            0xfa => self.skip_strings(2),
            0xfb => self.skip_lengths(2),
            0xf9 => self.array::<1>().map(drop),
            0xf8 => self.skip_lengths(1),
            0xf7 => self.skip_lengths(3).and_then(|()| self.skip_module()),
            0xf5 => self.skip_strings(1),
            0xf4 => self.skip_lengths(3),
            other => Err(RdbError::Encoding(other)),
        }
    }

    /// Skips a value of a known type.
    fn skip_value(&mut self, kind: u8) -> Result<(), RdbError> {
        match kind {
            1 | 2 | 14 => self.plain_length().and_then(|count| self.skip_strings(count))?,
            3 => self.each(|reader| {
                reader.string()?;
                reader.skip_score()
            })?,
            4 => self.each(|reader| reader.skip_strings(2))?,
            5 => self.each(|reader| {
                reader.string()?;
                reader.array::<8>().map(drop)
            })?,
            7 => {
                self.plain_length()?;
                self.skip_module()?;
            }
            15 | 19 | 21 => self.skip_stream(kind)?,
            18 => self.each(|reader| {
                reader.plain_length()?;
                reader.string().map(drop)
            })?,
            // Valkey 9: each field has an expiry.
            22 => self.each(|reader| {
                reader.skip_strings(2)?;
                reader.array::<8>().map(drop)
            })?,
            24 => {
                self.array::<8>()?;
                self.each(|reader| {
                    reader.plain_length()?;
                    reader.skip_strings(2)
                })?;
            }
            25 => {
                self.array::<8>()?;
                self.string()?;
            }
            // The whole value is encoded as one string.
            _ => drop(self.string()?),
        }
        Ok(())
    }

    fn each(&mut self, mut skip: impl FnMut(&mut Self) -> Result<(), RdbError>) -> Result<(), RdbError> {
        let count = self.plain_length()?;
        (0..count).try_for_each(|_| skip(self))
    }

    /// Skips a number encoded as text, or a special value.
    fn skip_score(&mut self) -> Result<(), RdbError> {
        let [length] = self.array()?;
        if length < 253 {
            (0..length).try_for_each(|_| self.array::<1>().map(drop))?;
        }
        Ok(())
    }

    fn skip_module(&mut self) -> Result<(), RdbError> {
        loop {
            match self.plain_length()? {
                0 => return Ok(()),
                1 | 2 => self.skip_lengths(1)?,
                3 => drop(self.array::<4>()?),
                4 => drop(self.array::<8>()?),
                5 => drop(self.string()?),
                other => return Err(RdbError::Encoding(other as u8)),
            }
        }
    }

    fn skip_stream(&mut self, kind: u8) -> Result<(), RdbError> {
        self.each(|reader| reader.skip_strings(2))?;
        // Length and last id; since Redis 7.0 also the first id, the largest deleted id, and the number of
        // entries added.
        self.skip_lengths(if kind >= 19 { 8 } else { 3 })?;
        self.each(|reader| {
            reader.string()?;
            reader.skip_lengths(if kind >= 19 { 3 } else { 2 })?;
            reader.each(|reader| {
                reader.array::<24>()?;
                reader.skip_lengths(1)
            })?;
            reader.each(|reader| {
                reader.string()?;
                reader.array::<8>()?;
                if kind >= 21 {
                    reader.array::<8>()?;
                }
                reader.each(|reader| reader.array::<16>().map(drop))
            })
        })
    }
}
