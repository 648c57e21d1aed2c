//! Definitions that others ship, applied as they are: listed, explained, held to their own examples, removed.

use std::path::{Path, PathBuf};

use crate::harness::{Kubectl, ServerOptions, eventually, skip};

/// A row of the table.
struct Bundle {
    module: &'static str,
    root: PathBuf,
    definitions: &'static str,
    good: &'static str,
    bad: &'static str,
    field: &'static str,
}

/// Where Go keeps modules.
fn modules() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path = given("GOMODCACHE")
        .or_else(|| given("GOPATH").map(|path| path.join("pkg/mod")))
        .or_else(|| given("HOME").map(|home| home.join("go/pkg/mod")))?;
    path.is_dir().then_some(path)
}

/// The bundles that are on this machine; others are said.
fn bundles() -> Vec<Bundle> {
    let Some(cache) = modules() else {
        skip("no cache of Go modules: the definitions that others ship are not applied");
        return Vec::new();
    };
    let rows = include_str!("bundles.tbl").lines();
    let rows = rows.filter(|row| !row.starts_with('#'));
    let bundle = |row: &'static str| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let [module, version, definitions, good, bad, field] = columns[..] else {
            panic!("a row has six columns: {row}");
        };
        let root = cache.join(format!("{module}@{version}"));
        if !root.join(definitions).exists() {
            skip(&format!(
                "{module}@{version} is not in the cache of Go modules"
            ));
            return None;
        }
        Some(Bundle {
            module,
            root,
            definitions,
            good,
            bad,
            field,
        })
    };
    rows.filter_map(bundle).collect()
}

/// Every file of objects below a place.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "yaml")
            && path.file_stem().is_some_and(|name| name != "kustomization")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Files below a place that have objects of the bundle's own kinds only: others need what is not installed.
fn examples(kubectl: &Kubectl, bundle: &Bundle, place: &str) -> Vec<PathBuf> {
    if place == "-" {
        return Vec::new();
    }
    let known = kubectl.run("api-versions").ok().stdout;
    let own = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut versions = text.lines().filter_map(|l| l.strip_prefix("apiVersion:"));
        let served = |version: &str| {
            let version = version.trim().trim_matches('"');
            known.lines().any(|line| line == version)
        };
        // What Helm and kustomize make objects of is no object.
        versions.clone().next().is_some() && versions.all(served) && !text.contains("{{")
    };
    let all = files(&bundle.root.join(place));
    all.into_iter().filter(own).collect()
}

/// The namespaces that examples stand in.
fn make_namespaces(kubectl: &Kubectl, files: &[PathBuf]) {
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        for line in text.lines() {
            if let Some(name) = line.trim().strip_prefix("namespace:") {
                // Most are there already.
                let _ = kubectl.run(&format!("create namespace {}", name.trim()));
            }
        }
    }
}

fn try_bundle(kubectl: &Kubectl, bundle: &Bundle) {
    let about = bundle.module;
    let definitions = files(&bundle.root.join(bundle.definitions));
    for file in &definitions {
        // Some are too large to be remembered in an annotation.
        let apply = format!(
            "apply --server-side --force-conflicts -f {}",
            file.display()
        );
        kubectl.run(&apply).ok();
    }
    kubectl
        .run("wait --for=condition=Established crd --all --timeout=60s")
        .ok();
    kubectl
        .run(&format!("explain {}", bundle.field))
        .ok()
        .prints("DESCRIPTION:");
    let good = examples(kubectl, bundle, bundle.good);
    make_namespaces(kubectl, &good);
    let mut refused = Vec::new();
    for file in &good {
        let applied = kubectl.run(&format!("apply --dry-run=server -f {}", file.display()));
        if applied.code != Some(0) {
            refused.push(format!("{}: {}", file.display(), applied.stderr));
        }
    }
    // Examples have mistakes of their own: parts of files, objects without a name. Upstream refuses the same.
    let own_mistakes = [
        "error parsing",
        "apiVersion not set",
        "resource name may not be empty",
        "Required value",
    ];
    refused.retain(|said| !own_mistakes.iter().any(|mistake| said.contains(mistake)));
    assert_eq!(refused, Vec::<String>::new(), "{about}: good examples");
    let bad = examples(kubectl, bundle, bundle.bad);
    make_namespaces(kubectl, &bad);
    for file in &bad {
        let applied = kubectl.run(&format!("apply --dry-run=server -f {}", file.display()));
        let said = format!("{}: {}", file.display(), applied.stdout);
        assert_eq!(applied.code, Some(1), "{about}: {said}");
    }
    if bundle.bad != "-" {
        assert!(bad.len() > 10, "{about}: bad examples are found");
    }
}

#[test]
fn definitions_that_others_ship_work_as_they_are() {
    let bundles = bundles();
    if bundles.is_empty() {
        return;
    }
    let flags = vec!["--controllers="];
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    for bundle in &bundles {
        try_bundle(&kubectl, bundle);
    }
    let listed = kubectl.run("get crd -o name").ok().stdout;
    assert!(listed.lines().count() >= 5 * bundles.len(), "{listed}");
    kubectl.run("delete crd --all --timeout=120s").ok();
    eventually("nothing of them is served any more", || {
        !kubectl
            .run("api-versions")
            .ok()
            .stdout
            .contains("gateway.networking.k8s.io")
    });
}
