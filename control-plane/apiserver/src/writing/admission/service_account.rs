//! ServiceAccount: every pod speaks as somebody, and is given what it needs to do so.

use std::time::Duration;

use futures::FutureExt as _;
use rand::Rng as _;
use serde_json::{Value, json};

use super::shape::{annotation, is_mirror, items, meta, push, text};
use super::{Attributes, Operation, Plugin, lookup, pod_references};
use crate::api::Api;
use crate::status::{ApiError, Result};
use crate::writing::rest::generate_name;

const DEFAULT: &str = "default";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime that marks a token nobody asked for: it is extended while old clients still read it
/// once (`serviceaccount.WarnOnlyBoundTokenExpirationSeconds`).
const TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// How often the account that a controller makes in every namespace is looked for.
const DEFAULT_ATTEMPTS: usize = 10;

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "ServiceAccount",
    handles,
    mutate: Some(|api, attributes, object| mutate(api, attributes, object).boxed()),
    validate: Some(|api, attributes, object| validate(api, attributes, object).boxed()),
};

fn handles(attributes: &Attributes<'_>) -> bool {
    let place = (attributes.operation, attributes.subresource);
    matches!(
        place,
        (Operation::Create, "") | (Operation::Update, "ephemeralcontainers")
    ) && attributes.is("", "pods")
}

async fn mutate(api: &Api, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    // A kubelet deletes a mirror pod whose spec is not the one it has on disk.
    if is_mirror(pod) {
        return check_mirror(pod).map_err(|why| attributes.forbid(Some(pod), why));
    }
    if account_name(pod).is_empty() {
        pod["spec"]["serviceAccountName"] = DEFAULT.into();
        pod["spec"]["serviceAccount"] = DEFAULT.into();
    }
    let account = account(api, attributes, pod).await?;
    equip(pod, &account, &generate_name(VOLUME_PREFIX));
    check_mountable(pod, &account).map_err(|why| attributes.forbid(Some(pod), &why))
}

async fn validate(api: &Api, attributes: &Attributes<'_>, pod: Option<&Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    let created = attributes.operation == Operation::Create;
    if created && is_mirror(pod) {
        return check_mirror(pod).map_err(|why| attributes.forbid(Some(pod), why));
    }
    if account_name(pod).is_empty() {
        let (namespace, name) = (attributes.namespace(), meta(pod, "name"));
        let why = format!("no service account specified for pod {namespace}/{name}");
        return Err(attributes.forbid(Some(pod), &why));
    }
    let account = account(api, attributes, pod).await?;
    match created {
        true => check_mountable(pod, &account).map_err(|why| attributes.forbid(Some(pod), &why)),
        // Upstream leaves this refusal without a status of its own.
        false => check_ephemeral(pod, &account).map_err(ApiError::plain),
    }
}

fn account_name(pod: &Value) -> &str {
    text(&pod["spec"]["serviceAccountName"])
}

// The default account comes from a controller, which may be a moment behind the namespace.
async fn account(api: &Api, attributes: &Attributes<'_>, pod: &Value) -> Result<Value> {
    let (namespace, name) = (attributes.namespace(), account_name(pod));
    let accounts = lookup::resource("", "v1", "serviceaccounts");
    let attempts = if name == DEFAULT { DEFAULT_ATTEMPTS } else { 1 };
    let pause = Duration::from_millis(rand::rng().random_range(100..200));
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(pause).await;
        }
        if let Some(account) = lookup::get(api, accounts, namespace, name).await? {
            return Ok(account);
        }
    }
    let why = format!(
        "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
    );
    Err(attributes.forbid(Some(pod), &why))
}

/// Gives a pod what its account brings: a token where its programs look for one, and the account's
/// pull secrets if it names none.
fn equip(pod: &mut Value, account: &Value, fresh_volume: &str) {
    if wants_token(pod, account) {
        mount_token(pod, fresh_volume);
    }
    let lacks_pulls = items(&pod["spec"]["imagePullSecrets"]).is_empty();
    for pull in items(&account["imagePullSecrets"]) {
        if lacks_pulls {
            let reference = json!({"name": text(&pull["name"])});
            push(&mut pod["spec"]["imagePullSecrets"], reference);
        }
    }
}

