//! DELETE: grace, finalizers, and what happens to dependents.
//!
//! The decision is [`plan`], a pure function over the object, the options and the kind's defaults
//! (`apiserver/pkg/registry/rest/delete.go` and the generic store's `Delete`).

use std::sync::Arc;

use extensions::names::{self, FINALIZER};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kinds::resources::Resource;
use kinds::strategy::{self, Dependents};
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::{self, ListOptions};
use crate::reading::list;
use crate::reading::select::Selection;
use crate::reading::stored::Stored;
use crate::reading::view;
use crate::reading::view::View;
use crate::status::{self, ApiError, Result};
use crate::writing::codec::{self, Expected};
use ::clock::format_seconds;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const ATTEMPTS: usize = 20;
/// What a client that deletes a job without saying what becomes of its pods is told.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background \
     to remove them or set propagationPolicy=Orphan to suppress this warning";

/// What to do with dependents, when the client says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// The options of a delete.
#[derive(Debug, Clone, Default)]
pub(super) struct DeleteOptions {
    pub(super) grace: Option<i64>,
    propagation: Option<Propagation>,
    /// The deprecated `orphanDependents: false` makes a pending deletion answer 202.
    accepted_when_pending: bool,
    pub(super) uid: Option<String>,
    resource_version: Option<String>,
    pub(super) dry_run: bool,
}

impl DeleteOptions {
    /// From the body, or from the query when there is none.
    pub(super) fn parse(call: &Call) -> Result<DeleteOptions> {
        let mut value = if call.body.is_empty() {
            from_query(call)?
        } else {
            let gv = kinds::resources::GroupVersion {
                group: "",
                version: "v1",
            };
            let ty =
                objects::schema::kind("meta.k8s.io", "v1", "DeleteOptions").expect("in the table");
            let expected = Expected {
                gv,
                kind: "DeleteOptions",
                ty: ty.into(),
            };
            codec::any_version(&call.headers, &call.body, expected)?
        };
        if value.get("dryRun").is_none() && call.query.has("dryRun") {
            value["dryRun"] = call.query.all("dryRun").into();
        }
        DeleteOptions::from_value(&value)
    }

    /// From a `DeleteOptions` object.
    pub(super) fn from_value(value: &Value) -> Result<DeleteOptions> {
        let dry_run: Vec<String> = value["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect();
        let policy = value["propagationPolicy"].as_str();
        let orphan = value["orphanDependents"].as_bool();
        if policy.is_some() && orphan.is_some() {
            let message = format!(
                "Invalid value: {:?}: orphanDependents and deletionPropagation cannot be both set",
                policy.unwrap_or_default()
            );
            return Err(ApiError::invalid_option(
                "DeleteOptions",
                "FieldValueInvalid",
                "propagationPolicy",
                &message,
            ));
        }
        let propagation = match (policy, orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                );
                return Err(ApiError::invalid_option(
                    "DeleteOptions",
                    "FieldValueNotSupported",
                    "propagationPolicy",
                    &message,
                ));
            }
            (None, None) => None,
        };
        let preconditions = &value["preconditions"];
        Ok(DeleteOptions {
            grace: value["gracePeriodSeconds"].as_i64(),
            propagation,
            accepted_when_pending: orphan == Some(false),
            uid: preconditions["uid"].as_str().map(str::to_owned),
            resource_version: preconditions["resourceVersion"].as_str().map(str::to_owned),
            dry_run: request::parse_dry_run(&dry_run, "DeleteOptions")?,
        })
    }

    fn check(&self, resource: &Resource, object: &Value) -> Result<()> {
        let name = text(object, "name");
        let mismatch = |what: &str, wanted: &str, present: &str, fate: &str| {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({present}). \
                 The object might have been {fate}"
            );
            Err(ApiError::precondition_failed(resource, name, &why))
        };
        if let Some(uid) = self
            .uid
            .as_deref()
            .filter(|uid| *uid != text(object, "uid"))
        {
            return mismatch(
                "UID",
                uid,
                text(object, "uid"),
                "deleted and then recreated",
            );
        }
        match self.resource_version.as_deref() {
            Some(version) if version != text(object, "resourceVersion") => mismatch(
                "ResourceVersion",
                version,
                text(object, "resourceVersion"),
                "modified",
            ),
            _ => Ok(()),
        }
    }
}

