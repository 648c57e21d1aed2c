//! PUT, and the loop that every change of an existing object goes through.

use http::StatusCode;
use kinds::field::{Errors, Path};
use kinds::strategy;
use serde_json::Value;
use store::{Change, Expect, Written};

use super::{check_update, is_event, scale};
use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::WriteOptions;
use crate::reading::collection::Collection;
use crate::reading::stored::Stored;
use crate::status::{ApiError, Result};
use crate::writing::admission::{self, Attributes, Operation};
use crate::writing::codec;
use crate::writing::services::Lease;

/// How often an unconditional change is tried again when others change the object meanwhile.
const ATTEMPTS: usize = 20;

/// What a change of an object led to.
#[derive(Debug)]
pub(super) struct Changed {
    /// The object as it now is (or would be, on a dry run), or as it last was when the change let go of
    /// the last finalizer of a dying object.
    pub(super) stored: Stored,
    /// What the client should hear.
    pub(super) warnings: Vec<String>,
}

/// One try at a change: what is asked, and the state it starts from.
struct Attempt<'a> {
    call: &'a Call,
    subresource: &'a str,
    options: &'a WriteOptions,
    /// Whether admission is asked.
    admitted: bool,
    collection: &'a Collection,
    key: &'a str,
    /// The object as it is, in the request's version.
    old: &'a Value,
    current: &'a Stored,
}

impl<'a> Attempt<'a> {
    fn attributes(&self, old: &'a Value) -> Attributes<'a> {
        Attributes {
            call: self.call,
            operation: Operation::Update,
            subresource: self.subresource,
            name: self.call.path.name(),
            old: Some(old),
            dry_run: self.options.dry_run,
        }
    }
}

impl Api {
    pub(super) async fn update(&self, call: &Call, subresource: &str) -> Result<Reply> {
        let view = call.view()?;
        let options = call.write_options()?;
        let mut warnings = Vec::new();
        let mut object = codec::object(
            &call.headers,
            &call.body,
            call.expected(),
            options.field_validation,
            &mut warnings,
        )?;
        call.check_named(&object)?;
        call.check_identity(&object)?;
        if call.resource.namespaced {
            object["metadata"]["namespace"] = call.namespace().into();
        }
        call.resource.ty.default(&mut object);
        let outcome = self
            .change(call, subresource, &options, |_| Ok(object.clone()))
            .await;
        let reply = match outcome {
            Err(error)
                if error.reason == "NotFound" && self.may_create(call, subresource, &object)? =>
            {
                strip_version(&mut object);
                let stored = self
                    .create_object(call, object, &options, &mut warnings)
                    .await?;
                let body = self.shown(&view, &stored).await?;
                Reply::new(StatusCode::CREATED, &view, body)
            }
            other => {
                let changed = other?;
                warnings.extend(changed.warnings);
                let body = self.shown(&view, &changed.stored).await?;
                Reply::new(StatusCode::OK, &view, body)
            }
        };
        Ok(reply.with_warnings(warnings))
    }

    fn may_create(&self, call: &Call, subresource: &str, object: &Value) -> Result<bool> {
        let allowed = subresource.is_empty() && strategy::of(&call.resource).create_on_update;
        let uid = text(object, "uid");
        if allowed && !uid.is_empty() {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(ApiError::conflict(&call.resource, call.path.name(), &why));
        }
        Ok(allowed)
    }

    /// Changes an object: `make` turns the present state into the wanted one. Runs until the write
    /// meets the state it was made from; a wanted state that names a resourceVersion is tried once.
    pub(super) async fn change(
        &self,
        call: &Call,
        subresource: &str,
        options: &WriteOptions,
        make: impl Fn(&Value) -> Result<Value>,
    ) -> Result<Changed> {
        self.change_as(call, subresource, options, true, make).await
    }

