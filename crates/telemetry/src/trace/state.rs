//! `tracestate` (W3C Trace Context, section 3.3): data that a tracing system passes through other
//! systems.

/// Maximum length of a list that is passed on. The specification doesn't require more.
const BYTES_MAX: usize = 512;
/// Maximum number of members in a list.
const MEMBERS_MAX: usize = 32;
const KEY_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 256;

/// Returns the list to pass on: the first members of the list in these lines, as many as fit. Returns `None` if
/// the list is invalid or empty.
pub fn trace_state<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut list = String::new();
    let members = lines.into_iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    for (index, member) in members.filter(|member| !member.is_empty()).enumerate() {
        let member = std::str::from_utf8(member).ok().filter(|member| is_member(member))?;
        if index >= MEMBERS_MAX {
            return None;
        }
        let comma = usize::from(!list.is_empty());
        if list.len() + comma + member.len() > BYTES_MAX {
            break;
        }
        list.push_str(if comma == 1 { "," } else { "" });
        list.push_str(member);
    }
    (!list.is_empty()).then_some(list)
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins =
        key.as_bytes().first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_key = begins && key.len() <= KEY_BYTES_MAX && key.bytes().all(is_key_byte);
    let is_value_byte = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b'=';
    is_key && !value.is_empty() && value.len() <= VALUE_BYTES_MAX && value.bytes().all(is_value_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on() {
        let long = format!("a={}", "v".repeat(200));
        let first_two = format!("{long},{}", long.replace("a=", "b="));
        let many = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        let cases: [(&[&str], Option<&str>); 16] = [
            (&[], None),
            (&[""], None),
            (&["rojo=00f067aa0ba902b7"], Some("rojo=00f067aa0ba902b7")),
            (&["rojo=1 , congo=t61rcWkgMzE"], Some("rojo=1,congo=t61rcWkgMzE")),
            (&["rojo=1", "congo=2"], Some("rojo=1,congo=2")),
            (&["rojo=1,,congo=2,"], Some("rojo=1,congo=2")),
            (&["fw529a3039@dt=FfffffX", "a*b/c_-=x y"], Some("fw529a3039@dt=FfffffX,a*b/c_-=x y")),
            (&["rojo"], None),
            (&["rojo="], None),
            (&["=1"], None),
            (&["Rojo=1"], None),
            (&["rojo=1=2"], None),
            (&["rojo=\u{e9}"], None),
            (&[&first_two, "c=1"], Some(&format!("{first_two},c=1"))),
            (&[&first_two, &first_two, "c=1"], Some(&first_two)),
            (&[&many(33)], None),
        ];
        for (lines, expected) in cases {
            let passed = trace_state(lines.iter().map(|line| line.as_bytes()));
            assert_eq!(passed.as_deref(), expected, "{lines:?}");
        }
        assert_eq!(trace_state([many(32).as_bytes()]), Some(many(32)));
    }
}
