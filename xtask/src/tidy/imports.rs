//! Imports between the files of a crate: an edge leads to the file that defines the item, not to a file that
//! re-exports it.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Import, Names, Reach};
use super::source::{Purpose, Source};

/// Maximum number of re-exports to follow to the definition of a name.
const HOPS_MAX: usize = 8;

/// Keywords before the name of an item.
const DEFINERS: [&str; 9] =
    ["const", "enum", "fn", "macro_rules", "mod", "static", "struct", "trait", "type"];

/// The files that a file uses, and the paths that name them.
pub(super) type Uses = BTreeMap<usize, BTreeSet<String>>;

/// The production files of one crate, and their imports.
pub(super) struct Imports {
    /// Paths of the files, sorted.
    pub(super) files: Vec<String>,
    /// By file: the files that it uses, and the paths that name them.
    pub(super) uses: Vec<Uses>,
}

impl Imports {
    /// Reads the crate with the sources below `root`, such as `crates/store/src`.
    pub(super) fn read(sources: &[Source], root: &str) -> Self {
        let mut own: Vec<&Source> = sources.iter().filter(|source| is_production_of(source, root)).collect();
        own.sort_by(|a, b| a.path.cmp(&b.path));
        let modules = Modules::read(&own, root);
        let uses = (0..own.len()).map(|file| modules.used_by(file)).collect();
        Self { files: own.iter().map(|source| source.path.clone()).collect(), uses }
    }
}

fn is_production_of(source: &Source, root: &str) -> bool {
    let below = source.path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    below && source.purpose == Purpose::Production && !source.path.ends_with("/main.rs")
}

/// A file as a module: its path in words, and the names that it uses and defines outside of tests.
struct Module<'a> {
    source: &'a Source,
    path: Vec<String>,
    names: Names,
    defined: BTreeSet<&'a str>,
}

struct Modules<'a> {
    crate_name: &'a str,
    all: Vec<Module<'a>>,
    by_path: BTreeMap<Vec<String>, usize>,
}

impl<'a> Modules<'a> {
    fn read(sources: &[&'a Source], root: &str) -> Self {
        let module = |source: &&'a Source| Module {
            source,
            path: module_path(&source.path[root.len() + 1..]),
            names: Names::read(&source.tokens),
            defined: defined_names(source),
        };
        let all: Vec<Module<'a>> = sources.iter().map(module).collect();
        let by_path = all.iter().enumerate().map(|(at, module)| (module.path.clone(), at)).collect();
        Self { crate_name: sources.first().map_or("", |source| source.crate_name()), all, by_path }
    }

    fn used_by(&self, file: usize) -> Uses {
        let module = &self.all[file];
        let imports = module.names.imports.iter().filter(|import| is_used_here(import, &module.names));
        let imported = imports.flat_map(|import| self.brought(file, import));
        let named = module.names.paths().map(|path| (path.line, path.words));
        let mut uses = Uses::new();
        for (_, words) in imported.chain(named).filter(|(line, _)| !module.source.is_test_line(*line)) {
            if let Some(used) = self.definer(file, &words, HOPS_MAX).filter(|used| *used != file) {
                uses.entry(used).or_default().insert(words.join("::"));
            }
        }
        uses
    }

    /// Returns the paths of an import, with their lines; for a glob import, those whose names occur in the file.
    fn brought(&self, file: usize, import: &Import) -> Vec<(usize, Vec<String>)> {
        let Some((_, from)) = import.words.split_last().filter(|(last, _)| *last == "*") else {
            return vec![(import.line, import.words.clone())];
        };
        let Some(owner) = self.module(file, from) else { return Vec::new() };
        let owner = &self.all[owner];
        let offers = |word: &&String| {
            owner.defined.contains(word.as_str())
                || owner.names.imports.iter().any(|import| import.name == **word)
        };
        let words = self.all[file].names.words.iter().filter(offers);
        words.map(|word| (import.line, from.iter().chain([word]).cloned().collect())).collect()
    }

    /// Returns the file of the module that a path names as a whole.
    fn module(&self, file: usize, words: &[String]) -> Option<usize> {
        let (mut path, rest) = self.start(file, words)?;
        path.extend(rest.iter().cloned());
        self.by_path.get(&path).copied()
    }

    /// Returns the file that defines the item of a path in `file`; `None` for other crates and for modules as such.
    fn definer(&self, file: usize, words: &[String], hops: usize) -> Option<usize> {
        let (start, rest) = self.start(file, words)?;
        let mut path = start;
        let mut rest = rest.iter();
        let item = loop {
            let word = rest.next()?;
            path.push(word.clone());
            if !self.by_path.contains_key(&path) {
                path.pop();
                break word;
            }
        };
        let owner = *self.by_path.get(&path)?;
        if hops == 0 || self.all[owner].defined.contains(item.as_str()) {
            return Some(owner);
        }
        let rest = rest.as_slice();
        self.passed_on(owner, item, rest, hops - 1).or(Some(owner))
    }

    /// Returns the file that defines an item which `owner` imports and passes on.
    fn passed_on(&self, owner: usize, item: &str, rest: &[String], hops: usize) -> Option<usize> {
        let follow = |import: &Import, tail: &[String]| {
            let words: Vec<String> = import.words.iter().chain(tail).cloned().collect();
            self.definer(owner, &words, hops)
        };
        let imports = || self.all[owner].names.imports.iter();
        if let Some(import) = imports().find(|import| import.name == item) {
            return follow(import, rest);
        }
        imports().filter(|import| import.name == "*").find_map(|import| {
            let from = self.module(owner, import.words.split_last()?.1)?;
            self.all[from].defined.contains(item).then_some(from)
        })
    }

    /// Returns the module at which a path begins, and the rest of the path.
    fn start<'w>(&self, file: usize, words: &'w [String]) -> Option<(Vec<String>, &'w [String])> {
        let own = &self.all[file].path;
        let (first, rest) = words.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((own.clone(), rest)),
            "super" => {
                let ups = words.iter().take_while(|word| *word == "super").count();
                Some((own[..own.len().checked_sub(ups)?].to_vec(), &words[ups..]))
            }
            name if name == self.crate_name => Some((Vec::new(), rest)),
            name => {
                let child: Vec<String> = own.iter().cloned().chain([name.to_owned()]).collect();
                self.by_path.contains_key(&child).then(|| (own.clone(), words))
            }
        }
    }
}

/// Returns whether an import makes an edge. A re-export does only if this file uses its name; any other import
/// does, because a trait may be used without its name.
fn is_used_here(import: &Import, names: &Names) -> bool {
    import.reach == Reach::Own || names.words.contains(&import.name)
}

/// Returns the module path: `cache/fill.rs` is `cache::fill`, `cache/mod.rs` is `cache`, `lib.rs` is the crate.
fn module_path(file: &str) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut words: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(words.last().map(String::as_str), Some("mod" | "lib")) {
        words.pop();
    }
    words
}

fn defined_names(source: &Source) -> BTreeSet<&str> {
    let is_defined = |at: &usize| source.word(*at).is_some_and(|word| DEFINERS.contains(&word));
    let name = |at: usize| source.word(at + 1).or_else(|| source.word(at + 2));
    (0..source.tokens.len()).filter(is_defined).filter_map(name).collect()
}
