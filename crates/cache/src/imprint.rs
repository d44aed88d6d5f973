//! A hash of the configuration that affects the stored form of a site's responses. An instance with a different hash must not use the
//! responses.

use std::fmt;

use http::HeaderName;
use twox_hash::XxHash3_64;

/// A hash of the configuration that affects stored responses. It is equal for instances with the same configuration and the same version of
/// Larder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imprint(u64);

impl Imprint {
    /// Hashes the names of keyed fields, because a key doesn't show that one is absent; the fields that are removed from responses; and the
    /// rules that change responses before they are judged. `None` if a site has none of these.
    pub fn of(keyed: &[HeaderName], hidden: &[HeaderName], rules: &[impl fmt::Debug]) -> Option<Self> {
        if keyed.is_empty() && hidden.is_empty() && rules.is_empty() {
            return None;
        }
        let text = format!("{:?} {:?} {rules:?}", names(keyed), names(hidden));
        Some(Self(XxHash3_64::oneshot(text.as_bytes())))
    }
}

/// Sorts the names, so that their order doesn't affect the hash.
fn names(fields: &[HeaderName]) -> Vec<&str> {
    let mut names: Vec<_> = fields.iter().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl fmt::Display for Imprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_with_one_configuration_have_one_imprint() {
        let of = |keyed: &[&'static str], hidden: &[&'static str], rules: &[&str]| {
            let fields = |names: &[&'static str]| -> Vec<_> {
                names.iter().map(|name| HeaderName::from_static(name)).collect()
            };
            Imprint::of(&fields(keyed), &fields(hidden), rules)
        };
        assert_eq!(of(&[], &[], &[]), None);
        assert_eq!(of(&["x-a", "x-b"], &[], &[]), of(&["x-b", "x-a", "x-a"], &[], &[]));
        let different = [
            of(&["x-a"], &[], &[]),
            of(&["x-b"], &[], &[]),
            of(&[], &["x-a"], &[]),
            of(&["x-a"], &["x-b"], &[]),
            of(&[], &[], &["one", "two"]),
            of(&[], &[], &["two", "one"]),
        ];
        for (at, one) in different.iter().enumerate() {
            assert!(one.is_some() && different[at + 1..].iter().all(|other| other != one), "{at}");
        }
        assert_eq!(of(&["x-a"], &[], &[]).unwrap().to_string().len(), 16);
    }
}
