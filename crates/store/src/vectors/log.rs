//! Vectors of the log as stored on a server.

use bytes::Bytes;

use super::{File, purge, selection};
use crate::backing::suite::json::{hex, list, object, text};
use crate::backing::{LOG_APPEND_BYTES_MAX, LogId, LogOffset};
use crate::purge::{PurgeMode, PurgeTarget};
use crate::remote::log_bytes::{HEADER_BYTES, Header, RECORD_HEADER_BYTES, decode, encode};

#[test]
fn logs_are_as_written() {
    let mut file = File::new("log.json");
    logs_that_are_whole(&mut file);
    values_that_are_no_log(&mut file);
    logs_that_are_damaged(&mut file);
    file.compare();
}

fn logs_that_are_whole(file: &mut File) {
    file.log("a log that was just created", &log(0, &[]));
    for (says, record) in [
        ("a purge of a URL", purge(PurgeMode::Hard, PurgeTarget::Url("https://a.example/x".to_owned()))),
        ("a purge of a selection", purge(PurgeMode::Soft, PurgeTarget::Selected(selection()))),
        ("a purge of everything", purge(PurgeMode::Refresh, PurgeTarget::Everything)),
        ("an empty record", Vec::new()),
        ("a record that is not a purge: its readers treat everything older as purged", vec![2, 9]),
    ] {
        file.log(says, &log(0, &[record]));
    }
    file.log("three purges, none of them trimmed", &log(0, &three()));
    file.log("three purges after a floor: earlier ones are gone", &log(1_000, &three()));
}

fn values_that_are_no_log(file: &mut File) {
    let whole = log(0, &three());
    file.log("nothing", b"");
    file.log("a header without its last byte", &whole[..HEADER_BYTES - 1]);
    for (says, at, byte) in [
        ("another mark", 0, b'X'),
        ("version 2", 3, 2),
        ("another kind", 4, b'M'),
        ("a byte that must be 0", 7, 1),
    ] {
        file.log(says, &changed(&whole, at, byte));
    }
}

fn logs_that_are_damaged(file: &mut File) {
    let whole = log(0, &three());
    let first = HEADER_BYTES + RECORD_HEADER_BYTES;
    file.log("a wrong bit in the first record", &changed(&whole, first, whole[first] ^ 1));
    file.log(
        "a wrong bit in the checksum of the first record",
        &changed(&whole, first - 1, whole[first - 1] ^ 1),
    );
    let second = HEADER_BYTES + RECORD_HEADER_BYTES + three()[0].len();
    file.log("a second record shorter than its declared length", &whole[..second + RECORD_HEADER_BYTES + 1]);
    file.log("a second record that ends within its header", &whole[..second + 5]);
    let too_long = (LOG_APPEND_BYTES_MAX as u32 + 1).to_le_bytes();
    let long = [&whole[..second], &too_long, &whole[second + 4..]].concat();
    file.log("a second record that is longer than the limit", &long);
    file.log("zeros after the last record", &[&whole[..], &[0; 16]].concat());
}

fn three() -> [Vec<u8>; 3] {
    [
        purge(PurgeMode::Hard, PurgeTarget::Url("https://a.example/x".to_owned())),
        purge(PurgeMode::Soft, PurgeTarget::Selected(selection())),
        purge(PurgeMode::Refresh, PurgeTarget::Everything),
    ]
}

fn log(floor: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let header = Header { id: LogId([7; 16]), floor: LogOffset(floor) };
    let records: Vec<Bytes> = records.iter().cloned().map(Bytes::from).collect();
    [&header.encode()[..], &encode(&records).unwrap()].concat()
}

fn changed(bytes: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] = byte;
    changed
}

impl File {
    /// Adds a vector of a log as read from its floor on.
    fn log(&mut self, says: &str, bytes: &[u8]) {
        let mut members = vec![("name", text(says)), ("bytes", text(&hex(bytes)))];
        match bytes
            .split_at_checked(HEADER_BYTES)
            .and_then(|(head, rest)| Some((Header::decode(head)?, rest)))
        {
            None => members.push(("error", text("NoLog"))),
            Some((header, rest)) => members.extend(read(header, rest)),
        }
        self.written(object(&members));
    }
}

/// Reads a log in steps, each from the end of the previous result.
fn read(header: Header, behind: &[u8]) -> Vec<(&'static str, String)> {
    let state = header.state((HEADER_BYTES + behind.len()) as u64);
    let (mut at, mut records, mut error) = (state.floor, Vec::new(), None);
    while at < state.end && error.is_none() {
        let rest = Bytes::copy_from_slice(&behind[(at.0 - state.floor.0) as usize..]);
        match decode(&rest, at, LOG_APPEND_BYTES_MAX) {
            Err(damage) => error = Some(damage),
            Ok(read) => {
                at = read.last().map_or(state.end, |last| last.end);
                records.extend(read.iter().map(|record| {
                    object(&[("end", record.end.0.to_string()), ("bytes", text(&hex(&record.bytes)))])
                }));
            }
        }
    }
    let mut members = vec![
        ("id", text(&hex(&state.id.0))),
        ("floor", state.floor.0.to_string()),
        ("end", state.end.0.to_string()),
        ("records", list(&records)),
    ];
    members.extend(error.map(|error| ("error", text(&format!("{error:?}")))));
    members
}
