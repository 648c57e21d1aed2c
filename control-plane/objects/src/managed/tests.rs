#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{self, TypeRef};

/// One object and the clock that writes to it.
struct World {
    ty: TypeRef,
    kind: &'static str,
    api_version: &'static str,
    live: Option<Value>,
    writes: u32,
    filter: Filter,
    subresource: &'static str,
}

impl World {
    fn new(group: &str, version: &str, kind: &'static str) -> Self {
        let api_version: &'static str = match group {
            "" => "v1",
            "apps" => "apps/v1",
            "autoscaling" if version == "v2" => "autoscaling/v2",
            _ => "autoscaling/v1",
        };
        Self {
            ty: schema::kind(group, version, kind).unwrap(),
            kind,
            api_version,
            live: None,
            writes: 0,
            filter: Filter::default(),
            subresource: "",
        }
    }

    fn deployment() -> Self {
        Self::new("apps", "v1", "Deployment")
    }

    fn service() -> Self {
        Self::new("", "v1", "Service")
    }

    fn object(&self, body: &Value) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "n", "namespace": "ns"}});
        for (key, value) in body.as_object().unwrap() {
            match (key.as_str(), value) {
                ("metadata", Value::Object(fields)) => fields
                    .iter()
                    .for_each(|(k, v)| object["metadata"][k] = v.clone()),
                _ => object[key] = value.clone(),
            }
        }
        object
    }

    fn request<'r>(&'r self, manager: &'r str, time: &'r str, force: bool) -> Request<'r> {
        Request {
            manager,
            api_version: self.api_version,
            kind: self.kind,
            subresource: self.subresource,
            time,
            force,
            reset: false,
            filter: &self.filter,
        }
    }

    fn tick(&mut self) -> String {
        self.writes += 1;
        format!("2026-01-01T00:00:{:02}Z", self.writes)
    }

    fn stored(&mut self, mut object: Value) -> &Value {
        object["metadata"]["uid"] = json!("u");
        self.live.insert(object)
    }

    fn update(&mut self, manager: &str, body: Value) -> &Value {
        let time = self.tick();
        let mut new = normalize::normalize(self.ty, self.object(&body))
            .unwrap()
            .value;
        update(
            self.ty,
            self.live.as_ref(),
            &mut new,
            &self.request(manager, &time, false),
        );
        self.stored(new)
    }

    /// A read-modify-write by a client that sends back what it read.
    fn edit(&mut self, manager: &str, change: impl FnOnce(&mut Value)) -> &Value {
        let time = self.tick();
        let mut new = self.live.clone().unwrap();
        change(&mut new);
        update(
            self.ty,
            self.live.as_ref(),
            &mut new,
            &self.request(manager, &time, false),
        );
        self.stored(new)
    }

    fn try_apply(&mut self, manager: &str, body: &Value, force: bool) -> Result<Value, ApplyError> {
        let time = self.tick();
        let config = self.object(body);
        let finish = |merged| {
            normalize::normalize(self.ty, merged)
                .map(|n| n.value)
                .map_err(|e| e.to_string())
        };
        let request = self.request(manager, &time, force);
        let object = apply(self.ty, self.live.as_ref(), &config, &request, finish)?;
        Ok(self.stored(object).clone())
    }

    fn apply(&mut self, manager: &str, body: Value) -> Value {
        self.try_apply(manager, &body, false).unwrap()
    }

    fn refused(&mut self, manager: &str, body: Value) -> String {
        self.try_apply(manager, &body, false)
            .unwrap_err()
            .to_string()
    }

    fn managers(&self) -> Managers {
        Managers::of(self.live.as_ref().unwrap()).unwrap()
    }

    /// The paths `manager` owns by `operation`, through any subresource.
    fn owned(&self, manager: &str, operation: Operation) -> Vec<String> {
        let managers = self.managers();
        let mine = managers
            .0
            .iter()
            .filter(|(id, _)| id.manager == manager && id.operation == operation);
        mine.flat_map(|(_, owned)| owned.set.paths())
            .map(|p| p.to_string())
            .collect()
    }

    fn applied(&self, manager: &str) -> Vec<String> {
        self.owned(manager, Operation::Apply)
    }

    fn updated(&self, manager: &str) -> Vec<String> {
        self.owned(manager, Operation::Update)
    }

    fn time_of(&self, manager: &str) -> Option<String> {
        let managers = self.managers();
        managers
            .0
            .into_iter()
            .find(|(id, _)| id.manager == manager)
            .and_then(|(_, owned)| owned.time)
    }
}

