//! Priority: a pod's class becomes a number, and only one class is the default.

use futures::FutureExt as _;
use serde_json::Value;

use super::shape::{has, meta, text};
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::{ApiError, Result};

const GROUP: &str = "scheduling.k8s.io";
const PREEMPT: &str = "PreemptLowerPriority";

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "Priority",
    handles,
    mutate: Some(|api, attributes, object| mutate(api, attributes, object).boxed()),
    validate: Some(|api, attributes, object| validate(api, attributes, object).boxed()),
};

fn handles(attributes: &Attributes<'_>) -> bool {
    matches!(attributes.operation, Operation::Create | Operation::Update)
        && (attributes.is_main("", "pods") || attributes.is_main(GROUP, "priorityclasses"))
}

async fn mutate(api: &Api, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    if !attributes.is("", "pods") {
        return Ok(());
    }
    if let Some(old) = attributes.old {
        keep(pod, old);
        return Ok(());
    }
    let class = class_of(api, attributes, pod).await?;
    resolve(pod, class.as_ref()).map_err(|why| attributes.forbid(Some(pod), &why))
}

// A client may leave out on update what this plugin set on create.
fn keep(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if !has(&pod["spec"], field) && has(&old["spec"], field) {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}

async fn class_of(api: &Api, attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Value>> {
    let classes = lookup::resource(GROUP, "v1", "priorityclasses");
    let name = text(&pod["spec"]["priorityClassName"]);
    if name.is_empty() {
        return Ok(default_class(lookup::list(api, classes, "").await?));
    }
    match lookup::get(api, classes, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("no PriorityClass with name {name} was found");
            Err(attributes.forbid(Some(pod), &why))
        }
    }
}

// Two defaults can come from a race; the lower one is the safer.
fn default_class(classes: Vec<Value>) -> Option<Value> {
    let defaults = classes.into_iter().filter(|c| c["globalDefault"] == true);
    defaults.min_by_key(value_of)
}

fn value_of(class: &Value) -> i64 {
    class["value"].as_i64().unwrap_or(0)
}

fn resolve(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let priority = class.map_or(0, value_of);
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; \
             priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    let policy = class.map_or(PREEMPT, |class| text(&class["preemptionPolicy"]));
    let given = text(&spec["preemptionPolicy"]);
    if !policy.is_empty() && !given.is_empty() && given != policy {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    spec["priority"] = priority.into();
    if !policy.is_empty() {
        spec["preemptionPolicy"] = policy.into();
    }
    if let Some(class) = class {
        spec["priorityClassName"] = meta(class, "name").into();
    }
    Ok(())
}

async fn validate(api: &Api, attributes: &Attributes<'_>, class: Option<&Value>) -> Result<()> {
    let Some(class) = class.filter(|class| class["globalDefault"] == true) else {
        return Ok(());
    };
    if !attributes.is(GROUP, "priorityclasses") {
        return Ok(());
    }
    let classes = lookup::list(api, attributes.resource(), "").await?;
    only_default(attributes, class, default_class(classes).as_ref())
}

fn only_default(
    attributes: &Attributes<'_>,
    class: &Value,
    present: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(present) = present.map(|present| meta(present, "name")) else {
        return Ok(());
    };
    if attributes.operation == Operation::Update && present == meta(class, "name") {
        return Ok(());
    }
    let why =
        format!("PriorityClass {present} is already marked as default. Only one default can exist");
    Err(attributes.forbid(Some(class), &why))
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;
    use serde_json::json;

    fn class(name: &str, value: i64, is_default: bool) -> Value {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": is_default,
            "preemptionPolicy": "Never"})
    }

    #[test]
    fn a_class_becomes_a_number() {
        let high = class("high", 1000, false);
        let conflict = "the integer value of priority (5) must not be provided in pod spec; \
                        priority admission controller computed 1000 from the given PriorityClass name";
        let policy = "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; \
                      priority admission controller computed Never from the given PriorityClass name";
        for (spec, class, expected) in [
            (
                json!({}),
                None,
                Ok(json!({"priority": 0, "preemptionPolicy": PREEMPT})),
            ),
            (
                json!({"priority": 0}),
                None,
                Ok(json!({"priority": 0, "preemptionPolicy": PREEMPT})),
            ),
            (
                json!({"priorityClassName": "high"}),
                Some(&high),
                Ok(
                    json!({"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "Never"}),
                ),
            ),
            (
                json!({"priority": 5}),
                Some(&high),
                Err(conflict.to_owned()),
            ),
            (
                json!({"preemptionPolicy": PREEMPT}),
                Some(&high),
                Err(policy.to_owned()),
            ),
        ] {
            let mut pod = json!({"spec": spec});
            let outcome = resolve(&mut pod, class).map(|()| pod["spec"].clone());
            assert_eq!(outcome, expected, "{spec}");
        }
    }

    #[test]
    fn the_lowest_default_counts_and_there_should_be_one() {
        let classes = || {
            vec![
                class("a", 10, true),
                class("b", 5, true),
                class("c", 1, false),
            ]
        };
        assert_eq!(default_class(classes()), Some(class("b", 5, true)));
        assert_eq!(default_class(vec![class("c", 1, false)]), None);
        let call = trial::call((GROUP, "v1", "priorityclasses"), "", "new");
        let old = json!({});
        let present = class("b", 5, true);
        let create = trial::attributes(&call, Operation::Create, "", None);
        let update = trial::attributes(&call, Operation::Update, "", Some(&old));
        let refused = only_default(&create, &class("new", 1, true), Some(&present));
        assert_eq!(
            refused.expect_err("a second default").message,
            "priorityclasses.scheduling.k8s.io \"new\" is forbidden: PriorityClass b is already marked as default. \
             Only one default can exist"
        );
        assert!(only_default(&update, &class("b", 5, true), Some(&present)).is_ok());
        assert!(only_default(&create, &class("new", 1, true), None).is_ok());
    }

    #[test]
    fn an_update_may_leave_the_priority_out() {
        let mut pod = json!({"spec": {}});
        keep(
            &mut pod,
            &json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}}),
        );
        assert_eq!(
            pod["spec"],
            json!({"priority": 7, "preemptionPolicy": "Never"})
        );
    }
}