    /// As [`Api::change`], without asking admission: for what the server does as part of something that
    /// was admitted already.
    pub(super) async fn change_unasked(
        &self,
        call: &Call,
        subresource: &str,
        options: &WriteOptions,
        make: impl Fn(&Value) -> Result<Value>,
    ) -> Result<Changed> {
        self.change_as(call, subresource, options, false, make)
            .await
    }

    async fn change_as(
        &self,
        call: &Call,
        subresource: &str,
        options: &WriteOptions,
        admitted: bool,
        make: impl Fn(&Value) -> Result<Value>,
    ) -> Result<Changed> {
        let collection = self.collection(&call.resource)?;
        let name = call.path.name();
        let key = collection.key(call.namespace(), name);
        for _ in 0..ATTEMPTS {
            let current = self.fetch(&collection, &key).await?;
            let current = current.ok_or_else(|| ApiError::not_found(&call.resource, name))?;
            let old = self.served(&call.resource, &collection, &current).await?;
            let mut new = make(&old)?;
            let pinned = check_version(call, &key, &new, &old)?;
            let attempt = Attempt {
                call,
                subresource,
                options,
                admitted,
                collection: &collection,
                key: &key,
                old: &old,
                current: &current,
            };
            self.settle(&attempt, &mut new).await?;
            let warnings = match subresource {
                "" => super::warnings(&call.resource, &new, Some(&old)),
                _ => Vec::new(),
            };
            match self.store_change(&attempt, new).await? {
                Some(stored) => return Ok(Changed { stored, warnings }),
                None if pinned => return Err(ApiError::modified(&call.resource, name)),
                None => {}
            }
        }
        Err(ApiError::modified(&call.resource, name))
    }

    // Brings a wanted state into the form it would be stored in.
    async fn settle(&self, attempt: &Attempt<'_>, new: &mut Value) -> Result<()> {
        let (call, subresource, old) = (attempt.call, attempt.subresource, attempt.old);
        carry_over(new, old);
        let options = attempt.options;
        if !super::patch::is_apply(call) && !options.field_manager.is_empty() {
            self.track(call, options, subresource, Some(old), new);
        }
        self.mutate_changed(attempt, new).await?;
        crate::writing::escalation::check(&self.authorizer, call, new, Some(old))?;
        strategy::prepare_update(&call.resource, subresource, new, old);
        if subresource == "approval" {
            stamp_conditions(new, &self.clock.seconds());
        }
        if call.resource.is("", "PersistentVolume") && subresource == "status" {
            stamp_phase(new, old, &self.clock.seconds());
        }
        *new = super::normal_form(&call.resource, std::mem::take(new))?;
        objects::managed::keep_times_if_unchanged(old, new);
        Ok(())
    }

    // Plugins see a change of scale as the Scale that the client sees.
    async fn mutate_changed(&self, attempt: &Attempt<'_>, new: &mut Value) -> Result<()> {
        if !attempt.admitted {
            return Ok(());
        }
        if attempt.subresource != "scale" {
            return admission::mutate(self, &attempt.attributes(attempt.old), new).await;
        }
        let resource = &attempt.call.resource;
        let (old, mut wanted) = (scale::of(resource, attempt.old), scale::of(resource, new));
        admission::mutate(self, &attempt.attributes(&old), &mut wanted).await?;
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        scale::set(resource, new, replicas);
        Ok(())
    }

    async fn validate_changed(&self, attempt: &Attempt<'_>, new: &Value) -> Result<()> {
        if !attempt.admitted {
            return Ok(());
        }
        if attempt.subresource != "scale" {
            return admission::validate(self, &attempt.attributes(attempt.old), Some(new)).await;
        }
        let resource = &attempt.call.resource;
        let (old, wanted) = (scale::of(resource, attempt.old), scale::of(resource, new));
        admission::validate(self, &attempt.attributes(&old), Some(&wanted)).await
    }