#[test]
fn creation_gives_every_field_to_its_creator() {
    let mut w = World::deployment();
    let object = w.update("kubectl-create", json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 1}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }));
    let expected = json!([{
        "manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-01-01T00:00:01Z", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}}}},
        },
    }]);
    assert_eq!(object["metadata"]["managedFields"], expected);
}

#[test]
fn updates_move_only_what_changed() {
    let mut w = World::deployment();
    w.update(
        "creator",
        json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "paused": true}}),
    );
    w.edit("scaler", |o| o["spec"]["replicas"] = json!(2));
    assert_eq!(w.updated("scaler"), [".spec.replicas"]);
    assert_eq!(
        w.updated("creator"),
        [".metadata.labels", ".metadata.labels.a", ".spec.paused"]
    );
    w.edit("other", |o| {
        _ = o["spec"].as_object_mut().unwrap().remove("paused")
    });
    assert_eq!(
        w.updated("creator"),
        [".metadata.labels", ".metadata.labels.a"]
    );
    assert!(w.updated("other").is_empty());
    w.edit("scaler", |o| o["spec"]["minReadySeconds"] = json!(3));
    assert_eq!(
        w.updated("scaler"),
        [".spec.minReadySeconds", ".spec.replicas"]
    );
}

#[test]
fn a_write_without_effect_keeps_entries_and_times() {
    let mut w = World::deployment();
    let before = w
        .update("creator", json!({"spec": {"replicas": 1}}))
        .clone();
    let after = w.edit("someone", |_| {}).clone();
    assert_eq!(before, after);
    // A client that drops the entries does not delete them.
    let after = w
        .edit("someone", |o| {
            _ = o["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("managedFields")
        })
        .clone();
    assert_eq!(before, after);
}

#[test]
fn empty_entries_reset_tracking() {
    for reset in [json!([]), json!([{}])] {
        let mut w = World::deployment();
        w.update("creator", json!({"spec": {"replicas": 1}}));
        let object = w.edit("admin", |o| o["metadata"]["managedFields"] = reset.clone());
        assert!(object["metadata"].get("managedFields").is_none(), "{reset}");
        // And stays off for updates.
        let object = w.edit("scaler", |o| o["spec"]["replicas"] = json!(2));
        assert!(object["metadata"].get("managedFields").is_none());
    }
    assert!(asks_for_reset(&json!({"metadata": {"managedFields": []}})));
    assert!(!asks_for_reset(
        &json!({"metadata": {"managedFields": [{"manager": "x"}]}})
    ));
}

#[test]
fn unreadable_entries_fall_back_to_the_live_ones() {
    let mut w = World::deployment();
    let before = w
        .update("creator", json!({"spec": {"replicas": 1}}))
        .clone();
    let after = w
        .edit("x", |o| {
            o["metadata"]["managedFields"] = json!([{"manager": "m"}, {}])
        })
        .clone();
    assert_eq!(
        before["metadata"]["managedFields"],
        after["metadata"]["managedFields"]
    );
}

#[test]
fn subresource_writes_have_their_own_entry() {
    let mut w = World::deployment();
    w.update("m", json!({"spec": {"replicas": 1}}));
    w.subresource = "status";
    w.filter = Filter::without_fields(["spec", "metadata"]);
    w.edit("m", |o| {
        o["status"] = json!({"replicas": 1});
        o["metadata"]["labels"] = json!({"ignored": "x"});
        o["metadata"]["managedFields"] = json!([]);
    });
    let managers = w.managers();
    assert_eq!(managers.0.len(), 2);
    let status = ManagerId::new("m", Operation::Update, "apps/v1", "status");
    assert_eq!(
        managers.0[&status].set.to_fields_v1(),
        json!({"f:status": {"f:replicas": {}}})
    );
}

#[test]
fn an_eleventh_updater_merges_the_two_oldest() {
    let mut w = World::new("", "v1", "ConfigMap");
    w.update("m00", json!({"data": {"k00": "v"}}));
    for i in 1..=10 {
        w.edit(&format!("m{i:02}"), |o| {
            o["data"][format!("k{i:02}")] = json!("v")
        });
    }
    let managers = w.managers();
    assert_eq!(managers.0.len(), 10);
    assert_eq!(
        w.updated("ancient-changes"),
        [".data", ".data.k00", ".data.k01"]
    );
    assert_eq!(
        w.time_of("ancient-changes").as_deref(),
        Some("2026-01-01T00:00:02Z")
    );
    w.edit("m11", |o| o["data"]["k11"] = json!("v"));
    assert_eq!(w.managers().0.len(), 10);
    assert_eq!(
        w.updated("ancient-changes"),
        [".data", ".data.k00", ".data.k01", ".data.k02"]
    );
}

#[test]
fn entries_are_sorted_by_operation_time_and_manager() {
    let mut w = World::deployment();
    w.update("z", json!({"spec": {"replicas": 1}}));
    w.edit("a", |o| o["spec"]["paused"] = json!(true));
    w.apply("b", json!({"spec": {"minReadySeconds": 1}}));
    let entries = w.live.as_ref().unwrap()["metadata"]["managedFields"].clone();
    let order: Vec<_> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["manager"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["b", "z", "a"]);
}

#[test]
fn apply_creates_and_owns_just_its_configuration() {
    let mut w = World::deployment();
    let object = w.apply("m", json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}}));
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(
        w.applied("m"),
        [
            ".metadata.labels.a",
            ".spec.replicas",
            ".spec.template.spec.containers[name=\"c\"]",
            ".spec.template.spec.containers[name=\"c\"].name"
        ]
    );
}

