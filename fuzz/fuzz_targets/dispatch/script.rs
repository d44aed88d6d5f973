//! The format of scripts.
//!
//! In a line `NAME: TEXT` a client sends the text; lines without a name belong to the first client. Consecutive lines
//! of the same client are sent together. `\n` in a text is a line end too. `+NUMBER` waits for this many
//! milliseconds, `close` ends a connection, and `==` ends all connections.

use resp::encode_command;

/// The conversion of script lines to bytes.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub piece_bytes: usize,
    pub is_text_protocol: bool,
    /// Whether words are sent as an array of bulk strings, as most clients do.
    pub is_array: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Say { client: usize, bytes: Vec<u8> },
    Close(usize),
    CloseAll,
    Wait(u64),
}

/// Number of clients. Clients with an odd number begin with RESP3.
pub const CLIENTS: usize = 8;
/// Maximum number of digits of a wait in milliseconds; a year has 3e10.
const WAIT_DIGITS: usize = 11;
const UNIT_SEPARATOR: u8 = 0x1f;

impl Form {
    pub fn of(first: u8) -> Self {
        let piece_bytes = usize::from(first & 0x3f) + 1;
        Self { piece_bytes, is_text_protocol: first & 0xc0 == 0xc0, is_array: first & 0x80 != 0 }
    }

    fn request(self, line: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_text_protocol {
            bytes.extend(line);
            bytes.push(UNIT_SEPARATOR);
        } else if self.is_array && line.first().is_some_and(u8::is_ascii_alphabetic) {
            let words: Vec<&[u8]> =
                line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
            encode_command(&mut bytes, &words);
        } else {
            bytes.extend(line);
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// Returns the steps of a script.
pub fn steps(script: &[u8], form: Form) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in script.split(|byte| *byte == b'\n') {
        let step = step(line.strip_suffix(b"\r").unwrap_or(line), form);
        match (steps.last_mut(), step) {
            (Some(Step::Say { client, bytes }), Step::Say { client: next, bytes: more })
                if *client == next =>
            {
                bytes.extend(more);
            }
            (_, step) => steps.push(step),
        }
    }
    steps
}

fn step(line: &[u8], form: Form) -> Step {
    if line == b"==" {
        return Step::CloseAll;
    }
    if let Some(digits) = line.strip_prefix(b"+") {
        let digits = digits.iter().take(WAIT_DIGITS).take_while(|byte| byte.is_ascii_digit());
        return Step::Wait(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
    }
    let (client, text) = named(line).unwrap_or((0, line));
    if text == b"close" {
        return Step::Close(client);
    }
    let lines = split_escaped(text);
    Step::Say { client, bytes: lines.into_iter().flat_map(|line| form.request(line)).collect() }
}

/// Returns the client of a name; names that end with 3 use RESP3.
fn named(line: &[u8]) -> Option<(usize, &[u8])> {
    let colon = line.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    let (name, text) = (&line[..colon], line[colon..].strip_prefix(b": ")?);
    let number = usize::from(*name.first()?) * 2 % CLIENTS;
    Some((number + usize::from(name.ends_with(b"3")), text))
}

fn split_escaped(mut text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(at) = text.windows(2).position(|window| window == b"\\n") {
        lines.push(&text[..at]);
        text = &text[at + 2..];
    }
    lines.push(text);
    lines
}
