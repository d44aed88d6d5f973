//! A common interface to the encoders of all codings.

use std::io::{self, Write};

use brotli::CompressorWriter;
use caching::compression::Coding;
use flate2::write::GzEncoder;

/// Encodes one body.
pub(crate) struct Encoder {
    inner: Inner,
    /// Bytes written since the last flush.
    pending_bytes: usize,
}

enum Inner {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

/// Parameters of an encoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) coding: Coding,
    pub(crate) level: u8,
    /// Length of the body, if known.
    pub(crate) bytes: Option<u64>,
}

/// Maximum window size, as a power of two: 256 KiB, more than most pages and scripts need. A body of unknown length gets the maximum.
const WINDOW_LOG_MAX: u32 = 18;
/// Maximum size of zstd tables, in entries, as a power of two.
const ZSTD_TABLE_LOG_MAX: u32 = 17;
/// Minimum window size of Brotli and Zstandard, as a power of two.
const WINDOW_LOG_MIN: u32 = 10;
const BROTLI_BUFFER_BYTES: usize = 4096;
const GZIP_BYTES: usize = 320 << 10;
const TABLES_BYTES: usize = 256 << 10;

impl Task {
    fn window_log(self) -> u32 {
        let fitting = self.bytes.map(|bytes| bytes.max(1).next_power_of_two().ilog2());
        fitting.unwrap_or(WINDOW_LOG_MAX).clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX)
    }

    /// Approximate memory of the encoder: its window with read-ahead, and its tables.
    pub(crate) fn memory_bytes(self) -> usize {
        let window_bytes = 1 << self.window_log();
        match self.coding {
            Coding::Gzip => GZIP_BYTES,
            Coding::Zstd => TABLES_BYTES + 8 * window_bytes,
            Coding::Brotli => TABLES_BYTES + 6 * window_bytes + brotli_table_bytes(self.level),
        }
    }
}

/// Memory of Brotli's tables, by level.
fn brotli_table_bytes(level: u8) -> usize {
    match level {
        0..=4 => 512 << 10,
        5 => 1 << 20,
        6 => 2 << 20,
        7 => 8 << 20,
        8 => 16 << 20,
        _ => 32 << 20,
    }
}

impl Encoder {
    /// # Errors
    /// If there isn't enough memory for the encoder.
    pub(crate) fn new(task: Task) -> io::Result<Self> {
        let (window_log, level) = (task.window_log(), u32::from(task.level));
        let inner = match task.coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), i32::from(task.level))?;
                // A table with more entries than the window has bytes only wastes memory.
                for parameter in [
                    zstd::zstd_safe::CParameter::WindowLog(window_log),
                    zstd::zstd_safe::CParameter::HashLog(window_log.min(ZSTD_TABLE_LOG_MAX)),
                    zstd::zstd_safe::CParameter::ChainLog(window_log.min(ZSTD_TABLE_LOG_MAX)),
                ] {
                    encoder.set_parameter(parameter)?;
                }
                Inner::Zstd(encoder)
            }
            Coding::Brotli => {
                let writer = CompressorWriter::new(Vec::new(), BROTLI_BUFFER_BYTES, level, window_log);
                Inner::Brotli(Box::new(writer))
            }
            Coding::Gzip => Inner::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(level))),
        };
        Ok(Self { inner, pending_bytes: 0 })
    }

    /// Number of bytes written that may not be in the output yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Encodes data, and returns the new output, which is often empty.
    ///
    /// # Errors
    /// If the encoder fails; its output is then incomplete.
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        self.pending_bytes += data.len();
        self.writer().write_all(data)?;
        Ok(self.take())
    }

    /// Flushes the encoder, and returns the remaining output for all data so far.
    ///
    /// # Errors
    /// Returns the errors of [`Self::write`].
    pub(crate) fn flush(&mut self) -> io::Result<Vec<u8>> {
        self.pending_bytes = 0;
        self.writer().flush()?;
        Ok(self.take())
    }

    /// Ends the encoding, and returns the remaining output.
    ///
    /// # Errors
    /// Returns the errors of [`Self::write`].
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self.inner {
            Inner::Zstd(encoder) => encoder.finish(),
            Inner::Brotli(writer) => Ok(writer.into_inner()),
            Inner::Gzip(encoder) => encoder.finish(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.inner {
            Inner::Zstd(encoder) => encoder,
            Inner::Brotli(writer) => writer,
            Inner::Gzip(encoder) => encoder,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match &mut self.inner {
            Inner::Zstd(encoder) => encoder.get_mut(),
            Inner::Brotli(writer) => writer.get_mut(),
            Inner::Gzip(encoder) => encoder.get_mut(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn decoded(coding: Coding, data: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Zstd => zstd::stream::read::Decoder::new(data).unwrap().read_to_end(&mut plain).unwrap(),
            Coding::Brotli => brotli::Decompressor::new(data, 4096).read_to_end(&mut plain).unwrap(),
            Coding::Gzip => flate2::read::GzDecoder::new(data).read_to_end(&mut plain).unwrap(),
        };
        plain
    }

    const LEVELS: [(Coding, &[u8]); 3] =
        [(Coding::Zstd, &[1, 3, 12, 19]), (Coding::Brotli, &[0, 4, 5, 11]), (Coding::Gzip, &[1, 6, 9])];

    #[test]
    fn what_goes_in_comes_out_at_every_level() {
        let text = "the quick brown fox jumps over the lazy dog\n".repeat(3000);
        for (coding, levels) in LEVELS {
            for level in levels {
                for bytes in [None, Some(text.len() as u64)] {
                    let mut encoder = Encoder::new(Task { coding, level: *level, bytes }).unwrap();
                    let mut out = encoder.write(text.as_bytes()).unwrap();
                    out.extend(encoder.finish().unwrap());
                    assert!(out.len() < text.len() / 20, "{coding:?} {level}: {}", out.len());
                    assert_eq!(decoded(coding, &out), text.as_bytes(), "{coding:?} {level}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Encoded bodies round-trip, whatever their pieces and flushes, and no bytes are pending after a
        /// flush.
        #[test]
        fn any_pieces_come_out(pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..8)) {
            for (coding, levels) in LEVELS {
                let mut encoder = Encoder::new(Task { coding, level: levels[1], bytes: None }).unwrap();
                let (mut plain, mut out) = (Vec::new(), Vec::new());
                for (piece, is_flushed) in &pieces {
                    out.extend(encoder.write(piece).unwrap());
                    plain.extend_from_slice(piece);
                    if *is_flushed {
                        out.extend(encoder.flush().unwrap());
                        prop_assert_eq!(encoder.pending_bytes(), 0);
                    }
                }
                out.extend(encoder.finish().unwrap());
                prop_assert_eq!(decoded(coding, &out), plain);
            }
        }
    }
}
