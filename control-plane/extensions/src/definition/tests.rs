use super::*;
use serde_json::json;

fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {
        "replicas": {"type": "integer", "default": 1},
        "color": {"type": "string"},
        "selector": {"type": "string"},
    }});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
        "shortNames": ["wd"], "categories": ["all"]});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [
            {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": schema},
            {"name": "v1", "served": true, "storage": true, "schema": schema,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".spec.selector"}},
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Want", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ]},
            {"name": "v0", "served": false, "storage": false, "schema": schema},
        ]},
        "status": {"acceptedNames": names, "conditions": [{"type": "NamesAccepted", "status": "True"}]},
    })
}

fn read(definition: &Value) -> Vec<Arc<Resource>> {
    Definitions::default().read(definition)
}

fn version(resource: &Resource) -> &dyn Definition {
    resource.ty.defined().expect("a custom resource")
}

#[test]
fn every_served_version_is_a_resource_and_the_best_stands_first() {
    let resources = read(&definition());
    let served: Vec<_> = resources.iter().map(|r| r.gv.version).collect();
    assert_eq!(served, ["v1", "v1beta1"]);
    assert_eq!(resources[1].stored.version, "v1");
    assert_eq!(resources[0].short_names, ["wd"]);
    let below: Vec<_> = resources[0].subresources.iter().map(|s| s.name).collect();
    assert_eq!(below, ["status", "scale"]);
    let warning = version(&resources[1]).deprecation();
    assert_eq!(
        warning,
        Some("example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget")
    );
    let mut refused = definition();
    refused["status"]["conditions"] = json!([]);
    assert!(
        read(&refused).is_empty(),
        "names that are not accepted serve nothing"
    );
}

#[test]
fn versions_rank_as_kubernetes_ranks_them() {
    let mut versions = [
        "v1alpha1",
        "foo10",
        "v11beta2",
        "v2",
        "foo1",
        "v3beta1",
        "v12alpha1",
        "v10",
    ];
    versions.sort_by(|a, b| by_priority(b, a));
    let wanted = [
        "v10",
        "v2",
        "v11beta2",
        "v3beta1",
        "v12alpha1",
        "v1alpha1",
        "foo1",
        "foo10",
    ];
    assert_eq!(versions, wanted);
}

#[test]
fn columns_show_what_their_paths_lead_to() {
    let resources = read(&definition());
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"color": "red", "replicas": "many"}});
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().expect("a time");
    let cells = version(&resources[0]).cells(&object, now);
    assert_eq!(Value::from(cells), json!(["a", "red", null, "5m"]));
    let headings: Vec<_> = version(&resources[1])
        .columns()
        .iter()
        .map(|c| c.name.clone())
        .collect();
    assert_eq!(headings, ["Name", "Age"]);
}

#[test]
fn objects_change_versions_and_follow_the_schema_of_today() {
    let resources = read(&definition());
    let stored = json!({"apiVersion": "example.com/v1beta1", "kind": "Widget",
        "metadata": {"name": "a", "generation": 2}, "spec": {"color": "red", "gone": 1}});
    let adopted = version(&resources[0]).adopt(stored);
    let wanted = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "generation": 2}, "spec": {"color": "red", "replicas": 1}});
    assert_eq!(adopted, wanted);
    let mut served = adopted;
    version(&resources[1]).serve(&mut served);
    assert_eq!(served["apiVersion"], "example.com/v1beta1");
}

#[test]
fn a_field_can_be_selected_by_in_the_versions_that_say_so() {
    let resources = read(&definition());
    let object = json!({"spec": {"color": "red"}});
    assert_eq!(version(&resources[0]).selectable(), ["spec.color"]);
    assert_eq!(version(&resources[0]).selected(&object), ["red"]);
    assert_eq!(version(&resources[1]).selectable(), [""]);
}

#[test]
fn objects_are_judged_by_schema_and_scale() {
    let resources = read(&definition());
    let told = |object: Value| -> Vec<String> {
        let mut errors = Errors::default();
        version(&resources[0]).validate(&object, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    };
    let object =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"replicas": -1}});
    assert_eq!(
        told(object),
        ["spec.replicas: Invalid value: -1: should be a non-negative integer"]
    );
    let object = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "spec": {}});
    assert_eq!(
        told(object),
        ["kind: Invalid value: \"Gadget\": must be Widget"]
    );
}
