//! Who gets which names, and the conditions of a definition.
//!
//! Upstream has a controller for each condition (naming, establishing, approval, finalizer); what they
//! decide is a function of the definitions of one group.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Instances go before their definition does.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const APPROVAL: &str = "api-approved.kubernetes.io";

/// The names that definitions of a group have, and how many have each.
#[derive(Debug, Default)]
pub struct Taken {
    resources: HashMap<String, usize>,
    kinds: HashMap<String, usize>,
}

/// The names that one definition has.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Names {
    resources: Vec<String>,
    kinds: Vec<String>,
}

impl Names {
    /// Those that a definition was given.
    pub fn of(definition: &Value) -> Names {
        let names = &definition["status"]["acceptedNames"];
        let mut resources = texts(names, &["plural", "singular"]);
        resources.extend(list(names, "shortNames"));
        let mut kinds = texts(names, &["kind", "listKind"]);
        for names in [&mut resources, &mut kinds] {
            names.retain(|name| !name.is_empty());
        }
        Names { resources, kinds }
    }
}

impl Taken {
    /// By these definitions.
    pub fn by<'d>(definitions: impl IntoIterator<Item = &'d Value>) -> Taken {
        let mut taken = Taken::default();
        for definition in definitions {
            taken.take(&Names::of(definition));
        }
        taken
    }

    /// Somebody has these names now.
    pub fn take(&mut self, names: &Names) {
        for (pool, names) in self.pools(names) {
            for name in names {
                *pool.entry(name.clone()).or_default() += 1;
            }
        }
    }

    /// Somebody does not have these names any more.
    pub fn free(&mut self, names: &Names) {
        for (pool, names) in self.pools(names) {
            for name in names {
                let left = pool.get_mut(name).map_or(0, |count| {
                    *count -= 1;
                    *count
                });
                if left == 0 {
                    pool.remove(name);
                }
            }
        }
    }

    fn pools<'n>(&mut self, names: &'n Names) -> [(&mut HashMap<String, usize>, &'n [String]); 2] {
        [
            (&mut self.resources, &names.resources),
            (&mut self.kinds, &names.kinds),
        ]
    }
}

fn texts(names: &Value, parts: &[&str]) -> Vec<String> {
    let text = |part: &&str| names[*part].as_str().map(str::to_owned);
    parts.iter().filter_map(text).collect()
}

fn list(names: &Value, part: &str) -> Vec<String> {
    let all = names[part].as_array().into_iter().flatten();
    all.filter_map(|n| n.as_str().map(str::to_owned)).collect()
}

/// Whether a condition of a definition is true.
pub fn is_true(definition: &Value, condition: &str) -> bool {
    find(definition, condition).is_some_and(|c| c["status"] == "True")
}

fn find<'d>(definition: &'d Value, condition: &str) -> Option<&'d Value> {
    let mut all = definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    all.find(|c| c["type"] == condition)
}

/// Sets a condition; its time moves when its status does.
pub fn set(definition: &mut Value, now: &str, ty: &str, status: &str, reason: &str, message: &str) {
    let same = find(definition, ty).filter(|c| c["status"] == status);
    let since = same.map_or(Value::from(now), |c| c["lastTransitionTime"].clone());
    let condition = json!({"type": ty, "status": status, "lastTransitionTime": since,
        "reason": reason, "message": message});
    if !definition["status"]["conditions"].is_array() {
        definition["status"]["conditions"] = json!([]);
    }
    let all = definition["status"]["conditions"].as_array_mut();
    let all = all.expect("made above");
    match all.iter_mut().find(|c| c["type"] == ty) {
        Some(present) => *present = condition,
        None => all.push(condition),
    }
}

