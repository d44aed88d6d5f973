//! Bulk strings in their encoded form: the reply to nearly every GET.

/// Appends a bulk string.
#[inline]
pub fn append_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    match LINES.get(bytes.len()) {
        Some(line) => append_short(out, *line, bytes),
        None => append_long(out, bytes),
    }
}

const LINE_ROOM: usize = size_of::<u64>();
const LINE_END: [u8; 2] = *b"\r\n";

/// Header lines of short bulk strings, indexed by length, each packed into eight bytes. The last byte holds
/// the length of the line.
static LINES: [u64; 100] = {
    let mut lines = [0; 100];
    let mut length = 0;
    while length < lines.len() {
        let (tens, ones) = (b'0' + (length / 10) as u8, b'0' + (length % 10) as u8);
        lines[length] = u64::from_le_bytes(if length < 10 {
            [b'$', ones, b'\r', b'\n', 0, 0, 0, 4]
        } else {
            [b'$', tens, ones, b'\r', b'\n', 0, 0, 5]
        });
        length += 1;
    }
    lines
};

/// Appends `line`, the header for `bytes.len()` bytes, then `bytes` and the line end.
#[inline]
#[expect(unsafe_code, reason = "one check of the room instead of four")]
fn append_short(out: &mut Vec<u8>, line: u64, bytes: &[u8]) {
    out.reserve(LINE_ROOM + bytes.len() + LINE_END.len());
    let line_bytes = (line >> 56) as usize;
    // SAFETY: the reserved room covers every write: eight bytes for the line, then `bytes` and the line end
    // after its `line_bytes`, which are fewer than eight. So every byte that `set_len` adds is written.
    // `bytes` can't overlap `out`, because `out` is borrowed mutably.
    unsafe {
        let begin = out.as_mut_ptr().add(out.len());
        begin.cast::<[u8; LINE_ROOM]>().write(line.to_le_bytes());
        copy_short(bytes, begin.add(line_bytes));
        begin.add(line_bytes + bytes.len()).cast::<[u8; 2]>().write(LINE_END);
        out.set_len(out.len() + line_bytes + bytes.len() + LINE_END.len());
    }
}

/// Copies a short slice, with inlined copies for the lengths that most values have.
///
/// # Safety
/// At least `bytes.len()` bytes are writable from `to` on.
#[inline]
#[expect(unsafe_code, reason = "the caller provides the room")]
unsafe fn copy_short(bytes: &[u8], to: *mut u8) {
    // SAFETY: `to` has room for all of `bytes`, as the caller promises.
    unsafe {
        match bytes.len() {
            8..=16 => copy_ends::<8>(bytes, to),
            17..=32 => copy_ends::<16>(bytes, to),
            33..=64 => copy_ends::<32>(bytes, to),
            _ => to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
        }
    }
}

/// Copies the first N bytes and the last N bytes, which overlap.
///
/// # Safety
/// As for [`copy_short`].
#[inline]
#[expect(unsafe_code, reason = "the caller provides the room")]
unsafe fn copy_ends<const N: usize>(bytes: &[u8], to: *mut u8) {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return };
    // SAFETY: `to` has room for all of `bytes`, as the caller promises, and `bytes` has at least N bytes.
    unsafe {
        to.cast::<[u8; N]>().write(*first);
        to.add(bytes.len() - N).cast::<[u8; N]>().write(*last);
    }
}

#[inline(never)]
fn append_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
    out.extend_from_slice(&LINE_END);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&LINE_END);
}

#[cfg(test)]
mod tests {
    use super::append_bulk;

    #[test]
    fn bulk_strings_of_any_length_are_whole() {
        let bytes: Vec<u8> = (0..200).collect();
        for length in 0..=bytes.len() {
            let mut out = b"+OK\r\n".to_vec();
            append_bulk(&mut out, &bytes[..length]);
            let line = format!("+OK\r\n${length}\r\n");
            assert_eq!(out, [line.as_bytes(), &bytes[..length], b"\r\n"].concat());
        }
    }
}
