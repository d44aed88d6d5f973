//! The components of a binary (a software bill of materials): CycloneDX 1.6 as JSON, from cargo's resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package, PackageId};
use serde_json::{Value, json};

/// Returns the components of the binary of package `program` for `target`. Features are those of the whole
/// workspace together, so the list may include a crate that only a tool of the repository uses, but omits none.
///
/// # Errors
///
/// Returns an error if cargo can't resolve the workspace, or `Cargo.lock` can't be read.
pub fn of_binary(root: &Path, program: &str, version: &str, target: &str) -> anyhow::Result<Value> {
    let options = vec!["--locked".to_owned(), "--filter-platform".to_owned(), target.to_owned()];
    let metadata = MetadataCommand::new().current_dir(root).other_options(options).exec();
    let metadata = metadata.context("cargo metadata failed")?;
    let binary = metadata.packages.iter().find(|package| package.name.as_str() == program);
    let binary = binary.with_context(|| format!("there is no package {program}"))?;
    let linked = linked(&metadata, &binary.id)?;
    let checksums = checksums(root)?;
    let libraries =
        linked.keys().filter(|id| **id != &binary.id).map(|id| library(&metadata[*id], &checksums));
    let mut application = component(binary, "application");
    application["version"] = version.into();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": application, "properties": [{ "name": "cargo:target", "value": target }] },
        "components": libraries.collect::<Vec<_>>(),
        "dependencies": linked.iter().map(|(id, uses)| {
            let uses: Vec<_> = uses.iter().map(|id| reference(&metadata[*id])).collect();
            json!({ "ref": reference(&metadata[*id]), "dependsOn": uses })
        }).collect::<Vec<_>>(),
    }))
}

/// Collects the packages that a package is linked with, recursively: without build and test dependencies.
fn linked<'a>(
    metadata: &'a Metadata,
    binary: &'a PackageId,
) -> anyhow::Result<BTreeMap<&'a PackageId, BTreeSet<&'a PackageId>>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata returned no dependencies")?;
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let (mut linked, mut open) = (BTreeMap::new(), vec![binary]);
    while let Some(id) = open.pop() {
        let uses: BTreeSet<_> = nodes.get(id).into_iter().flat_map(|node| normal(node)).collect();
        open.extend(uses.iter().filter(|id| !linked.contains_key(*id)));
        linked.insert(id, uses);
    }
    Ok(linked)
}

fn normal(node: &Node) -> impl Iterator<Item = &PackageId> {
    let is_normal =
        |kinds: &[cargo_metadata::DepKindInfo]| kinds.iter().any(|info| info.kind == DependencyKind::Normal);
    node.deps
        .iter()
        .filter(move |dependency| is_normal(&dependency.dep_kinds))
        .map(|dependency| &dependency.pkg)
}

/// Returns checksums by name and version, as in `Cargo.lock`.
fn checksums(root: &Path) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    let packages = lock["package"].as_array().context("Cargo.lock lists no packages")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let known = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(known.collect())
}

fn library(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut library = component(package, "library");
    // Packages of the workspace don't come from a registry, which may have unrelated packages of the same name.
    if package.source.is_some() {
        library["purl"] = reference(package).into();
    }
    let name = (package.name.to_string(), package.version.to_string());
    if let Some(checksum) = checksums.get(&name) {
        library["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        library["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    library
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(package),
        "name": package.name.as_str(),
        "version": package.version.to_string(),
    });
    if let Some(license) = &package.license {
        // The older syntax separates alternatives with a slash.
        let choices: Vec<_> = license.split('/').map(str::trim).collect();
        component["licenses"] = json!([{ "expression": choices.join(" OR ") }]);
    }
    component
}

fn reference(package: &Package) -> String {
    let registry = if package.source.is_some() { "pkg:cargo" } else { "larder" };
    format!("{registry}/{}@{}", package.name, package.version)
}