/// The definition with the names it gets and the conditions that follow; the same if nothing changes.
pub fn settled(definition: &Value, taken: &Taken, now: &str) -> Value {
    let mut next = definition.clone();
    if definition["metadata"].get("deletionTimestamp").is_some() {
        return next;
    }
    let (accepted, conflict) = accepted(definition, taken);
    next["status"]["acceptedNames"] = accepted;
    match &conflict {
        None => set(
            &mut next,
            now,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
        ),
        Some((reason, message)) => set(&mut next, now, "NamesAccepted", "False", reason, message),
    }
    approve(&mut next, now);
    establish(&mut next, now, conflict.is_some());
    if next == *definition {
        definition.clone()
    } else {
        next
    }
}

// What is established stays so: its clients know it by the names it was accepted with.
fn establish(definition: &mut Value, now: &str, conflicts: bool) {
    const INITIAL: &str = "the initial names have been accepted";
    let broken = is_broken_bundle(definition);
    match (is_true(definition, "Established"), conflicts) {
        (_, _) if broken && !is_true(definition, "Established") => {
            let message = "The conversion webhook CABundle is invalid";
            set(
                definition,
                now,
                "Established",
                "False",
                "InvalidCABundle",
                message,
            );
        }
        (true, _) => {}
        (false, true) => {
            let message = "not all names are accepted";
            set(
                definition,
                now,
                "Established",
                "False",
                "NotAccepted",
                message,
            );
        }
        (false, false) => set(
            definition,
            now,
            "Established",
            "True",
            "InitialNamesAccepted",
            INITIAL,
        ),
    }
}

fn is_broken_bundle(definition: &Value) -> bool {
    use base64::Engine as _;
    let bundle = definition.pointer("/spec/conversion/webhook/clientConfig/caBundle");
    let Some(text) = bundle.and_then(Value::as_str).filter(|t| !t.is_empty()) else {
        return false;
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    !decoded.is_ok_and(|pem| pem.windows(27).any(|w| w == b"-----BEGIN CERTIFICATE-----"))
}

/// The names a definition gets, and why not all it asked for.
fn accepted(definition: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let (wanted, had) = (
        &definition["spec"]["names"],
        &definition["status"]["acceptedNames"],
    );
    let mut next: Map<String, Value> = had.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let free =
        |name: &str, own: bool, pool: &HashMap<String, usize>| own || !pool.contains_key(name);
    let parts = [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ];
    for (part, reason, pool) in parts {
        if part == "shortNames" {
            let had = list(had, part);
            let all = list(wanted, part);
            let clash = |name: &&String| !free(name, had.contains(name), pool);
            let clashes: Vec<String> = all.iter().filter(clash).map(|n| in_use(n)).collect();
            if clashes.is_empty() {
                put(&mut next, part, all.into());
            } else {
                let message = match clashes.as_slice() {
                    [one] => one.clone(),
                    several => format!("[{}]", several.join(", ")),
                };
                conflict = Some((reason, message));
            }
            continue;
        }
        let name = wanted[part].as_str().unwrap_or_default();
        if free(name, had[part] == name, pool) {
            put(&mut next, part, name.into());
        } else {
            conflict = Some((reason, in_use(name)));
        }
    }
    put(&mut next, "categories", wanted["categories"].clone());
    for part in ["plural", "kind"] {
        next.entry(part).or_insert_with(|| "".into());
    }
    (Value::Object(next), conflict)
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn put(names: &mut Map<String, Value>, part: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    match empty {
        true => names.remove(part),
        false => names.insert(part.to_owned(), value),
    };
}

/// Whether names of a group are given out by the Kubernetes community.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|own| {
        group == *own
            || group
                .strip_suffix(own)
                .is_some_and(|rest| rest.ends_with('.'))
    })
}