fn from_query(call: &Call) -> Result<Value> {
    let mut value = json!({});
    if let Some(seconds) = call.query.number::<i64>("gracePeriodSeconds")? {
        value["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = call.query.get("propagationPolicy") {
        value["propagationPolicy"] = policy.into();
    }
    if call.query.has("orphanDependents") {
        value["orphanDependents"] = call.query.flag("orphanDependents").into();
    }
    Ok(value)
}

/// What a delete does to an object.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    /// It goes now.
    Remove,
    /// It stays for now, in this state.
    Mark(Value),
    /// It is dying already and nothing changes.
    Keep,
}

/// Decides what a delete does.
fn plan(resource: &Resource, object: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let finalizers = wanted_finalizers(resource, object, options);
    let grace = grace_seconds(resource, object, options);
    let dying = object["metadata"].get("deletionTimestamp").is_some();
    let held = !finalizers.is_empty() || holds_namespace(resource, object);
    if grace == 0 && !held {
        return Plan::Remove;
    }
    let old_grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let mut marked = object.clone();
    set_finalizers(&mut marked, &finalizers);
    if dying {
        // A repeated delete may shorten the grace and never lengthens it.
        if old_grace.is_some_and(|old| grace < old) {
            set_deletion(&mut marked, grace, now);
        }
    } else {
        set_deletion(&mut marked, grace, now);
        if is_definition(resource) {
            let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
            let (at, reason) = (format_seconds(now), "InstanceDeletionPending");
            names::set(&mut marked, &at, "Terminating", "True", reason, message);
        }
        if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
            marked["metadata"]["generation"] = (generation + 1).into();
        }
        if resource.is("", "Namespace") {
            // Upstream's namespace registry has a delete of its own, without a grace period.
            marked["status"]["phase"] = "Terminating".into();
            if let Some(metadata) = marked["metadata"].as_object_mut() {
                metadata.remove("deletionGracePeriodSeconds");
            }
        }
    }
    if marked == *object {
        Plan::Keep
    } else {
        Plan::Mark(marked)
    }
}

