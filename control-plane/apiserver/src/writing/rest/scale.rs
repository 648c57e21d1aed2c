//! The scale subresource: replicas as autoscaling/v1 Scale.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use http::StatusCode;
use kinds::defined::ScalePaths;
use kinds::field::{Errors, Path};
use kinds::resources::{GroupVersion, Resource};
use objects::fieldset::{FieldPath, FieldSet};
use objects::managed::{self, Managers, Owned};
use objects::schema::{self, TypeRef};
use serde_json::{Value, json};

use super::patch::{Configuration, Patch};
use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::WriteOptions;
use crate::reading::negotiate::Offer;
use crate::reading::view::View;
use crate::status::{ApiError, Result};
use crate::writing::codec::{self, Expected};

const GV: GroupVersion = GroupVersion {
    group: "autoscaling",
    version: "v1",
};

/// Scale is served below other resources only; views and tables of it need it as one.
static SCALE: LazyLock<Arc<Resource>> = LazyLock::new(|| {
    Arc::new(Resource {
        gv: GV,
        plural: "scales",
        singular: "scale",
        kind: "Scale",
        list_kind: "ScaleList",
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        stored: GV,
        hashed: GV,
        is_virtual: false,
        subresources: Vec::new(),
        ty: scale_type().into(),
    })
});

fn scale_type() -> TypeRef {
    schema::kind(GV.group, GV.version, "Scale").expect("in the table")
}

/// A Scale as seen through an object that has replicas.
pub(crate) fn of(resource: &Resource, object: &Value) -> Value {
    let metadata = &object["metadata"];
    if let Some(paths) = paths(resource) {
        return shown(metadata, custom_numbers(paths, object));
    }
    let selector = match resource.kind {
        "ReplicationController" => {
            kube_kit::selector::LabelSelector::from_map(&object["spec"]["selector"])
        }
        _ => kube_kit::selector::LabelSelector::from_object(&object["spec"]["selector"])
            .unwrap_or_else(|_| kube_kit::selector::LabelSelector::nothing()),
    };
    let numbers = Numbers {
        wanted: object["spec"]["replicas"].as_i64().unwrap_or(0),
        present: object["status"]["replicas"].as_i64().unwrap_or(0),
        selector: selector.to_string(),
    };
    shown(metadata, numbers)
}

/// What a Scale says.
struct Numbers {
    wanted: i64,
    present: i64,
    selector: String,
}

fn paths(resource: &Resource) -> Option<&ScalePaths> {
    resource.ty.defined()?.scale()
}

fn custom_numbers(paths: &ScalePaths, object: &Value) -> Numbers {
    let at = |names: &[String]| names.iter().try_fold(object, |value, name| value.get(name));
    let number = |names: &[String]| at(names).and_then(Value::as_i64).unwrap_or(0);
    let selector = paths
        .selector
        .as_deref()
        .and_then(at)
        .and_then(Value::as_str);
    Numbers {
        wanted: number(&paths.spec),
        present: number(&paths.status),
        selector: selector.unwrap_or_default().to_owned(),
    }
}

/// Sets how many there should be.
pub(crate) fn set(resource: &Resource, object: &mut Value, replicas: i64) {
    match paths(resource) {
        None => object["spec"]["replicas"] = replicas.into(),
        Some(paths) => {
            let mut place = object;
            for name in &paths.spec {
                if !place.is_object() {
                    *place = json!({});
                }
                place = &mut place[name.as_str()];
            }
            *place = replicas.into();
        }
    }
}

fn shown(metadata: &Value, numbers: Numbers) -> Value {
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": numbers.wanted},
        "status": {"replicas": numbers.present, "selector": numbers.selector},
    });
    if scale["spec"]["replicas"] == 0 {
        scale["spec"] = json!({});
    }
    scale
}

