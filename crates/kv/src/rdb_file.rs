//! The strings of an RDB file of Redis or Valkey, for a server that takes over from one. Values of other types are gone through and counted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Database, Engine, Expiry};

use crate::command::VALUE_BYTES_MAX;
use crate::databases::Databases;
use crate::rdb::{RdbError, Reader};
use crate::saved::SaveFile;

/// What became of the keys of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    pub strings: u64,
    /// Their time was over.
    pub expired: u64,
    /// There was no room for them, or no database of their number.
    pub left_out: u64,
    /// Values that are no strings, by type.
    pub others: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} strings", self.strings)?;
        write!(f, ", {} expired before, {} without room", self.expired, self.left_out)?;
        self.others.iter().try_for_each(|(kind, count)| write!(f, ", {count} of type {kind} left out"))
    }
}

/// Sets the strings of a file, in place of keys that are there already.
///
/// # Errors
/// The file can't be read, or is none of Redis's or Valkey's. What stood before that is set.
pub fn import(path: &Path, engine: &Engine, save_file: Option<&SaveFile>) -> Result<Imported, RdbError> {
    let databases = Databases::default();
    let databases = save_file.map_or(&databases, |file| file.databases());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(RdbError::Read)?);
    let mut import = Import {
        // A string without room is left out as any other key: it doesn't end the import.
        reader: Reader::new(file, VALUE_BYTES_MAX),
        database: Some(Database::default()),
        expires_at_ms: None,
        imported: Imported::default(),
    };
    import.run(engine, databases, now_ms)?;
    Ok(import.imported)
}

struct Import<R> {
    reader: Reader<R>,
    database: Option<Database>,
    expires_at_ms: Option<u64>,
    imported: Imported,
}

impl<R: Read> Import<R> {
    fn run(&mut self, engine: &Engine, databases: &Databases, now_ms: u64) -> Result<(), RdbError> {
        let version = header(&self.reader.array()?)?;
        loop {
            let [opcode] = self.reader.array()?;
            match opcode {
                EOF if version >= CHECKSUM_SINCE => return self.reader.check_sum(),
                EOF => return Ok(()),
                0xfe => {
                    let number = usize::try_from(self.reader.plain_length()?).ok();
                    self.database = number.and_then(Database::new);
                }
                0xfd => self.expires_at_ms = Some(u64::from(u32::from_le_bytes(self.reader.array()?)) * 1000),
                0xfc => self.expires_at_ms = Some(u64::from_le_bytes(self.reader.array()?)),
                STRING => self.take_string(engine, databases, now_ms)?,
                0xf4..=0xfb => self.reader.skip_about(opcode)?,
                kind => {
                    self.reader.string()?;
                    let name = self.reader.skip_value(kind)?;
                    *self.imported.others.entry(name).or_default() += 1;
                    self.expires_at_ms = None;
                }
            }
        }
    }

    fn take_string(&mut self, engine: &Engine, databases: &Databases, now_ms: u64) -> Result<(), RdbError> {
        let (name, value) = (self.reader.string()?, self.reader.string()?);
        let expires_at_ms = self.expires_at_ms.take();
        if expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.imported.expired += 1;
            return Ok(());
        }
        let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::At);
        let is_set = self.database.is_some_and(|database| {
            let key = engine.key(databases.of_engine(database), &name);
            engine.with_room(&key, now_ms, || engine.lock(&key).set(&value, expiry, now_ms)).is_ok()
        });
        *(if is_set { &mut self.imported.strings } else { &mut self.imported.left_out }) += 1;
        Ok(())
    }
}

const STRING: u8 = 0;
const EOF: u8 = 0xff;
/// Versions before that have no checksum at their end.
const CHECKSUM_SINCE: u32 = 5;

/// The version, behind the name of the format.
fn header(header: &[u8; 9]) -> Result<u32, RdbError> {
    let digits = header.strip_prefix(b"REDIS").or_else(|| header.strip_prefix(b"VALKEY"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).ok_or(RdbError::Header)
}

/// What stands between keys and values of other types.
impl<R: Read> Reader<R> {
    fn check_sum(&mut self) -> Result<(), RdbError> {
        let expected = self.checksum();
        let sum = u64::from_le_bytes(self.array()?);
        // Zero: whoever wrote it did without.
        if sum == 0 || sum == expected { Ok(()) } else { Err(RdbError::Checksum) }
    }

    fn skip_strings(&mut self, count: u64) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.string().map(drop))
    }

    fn skip_lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.plain_length().map(drop))
    }

    /// Facts of the file, of a database, or of the next key.
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

    /// Goes through a value; its type.
    fn skip_value(&mut self, kind: u8) -> Result<&'static str, RdbError> {
        let name = match kind {
            1 | 10 | 14 | 18 => "list",
            2 | 11 | 20 => "set",
            3 | 5 | 12 | 17 => "zset",
            4 | 9 | 13 | 16 | 24 | 25 => "hash",
            15 | 19 | 21 => "stream",
            7 => "module",
            other => return Err(RdbError::Encoding(other)),
        };
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
            // One string that holds all of it.
            _ => drop(self.string()?),
        }
        Ok(name)
    }

    fn each(&mut self, mut skip: impl FnMut(&mut Self) -> Result<(), RdbError>) -> Result<(), RdbError> {
        let count = self.plain_length()?;
        (0..count).try_for_each(|_| skip(self))
    }

    /// A number as text, or one that has none.
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
        // Length and last id; since Redis 7.0 also the first one, the highest that was deleted, and how many there were.
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
