//! From a tree that fits the option table to the typed settings: addresses and patterns are parsed, files read,
//! names looked up. Notes every problem and goes on as long as something can still be checked.

mod circle;
mod kv;
mod listener;
mod origin;
mod reach;
mod rule;
mod save_file;
mod server;
mod site;

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

pub(crate) use kv::KvSettings;
use server::AskedFor;
pub(crate) use server::LogSettings;

use super::locate::Sources;
use super::overrides::{Overrides, Program, Purpose};
use super::problem::Problems;
use super::tree::{Node, Table};

/// A configuration without errors.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Absent where there are no sites, and in `larder kv`.
    pub(crate) gateway: Option<gateway::config::Config>,
    /// Absent where there is no `[kv]`.
    pub(crate) kv: Option<KvSettings>,
    /// Absent in `larder kv` where nobody asked for it.
    pub(crate) admin: Option<admin::AdminConfig>,
    pub(crate) log: LogSettings,
    /// What the settings were made of; a reload compares with it.
    pub(super) tree: Table,
}

/// Text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl Secret {
    /// The text itself, for the one place that compares or sends it.
    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Checks everything. Settings come out only if nothing that they need is missing; the caller asks `problems` for errors.
pub(super) fn build(
    tree: Table,
    overrides: &Overrides,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<Settings> {
    let Overrides { program, purpose, .. } = *overrides;
    let mut scope = Scope { sources, problems, purpose };
    let log = server::log(&mut scope, tree.table("log"));
    let asked = server::asked(program, &tree);
    let has_admin = asked != AskedFor::Nothing;
    let admin = server::admin(&mut scope, tree.table("admin"), asked);
    server::check_addresses(&mut scope, &tree, asked);
    let gateway = gateway(&mut scope, &tree, &log, admin.as_ref().filter(|_| has_admin));
    let kv = tree.optional_table("kv").map(|table| kv::kv(&mut scope, table));
    let gateway = (program == Program::Serve && has_gateway(&tree)).then_some(gateway);
    let admin = if has_admin { Some(admin?) } else { None };
    Some(Settings { gateway, kv, admin, log, tree })
}

/// Whether there is anything for a gateway to do.
fn has_gateway(tree: &Table) -> bool {
    !tree.list("site").is_empty() || (tree.optional_table("kv").is_none() && !tree.is_wrong("kv"))
}

fn gateway(
    scope: &mut Scope<'_>,
    tree: &Table,
    log: &LogSettings,
    admin: Option<&admin::AdminConfig>,
) -> gateway::config::Config {
    let origins = origin::origins(scope, tree);
    let config = gateway::config::Config {
        listeners: listener::listeners(scope, tree),
        workers: server::workers(tree),
        limits: server::limits(tree.table("limits")),
        memory_bytes_max: tree.table("store").number("memory"),
        variants_max: tree.table("store").number("variants_max"),
        validation_tags_max: tree.table("store").number("validation_tags_max"),
        groups_max: tree.table("store").number("groups_max"),
        sites: site::sites(scope, tree, &origins, log.level),
        server_name: server::server_name(scope, tree),
        trusted_proxies: server::networks(scope, tree, "trusted_proxies"),
        drain_limit: tree.duration("drain_limit"),
    };
    circle::check_origins(scope, tree, &config, admin);
    config
}

/// What every check needs.
struct Scope<'a> {
    sources: &'a Sources,
    problems: &'a mut Problems,
    purpose: Purpose,
}