impl Api {
    pub(super) async fn scale(&self, call: &Call, verb: &str) -> Result<Reply> {
        let view = View {
            resource: Arc::clone(&SCALE),
            ..call.view_of(Offer::Objects)?
        }
        .suits(false)?;
        if verb == "get" {
            let stored = self
                .must_fetch(&call.resource, call.namespace(), call.path.name())
                .await?;
            let collection = self.collection(&call.resource)?;
            let object = self.served(&call.resource, &collection, &stored).await?;
            has_replicas(&call.resource, &object)?;
            return Ok(scale_reply(call, &view, &object));
        }
        let options = call.write_options()?;
        let (body, mut warnings) = Body::read(call, verb, &options)?;
        // The field manager sees the Scale; of the object it lies in it sees what comes of that.
        let untracked = WriteOptions {
            field_manager: String::new(),
            ..options.clone()
        };
        let collected = Mutex::new(Vec::new());
        let changed = self
            .change(call, "scale", &untracked, |old| {
                let mut found = Vec::new();
                let new = self.rescaled(call, &body, old, &options, &mut found);
                *collected.lock().unwrap_or_else(PoisonError::into_inner) = found;
                new
            })
            .await?;
        warnings.extend(collected.into_inner().unwrap_or_default());
        let collection = self.collection(&call.resource)?;
        let object = self.served(&call.resource, &collection, &changed.stored);
        Ok(scale_reply(call, &view, &object.await?).with_warnings(warnings))
    }

    fn rescaled(
        &self,
        call: &Call,
        body: &Body<'_>,
        old: &Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let mut live = of(&call.resource, old);
        let path = replicas_path(call.resource.as_ref());
        if let Some(entries) = scale_entries(&path, old) {
            live["metadata"]["managedFields"] = entries;
        }
        let scale = match body {
            Body::Apply(config) => {
                self.applied(call, &expected(), Some(&live), config, options, "scale")?
            }
            Body::Whole(scale) => self.tracked(&live, scale.clone(), options),
            Body::Patch(patch) => {
                let scale = patch.apply(call, &expected(), &live, warnings)?;
                self.tracked(&live, scale, options)
            }
        };
        let mut new = with_replicas(call, &scale, old)?;
        if let Some(entries) = parent_entries(&call.resource, old, &scale) {
            new["metadata"]["managedFields"] = entries;
        }
        Ok(new)
    }

    fn tracked(&self, live: &Value, mut scale: Value, options: &WriteOptions) -> Value {
        let (api_version, time) = (GV.to_string(), self.clock.seconds());
        let request = managed::Request {
            manager: &options.field_manager,
            api_version: &api_version,
            kind: "Scale",
            subresource: "scale",
            time: &time,
            force: false,
            reset: false,
            filter: &managed::Filter::default(),
        };
        managed::update(scale_type(), Some(live), &mut scale, &request);
        scale
    }
}

/// What a client sends to change a scale.
enum Body<'c> {
    Whole(Value),
    Patch(Patch<'c>),
    Apply(Configuration),
}

impl Body<'_> {
    fn read<'c>(
        call: &'c Call,
        verb: &str,
        options: &WriteOptions,
    ) -> Result<(Body<'c>, Vec<String>)> {
        let mut warnings = Vec::new();
        let body = if verb == "update" {
            Body::Whole(codec::object(
                &call.headers,
                &call.body,
                expected(),
                options.field_validation,
                &mut warnings,
            )?)
        } else if super::patch::is_apply(call) {
            let config = Configuration::read(call, options)?;
            warnings.clone_from(&config.warnings);
            Body::Apply(config)
        } else {
            Body::Patch(Patch::read(call, options)?)
        };
        Ok((body, warnings))
    }
}

fn expected() -> Expected {
    Expected {
        gv: GV,
        kind: "Scale",
        ty: scale_type().into(),
    }
}

// Where the object keeps its replicas; its Scale always has them in the same place.
fn replicas_path(resource: &Resource) -> FieldPath {
    match paths(resource) {
        None => FieldPath::of_fields(["spec", "replicas"]),
        Some(paths) => FieldPath::of_fields(paths.spec.iter().map(String::as_str)),
    }
}

fn scale_path() -> FieldPath {
    FieldPath::of_fields(["spec", "replicas"])
}

fn has_replicas(resource: &Resource, object: &Value) -> Result<()> {
    let Some(paths) = paths(resource) else {
        return Ok(());
    };
    let mut names = paths.spec.iter();
    match names.try_fold(object, |value, name| value.get(name)) {
        Some(_) => Ok(()),
        None => Err(ApiError::internal(format!(
            "the spec replicas field \".{}\" does not exist",
            paths.spec.join(".")
        ))),
    }
}