// The pod's word counts before the account's.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let said = [
        &pod["spec"]["automountServiceAccountToken"],
        &account["automountServiceAccountToken"],
    ];
    said.into_iter().find_map(Value::as_bool).unwrap_or(true)
}

fn mount_token(pod: &mut Value, fresh_volume: &str) {
    let names = items(&pod["spec"]["volumes"]).iter();
    let present = names
        .map(|volume| text(&volume["name"]))
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_owned);
    let volume = present.as_deref().unwrap_or(fresh_volume);
    let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mounts = items(&container["volumeMounts"]);
            if mounts.iter().all(|m| m["mountPath"] != MOUNT_PATH) {
                push(&mut container["volumeMounts"], mount.clone());
                mounted = true;
            }
        }
    }
    if mounted && present.is_none() {
        let volume = json!({"name": volume, "projected": token_volume()});
        push(&mut pod["spec"]["volumes"], volume);
    }
}

fn token_volume() -> Value {
    json!({
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ],
    })
}

fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !account_name(pod).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if pod_references::names_secret(pod) {
        return Err("a mirror pod may not reference secrets");
    }
    let mut sources = items(&pod["spec"]["volumes"])
        .iter()
        .flat_map(|volume| items(&volume["projected"]["sources"]));
    match sources.any(|source| source.get("serviceAccountToken").is_some()) {
        true => Err("a mirror pod may not use ServiceAccountToken volume projections"),
        false => Ok(()),
    }
}

fn enforces(account: &Value) -> bool {
    annotation(account, ENFORCE_MOUNTABLE)
        .is_some_and(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn names(list: &Value) -> Vec<&str> {
    items(list).iter().map(|item| text(&item["name"])).collect()
}

// An account may limit its pods to the secrets that it lists.
fn check_mountable(pod: &Value, account: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (mountable, owner) = (names(&account["secrets"]), meta(account, "name"));
    let spec = &pod["spec"];
    for volume in items(&spec["volumes"]) {
        let name = text(&volume["secret"]["secretName"]);
        if volume.get("secret").is_some() && !mountable.contains(&name) {
            return Err(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {owner} \
                 does not reference that secret"
            ));
        }
    }
    for (list, what) in [
        ("initContainers", "init container"),
        ("containers", "container"),
    ] {
        check_containers(&spec[list], what, &mountable, owner)?;
    }
    let pulls = names(&account["imagePullSecrets"]);
    for (at, name) in names(&spec["imagePullSecrets"]).into_iter().enumerate() {
        if !pulls.contains(&name) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {owner} \
                 does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_ephemeral(pod: &Value, account: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (mountable, owner) = (names(&account["secrets"]), meta(account, "name"));
    let containers = &pod["spec"]["ephemeralContainers"];
    check_containers(containers, "ephemeral container", &mountable, owner)
}

fn check_containers(
    list: &Value,
    what: &str,
    mountable: &[&str],
    owner: &str,
) -> Result<(), String> {
    let refuse = |container: &Value, how: String, secret: &str| {
        let name = text(&container["name"]);
        Err(format!(
            "{what} {name} with {how} referencing secret.secretName=\"{secret}\" is not allowed because \
             service account {owner} does not reference that secret"
        ))
    };
    for container in items(list) {
        for variable in items(&container["env"]) {
            let secret = &variable["valueFrom"]["secretKeyRef"];
            if !secret.is_null() && !mountable.contains(&text(&secret["name"])) {
                let how = format!("envVar {}", text(&variable["name"]));
                return refuse(container, how, text(&secret["name"]));
            }
        }
        for from in items(&container["envFrom"]) {
            let secret = &from["secretRef"];
            if !secret.is_null() && !mountable.contains(&text(&secret["name"])) {
                return refuse(container, "envFrom".into(), text(&secret["name"]));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