fn approve(definition: &mut Value, now: &str) {
    const CONDITION: &str = "KubernetesAPIApprovalPolicyConformant";
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    if !is_protected(group) {
        return;
    }
    let annotation = definition["metadata"]["annotations"][APPROVAL].as_str();
    let value = annotation.unwrap_or_default().to_owned();
    let (status, reason, message) = match value.as_str() {
        "" => (
            "False",
            "MissingAnnotation",
            format!(
                "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ),
        text if text.starts_with("unapproved") => (
            "False",
            "UnapprovedAnnotation",
            format!("not approved: {text:?}"),
        ),
        url if url.starts_with("https://") || url.starts_with("http://") => {
            ("True", "ApprovedAnnotation", format!("approved in {url}"))
        }
        text => (
            "False",
            "InvalidAnnotation",
            format!(
                "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111 (got {text:?})"
            ),
        ),
    };
    set(definition, now, CONDITION, status, reason, &message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "names": {
            "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": short}}, "status": {}})
    }

    fn condition(definition: &Value, ty: &str) -> (String, String, String) {
        let found = find(definition, ty).expect(ty);
        let text = |part: &str| found[part].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    #[test]
    fn a_good_definition_is_accepted_and_established_and_then_left_alone() {
        let done = settled(
            &definition("widgets", "Widget", &["wd"]),
            &Taken::default(),
            "t1",
        );
        let types: Vec<_> = done["status"]["conditions"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c["type"].clone())
            .collect();
        assert_eq!(types, ["NamesAccepted", "Established"]);
        assert_eq!(
            condition(&done, "Established"),
            (
                "True".into(),
                "InitialNamesAccepted".into(),
                "the initial names have been accepted".into()
            )
        );
        assert_eq!(done["status"]["acceptedNames"]["shortNames"], json!(["wd"]));
        assert_eq!(settled(&done, &Taken::default(), "t2"), done);
    }

    #[test]
    fn names_of_others_are_not_given_out_and_the_last_conflict_is_named() {
        let first = settled(
            &definition("widgets", "Widget", &["wd"]),
            &Taken::default(),
            "t",
        );
        let taken = Taken::by([&first]);
        let second = settled(&definition("gadgets", "Widget", &["wd", "gd"]), &taken, "t");
        assert_eq!(
            condition(&second, "NamesAccepted"),
            (
                "False".into(),
                "ListKindConflict".into(),
                "\"WidgetList\" is already in use".into()
            )
        );
        assert_eq!(
            condition(&second, "Established"),
            (
                "False".into(),
                "NotAccepted".into(),
                "not all names are accepted".into()
            )
        );
        assert_eq!(second["status"]["acceptedNames"]["plural"], "gadgets");
        assert!(
            second["status"]["acceptedNames"]
                .get("shortNames")
                .is_none()
        );
        let third = settled(
            &definition("gadgets", "Gadget", &["wd", "widgets"]),
            &taken,
            "t",
        );
        assert_eq!(
            condition(&third, "NamesAccepted").2,
            "[\"wd\" is already in use, \"widgets\" is already in use]"
        );
        let later = settled(&second, &Taken::default(), "t2");
        assert!(is_true(&later, "Established"), "once the name is free");
    }

    #[test]
    fn a_name_is_free_when_the_last_who_had_it_is_gone() {
        let one = settled(&definition("a", "A", &["x"]), &Taken::default(), "t");
        let names = Names::of(&one);
        let mut taken = Taken::by([&one, &one]);
        let conflicts = |taken: &Taken| {
            let other = settled(&definition("b", "B", &["x"]), taken, "t");
            !is_true(&other, "NamesAccepted")
        };
        taken.free(&names);
        assert!(conflicts(&taken), "one is left");
        taken.free(&names);
        assert!(!conflicts(&taken));
    }

    #[test]
    fn protected_groups_need_an_approval() {
        let mut own = definition("widgets", "Widget", &[]);
        own["spec"]["group"] = "x-k8s.io".into();
        assert!(
            find(
                &settled(&own, &Taken::default(), "t"),
                "KubernetesAPIApprovalPolicyConformant"
            )
            .is_none()
        );
        own["spec"]["group"] = "gateway.networking.k8s.io".into();
        own["metadata"]["annotations"] = json!({APPROVAL: "https://example.com/1"});
        let done = settled(&own, &Taken::default(), "t");
        assert_eq!(
            condition(&done, "KubernetesAPIApprovalPolicyConformant").2,
            "approved in https://example.com/1"
        );
    }
}
