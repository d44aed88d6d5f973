//! Conversations as data: the case files of `conformance/caching`, read and judged identically by all runners.
//!
//! A runner plays the steps against a model or the binary, records the result ([`Seen`]) and calls [`Step::differences`]. The README in
//! the folder of the files describes their format.

mod date;
mod judge;
mod script;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

pub use judge::{Forwarded, Seen};
pub use script::{Context, OriginAnswer, SentRequest, latin1};

/// The cases of one file.
#[derive(Debug)]
pub struct Group {
    /// The name of the file without its extension.
    pub name: String,
    /// Cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// A conversation about one resource, or about resources below one path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The tested behaviour.
    pub name: String,
    /// Sections that require the tested behaviour, each `RFC nnnn section x: title`.
    #[serde(default)]
    pub cites: Vec<String>,
    /// Profile; absent for the default.
    #[serde(default)]
    pub profile: Profile,
    /// Keys of the rule for this resource, as in the configuration file.
    #[serde(default)]
    pub rules: BTreeMap<String, Value>,
    /// Runners that can play the case.
    #[serde(default)]
    pub level: Level,
    /// Steps, one after the other.
    pub steps: Vec<Step>,
}

/// A profile of the configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The default profile.
    #[default]
    Safe,
    /// Everything that the RFC permits.
    Rfc9111,
}

impl Profile {
    /// Returns the name in the configuration file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Rfc9111 => "rfc9111",
        }
    }
}

/// Runners that play a case.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The model and the binary.
    #[default]
    Both,
    /// Only the binary: the case is about connections, bytes, or delays at the origin.
    Gateway,
}

/// A request of a client and its effects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Wait before the request, in seconds.
    #[serde(default)]
    pub wait_s: u32,
    /// The request; absent for a GET without further fields.
    #[serde(default)]
    pub request: Request,
    /// Answers of the origin, one for each request that reaches it; absent if no request may reach it.
    #[serde(default)]
    pub origin: Answers,
    /// Expected result.
    pub expect: Option<Expect>,
}

/// A request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Suffix to the path of the case.
    pub path: String,
    /// Field lines after `Host`.
    pub fields: Vec<(String, String)>,
    /// Content. `Content-Length` is added unless the fields have a framing.
    pub body: String,
    /// `1.1` or `1.0`.
    pub version: String,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: String::new(),
            fields: Vec::new(),
            body: String::new(),
            version: "1.1".to_owned(),
        }
    }
}

/// The answers of the origin in one step.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum Answers {
    /// No request may reach the origin.
    #[default]
    None,
    /// One request reaches the origin.
    One(Box<Answer>),
    /// As many requests reach the origin as there are answers.
    Several(Vec<Answer>),
}

impl Answers {
    /// Returns all answers.
    pub fn list(&self) -> &[Answer] {
        match self {
            Self::None => &[],
            Self::One(answer) => std::slice::from_ref(answer),
            Self::Several(answers) => answers,
        }
    }
}

/// Reaction of the origin to a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// Status code, by default 200.
    pub status: Option<u16>,
    /// The reason phrase.
    pub reason: Option<String>,
    /// Field lines.
    pub fields: Vec<(String, String)>,
    /// Content, by default `b` and the number of the step.
    pub body: Option<String>,
    /// Trailer fields; with any, the content is chunked.
    pub trailers: Vec<(String, String)>,
    /// Interim responses before the final response: status code and field lines.
    pub interim: Vec<(u16, Vec<(String, String)>)>,
    /// Failure of the origin instead of an answer.
    pub fails: Option<Fails>,
    /// Bytes to send as they are, before the connection closes.
    pub wire: Option<String>,
    /// Whether the connection stays open after `wire`.
    pub open: bool,
    /// Whether the client gets its response without waiting for this answer.
    pub background: bool,
    /// Delay before the answer, in seconds.
    pub delay_s: u32,
}

impl Answer {
    /// Returns whether the client is expected to get this answer, unless the file has another expectation.
    fn passes_through(&self) -> bool {
        self.fails.is_none() && self.wire.is_none() && self.status != Some(304) && !self.background
    }
}

/// Failure of the origin.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Fails {
    /// The origin closes the connection in order.
    Close,
    /// The origin aborts the connection.
    Reset,
}

/// Expected result of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// The status code.
    pub status: Option<u16>,
    /// The reason phrase.
    pub reason: Option<String>,
    /// Content.
    pub body: Option<String>,
    /// Fields by name; null means absent.
    pub fields: BTreeMap<String, Option<Wanted>>,
    /// Trailer fields by name; null means absent.
    pub trailers: BTreeMap<String, Option<Wanted>>,
    /// A part of `Cache-Status`.
    pub cache_status: Option<String>,
    /// Fields of the first request that reached the origin, by name; null means absent. `:method`, `:body` and `:path` are its method, body
    /// and path.
    pub forwarded: BTreeMap<String, Option<Wanted>>,
    /// Status codes of interim responses, in order.
    pub interim: Option<Vec<u16>>,
    /// Whether the content is cut short.
    pub truncated: bool,
}

/// Expected value of a field. The lines of a field are joined with `, `.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Wanted {
    /// This exact value.
    Value(String),
    /// A rule for the value.
    Rule(Rule),
}

/// Rules for the value of a field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Rule {
    /// These lines, in this order.
    Lines(Vec<String>),
    /// The value contains this part.
    Contains(String),
    /// The value doesn't contain this part.
    Lacks(String),
    /// Seconds: at least this many, and at most four more, because the binary runs in real time.
    About(u64),
    /// Any value: `{"any": true}`.
    Any(bool),
}

/// Reads all files of a folder.
///
/// # Panics
/// Panics if a case is invalid, with the name of the file and the case.
pub fn read_groups(folder: &Path) -> Vec<Group> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let groups: Vec<Group> = files.iter().map(|file| read_group(file)).collect();
    assert!(!groups.is_empty(), "{} has no case file", folder.display());
    groups
}

fn read_group(file: &Path) -> Group {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let cases: Vec<Value> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.file_stem().and_then(|stem| stem.to_str()).expect("names of case files are text");
    let read = |case: Value| {
        let title = case["name"].to_string();
        let case: Case =
            serde_json::from_value(case).unwrap_or_else(|error| panic!("{name}: {title}: {error}"));
        if let Err(problem) = script::validate(&case) {
            panic!("{name}: {title}: {problem}");
        }
        case
    };
    let cases: Vec<Case> = cases.into_iter().map(read).collect();
    assert!(!cases.is_empty(), "{name} has no case");
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(twice.is_none(), "{name}: two cases have the name {:?}", twice.unwrap_or_default()[0]);
    Group { name: name.to_owned(), cases }
}

impl Group {
    /// Returns the path of a case of this group: unique, and not a prefix of another path.
    pub fn path(&self, index: usize) -> String {
        format!("/{}/{:03}", self.name, index + 1)
    }
}
