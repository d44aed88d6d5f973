//! Compares the keys of any two lists of parts under any rules: two keys are equal exactly if a simple model, which
//! compares part by part, finds the lists equal.

#![no_main]

use caching::{CacheKey, KeyParts, KeyRules, QueryOrder, QueryParameters, key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let rules = rules(choice);
    let mut lists = bytes.splitn(2, |byte| *byte == 0xff).map(Asked::read);
    let (Some(one), Some(two)) = (lists.next(), lists.next()) else { return };
    let (key_of_one, key_of_two) = (one.key(&rules), two.key(&rules));
    assert_eq!(
        key_of_one == key_of_two,
        one.normal(&rules) == two.normal(&rules),
        "{one:?} {two:?} {rules:?}"
    );
    assert_eq!(CacheKey::from_bytes(key_of_one.as_bytes()), key_of_one);
});

fn rules(choice: u8) -> KeyRules {
    let names: Vec<Box<[u8]>> = vec![b"a*"[..].into(), b"q"[..].into()];
    let parameters = match choice % 3 {
        0 => QueryParameters::All,
        1 => QueryParameters::Ignore(names),
        _ => QueryParameters::Keep(names),
    };
    let order = if choice & 0x80 == 0 { QueryOrder::AsSent } else { QueryOrder::Sorted };
    KeyRules { parameters, order }
}

/// The parts, one per line: method, scheme, authority, path and query, site; each further line is an extra part.
#[derive(Debug)]
struct Asked<'a> {
    method: String,
    scheme: &'a [u8],
    authority: &'a [u8],
    path: &'a [u8],
    query: Option<&'a [u8]>,
    site: &'a [u8],
    extra: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let mut next = || lines.next().unwrap_or_default();
        let (method, scheme, authority, target, site) = (next(), next(), next(), next(), next());
        let mark = target.iter().position(|byte| *byte == b'?');
        let (path, query) = match mark {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        let method = String::from_utf8_lossy(method).into_owned();
        Self { method, scheme, authority, path, query, site, extra: lines.collect() }
    }

    fn key(&self, rules: &KeyRules) -> CacheKey {
        let parts = KeyParts {
            site: self.site,
            scheme: self.scheme,
            authority: self.authority,
            path: self.path,
            query: self.query,
            method: &self.method,
            extra: &self.extra,
        };
        let mut written = b"left over from another key".to_vec();
        key::write_key(&parts, rules, &mut written);
        let key = CacheKey::new(&parts, rules);
        assert_eq!(key.as_bytes(), written);
        key
    }

    /// Returns the normalised parts for the model; equal parts name the same resource.
    fn normal(&self, rules: &KeyRules) -> impl PartialEq + use<'a> {
        let method = if self.method == "HEAD" { "GET".to_owned() } else { self.method.clone() };
        let scheme = self.scheme.to_ascii_lowercase();
        let authority = host_and_port(&scheme, self.authority);
        let path = if self.path.is_empty() { &b"/"[..] } else { self.path };
        let query = self.query.and_then(|query| parameters(query, rules));
        (method, scheme, authority, path, query, self.site, self.extra.clone())
    }
}

/// Returns the host in lower case and the digits of the port; `None` for the default port.
fn host_and_port(scheme: &[u8], authority: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let lower = authority.to_ascii_lowercase();
    let mut pieces: Vec<&[u8]> = lower.split(|byte| *byte == b':').collect();
    let port = pieces.pop().filter(|port| port.iter().all(u8::is_ascii_digit));
    let host = pieces.join(&b':');
    let (Some(port), true) = (port, pieces.len() == 1 || (pieces.len() > 1 && host.ends_with(b"]"))) else {
        return (lower, None);
    };
    let number = port.iter().skip_while(|digit| **digit == b'0').copied().collect::<Vec<u8>>();
    match (scheme, &number[..]) {
        (_, []) if !port.is_empty() => (host, Some(b"0".to_vec())),
        (_, []) | (b"http", b"80") | (b"https", b"443") => (host, None),
        _ => (host, Some(number)),
    }
}

/// Returns the included parameters, in order; `None` if all are left out.
fn parameters<'a>(query: &'a [u8], rules: &KeyRules) -> Option<Vec<&'a [u8]>> {
    let name = |parameter: &&'a [u8]| parameter.split(|byte| *byte == b'=').next().unwrap_or_default();
    let is_listed = |parameter: &&'a [u8]| name(parameter) == b"q" || name(parameter).starts_with(b"a");
    let mut parameters: Vec<&[u8]> = query.split(|byte| *byte == b'&').collect();
    match rules.parameters {
        QueryParameters::All => {}
        QueryParameters::Ignore(_) => parameters.retain(|parameter| !is_listed(parameter)),
        QueryParameters::Keep(_) => parameters.retain(is_listed),
    }
    if rules.order == QueryOrder::Sorted {
        parameters.sort_by_key(name);
    }
    (!parameters.is_empty()).then_some(parameters)
}
