//! Floors of a crate's rooms: a room imports only rooms on lower floors.
//!
//! A room is a folder, or a file next to `lib.rs`. `xtask/floors.txt` lists the floors of each crate from the top
//! down, with the rooms on each. The file also lists each remaining upward import, so that their number can only
//! fall.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use super::imports::Imports;
use super::problem::Problem;
use super::source::Source;

const WRITTEN: &str = "xtask/floors.txt";

pub(super) fn check(root: &Path, sources: &[Source]) -> anyhow::Result<Vec<Problem>> {
    let text = match std::fs::read_to_string(root.join(WRITTEN)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(WRITTEN),
    };
    let houses = houses(&text);
    let of = |house: &House<'_>| {
        let root = roots(sources).into_iter().find(|root| crate_of(root) == house.name)?;
        Some(house.check(&Imports::read(sources, root), root))
    };
    Ok(houses.iter().flat_map(|house| of(house).unwrap_or_else(|| vec![house.unknown()])).collect())
}

/// The floors of a crate.
struct House<'a> {
    name: &'a str,
    line: usize,
    /// Rooms, each with the line of its floor.
    rooms: Vec<(&'a str, usize)>,
    /// Imports that run upwards, with source, target and line.
    upwards: Vec<(&'a str, &'a str, usize)>,
}

fn houses(text: &str) -> Vec<House<'_>> {
    let mut houses: Vec<House<'_>> = Vec::new();
    for (index, words) in text.lines().map(|line| line.split('#').next().unwrap_or_default()).enumerate() {
        let line = index + 1;
        let words: Vec<&str> = words.split_whitespace().collect();
        let name = words.first().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
        match (name, houses.last_mut(), &words[..]) {
            (Some(name), ..) => houses.push(House { name, line, rooms: Vec::new(), upwards: Vec::new() }),
            (None, Some(house), ["up", from, to]) => house.upwards.push((from, to, line)),
            (None, Some(house), rooms) => house.rooms.extend(rooms.iter().map(|room| (*room, line))),
            (None, None, _) => {}
        }
    }
    houses
}

impl House<'_> {
    fn check(&self, imports: &Imports, root: &str) -> Vec<Problem> {
        let found: BTreeSet<&str> = imports.files.iter().map(|file| room_of(file, root)).collect();
        let mut problems = self.unlisted(imports, root);
        let empty = self.rooms.iter().filter(|(name, _)| !found.contains(name));
        problems.extend(
            empty.map(|(name, line)| problem(WRITTEN, *line, format!("no room `{name}`"), "remove the line")),
        );
        problems.extend(self.upward_imports(imports, root));
        problems
    }

    /// Returns files in rooms without a floor.
    fn unlisted(&self, imports: &Imports, root: &str) -> Vec<Problem> {
        let is_listed = |file: &String| self.rooms.iter().any(|(name, _)| *name == room_of(file, root));
        let unlisted = imports.files.iter().filter(|file| !is_listed(file));
        unlisted
            .map(|file| {
                let what = format!("the room `{}` has no floor", room_of(file, root));
                problem(file, 1, what, "add it to xtask/floors.txt")
            })
            .collect()
    }

    /// Returns upward imports that are not listed, and listed ones that don't exist.
    fn upward_imports(&self, imports: &Imports, root: &str) -> Vec<Problem> {
        let mut unused = self.upwards.clone();
        let mut problems = Vec::new();
        for (file, uses) in imports.files.iter().zip(&imports.uses) {
            for (target, paths) in uses {
                let (from, to) = (room_of(file, root), room_of(&imports.files[*target], root));
                if from == to || !self.is_upwards(from, to) {
                    continue;
                }
                unused.retain(|(known, above, _)| (*known, *above) != (from, to));
                if !self.upwards.iter().any(|(known, above, _)| (*known, *above) == (from, to)) {
                    let paths = paths.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let what = format!("`{from}` imports `{to}`, which isn't below it: {paths}");
                    problems.push(problem(file, 1, what, "rooms of lower floors, as in xtask/floors.txt"));
                }
            }
        }
        problems.extend(unused.iter().map(|(from, to, line)| {
            problem(WRITTEN, *line, format!("`{from}` doesn't import `{to}`"), "remove the line")
        }));
        problems
    }

    fn is_upwards(&self, from: &str, to: &str) -> bool {
        let floor = |room: &str| self.rooms.iter().find(|(name, _)| *name == room).map(|(_, line)| *line);
        matches!((floor(from), floor(to)), (Some(from), Some(to)) if to <= from)
    }

    fn unknown(&self) -> Problem {
        problem(WRITTEN, self.line, format!("no crate `{}`", self.name), "remove its lines")
    }
}

/// Returns the folder or file below the crate's root that contains a path; `lib` is the root itself.
fn room_of<'p>(path: &'p str, root: &str) -> &'p str {
    let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
    let first = below.split('/').next().unwrap_or(below);
    first.strip_suffix(".rs").unwrap_or(first)
}

fn problem(file: &str, line: usize, what: String, allowed: &str) -> Problem {
    Problem { file: file.to_owned(), line, rule: "floors", what, allowed: allowed.to_owned() }
}

/// Returns the source folders of all crates: `crates/store/src`, `xtask/src`.
fn roots(sources: &[Source]) -> BTreeSet<&str> {
    let root = |source: &'_ Source| Some(source.path.find("/src/")? + "/src".len());
    sources.iter().filter_map(|source| source.path.get(..root(source)?)).collect()
}

fn crate_of(root: &str) -> &str {
    root.trim_end_matches("/src").rsplit('/').next().unwrap_or(root)
}
