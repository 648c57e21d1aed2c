//! POST on a collection.

use access::{ResourceTarget, Target};
use http::StatusCode;
use kinds::strategy;
use rand::seq::IndexedRandom as _;
use serde_json::Value;
use store::{Change, Expect, Written};

use super::{check_create, is_event};
use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::WriteOptions;
use crate::reading::collection::Collection;
use crate::reading::stored::Stored;
use crate::status::{ApiError, Result};
use crate::writing::admission::{self, Attributes, Operation};
use crate::writing::codec;

/// Fields a client cannot set on a new object.
const SYSTEM_FIELDS: [&str; 5] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];
/// Upstream's name generator: a prefix of at most 58 characters and five of these.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const MAX_PREFIX: usize = 58;
/// How often a generated name that is taken is generated anew.
const NAME_ATTEMPTS: usize = 8;

impl Api {
    pub(super) async fn create(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        let options = call.write_options()?;
        let mut warnings = Vec::new();
        let object = codec::object(
            &call.headers,
            &call.body,
            call.expected(),
            options.field_validation,
            &mut warnings,
        )?;
        let stored = self
            .create_object(call, object, &options, &mut warnings)
            .await?;
        let body = self.shown(&view, &stored).await?;
        Ok(Reply::new(StatusCode::CREATED, &view, body).with_warnings(warnings))
    }

    /// Creates an object that has been decoded; the rest of the way is the same for POST, PUT that
    /// creates, and apply.
    pub(super) async fn create_object(
        &self,
        call: &Call,
        mut object: Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Stored> {
        if call
            .resource
            .ty
            .defined()
            .is_some_and(|d| d.is_terminating())
        {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(
                &call.resource,
                text(&object, "name"),
                why,
            ));
        }
        self.own(call, &mut object)?;
        dedupe_owners(&mut object, warnings);
        call.resource.ty.default(&mut object);
        if object["metadata"].get("managedFields").is_none() || call.method != http::Method::PATCH {
            self.track(call, options, "", None, &mut object);
        }
        let name = text(&object, "name").to_owned();
        let attributes = Attributes {
            call,
            operation: Operation::Create,
            subresource: "",
            name: &name,
            old: None,
            dry_run: options.dry_run,
        };
        admission::mutate(self, &attributes, &mut object).await?;
        self.may_create_by_change(call)?;
        crate::writing::escalation::check(&self.authorizer, call, &object, None)?;
        let generated =
            text(&object, "name").is_empty() && !text(&object, "generateName").is_empty();
        let attempts = if generated { NAME_ATTEMPTS } else { 1 };
        let collection = self.collection(&call.resource)?;
        let prefix = text(&object, "generateName").to_owned();
        for attempt in 1..=attempts {
            let mut candidate = if attempt == attempts {
                std::mem::take(&mut object)
            } else {
                object.clone()
            };
            if generated {
                candidate["metadata"]["name"] = generate_name(&prefix).into();
            }
            self.finish(call, &mut candidate);
            let told = super::warnings(&call.resource, &candidate, None);
            if let Some(stored) = self.insert(&attributes, &collection, candidate).await? {
                warnings.extend(told);
                return Ok(stored);
            }
        }
        if generated {
            return Err(ApiError::generated_name_taken(&call.resource, &prefix));
        }
        let taken = ApiError::already_exists(&call.resource, &name);
        let key = collection.key(call.namespace(), &name);
        let present = self.fetch(&collection, &key).await?;
        Err(match present.map(|present| present.value()) {
            Some(present) if present["metadata"].get("deletionTimestamp").is_some() => {
                taken.prefixed("object is being deleted: ")
            }
            _ => taken,
        })
    }

    // A PUT or an apply that creates needs the permission to create besides its own.
    fn may_create_by_change(&self, call: &Call) -> Result<()> {
        if call.method == http::Method::POST {
            return Ok(());
        }
        let target = ResourceTarget {
            namespace: call.namespace(),
            group: call.resource.gv.group,
            version: call.resource.gv.version,
            resource: call.resource.plural,
            name: call.path.name(),
            ..ResourceTarget::default()
        };
        self.authorizer.check(&access::Attributes {
            user: &call.user,
            verb: "create",
            target: Target::Resource(target),
        })
    }

