//! Which version of a resource is the better one.

/// Versions as Kubernetes ranks them: v2 before v1 before v2beta1 before v1alpha1 before anything else.
pub fn by_priority(a: &str, b: &str) -> std::cmp::Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (None, None) => b.cmp(a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let major = rest[..digits]
        .parse()
        .ok()
        .filter(|_| !rest.starts_with('0'))?;
    let (stage, minor) = match &rest[digits..] {
        "" => return Some((2, major, 0)),
        tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (0, minor),
            _ => return None,
        },
    };
    Some((stage, major, minor.parse().ok()?))
}
