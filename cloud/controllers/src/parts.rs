//! Lists of named parts inside a resource: routes, rules, probes. One way to bring them to what they should be.

use azure::models::Part;
use serde_json::Value;

/// Whether what is present says what is wanted, whatever else it says. Ids compare without case, as Azure's do, and a
/// list that is wanted empty may be left out.
pub(crate) fn says(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| says(present.get(name).unwrap_or(&Value::Null), value)),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(p, w)| says(p, w))
        }
        (Value::String(present), Value::String(wanted)) => {
            let are_ids = wanted.starts_with("/subscriptions/");
            present == wanted || (are_ids && present.eq_ignore_ascii_case(wanted))
        }
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (present, wanted) => present == wanted,
    }
}

/// Brings a list to what is wanted: parts that are ours and not wanted go, those that say something else are replaced
/// where they stand, new ones come last. Others' parts stay as they are. Gives whether anything changed.
pub(crate) fn settle(
    list: &mut Vec<Part>,
    wanted: Vec<Part>,
    is_ours: impl Fn(&Part) -> bool,
) -> bool {
    let same = |one: &Part, other: &Part| one.name.eq_ignore_ascii_case(&other.name);
    let before = list.len();
    list.retain(|part| wanted.iter().any(|w| same(w, part)) || !is_ours(part));
    let mut changed = list.len() != before;
    for part in wanted {
        match list.iter_mut().find(|present| same(present, &part)) {
            Some(present) if says(&present.properties, &part.properties) => {}
            Some(present) => {
                present.properties = part.properties;
                changed = true;
            }
            None => {
                list.push(part);
                changed = true;
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn part(name: &str, port: i64) -> Part {
        Part::new(name, json!({"port": port}))
    }

    #[test]
    fn ours_follow_and_others_stay() {
        let mut list = vec![
            part("theirs", 1),
            part("a-old", 2),
            part("a-same", 3),
            part("a-other", 4),
        ];
        list[2].properties["provisioningState"] = json!("Succeeded");
        let wanted = || vec![part("A-same", 3), part("a-other", 5), part("a-new", 6)];
        let ours = |part: &Part| part.name.starts_with("a-");
        assert!(settle(&mut list, wanted(), ours));
        let names: Vec<&str> = list.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["theirs", "a-same", "a-other", "a-new"]);
        assert_eq!(list[2].properties["port"], 5);
        assert_eq!(list[1].properties["provisioningState"], "Succeeded");
        assert!(!settle(&mut list, wanted(), ours), "a second time");
    }

    #[test]
    fn what_says_the_same() {
        let id = |id: &str| json!({"probe": {"id": id}, "list": []});
        assert!(says(
            &json!({"probe": {"id": "/SUBSCRIPTIONS/X"}, "more": 1}),
            &id("/subscriptions/x")
        ));
        assert!(!says(
            &json!({"probe": {"id": "/subscriptions/y"}}),
            &id("/subscriptions/x")
        ));
        assert!(!says(&json!({"a": [1]}), &json!({"a": [1, 2]})));
        assert!(!says(
            &json!({"protocol": "tcp"}),
            &json!({"protocol": "Tcp"})
        ));
        assert!(says(&json!({}), &json!({"a": null})));
    }
}