/// The managers of an object's replicas, as managers of its Scale (upstream's
/// `ScaleHandler.ToSubresource`).
fn scale_entries(path: &FieldPath, object: &Value) -> Option<Value> {
    let mut managers = Managers::of(object).ok()?;
    managers.0.retain(|_, owned| owned.set.has(&path.0));
    for owned in managers.0.values_mut() {
        owned.set = FieldSet::from_paths([&scale_path()]);
        owned.api_version = GV.to_string();
    }
    (!managers.is_empty()).then(|| managers.encode())
}

/// The managers of an object after its Scale has got others (upstream's `ScaleHandler.ToParent`).
/// A manager that comes in by the Scale has no time, as upstream leaves it.
fn parent_entries(resource: &Resource, old: &Value, scale: &Value) -> Option<Value> {
    let path = replicas_path(resource);
    let replicas = FieldSet::from_paths([&path]);
    let mut of_scale = Managers::of(scale).ok()?;
    let mut managers = Managers::of(old).ok()?;
    managers.0.retain(|id, owned| {
        if owned.set.has(&path.0) && of_scale.0.remove(id).is_none() {
            owned.set = owned.set.difference(&replicas);
        }
        !owned.set.is_empty()
    });
    for (id, owned) in of_scale.0 {
        if owned.set.has(&scale_path().0) {
            let owned = Owned {
                set: replicas.clone(),
                api_version: resource.gv.to_string(),
                time: None,
            };
            managers.0.insert(id, owned);
        }
    }
    (!managers.is_empty()).then(|| managers.encode())
}

fn scale_reply(call: &Call, view: &View, object: &Value) -> Reply {
    let body = view.object(of(&call.resource, object));
    Reply::new(StatusCode::OK, view, body)
}

fn with_replicas(call: &Call, scale: &Value, old: &Value) -> Result<Value> {
    call.check_identity(scale)?;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let mut errors = Errors::default();
        let spec = Path::root("spec");
        errors.invalid(
            &spec.child("replicas"),
            &replicas.into(),
            "must be greater than or equal to 0",
        );
        return Err(ApiError::invalid(
            GV.group,
            "Scale",
            call.path.name(),
            &errors,
        ));
    }
    let mut new = old.clone();
    set(&call.resource, &mut new, replicas);
    let version = text(scale, "resourceVersion");
    if !version.is_empty() {
        new["metadata"]["resourceVersion"] = version.into();
    }
    if !text(scale, "uid").is_empty() {
        new["metadata"]["uid"] = scale["metadata"]["uid"].clone();
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployments() -> &'static Arc<Resource> {
        kinds::resources::find("apps", "v1", "deployments").expect("exists")
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"});
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
            entry.as_object_mut().expect("an object").remove("time");
        }
        entry
    }

    #[test]
    fn a_scale_has_the_managers_of_the_replicas() {
        let both = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
        let object = json!({"metadata": {"managedFields": [
            entry("a", "Update", "", both), entry("b", "Update", "", json!({"f:spec": {"f:paused": {}}}))]}});
        let entries = scale_entries(&replicas_path(deployments()), &object).expect("one");
        assert_eq!(entries.as_array().map(Vec::len), Some(1));
        assert_eq!(entries[0]["manager"], "a");
        assert_eq!(entries[0]["apiVersion"], "autoscaling/v1");
        assert_eq!(
            entries[0]["fieldsV1"],
            json!({"f:spec": {"f:replicas": {}}})
        );
    }

    #[test]
    fn replicas_change_hands_through_the_scale() {
        let both = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
        let old = json!({"metadata": {"managedFields": [entry("a", "Update", "", both)]}});
        let scale = json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Apply",
            "subresource": "scale", "apiVersion": "autoscaling/v1", "time": "2026-01-02T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}});
        let wanted = json!([
            entry("x", "Apply", "scale", json!({"f:spec": {"f:replicas": {}}})),
            entry("a", "Update", "", json!({"f:spec": {"f:selector": {}}})),
        ]);
        assert_eq!(parent_entries(deployments(), &old, &scale), Some(wanted));
    }
}
