//! Moves the fragments of `changelog.d` into `CHANGELOG.md`, when a version is released.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

/// The kinds of fragments, in the order of the page, and their titles.
const KINDS: [(&str, &str); 4] =
    [("breaking", "Breaking"), ("feature", "New"), ("change", "Changed"), ("fix", "Fixed")];
const FOLDER: &str = "changelog.d";
const PAGE: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased\n";

/// A file of the folder.
#[derive(Debug)]
struct Fragment {
    path: PathBuf,
    kind: usize,
    text: String,
}

/// Writes the section of a version and removes its fragments; answers with lines for people.
///
/// # Errors
/// When the page has no section `Unreleased` or this version already, or a fragment has no kind or text.
pub fn collect(root: &Path, version: &str, date: &str) -> anyhow::Result<Vec<String>> {
    let fragments = fragments(root)?;
    let page = fs::read_to_string(root.join(PAGE))?;
    ensure!(!page.contains(&format!("\n## {version} (")), "{PAGE} has version {version} already");
    let (before, after) = page.split_once(UNRELEASED).context("CHANGELOG.md has no section `Unreleased`")?;
    let end = after.find("\n## ").map_or(after.len(), |end| end + 1);
    let (introduction, earlier) = after.split_at(end);
    let section = section(version, date, introduction, &fragments);
    let earlier = if earlier.is_empty() { String::new() } else { format!("\n{earlier}") };
    fs::write(root.join(PAGE), format!("{before}{UNRELEASED}\n{section}{earlier}"))?;
    fragments.iter().try_for_each(|fragment| fs::remove_file(&fragment.path))?;
    Ok(vec![format!("changelog: {} fragments are in {PAGE}, as version {version}", fragments.len())])
}

/// What [`collect`] would write.
///
/// # Errors
/// When a fragment has no kind or text.
pub fn preview(root: &Path) -> anyhow::Result<Vec<String>> {
    let fragments = fragments(root)?;
    Ok(section("VERSION", "DATE", "", &fragments).lines().map(str::to_owned).collect())
}

fn section(version: &str, date: &str, introduction: &str, fragments: &[Fragment]) -> String {
    let mut parts = vec![format!("## {version} ({date})")];
    parts.extend(Some(introduction.trim().to_owned()).filter(|text| !text.is_empty()));
    for (kind, (_, title)) in KINDS.iter().enumerate() {
        let entries: Vec<_> = fragments.iter().filter(|fragment| fragment.kind == kind).map(entry).collect();
        if !entries.is_empty() {
            parts.push(format!("### {title}\n\n{}", entries.join("\n")));
        }
    }
    parts.join("\n\n") + "\n"
}

/// A point of a list; further lines belong to it.
fn entry(fragment: &Fragment) -> String {
    // The page stands one folder above.
    let text = fragment.text.trim().replace("](../", "](");
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!("  {line}") });
    format!("- {}", lines.collect::<Vec<_>>().join("\n").trim_start())
}

/// In the order of their names.
fn fragments(root: &Path) -> anyhow::Result<Vec<Fragment>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER))? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.file_name().is_some_and(|name| name != "README.md"));
    paths.sort();
    paths.into_iter().map(fragment).collect()
}

fn fragment(path: PathBuf) -> anyhow::Result<Fragment> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parts: Vec<_> = name.split('.').collect();
    let [_, kind, "md"] = parts[..] else { bail!("{FOLDER}/{name} is not SLUG.KIND.md") };
    let kind = KINDS.iter().position(|(known, _)| *known == kind);
    let kind = kind.with_context(|| format!("{FOLDER}/{name}: kinds are breaking, feature, change, fix"))?;
    let text = fs::read_to_string(&path)?;
    ensure!(!text.trim().is_empty(), "{FOLDER}/{name} says nothing");
    Ok(Fragment { path, kind, text })
}