#[test]
fn applying_again_without_a_field_removes_it() {
    let mut w = World::deployment();
    w.apply("m", json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}, {"name": "d"}]}}}}));
    let object = w.apply("m", json!({"metadata": {"labels": {"a": "1"}}, "spec": {"template": {"spec": {"containers": [{"name": "d"}]}}}}));
    assert_eq!(object["metadata"]["labels"], json!({"a": "1"}));
    assert!(object["spec"].get("replicas").is_none());
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"],
        json!([{"name": "d", "resources": {}}])
    );
}

#[test]
fn shared_fields_stay_until_the_last_owner_leaves() {
    let mut w = World::deployment();
    w.apply("one", json!({"spec": {"replicas": 1, "paused": true}}));
    w.apply("two", json!({"spec": {"replicas": 1}}));
    let object = w.apply("one", json!({"spec": {"paused": true}}));
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(w.applied("one"), [".spec.paused"]);
    let object = w.apply("two", json!({}));
    assert!(object["spec"].get("replicas").is_none());
    assert!(w.applied("two").is_empty());
}

#[test]
fn a_field_an_updater_took_over_is_not_pruned() {
    let mut w = World::deployment();
    w.apply("m", json!({"spec": {"replicas": 1, "paused": true}}));
    w.edit("hpa", |o| o["spec"]["replicas"] = json!(5));
    assert_eq!(w.applied("m"), [".spec.paused"]);
    let object = w.apply("m", json!({"spec": {"paused": true}}));
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(w.updated("hpa"), [".spec.replicas"]);
}

#[test]
fn changing_anothers_field_is_a_conflict_unless_forced() {
    let mut w = World::deployment();
    w.apply("one", json!({"spec": {"replicas": 1}}));
    let error = w
        .try_apply("two", &json!({"spec": {"replicas": 2}}), false)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    let ApplyError::Conflicts(conflicts) = error else {
        panic!("not a conflict")
    };
    assert_eq!(conflicts.0[0].message(), "conflict with \"one\"");
    assert_eq!(conflicts.0[0].field(), ".spec.replicas");
    let object = w
        .try_apply("two", &json!({"spec": {"replicas": 2}}), true)
        .unwrap();
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(w.applied("two"), [".spec.replicas"]);
    assert!(w.applied("one").is_empty());
}

