//! What hangs below an object, and the kinds that are answered but never stored.

use std::sync::Arc;

use http::{Method, StatusCode};
use kinds::resources::{self, GroupVersion, Resource};
use objects::schema;
use serde_json::{Value, json};

use super::delete::DeleteOptions;
use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::WriteOptions;
use crate::reading::negotiate::Offer;
use crate::reading::view;
use crate::status::{ApiError, Result};
use crate::writing::admission::Warnings;
use crate::writing::codec::{self, Expected};
use crate::writing::eviction::{self, Verdict};

impl Api {
    pub(super) async fn call_subresource(
        &self,
        call: &Call,
        name: &str,
        verb: &str,
    ) -> Result<Reply> {
        match (name, verb) {
            ("scale", _) => self.scale(call, verb).await,
            ("binding", _) => self.bind(call, call.path.name()).await,
            ("eviction", _) => self.evict(call).await,
            ("token", _) => self.issue_token(call).await,
            (_, "get") => self.get(call).await,
            (_, "update") => self.update(call, name).await,
            (_, "patch") => self.patch(call, name).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    pub(super) fn decode_as(
        &self,
        call: &Call,
        gv: GroupVersion,
        kind: &'static str,
    ) -> Result<Value> {
        let ty = schema::kind(gv.group, gv.version, kind)
            .ok_or_else(|| ApiError::internal(format!("no type for {kind}")))?;
        let options = call.write_options()?;
        let expected = Expected {
            gv,
            kind,
            ty: ty.into(),
        };
        codec::object(
            &call.headers,
            &call.body,
            expected,
            options.field_validation,
            &mut Vec::new(),
        )
    }

    // POST pods/{name}/binding: the scheduler's word (upstream's `assignPod`).
    async fn bind(&self, call: &Call, pod: &str) -> Result<Reply> {
        let view = call.view_of(Offer::Documents)?;
        let mut binding = self.decode_as(
            call,
            GroupVersion {
                group: "",
                version: "v1",
            },
            "Binding",
        )?;
        self.mutate_posted(call, &mut binding).await?;
        let named = text(&binding, "name");
        if !named.is_empty() && named != pod {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let options = untracked(call)?;
        let bindings = resources::find("", "v1", "bindings").expect("in the table");
        super::as_invalid(
            bindings,
            &binding,
            kinds::validation::create(bindings, &binding),
        )?;
        self.validate_posted(call, &binding).await?;
        let pods = resources::find("", "v1", "pods").expect("in the table");
        let on_pod = pod_call(call, pods, pod);
        let node = binding["target"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let now = self.clock.seconds();
        self.change_unasked(&on_pod, "binding", &options, |old| {
            bound(pods, old, &binding, &node, &now)
        })
        .await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Reply::new(
            StatusCode::CREATED,
            &view,
            view::encode(&status, view.accepted).into(),
        ))
    }

    // policy/v1beta1 said the same thing and is still understood.
    fn decode_eviction(&self, call: &Call) -> Result<Value> {
        let gv = GroupVersion {
            group: "policy",
            version: "v1",
        };
        let ty = schema::kind(gv.group, gv.version, "Eviction").expect("in the table");
        codec::any_version(
            &call.headers,
            &call.body,
            Expected {
                gv,
                kind: "Eviction",
                ty: ty.into(),
            },
        )
    }

    async fn evict(&self, call: &Call) -> Result<Reply> {
        let view = call.view_of(Offer::Documents)?;
        let mut eviction = self.decode_eviction(call)?;
        self.mutate_posted(call, &mut eviction).await?;
        let asked = text(&eviction, "name");
        if !asked.is_empty() && asked != call.path.name() {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let mut options = DeleteOptions::from_value(&eviction["deleteOptions"])?;
        options.dry_run |=
            crate::door::request::parse_dry_run(call.query.all("dryRun"), "CreateOptions")?;
        self.validate_posted(call, &eviction).await?;
        self.disturb(call, &mut options).await?;
        self.delete_object(
            &call.resource,
            call.namespace(),
            call.path.name(),
            &options,
            None,
        )
        .await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Reply::new(
            StatusCode::CREATED,
            &view,
            view::encode(&status, view.accepted).into(),
        ))
    }

    // Asks the disruption budgets, books the disruption, and marks the pod.
    async fn disturb(&self, call: &Call, options: &mut DeleteOptions) -> Result<()> {
        let pod = self
            .must_fetch(&call.resource, call.namespace(), call.path.name())
            .await?
            .value();
        let budgets_resource =
            resources::find("policy", "v1", "poddisruptionbudgets").expect("in the table");
        let collection = self.collection(budgets_resource)?;
        self.cache.reach(self.store.revision().await?).await?;
        let within = format!("{}/", call.namespace());
        let budgets: Vec<Value> = collection
            .objects(&within, None)
            .objects
            .iter()
            .map(|(_, b)| b.value())
            .collect();
        match eviction::decide(&pod, &budgets)? {
            // Whoever looks at how the pod ended wants to know of the eviction, budget or not.
            Verdict::Delete | Verdict::DeleteUnready => {}
            Verdict::Book { budget } => self.book(call, budgets_resource, &budget, options).await?,
        }
        options
            .uid
            .get_or_insert_with(|| text(&pod, "uid").to_owned());
        if !options.dry_run {
            self.mark_disrupted(call).await?;
        }
        Ok(())
    }

    async fn book(
        &self,
        call: &Call,
        budgets: &Arc<Resource>,
        budget: &str,
        options: &DeleteOptions,
    ) -> Result<()> {
        let on_budget = Call {
            resource: Arc::clone(budgets),
            path: crate::door::request::ResourcePath {
                namespace: Some(call.namespace().to_owned()),
                name: Some(budget.to_owned()),
                subresource: Some("status".into()),
                ..call.path.clone()
            },
            method: Method::PATCH,
            query: call.query.clone(),
            headers: call.headers.clone(),
            body: bytes::Bytes::new(),
            user: call.user.clone(),
            warnings: Warnings::default(),
            trail: None,
        };
        let write = WriteOptions {
            dry_run: options.dry_run,
            field_manager: "kube-apiserver".into(),
            ..call.write_options()?
        };
        let (pod, now) = (call.path.name().to_owned(), self.clock.seconds());
        self.change_unasked(&on_budget, "status", &write, |old| {
            eviction::booked(old, &pod, &now)
        })
        .await?;
        Ok(())
    }

    async fn mark_disrupted(&self, call: &Call) -> Result<()> {
        let on_pod = pod_call(call, &call.resource, call.path.name());
        let write = untracked(call)?;
        let now = self.clock.seconds();
        self.change_unasked(&on_pod, "status", &write, |old| {
            let mut new = old.clone();
            set_condition(&mut new, json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": now, "lastProbeTime": null,
            }));
            Ok(new)
        })
        .await?;
        Ok(())
    }

    /// Kinds that are answered on the spot.
    pub(super) async fn call_virtual(&self, call: &Call) -> Result<Reply> {
        let view = call.view_of(Offer::Documents)?;
        let (group, kind) = (call.resource.gv.group, call.resource.kind);
        let mut warnings = Vec::new();
        let answer = match (group, kind) {
            ("", "Binding") => {
                let binding = self.decode_as(call, call.resource.gv, kind)?;
                let pod = text(&binding, "name").to_owned();
                return self.bind(call, &pod).await;
            }
            ("", "ComponentStatus") => return self.component_statuses(call).await,
            ("authentication.k8s.io", "SelfSubjectReview") => {
                self.self_review(call, &mut warnings).await?
            }
            ("authentication.k8s.io", _) => self.token_review(call, &mut warnings).await?,
            _ => self.access_review(call, &mut warnings).await?,
        };
        let code = if call.method == Method::POST {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Ok(
            Reply::new(code, &view, view::encode(&answer, view.accepted).into())
                .with_warnings(warnings),
        )
    }
}

// Upstream's binding and eviction write below the field manager.
fn untracked(call: &Call) -> Result<WriteOptions> {
    Ok(WriteOptions {
        field_manager: String::new(),
        ..call.write_options()?
    })
}

fn pod_call(call: &Call, pods: &Arc<Resource>, pod: &str) -> Call {
    Call {
        resource: Arc::clone(pods),
        path: crate::door::request::ResourcePath {
            namespace: Some(call.namespace().to_owned()),
            resource: "pods".into(),
            name: Some(pod.to_owned()),
            ..call.path.clone()
        },
        method: Method::PATCH,
        query: call.query.clone(),
        headers: call.headers.clone(),
        body: bytes::Bytes::new(),
        user: call.user.clone(),
        warnings: Warnings::default(),
        trail: None,
    }
}

fn bound(pods: &Resource, old: &Value, binding: &Value, node: &str, now: &str) -> Result<Value> {
    let name = text(old, "name");
    let refuse = |why: String| Err(ApiError::conflict(pods, name, &why));
    let uid = text(binding, "uid");
    if !uid.is_empty() && uid != text(old, "uid") {
        return refuse(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            text(old, "uid")
        ));
    }
    if old["metadata"].get("deletionTimestamp").is_some() {
        return refuse(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    if let Some(present) = old["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
        return refuse(format!(
            "pod {name} is already assigned to node {present:?}"
        ));
    }
    if old["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|g| !g.is_empty())
    {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut new = old.clone();
    new["spec"]["nodeName"] = node.into();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            new["metadata"][field][key] = value.clone();
        }
    }
    if let Some(status) = new["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    set_condition(
        &mut new,
        json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        }),
    );
    Ok(new)
}

pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    let conditions = &mut object["status"]["conditions"];
    match conditions.as_array_mut() {
        None => *conditions = json!([condition]),
        Some(list) => match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(present) => *present = condition,
            None => list.push(condition),
        },
    }
}