impl Scope<'_> {
    fn error(&mut self, node: &Node, message: impl Into<String>) {
        self.problems.error(&node.place, &node.path, message);
    }

    fn warning(&mut self, node: &Node, message: impl Into<String>) {
        self.problems.warning(&node.place, &node.path, message);
    }

    /// The value, or nothing and a problem at `node`.
    fn take<T>(&mut self, node: &Node, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.error(node, message)).ok()
    }

    /// What `parse` makes of the text of a key, if the key has a value and it is right.
    fn parsed<T>(
        &mut self,
        table: &Table,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let node = table.node(key)?;
        let result = parse(table.text(key)?);
        self.take(node, result)
    }

    /// What `parse` makes of the texts in a list.
    fn parsed_list<T>(
        &mut self,
        table: &Table,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        table.list(key).iter().filter_map(|node| self.take(node, parse(node.as_text()))).collect()
    }

    /// The path in a value.
    fn path_at(&self, node: &Node) -> PathBuf {
        self.sources.resolve(&node.place, node.as_text())
    }

    /// The path that a key names.
    fn path(&self, table: &Table, key: &str) -> Option<PathBuf> {
        Some(self.path_at(table.node(key)?))
    }

    /// Says of a file with a secret that everybody on the machine can read it. Only where somebody looks: the files that a process
    /// starts with may come from a place that has no modes.
    fn check_mode(&mut self, node: &Node) {
        let path = self.path_at(node);
        let mode = std::fs::metadata(&path).map(|metadata| metadata.permissions().mode());
        if self.purpose == Purpose::Look && mode.is_ok_and(|mode| mode & EVERYBODY_READS != 0) {
            let path = path.display();
            self.warning(node, format!("everybody on this machine can read {path}: `chmod o-r` it"));
        }
    }

    fn bytes_at(&mut self, node: &Node) -> Option<Vec<u8>> {
        let path = self.path_at(node);
        let bytes =
            std::fs::read(&path).map_err(|error| format!("{} can't be read: {error}", path.display()));
        self.take(node, bytes)
    }

    /// What stands in the file that a key names.
    fn bytes(&mut self, table: &Table, key: &str) -> Option<Vec<u8>> {
        self.bytes_at(table.node(key)?)
    }

    /// The first line of the file that a value names, which is a secret.
    fn secret_at(&mut self, node: &Node) -> Option<Secret> {
        let bytes = self.bytes_at(node)?;
        self.check_mode(node);
        let path = self.path_at(node);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().next().unwrap_or_default().trim_end();
        let visible = !line.is_empty() && line.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let secret = if visible {
            Ok(Secret(line.to_owned()))
        } else {
            Err(format!("the first line of {} must be the secret, in visible ASCII", path.display()))
        };
        self.take(node, secret)
    }

    /// The first line of the file that a key names, which is a secret.
    fn secret(&mut self, table: &Table, key: &str) -> Option<Secret> {
        self.secret_at(table.node(key)?)
    }
}

/// A name that is safe in metrics, logs and keys.
fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match text.bytes().all(allowed) && text.len() <= NAME_BYTES_MAX {
        true => Ok(text.to_owned()),
        false => Err(format!("expected up to {NAME_BYTES_MAX} letters, digits, `-`, `.` or `_`")),
    }
}

/// A host name or address without a port, in lower case.
fn host_name(text: &str) -> Result<String, String> {
    let host = text.to_ascii_lowercase();
    let is_v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = is_v6 {
        return address
            .parse::<std::net::Ipv6Addr>()
            .map(|_| host.clone())
            .map_err(|_| "not an IPv6 address".to_owned());
    }
    if host.contains("://") {
        return Err("expected a host name alone, without a scheme such as `http://`".to_owned());
    }
    if host.contains(':') {
        return Err("expected a host name without a port (an IPv6 address stands in brackets)".to_owned());
    }
    let label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(allowed)
    };
    match host.len() <= 253 && host.split('.').all(label) {
        true => Ok(host),
        false if !host.is_ascii() => Err("expected a host name in ASCII (`xn--...` for others)".to_owned()),
        false => Err("not a host name".to_owned()),
    }
}

/// A host name, or `*.` and a host name.
fn host_pattern(text: &str) -> Result<String, String> {
    match text.strip_prefix("*.") {
        Some(rest) => host_name(rest).map(|host| format!("*.{host}")),
        None if text.contains('*') => {
            Err("`*` stands only at the beginning and alone: `*.example.org`".to_owned())
        }
        None => host_name(text),
    }
}

const NAME_BYTES_MAX: usize = 64;
/// `S_IROTH`
const EVERYBODY_READS: u32 = 0o004;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns() {
        #[track_caller]
        fn check(text: &str, host: Option<&str>) {
            assert_eq!(host_pattern(text).ok().as_deref(), host, "{text}");
        }
        check("Example.ORG", Some("example.org"));
        check("*.example.org", Some("*.example.org"));
        check("[::1]", Some("[::1]"));
        check("127.0.0.1", Some("127.0.0.1"));
        check("localhost", Some("localhost"));
        assert!(host_pattern("http://a").is_err_and(|message| message.contains("without a scheme")));
        for wrong in
            ["example.org:80", "*", "a*.org", "*.*.org", "::1", "[x]", "a..b", "a b", "é.org", "http://a"]
        {
            check(wrong, None);
        }
    }
}