#[test]
fn conflicts_with_updaters_name_version_and_subresource() {
    let mut w = World::deployment();
    w.update("kubectl-client-side-apply", json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "nginx", "image": "1"}]}}}}));
    w.subresource = "scale";
    w.edit("hpa", |o| o["spec"]["replicas"] = json!(3));
    w.subresource = "";
    let text = w.refused("m", json!({"spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "nginx", "image": "2"}]}}}}));
    assert_eq!(
        text,
        "Apply failed with 2 conflicts: conflicts with \"hpa\" with subresource \"scale\" using apps/v1:\n- .spec.replicas\nconflicts with \"kubectl-client-side-apply\" using apps/v1:\n- .spec.template.spec.containers[name=\"nginx\"].image"
    );
}

#[test]
fn applying_equal_values_shares_them_without_conflict() {
    let mut w = World::deployment();
    w.update("creator", json!({"spec": {"replicas": 1}}));
    w.apply("m", json!({"spec": {"replicas": 1}}));
    assert_eq!(w.applied("m"), [".spec.replicas"]);
    assert_eq!(w.updated("creator"), [".spec.replicas"]);
}

#[test]
fn two_managers_share_a_keyed_list() {
    let mut w = World::service();
    w.apply(
        "one",
        json!({"spec": {"ports": [{"port": 80, "name": "http"}]}}),
    );
    let object = w.apply(
        "two",
        json!({"spec": {"ports": [{"port": 443, "protocol": "TCP", "name": "https"}]}}),
    );
    assert_eq!(object["spec"]["ports"].as_array().unwrap().len(), 2);
    let object = w.apply(
        "one",
        json!({"spec": {"ports": [{"port": 8080, "name": "http"}]}}),
    );
    let ports: Vec<_> = object["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["port"].as_i64().unwrap())
        .collect();
    assert_eq!(ports, [443, 8080]);
    assert_eq!(
        w.applied("one")[0],
        ".spec.ports[port=8080,protocol=\"TCP\"]"
    );
}

#[test]
fn two_managers_share_a_set() {
    let mut w = World::service();
    w.apply("one", json!({"metadata": {"finalizers": ["a", "b"]}}));
    w.apply("two", json!({"metadata": {"finalizers": ["b", "c"]}}));
    let object = w.apply("one", json!({"metadata": {"finalizers": ["a"]}}));
    assert_eq!(object["metadata"]["finalizers"], json!(["a", "b", "c"]));
    let object = w.apply("one", json!({}));
    assert_eq!(object["metadata"]["finalizers"], json!(["b", "c"]));
}

#[test]
fn atomic_values_have_one_owner_at_a_time() {
    let mut w = World::service();
    w.apply("one", json!({"spec": {"selector": {"a": "1"}}}));
    let text = w.refused("two", json!({"spec": {"selector": {"b": "2"}}}));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.selector"
    );
    let object = w
        .try_apply("two", &json!({"spec": {"selector": {"b": "2"}}}), true)
        .unwrap();
    assert_eq!(object["spec"]["selector"], json!({"b": "2"}));
}

#[test]
fn others_fields_keep_a_struct_but_not_a_list_element() {
    let mut w = World::deployment();
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    w.apply("one", pod(json!({"securityContext": {"runAsUser": 1}, "containers": [{"name": "c", "image": "i"}]})));
    w.edit("injector", |o| {
        let spec = &mut o["spec"]["template"]["spec"];
        spec["securityContext"]["fsGroup"] = json!(2);
        spec["containers"][0]["env"] = json!([{"name": "E", "value": "1"}]);
    });
    let object = w.apply("one", json!({}));
    let spec = &object["spec"]["template"]["spec"];
    assert_eq!(spec["securityContext"], json!({"fsGroup": 2}));
    assert_eq!(spec["containers"], Value::Null);
    assert_eq!(
        w.updated("injector"),
        [".spec.template.spec.securityContext.fsGroup"]
    );
}

#[test]
fn defaults_set_by_the_server_belong_to_nobody() {
    let mut w = World::deployment();
    let time = w.tick();
    let config = w.object(&json!({"spec": {"paused": true}}));
    let request = w.request("m", &time, false);
    let object = apply(w.ty, None, &config, &request, |mut merged| {
        merged["spec"]["replicas"] = json!(1);
        Ok(merged)
    })
    .unwrap();
    w.stored(object);
    assert_eq!(w.applied("m"), [".spec.paused"]);
    w.apply("other", json!({"spec": {"replicas": 3}}));
    assert_eq!(w.applied("other"), [".spec.replicas"]);
}

#[test]
fn filtered_fields_are_merged_but_not_owned() {
    let mut w = World::deployment();
    w.filter = Filter::without_fields(["status"]);
    w.apply(
        "m",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 9}}),
    );
    assert_eq!(w.applied("m"), [".spec.replicas"]);
}