    async fn store_change(&self, attempt: &Attempt<'_>, mut new: Value) -> Result<Option<Stored>> {
        let (call, old) = (attempt.call, attempt.old);
        let (services, dry_run) = (&self.services, attempt.options.dry_run);
        let allocates = attempt.subresource.is_empty();
        if allocates {
            services.prepare(&call.resource, &mut new, Some(old));
        }
        check_update(&call.resource, &new, old, attempt.subresource)?;
        let lease = match allocates {
            true => {
                services
                    .allocate(self, &call.resource, &mut new, Some(old), dry_run)
                    .await?
            }
            false => Lease::default(),
        };
        let outcome = self.put_changed(attempt, &new).await;
        match (&outcome, dry_run) {
            (Ok(Some(_)), false) => services.settle(self, &call.resource, &new, old).await,
            _ => services.give_back(self, lease).await,
        }
        outcome
    }

    async fn put_changed(&self, attempt: &Attempt<'_>, new: &Value) -> Result<Option<Stored>> {
        self.validate_changed(attempt, new).await?;
        let (call, current, form) = (attempt.call, attempt.current, &attempt.collection.form);
        let stored = self.to_stored(&call.resource, attempt.collection, new);
        let stored = stored.await?;
        let value = form.encode(&stored);
        let as_stored = |revision| form.own(&value, revision);
        let same = value == *current.text() && !current.differs();
        if attempt.options.dry_run || (same && !self.store.is_stale(attempt.key).await?) {
            return Ok(Some(as_stored(current.revision)));
        }
        let expect = Expect::Modified(current.revision);
        if is_finished(new) {
            let written = self
                .commit(attempt.collection, attempt.key, expect, Change::Delete)
                .await?;
            return Ok(match written {
                Written::Done(revision) => {
                    self.services.forget(self, &call.resource, new).await;
                    Some(as_stored(revision))
                }
                Written::Conflict(_) => None,
            });
        }
        let ttl = is_event(&call.resource).then_some(self.event_ttl);
        let change = Change::Put {
            value: value.clone(),
            ttl,
        };
        let written = self.commit(attempt.collection, attempt.key, expect, change);
        match written.await? {
            Written::Done(revision) => Ok(Some(as_stored(revision))),
            Written::Conflict(_) => Ok(None),
        }
    }
}

/// A dying object without finalizers and grace is done.
pub(super) fn is_finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let no_finalizers = metadata["finalizers"]
        .as_array()
        .is_none_or(|f| f.is_empty());
    let no_spec_finalizers = object["kind"] != "Namespace"
        || object["spec"]["finalizers"]
            .as_array()
            .is_none_or(|f| f.is_empty());
    metadata.get("deletionTimestamp").is_some()
        && no_finalizers
        && no_spec_finalizers
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}

// An approver need not say when.
fn stamp_conditions(request: &mut Value, now: &str) {
    let conditions = request
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].is_null() {
                condition[field] = now.into();
            }
        }
    }
}

// A volume knows since when it is in its phase; a client may know better.
fn stamp_phase(new: &mut Value, old: &Value, now: &str) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let same_phase = new["status"]["phase"] == old["status"]["phase"];
    let (said, known) = (new["status"].get(SINCE), old["status"].get(SINCE));
    let since = match (same_phase, said) {
        (true, None) => known.cloned(),
        (false, said) if said.is_none() || said == known => Some(now.into()),
        _ => return,
    };
    if let Some(since) = since {
        new["status"][SINCE] = since;
    }
}

fn strip_version(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
}