fn dead(object: &Value, now: Timestamp) -> Value {
    let mut dead = object.clone();
    if object["metadata"].get("deletionTimestamp").is_none() {
        set_deletion(&mut dead, 0, now);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        dead["metadata"]["generation"] = (generation + 1).into();
    }
    dead["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    dead
}

fn set_deletion(object: &mut Value, grace: i64, now: Timestamp) {
    let at = now
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    object["metadata"]["deletionTimestamp"] = format_seconds(at).into();
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

fn holds_namespace(resource: &Resource, object: &Value) -> bool {
    resource.is("", "Namespace")
        && object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
}

// Only pods die gracefully; one that never ran or has finished dies at once.
fn grace_seconds(resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
    if !resource.is("", "Pod") {
        return 0;
    }
    let asked = options.grace.unwrap_or_else(|| {
        object["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(30)
    });
    let unscheduled = object["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let finished = matches!(
        object["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    match asked {
        _ if unscheduled || finished => 0,
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

// An explicit policy beats a finalizer that is there, which beats the kind's default.
fn wanted_finalizers(resource: &Resource, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let present: Vec<String> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|f| f.as_str().map(str::to_owned))
        .collect();
    let has = |name: &str| present.iter().any(|f| f == name);
    let default = strategy::of(resource).dependents;
    let (orphan, foreground) = match (options.propagation, default) {
        (_, Dependents::Unsupported) => (false, false),
        (Some(policy), _) => (
            policy == Propagation::Orphan,
            policy == Propagation::Foreground,
        ),
        (None, _) if has(ORPHAN) || has(FOREGROUND) => (has(ORPHAN), has(FOREGROUND)),
        (None, default) => (default == Dependents::Orphan, false),
    };
    let mut wanted: Vec<String> = present
        .iter()
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .cloned()
        .collect();
    // A definition waits for its instances.
    let waits = is_definition(resource)
        && object["metadata"].get("deletionTimestamp").is_none()
        && !wanted.iter().any(|f| f == FINALIZER);
    wanted.extend(waits.then(|| FINALIZER.to_owned()));
    wanted.extend(orphan.then(|| ORPHAN.to_owned()));
    wanted.extend(foreground.then(|| FOREGROUND.to_owned()));
    wanted
}

fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// What became of an object.
#[derive(Debug)]
pub(super) struct Deleted {
    stored: Stored,
    removed: bool,
}

impl Api {
    pub(super) async fn delete(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        let options = DeleteOptions::parse(call)?;
        let deleted = self
            .delete_object(
                &call.resource,
                call.namespace(),
                call.path.name(),
                &options,
                Some(call),
            )
            .await?;
        let mut reply = self.deleted_reply(&view, &options, &deleted).await?;
        if call.resource.is("batch", "Job") && options.propagation.is_none() {
            reply.warnings.push(JOB_WARNING.to_owned());
        }
        Ok(reply)
    }

    async fn deleted_reply(
        &self,
        view: &View,
        options: &DeleteOptions,
        deleted: &Deleted,
    ) -> Result<Reply> {
        let pending = !deleted.removed;
        let code = match pending && options.accepted_when_pending {
            true => StatusCode::ACCEPTED,
            false => StatusCode::OK,
        };
        if pending || strategy::of(&view.resource).delete_returns_object {
            let body = self.shown(view, &deleted.stored).await?;
            return Ok(Reply::new(code, view, body));
        }
        let object = deleted.stored.value();
        let status = status::success(&view.resource, text(&object, "name"), text(&object, "uid"));
        let accepted = crate::reading::negotiate::Accepted {
            shape: crate::reading::negotiate::Shape::Object,
            ..view.accepted
        };
        let body = view::encode(&status, accepted).into();
        Ok(Reply::new(code, view, body))
    }

    /// Deletes one object, or marks it as dying. Admission is asked on behalf of `by`; what the server
    /// does as part of something that was admitted already goes by nobody.
    pub(super) async fn delete_object(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        by: Option<&Call>,
    ) -> Result<Deleted> {
        let collection = self.collection(resource)?;
        let key = collection.key(namespace, name);
        for _ in 0..ATTEMPTS {
            let current = self.fetch(&collection, &key).await?;
            let current = current.ok_or_else(|| ApiError::not_found(resource, name))?;
            let object = current.value();
            options.check(resource, &object)?;
            let plan = plan(resource, &object, options, self.clock.now());
            if let Some(call) = by.filter(|_| plan != Plan::Keep) {
                let old = self.served(resource, &collection, &current).await?;
                crate::writing::admission::delete(self, call, &old, options.dry_run).await?;
            }
            if options.dry_run {
                let removed = plan == Plan::Remove;
                let stored = match plan {
                    Plan::Mark(marked) => {
                        let text = collection.form.encode(&marked);
                        collection.form.own(&text, current.revision)
                    }
                    Plan::Keep | Plan::Remove => current,
                };
                return Ok(Deleted { stored, removed });
            }
            let expect = Expect::Modified(current.revision);
            let (change, after) = match plan {
                Plan::Keep => {
                    return Ok(Deleted {
                        stored: current,
                        removed: false,
                    });
                }
                Plan::Remove => (Change::Delete, None),
                Plan::Mark(marked) => {
                    // It dies in the version it is in, also where its webhook does not answer any more.
                    let value = collection.form.encode(&marked);
                    (
                        Change::Put {
                            value: value.clone(),
                            ttl: None,
                        },
                        Some(value),
                    )
                }
            };
            if let Written::Done(revision) = self.commit(&collection, &key, expect, change).await? {
                let removed = after.is_none();
                // A pod that goes at once is answered as if its grace had run out.
                let text = after.unwrap_or_else(|| match resource.is("", "Pod") {
                    true => collection.form.encode(&dead(&object, self.clock.now())),
                    false => current.text().clone(),
                });
                let stored = collection.form.own(&text, revision);
                if removed {
                    self.services.forget(self, resource, &object).await;
                }
                return Ok(Deleted { stored, removed });
            }
        }
        Err(ApiError::modified(resource, name))
    }

    /// Deletes every object of a resource because the resource itself goes, and says how many are still there.
    /// Nobody is asked: upstream does not run admission here either.
    pub(crate) async fn empty(&self, resource: &Arc<Resource>) -> Result<usize> {
        let collection = self.collection(resource)?;
        self.cache.reach(self.store.revision().await?).await?;
        let options = DeleteOptions::default();
        for (key, _) in collection.objects("", None).objects {
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            match self
                .delete_object(resource, namespace, name, &options, None)
                .await
            {
                Err(error) if error.reason == "NotFound" => {}
                other => drop(other?),
            }
        }
        self.cache.reach(self.store.revision().await?).await?;
        Ok(collection.count())
    }

    pub(super) async fn delete_collection(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        let options = DeleteOptions::parse(call)?;
        let list_options = ListOptions::parse(&call.query, false)?;
        let selection = Selection::parse(&call.resource, call.namespace(), None, &list_options)?;
        let collection = self.collection(&call.resource)?;
        let page = list::list(self, &collection, &selection, &list_options).await?;
        for item in &page.items {
            let object = item.value();
            let (namespace, name) = (text(&object, "namespace"), text(&object, "name"));
            match self
                .delete_object(&call.resource, namespace, name, &options, Some(call))
                .await
            {
                Err(error) if error.reason == "NotFound" => {}
                other => drop(other?),
            }
        }
        Ok(Reply::new(
            StatusCode::OK,
            &view,
            view.list(page.items, &page.meta),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> &'static Arc<Resource> {
        kinds::resources::find("", "v1", "pods").expect("exists")
    }

    fn running_pod() -> Value {
        json!({"metadata": {"name": "p", "generation": 1},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}})
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn a_running_pod_gets_its_grace_and_may_only_lose_it() {
        let Plan::Mark(marked) = plan(pods(), &running_pod(), &DeleteOptions::default(), at(0))
        else {
            panic!("a graceful deletion marks");
        };
        assert_eq!(
            marked["metadata"]["deletionTimestamp"],
            "1970-01-01T00:00:30Z"
        );
        assert_eq!(marked["metadata"]["generation"], 2);
        let longer = DeleteOptions {
            grace: Some(60),
            ..DeleteOptions::default()
        };
        assert_eq!(plan(pods(), &marked, &longer, at(5)), Plan::Keep);
        let shorter = DeleteOptions {
            grace: Some(1),
            ..DeleteOptions::default()
        };
        let Plan::Mark(sooner) = plan(pods(), &marked, &shorter, at(5)) else {
            panic!("shortened")
        };
        assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 1);
        let now = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::default()
        };
        assert_eq!(plan(pods(), &marked, &now, at(5)), Plan::Remove);
    }

    #[test]
    fn pods_that_never_ran_or_have_finished_go_at_once() {
        let mut unscheduled = running_pod();
        unscheduled["spec"]["nodeName"] = "".into();
        assert_eq!(
            plan(pods(), &unscheduled, &DeleteOptions::default(), at(0)),
            Plan::Remove
        );
        let mut finished = running_pod();
        finished["status"]["phase"] = "Succeeded".into();
        assert_eq!(
            plan(pods(), &finished, &DeleteOptions::default(), at(0)),
            Plan::Remove
        );
    }

    #[test]
    fn finalizers_follow_the_policy_then_the_object_then_the_kind() {
        let maps = kinds::resources::find("", "v1", "configmaps").expect("exists");
        let jobs = kinds::resources::find("batch", "v1", "jobs").expect("exists");
        let plain = json!({"metadata": {"name": "a"}});
        let with = |policy| DeleteOptions {
            propagation: Some(policy),
            ..DeleteOptions::default()
        };
        let wanted = |r, o: &Value, p: &DeleteOptions| wanted_finalizers(r, o, p);
        assert!(wanted(maps, &plain, &DeleteOptions::default()).is_empty());
        assert_eq!(wanted(jobs, &plain, &DeleteOptions::default()), [ORPHAN]);
        assert_eq!(
            wanted(maps, &plain, &with(Propagation::Foreground)),
            [FOREGROUND]
        );
        assert_eq!(wanted(maps, &plain, &with(Propagation::Orphan)), [ORPHAN]);
        let marked = json!({"metadata": {"name": "a", "finalizers": ["x/y", "orphan"]}});
        assert_eq!(
            wanted(maps, &marked, &DeleteOptions::default()),
            ["x/y", ORPHAN]
        );
        assert_eq!(
            wanted(maps, &marked, &with(Propagation::Background)),
            ["x/y"]
        );
    }

    #[test]
    fn a_namespace_stays_until_its_spec_finalizers_are_gone() {
        let namespaces = kinds::resources::find("", "v1", "namespaces").expect("exists");
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let Plan::Mark(marked) = plan(namespaces, &object, &DeleteOptions::default(), at(0)) else {
            panic!("it stays");
        };
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert_eq!(
            plan(namespaces, &marked, &DeleteOptions::default(), at(9)),
            Plan::Keep
        );
    }
}