    // Takes possession: system fields are ours, the namespace is the path's.
    fn own(&self, call: &Call, object: &mut Value) -> Result<()> {
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return Err(ApiError::bad_request("metadata is not an object"));
        };
        if metadata
            .get("resourceVersion")
            .is_some_and(|v| v != "" && v != "0")
        {
            return Err(ApiError::plain(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        metadata.remove("resourceVersion");
        for field in SYSTEM_FIELDS {
            metadata.remove(field);
        }
        let namespace = metadata
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if call.resource.namespaced && !namespace.is_empty() && namespace != call.namespace() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if call.resource.namespaced {
            metadata.insert("namespace".into(), call.namespace().into());
        } else {
            metadata.remove("namespace");
        }
        Ok(())
    }

    fn finish(&self, call: &Call, object: &mut Value) {
        object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
        object["metadata"]["creationTimestamp"] = self.clock.seconds().into();
        strategy::prepare_create(&call.resource, object);
        admission::stamp_requester(call, object);
    }

    async fn insert(
        &self,
        attributes: &Attributes<'_>,
        collection: &Collection,
        object: Value,
    ) -> Result<Option<Stored>> {
        let (call, dry_run) = (attributes.call, attributes.dry_run);
        let mut object = super::normal_form(&call.resource, object)?;
        self.services.prepare(&call.resource, &mut object, None);
        check_create(&call.resource, &object)?;
        let lease = self
            .services
            .allocate(self, &call.resource, &mut object, None, dry_run)
            .await?;
        let outcome = self.put_new(attributes, collection, &object).await;
        if !matches!(outcome, Ok(Some(_))) || dry_run {
            self.services.give_back(self, lease).await;
        }
        outcome
    }

    async fn put_new(
        &self,
        attributes: &Attributes<'_>,
        collection: &Collection,
        object: &Value,
    ) -> Result<Option<Stored>> {
        let call = attributes.call;
        admission::validate(self, attributes, Some(object)).await?;
        let key = collection.key(text(object, "namespace"), text(object, "name"));
        let as_stored = self.to_stored(&call.resource, collection, object).await?;
        let value = collection.form.encode(&as_stored);
        if attributes.dry_run {
            let taken = self.store.get(&key).await?.is_some();
            return match taken {
                true => Ok(None),
                false => Ok(Some(collection.form.own(&value, 0))),
            };
        }
        let ttl = is_event(&call.resource).then_some(self.event_ttl);
        match self
            .commit(
                collection,
                &key,
                Expect::Absent,
                Change::Put {
                    value: value.clone(),
                    ttl,
                },
            )
            .await?
        {
            Written::Done(revision) => Ok(Some(collection.form.own(&value, revision))),
            Written::Conflict(_) => Ok(None),
        }
    }
}

/// A name that begins with a prefix and that is hardly ever taken.
pub(crate) fn generate_name(prefix: &str) -> String {
    let mut rng = rand::rng();
    let cut: String = prefix.chars().take(MAX_PREFIX).collect();
    let suffix = (0..5).map(|_| *SUFFIX_ALPHABET.choose(&mut rng).unwrap_or(&b'x') as char);
    cut.chars().chain(suffix).collect()
}

fn dedupe_owners(object: &mut Value, warnings: &mut Vec<String>) {
    let owners = object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut);
    let Some(owners) = owners else { return };
    let mut seen: Vec<Value> = Vec::with_capacity(owners.len());
    let before = owners.len();
    owners.retain(|owner| {
        let fresh = !seen.contains(owner);
        if fresh {
            seen.push(owner.clone());
        }
        fresh
    });
    if owners.len() < before {
        warnings.push(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests"
                .into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_the_prefix_and_stay_short() {
        let name = generate_name(&"x".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(generate_name("web-").starts_with("web-"));
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
