//! JSON documents, stored before the workflow and compared after it: one key each, named like a file.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::resp::Protocol;
use crate::result::Expectation;

use super::super::findings::ExperimentError;
use super::super::settings::Contender;
use super::super::stage::io_error;

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

/// Stores the documents.
pub(super) fn store(contender: Contender, address: SocketAddr) -> Result<(), ExperimentError> {
    for (name, bytes) in DOCUMENTS {
        let is_stored =
            talk(contender, address, &["SET", name, &document(bytes)], b"OK", "+").map_err(failed)?;
        if !is_stored {
            return Err(failed(io::Error::other(format!("{} does not take {name}", contender.name()))));
        }
    }
    Ok(())
}

/// Whether each document is unchanged, byte for byte.
pub(super) fn still_there(
    suite: &str,
    contender: Contender,
    address: SocketAddr,
) -> Result<Expectation, ExperimentError> {
    let mut same = 0;
    for (name, bytes) in DOCUMENTS {
        let document = document(bytes);
        let head = format!("${}\r\n", document.len());
        let is_same = talk(contender, address, &["GET", name], document.as_bytes(), &head).map_err(failed)?;
        same += usize::from(is_same);
    }
    Ok(Expectation {
        what: format!("{suite}: the JSON documents are as they were stored"),
        measured: format!("{same} of {}", DOCUMENTS.len()),
        holds: same == DOCUMENTS.len(),
    })
}

/// Whether the reply to a command on its own connection has this text, which RESP puts after a header.
fn talk(
    contender: Contender,
    address: SocketAddr,
    words: &[&str],
    text: &[u8],
    head: &str,
) -> io::Result<bool> {
    let mut command = Vec::new();
    let expected = if contender.protocol() == Protocol::UnitSeparator {
        command.extend_from_slice(words.join(" ").as_bytes());
        command.push(UNIT_SEPARATOR);
        [text, &[UNIT_SEPARATOR]].concat()
    } else {
        resp::encode_command(&mut command, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        [head.as_bytes(), text, b"\r\n"].concat()
    };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&command)?;
    let (mut piece, mut read) = (vec![0; 64 << 10], 0);
    while read < expected.len() {
        let bytes = stream.read(&mut piece)?;
        if bytes == 0 || !expected[read..].starts_with(&piece[..bytes]) {
            return Ok(false);
        }
        read += bytes;
    }
    Ok(true)
}

/// A JSON array of objects of at least `bytes` bytes, with spaces, line ends, quotes, and multi-byte characters.
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
