//! The table of built-in resources: what the API serves, under which names, with which verbs.
//!
//! `data/resources.tbl` has one line per resource and an indented line per subresource:
//!
//! ```text
//! v1 pods pod Pod N all short=po cat=all
//!  eviction Eviction create gv=policy/v1
//! ```
//!
//! A resource line is group/version, plural, singular, kind, scope (`N`amespaced or `C`luster), verbs
//! (`all` is the full eight), then `short=`, `cat=`, `stored=` (the group/version its objects are
//! stored in, when another), `hashed=` (the group/version that discovery's storage
//! version hash is made of, when upstream stores in another version than we do) and `virtual` for what is answered but never stored. Lines stand in
//! discovery's order, which decides ambiguous short names.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use objects::schema;

use crate::defined::ObjectType;

const TABLE: &str = include_str!("../data/resources.tbl");

/// The verbs of a resource that has them all.
pub const ALL_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One group and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// Group; empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
}

impl GroupVersion {
    /// From `apiVersion` text.
    pub fn parse(text: &'static str) -> GroupVersion {
        match text.split_once('/') {
            Some((group, version)) => GroupVersion { group, version },
            None => GroupVersion {
                group: "",
                version: text,
            },
        }
    }
}

impl std::fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => f.write_str(self.version),
            group => write!(f, "{group}/{}", self.version),
        }
    }
}

/// The same text for as long as the process lives. Names of groups, versions and kinds are few, and every
/// request carries some of them: those of the table are part of the program, those of definitions are
/// kept once each, however often their definition comes and goes.
pub fn intern(text: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    match names.get(text) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(text.into());
            names.insert(kept);
            kept
        }
    }
}

/// A resource served at one group and version.
#[derive(Debug)]
pub struct Resource {
    /// Where it is served.
    pub gv: GroupVersion,
    /// Lower-case plural: the path segment.
    pub plural: &'static str,
    /// Lower-case singular.
    pub singular: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Kind of their lists.
    pub list_kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Allowed verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// Short names for the command line.
    pub short_names: Vec<&'static str>,
    /// Categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// Group and version its objects are stored in.
    pub stored: GroupVersion,
    /// Group and version that discovery's storage version hash is made of.
    pub hashed: GroupVersion,
    /// Answered on the spot and never stored (reviews, bindings).
    pub is_virtual: bool,
    /// What hangs below one object.
    pub subresources: Vec<Subresource>,
    /// The type of its objects.
    pub ty: ObjectType,
}

/// A subresource, such as `pods/eviction`.
#[derive(Debug)]
pub struct Subresource {
    /// Path segment.
    pub name: &'static str,
    /// Kind of the body.
    pub kind: &'static str,
    /// Group and version of the body, when not the resource's own.
    pub gv: Option<GroupVersion>,
    /// Allowed verbs, sorted.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// `plural.group`, or `plural` in core: how messages name a resource.
    pub fn qualified(&self) -> String {
        match self.gv.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether its objects are of this group and kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.gv.group == group && self.kind == kind
    }

    /// Whether the resource has a subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether the resource allows a verb. Custom resources take all, also while their definition is going and
    /// discovery shows fewer: whoever would create is told why not.
    pub fn allows(&self, verb: &str) -> bool {
        self.ty.defined().is_some() || self.verbs.contains(&verb)
    }
}

/// Every built-in resource, in discovery order.
pub fn all() -> &'static [Arc<Resource>] {
    static RESOURCES: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    RESOURCES.get_or_init(|| parse().into_iter().map(Arc::new).collect())
}

/// The resource at this place.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Resource>> {
    all()
        .iter()
        .find(|r| r.plural == plural && r.gv.group == group && r.gv.version == version)
}

/// The resource whose objects have this kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Resource>> {
    all()
        .iter()
        .find(|r| r.kind == kind && r.gv.group == group && r.gv.version == version)
}

// The table is part of the program; a bad line is a build defect and panics with the line.
fn parse() -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for line in TABLE.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix(' ') {
            None => resources.push(parse_resource(line)),
            Some(rest) => resources
                .last_mut()
                .unwrap_or_else(|| panic!("resources.tbl starts with a subresource: {line}"))
                .subresources
                .push(parse_subresource(rest)),
        }
    }
    resources
}

fn parse_resource(line: &'static str) -> Resource {
    let mut words = line.split(' ');
    let mut word = || {
        words
            .next()
            .unwrap_or_else(|| panic!("resources.tbl: short line: {line}"))
    };
    let gv = GroupVersion::parse(word());
    let (plural, singular, kind) = (word(), word(), word());
    let (scope, verbs) = (word(), word());
    let mut resource = Resource {
        gv,
        plural,
        singular,
        kind,
        list_kind: intern(&format!("{kind}List")),
        namespaced: scope == "N",
        verbs: parse_verbs(verbs),
        short_names: Vec::new(),
        categories: Vec::new(),
        stored: gv,
        hashed: gv,
        is_virtual: false,
        subresources: Vec::new(),
        ty: schema::kind(gv.group, gv.version, kind)
            .unwrap_or_else(|| panic!("resources.tbl: no type for {line}"))
            .into(),
    };
    for flag in words {
        match flag.split_once('=') {
            Some(("short", names)) => resource.short_names = names.split(',').collect(),
            Some(("cat", names)) => resource.categories = names.split(',').collect(),
            Some(("stored", gv)) => {
                resource.stored = GroupVersion::parse(gv);
                resource.hashed = resource.stored;
            }
            Some(("hashed", gv)) => resource.hashed = GroupVersion::parse(gv),
            None if flag == "virtual" => resource.is_virtual = true,
            _ => panic!("resources.tbl: flag {flag}: {line}"),
        }
    }
    resource
}

fn parse_subresource(line: &'static str) -> Subresource {
    let mut words = line.split(' ');
    let mut word = || {
        words
            .next()
            .unwrap_or_else(|| panic!("resources.tbl: short line: {line}"))
    };
    let (name, kind, verbs) = (word(), word(), word());
    let gv = words
        .next()
        .and_then(|w| w.strip_prefix("gv="))
        .map(GroupVersion::parse);
    Subresource {
        name,
        kind,
        gv,
        verbs: parse_verbs(verbs),
    }
}

fn parse_verbs(text: &'static str) -> Vec<&'static str> {
    if text == "all" {
        ALL_VERBS.to_vec()
    } else {
        text.split(',').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let name = String::from("widgets.example.com");
        assert!(std::ptr::eq(intern(&name), intern(&name.clone())));
    }

    #[test]
    fn the_table_parses_and_names_are_found() {
        assert!(all().len() > 60);
        let pods = find("", "v1", "pods").expect("pods");
        assert_eq!(pods.short_names, ["po"]);
        assert_eq!(
            pods.subresource("eviction")
                .and_then(|s| s.gv)
                .expect("gv")
                .group,
            "policy"
        );
        assert_eq!(
            find("apps", "v1", "deployments")
                .expect("exists")
                .qualified(),
            "deployments.apps"
        );
    }
}
