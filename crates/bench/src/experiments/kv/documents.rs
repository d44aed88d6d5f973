//! JSON documents, stored before the workflow and compared after it: a key each, named as a file would be.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::resp::Protocol;
use crate::result::Expectation;

use super::super::findings::ExperimentError;
use super::super::stage::io_error;
use super::contender::Contender;

/// Name and size of each document.
const DOCUMENTS: [(&str, usize); 5] = [
    ("1_facts", 1 << 10),
    ("2_currencies", 8 << 10),
    ("3_exchange_rates", 64 << 10),
    ("4_forecast", 256 << 10),
    ("5_history", 1 << 20),
];

const PATIENCE: Duration = Duration::from_secs(30);
const UNIT_SEPARATOR: u8 = 0x1F;

/// Stores them.
pub(super) fn store(contender: Contender, address: SocketAddr) -> Result<(), ExperimentError> {
    let mut talk = Talk::with(contender, address).map_err(failed)?;
    for (name, bytes) in DOCUMENTS {
        let reply = talk.ask(&["SET", name, &document(bytes)]).map_err(failed)?;
        if reply != b"OK" {
            let said = io::Error::other(reply.escape_ascii().to_string());
            return Err(io_error(&format!("{} does not store {name}", contender.name()), said));
        }
    }
    Ok(())
}

/// Whether each is byte for byte what was stored.
pub(super) fn still_there(
    suite: &str,
    contender: Contender,
    address: SocketAddr,
) -> Result<Expectation, ExperimentError> {
    let mut talk = Talk::with(contender, address).map_err(failed)?;
    let mut same = 0;
    for (name, bytes) in DOCUMENTS {
        let reply = talk.ask(&["GET", name]).map_err(failed)?;
        same += usize::from(reply == document(bytes).as_bytes());
    }
    Ok(Expectation {
        what: format!("{suite}: the JSON documents are as they were stored"),
        measured: format!("{same} of {}", DOCUMENTS.len()),
        holds: same == DOCUMENTS.len(),
    })
}

/// Spaces, line ends, quotes, and characters of several bytes: an array of objects, at least so many bytes long.
fn document(bytes: usize) -> String {
    let mut text = String::from("[\n");
    for number in 0_u64.. {
        let digits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        text.push_str(&format!(
            "  {{ \"id\": {number}, \"name\": \"Zürich \\\"{digits:x}\\\"\", \"temperature\": {}.5, \"sunny\": {} }},\n",
            digits % 40,
            digits.is_multiple_of(2)
        ));
        if text.len() >= bytes {
            break;
        }
    }
    text.push_str("  null\n]\n");
    text
}

fn failed(source: io::Error) -> ExperimentError {
    io_error("the JSON documents can't be stored and read", source)
}

/// A connection that asks and waits.
struct Talk {
    protocol: Protocol,
    stream: BufReader<TcpStream>,
}

impl Talk {
    fn with(contender: Contender, address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { protocol: contender.protocol(), stream: BufReader::new(stream) })
    }

    /// The text of the reply: without type, length and end.
    fn ask(&mut self, words: &[&str]) -> io::Result<Vec<u8>> {
        if self.protocol == Protocol::UnitSeparator {
            let mut message = words.join(" ").into_bytes();
            message.push(UNIT_SEPARATOR);
            self.stream.get_mut().write_all(&message)?;
            return self.up_to(UNIT_SEPARATOR);
        }
        let mut command = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        resp::encode_command(&mut command, &words);
        self.stream.get_mut().write_all(&command)?;
        let line = self.up_to(b'\n')?;
        let line = line.trim_ascii_end();
        let Some(length) = line.strip_prefix(b"$") else {
            return Ok(line.strip_prefix(b"+").unwrap_or(line).to_vec());
        };
        let length = str::from_utf8(length).ok().and_then(|digits| digits.parse::<usize>().ok());
        let mut bulk = vec![0; length.map_or(0, |length| length + 2)];
        self.stream.read_exact(&mut bulk)?;
        bulk.truncate(bulk.len().saturating_sub(2));
        Ok(bulk)
    }

    fn up_to(&mut self, end: u8) -> io::Result<Vec<u8>> {
        let mut reply = Vec::new();
        self.stream.read_until(end, &mut reply)?;
        match reply.pop() {
            Some(last) if last == end => Ok(reply),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_of_their_size() {
        for (name, bytes) in DOCUMENTS {
            let text = document(bytes);
            let values: Vec<serde_json::Value> = serde_json::from_str(&text).expect(name);
            assert!(values.len() > 10 && (bytes..bytes + 1000).contains(&text.len()), "{name}");
            assert!(!text.bytes().any(|byte| byte == UNIT_SEPARATOR));
        }
    }
}
