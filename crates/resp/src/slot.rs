//! Cluster slots of keys.

/// Number of slots in a cluster.
pub const SLOTS: u16 = 16384;

/// Returns the slot of a key: CRC16 (XMODEM) modulo 16384 of the hash tag, which is the part between the
/// first `{` and the first `}` after it, or of the whole key if there is no tag or an empty one (Redis
/// Cluster specification, hash tags).
#[must_use]
pub fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let begin = memchr::memchr(b'{', key)? + 1;
    let length = memchr::memchr(b'}', &key[begin..])?;
    (length > 0).then(|| &key[begin..begin + length])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// Polynomial 0x1021, most significant bit first.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // Expected values are those of `CLUSTER KEYSLOT` in Redis 7.0; 12739 is also in the specification.
        let cases: [(&[u8], u16); 8] = [
            (b"123456789", 0x31C3 % SLOTS),
            (b"foo", 12182),
            (b"{foo}bar", 12182),
            (b"x{foo}{bar}", 12182),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"{foo", 13308),
            (b"", 0),
        ];
        for (key, slot) in cases {
            assert_eq!(hash_slot(key), slot, "{}", String::from_utf8_lossy(key));
        }
    }
}