#[test]
fn include_filters_keep_only_what_patterns_lead_to() {
    let mut w = World::new("", "v1", "Pod");
    w.filter = Filter::Include(vec![vec![
        Step::Field("spec"),
        Step::Field("containers"),
        Step::Any,
        Step::Field("resources"),
    ]]);
    w.apply("m", json!({"spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}}));
    assert_eq!(
        w.applied("m"),
        [
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].resources.limits.cpu"
        ]
    );
}

#[test]
fn the_first_apply_credits_what_was_there() {
    let mut w = World::deployment();
    let untracked = w.object(&json!({"spec": {"replicas": 1, "paused": true}}));
    w.stored(normalize::normalize(w.ty, untracked).unwrap().value);
    let text = w.refused("m", json!({"spec": {"replicas": 2}}));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
    w.apply("m", json!({"spec": {"minReadySeconds": 5}}));
    assert_eq!(
        w.updated("before-first-apply"),
        [".spec.paused", ".spec.replicas"]
    );
}

fn client_side_applied(w: &mut World, replicas: u32) {
    let last = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "n", "namespace": "ns"}, "spec": {"replicas": 1}});
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    w.update(
        "kubectl-client-side-apply",
        json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}),
    );
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let mut w = World::deployment();
    client_side_applied(&mut w, 1);
    let object = w.apply("kubectl", json!({"spec": {"replicas": 2}}));
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(w.applied("kubectl"), [".spec.replicas"]);
    let annotation =
        object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
            .as_str()
            .unwrap();
    assert_eq!(
        annotation,
        "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"n\",\"namespace\":\"ns\"},\"spec\":{\"replicas\":2}}\n"
    );
}

#[test]
fn only_kubectl_and_only_unchanged_fields_are_taken_over() {
    let mut w = World::deployment();
    client_side_applied(&mut w, 1);
    assert!(
        w.refused("argo", json!({"spec": {"replicas": 2}}))
            .contains("kubectl-client-side-apply")
    );
    let mut w = World::deployment();
    client_side_applied(&mut w, 7);
    assert!(
        w.refused("kubectl", json!({"spec": {"replicas": 2}}))
            .contains(".spec.replicas")
    );
}

#[test]
fn applying_twice_keeps_times() {
    let mut w = World::deployment();
    let config = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 0.5}}}]}}}});
    let first = w.apply("m", config.clone());
    let second = w.apply("m", config);
    assert_eq!(first, second);
    w.apply("m", json!({"spec": {"replicas": 2}}));
    assert_eq!(w.time_of("m").as_deref(), Some("2026-01-01T00:00:03Z"));
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    let mut w = World::deployment();
    let table = [
        (
            json!({"metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
        (
            json!({"kind": "Pod"}),
            "invalid object type: apps/v1, Kind=Pod",
        ),
        (
            json!({"apiVersion": "v1"}),
            "invalid object type: /v1, Kind=Deployment",
        ),
        (
            json!({"spec": {"bogus": 1}}),
            "failed to create typed patch object (ns/n; apps/v1, Kind=Deployment): .spec.bogus: field not declared in schema",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"name": "x"}, {"name": "x"}]}}}}),
            "failed to create typed patch object (ns/n; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"x\"]",
        ),
    ];
    for (body, text) in table {
        assert_eq!(w.refused("m", body), text);
    }
    let time = w.tick();
    let config = w.object(&json!({}));
    let request = w.request("m", &time, false);
    let error = apply(w.ty, None, &config, &request, |_| Err("bad".to_owned())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to convert new object (ns/n; apps/v1, Kind=Deployment) to proper version: bad"
    );
}

#[test]
fn entries_of_other_versions_lose_only_what_changed_here() {
    let mut w = World::new("autoscaling", "v1", "HorizontalPodAutoscaler");
    w.update(
        "old",
        json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
    );
    let mut live = w.live.take().unwrap();
    let mut w = World::new("autoscaling", "v2", "HorizontalPodAutoscaler");
    live["apiVersion"] = json!("autoscaling/v2");
    live["spec"]
        .as_object_mut()
        .unwrap()
        .remove("targetCPUUtilizationPercentage");
    w.live = Some(live);
    w.edit("new", |o| o["spec"]["minReplicas"] = json!(2));
    assert_eq!(w.updated("new"), [".spec.minReplicas"]);
    assert!(
        w.updated("old")
            .contains(&".spec.targetCPUUtilizationPercentage".to_owned())
    );
    assert!(!w.updated("old").contains(&".spec.minReplicas".to_owned()));
}

