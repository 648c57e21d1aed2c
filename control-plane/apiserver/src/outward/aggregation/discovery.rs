//! What servers behind this one serve, in the forms of discovery. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use super::openapi::Described;

/// One version of a group of another server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Of the group, and of the version in it.
    pub(crate) priority: (i64, i64),
    /// Its APIResourceList; nothing where it was never seen.
    pub(crate) resources: Option<Value>,
    /// Whether that is as it is now.
    pub(crate) fresh: bool,
    /// What its OpenAPI document says.
    pub(crate) described: Option<Arc<Described>>,
}

/// Versions by group: groups and versions of high priority first.
pub(crate) fn by_group(versions: &[RemoteVersion]) -> Vec<Vec<&RemoteVersion>> {
    let mut sorted: Vec<&RemoteVersion> = versions.iter().collect();
    sorted.sort_by(|a, b| {
        let priorities = b.priority.1.cmp(&a.priority.1);
        (a.group.cmp(&b.group))
            .then(priorities)
            .then(a.version.cmp(&b.version))
    });
    let mut groups: Vec<Vec<&RemoteVersion>> = Vec::new();
    for version in sorted {
        match groups.last_mut().filter(|g| g[0].group == version.group) {
            Some(group) => group.push(version),
            None => groups.push(vec![version]),
        }
    }
    let priority = |group: &Vec<&RemoteVersion>| group.iter().map(|v| v.priority.0).max();
    groups.sort_by_key(|group| std::cmp::Reverse(priority(group)));
    groups
}

/// The row of a group in `/apis`, and the document at `/apis/<group>`.
pub(crate) fn group_row(versions: &[&RemoteVersion]) -> Value {
    let row = |v: &&RemoteVersion| json!({"groupVersion": format!("{}/{}", v.group, v.version), "version": v.version});
    let versions_of: Vec<Value> = versions.iter().map(row).collect();
    json!({"name": versions[0].group, "preferredVersion": versions_of[0], "versions": versions_of})
}

/// A group in aggregated discovery.
pub(crate) fn aggregated(versions: &[&RemoteVersion]) -> Value {
    let each = versions.iter().map(|version| {
        let resources = version
            .resources
            .as_ref()
            .map_or(json!([]), |list| resources(version, list));
        let freshness = if version.fresh { "Current" } else { "Stale" };
        json!({"version": version.version, "freshness": freshness, "resources": resources})
    });
    let each: Vec<Value> = each.collect();
    json!({"metadata": {"name": versions[0].group}, "versions": each})
}

// The older form has subresources as rows of their own.
fn resources(version: &RemoteVersion, list: &Value) -> Value {
    let rows = || list["resources"].as_array().into_iter().flatten();
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    let kind = |row: &Value| {
        let part = |field: &str, own: &str| match row[field].as_str() {
            None | Some("") => own.to_owned(),
            Some(named) => named.to_owned(),
        };
        json!({"group": part("group", &version.group), "version": part("version", &version.version),
            "kind": row["kind"]})
    };
    let mut all = Vec::new();
    for row in rows().filter(|row| !name(row).contains('/')) {
        let mut entry = json!({
            "resource": row["name"],
            "responseKind": kind(row),
            "scope": if row["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": row["singularName"],
            "verbs": row["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if row[field].is_array() {
                entry[field] = row[field].clone();
            }
        }
        let above = format!("{}/", name(row));
        let below = rows().filter_map(|sub| {
            let short = name(sub).strip_prefix(&above)?.to_owned();
            Some(json!({"subresource": short, "responseKind": kind(sub), "verbs": sub["verbs"]}))
        });
        let below: Vec<Value> = below.collect();
        if !below.is_empty() {
            entry["subresources"] = below.into();
        }
        all.push(entry);
    }
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_told_in_both_forms() {
        let list = json!({"groupVersion": "wardle.example.com/v1alpha1", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]}]});
        let version = |group: &str, version: &str, priority, resources| RemoteVersion {
            group: group.into(),
            version: version.into(),
            priority,
            fresh: Option::is_some(&resources),
            resources,
            described: None,
        };
        let all = [
            version("low.example.com", "v1", (10, 1), None),
            version("wardle.example.com", "v1alpha1", (2000, 200), Some(list)),
            version("wardle.example.com", "v1", (2000, 300), None),
        ];
        let groups = by_group(&all);
        let wardle = group_row(&groups[0]);
        assert_eq!(wardle["name"], "wardle.example.com");
        assert_eq!(wardle["preferredVersion"]["version"], "v1");
        let told = aggregated(&groups[0]);
        assert_eq!(told["versions"][0]["freshness"], "Stale");
        let flunders = &told["versions"][1]["resources"][0];
        assert_eq!(
            flunders["responseKind"],
            json!({"group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder"})
        );
        assert_eq!(flunders["scope"], "Namespaced");
        assert_eq!(flunders["subresources"][0]["subresource"], "status");
    }
}