// Says whether the wanted state is pinned to a version; refuses it when that is not the present one.
fn check_version(call: &Call, key: &str, new: &Value, old: &Value) -> Result<bool> {
    let (wanted, present) = (text(new, "resourceVersion"), text(old, "resourceVersion"));
    let (uid, present_uid) = (text(new, "uid"), text(old, "uid"));
    if call.method == http::Method::PUT && !uid.is_empty() && uid != present_uid {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {present_uid}"
        );
        return Err(ApiError::conflict(&call.resource, call.path.name(), &why));
    }
    let unset = wanted.is_empty() || wanted == "0";
    if unset
        && !strategy::of(&call.resource).unconditional_update
        && call.method == http::Method::PUT
    {
        let mut errors = Errors::default();
        let metadata = Path::root("metadata");
        let zero = Value::from(0);
        errors.invalid(
            &metadata.child("resourceVersion"),
            &zero,
            "must be specified for an update",
        );
        // Upstream names the resource here, not the kind.
        let (group, plural) = (call.resource.gv.group, call.resource.plural);
        return Err(ApiError::invalid(group, plural, call.path.name(), &errors));
    }
    if !unset && wanted.parse::<u64>().is_err() {
        return Err(ApiError::plain(format!(
            "strconv.ParseUint: parsing {wanted:?}: invalid syntax"
        )));
    }
    if !unset && wanted != present {
        return Err(ApiError::modified(&call.resource, call.path.name()));
    }
    // A patch sees the present version in the object it patches, so that equality pins nothing.
    Ok(!unset && call.method == http::Method::PUT)
}

// What no client can change on an existing object.
fn carry_over(new: &mut Value, old: &Value) {
    const KEPT: [&str; 4] = ["uid", "creationTimestamp", "generation", "selfLink"];
    let Some(metadata) = new["metadata"].as_object_mut() else {
        return;
    };
    if old["metadata"].get("namespace").is_none() {
        metadata.remove("namespace");
    }
    // A patch that changes the uid is told so by validation; a PUT was refused before.
    let changed_uid = metadata
        .get("uid")
        .filter(|uid| *uid != "" && **uid != old["metadata"]["uid"])
        .cloned();
    for field in KEPT {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    // Nobody can take a deletion back; whoever tries to delete by an update is told by validation.
    if let Some(value) = old["metadata"].get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".into(), value.clone());
    }
    if let Some(value) = old["metadata"].get("deletionGracePeriodSeconds") {
        metadata
            .entry("deletionGracePeriodSeconds")
            .or_insert_with(|| value.clone());
    }
    if let Some(uid) = changed_uid {
        metadata.insert("uid".into(), uid);
    }
    metadata.insert(
        "resourceVersion".into(),
        old["metadata"]["resourceVersion"].clone(),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_knows_since_when_it_is_in_its_phase() {
        let old = json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "t1"}});
        let cases = [
            (json!({"phase": "Bound"}), "t1"),
            (
                json!({"phase": "Bound", "lastPhaseTransitionTime": "t0"}),
                "t0",
            ),
            (json!({"phase": "Released"}), "now"),
            (
                json!({"phase": "Released", "lastPhaseTransitionTime": "t1"}),
                "now",
            ),
            (
                json!({"phase": "Released", "lastPhaseTransitionTime": "t2"}),
                "t2",
            ),
        ];
        for (status, since) in cases {
            let mut new = json!({"status": status});
            stamp_phase(&mut new, &old, "now");
            assert_eq!(new["status"]["lastPhaseTransitionTime"], since, "{status}");
        }
    }

    #[test]
    fn a_deletion_can_be_neither_taken_back_nor_forged() {
        let dying = json!({"metadata": {"uid": "u", "deletionTimestamp": "t1", "deletionGracePeriodSeconds": 5}});
        let mut new = json!({"metadata": {"deletionTimestamp": "t2"}});
        carry_over(&mut new, &dying);
        assert_eq!(new["metadata"]["deletionTimestamp"], "t1");
        assert_eq!(new["metadata"]["deletionGracePeriodSeconds"], 5);
        let alive = json!({"metadata": {"uid": "u"}});
        let mut new = json!({"metadata": {"deletionTimestamp": "t2"}});
        carry_over(&mut new, &alive);
        assert_eq!(
            new["metadata"]["deletionTimestamp"], "t2",
            "validation must see it"
        );
    }
}