#[test]
fn objects_without_a_declared_type_are_tracked_too() {
    let filter = Filter::default();
    let request = Request {
        manager: "m",
        api_version: "x/v1",
        kind: "X",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
        force: false,
        reset: false,
        filter: &filter,
    };
    let config = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "n"}, "spec": {"a": {"b": 1}, "l": [1]}});
    let object = apply(Shape::DEDUCED, None, &config, &request, Ok).unwrap();
    let owned = Managers::of(&object).unwrap();
    let owned = owned.0.into_values().next().unwrap().set.to_fields_v1();
    assert_eq!(
        owned["f:spec"],
        json!({".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}})
    );
}

fn configuration() -> impl Strategy<Value = Value> {
    let container = (
        "[a-c]",
        proptest::option::of("[x-z]"),
        proptest::option::of("[x-z]"),
    )
        .prop_map(|(name, image, arg)| {
            let mut c = json!({"name": name});
            if let Some(image) = image {
                c["image"] = json!(image)
            }
            if let Some(arg) = arg {
                c["args"] = json!([arg])
            }
            c
        });
    let containers = proptest::collection::vec(container, 0..4).prop_map(|mut list| {
        list.sort_by_key(|c| c["name"].to_string());
        list.dedup_by_key(|c| c["name"].clone());
        list
    });
    let labels = proptest::collection::btree_map("[a-c]", "[x-z]", 0..3);
    let finalizers = proptest::collection::btree_set("[a-c]", 0..3);
    (containers, labels, finalizers, proptest::option::of(0..3)).prop_map(|(containers, labels, finalizers, replicas)| {
        let mut body = json!({"metadata": {"labels": labels, "finalizers": finalizers}, "spec": {"template": {"spec": {"containers": containers}}}});
        if let Some(replicas) = replicas { body["spec"]["replicas"] = json!(replicas) }
        body
    })
}

proptest! {
    #[test]
    fn applying_the_same_configuration_twice_changes_nothing(before in configuration(), config in configuration()) {
        let mut w = World::deployment();
        w.update("creator", before);
        let once = w.try_apply("m", &config, true).unwrap();
        let twice = w.try_apply("m", &config, true).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn updates_never_take_untouched_fields(first in configuration(), applied in configuration(), second in configuration()) {
        let mut w = World::deployment();
        w.update("creator", first);
        w.try_apply("m", &applied, true).unwrap();
        let before = w.live.clone().unwrap();
        let owned_before: Vec<_> = w.managers().0.values().map(|o| o.set.clone()).collect();
        w.update("editor", second);
        let after = w.live.clone().unwrap();
        let changes = crate::merge::compare(w.ty.into(), &without_managed_fields(&before), &without_managed_fields(&after));
        let touched = changes.modified.union(&changes.added).union(&changes.removed);
        let all_after = w.managers().0.values().fold(crate::fieldset::FieldSet::default(), |all, o| all.union(&o.set));
        for set in owned_before {
            let lost = set.difference(&touched).difference(&all_after);
            prop_assert!(lost.is_empty(), "lost {}", lost);
        }
    }

    #[test]
    fn an_applier_gets_what_it_asked_for(before in configuration(), config in configuration()) {
        let mut w = World::deployment();
        w.update("creator", before);
        w.try_apply("m", &config, true).unwrap();
        let shape: Shape<'_> = w.ty.into();
        let live = w.live.clone().unwrap();
        let asked = crate::merge::field_set(shape, &w.object(&config));
        let changes = crate::merge::compare(shape, &w.object(&config), &live);
        prop_assert!(asked.intersection(&changes.modified).is_empty());
        prop_assert!(asked.intersection(&changes.removed).leaves().paths().iter().all(|p| p.to_string().ends_with("labels") || p.to_string().ends_with("finalizers")));
    }

    #[test]
    fn nothing_a_client_sends_panics(live in anything(), sent in anything()) {
        let mut w = World::deployment();
        w.live = Some(w.object(&live));
        let request = w.request("kubectl", "2026-01-01T00:00:00Z", false);
        let mut new = w.object(&sent);
        let _ = apply(w.ty, w.live.as_ref(), &new, &request, Ok);
        update(w.ty, w.live.as_ref(), &mut new, &request);
    }
}

/// An object body with the right names and any values.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(Value::from),
        "[a-c]|Apply|Update|FieldsV1|apps/v1".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(5, 48, 4, |inner| {
        let key = "name|labels|finalizers|managedFields|annotations|template|spec|containers|replicas|manager|operation|apiVersion|fieldsType|fieldsV1|f:spec|v:1";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..4)
                .prop_map(|m| m.into_iter().collect::<Map<_, _>>().into()),
        ]
    });
    (value.clone(), value).prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec}))
}
