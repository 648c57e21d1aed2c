//! A node and the tokens of its pods' service accounts.

use access::{Attributes as Question, ResourceTarget, Target};
use serde_json::Value;

use super::{Refusal, Request};
use crate::api::Api;
use crate::status::{ApiError, Result};
use crate::writing::admission::shape::{has, items, meta, text};
use crate::writing::admission::{Operation, lookup};

/// Volumes that upstream translates to CSI, and the driver each becomes (`csi-translation-lib`).
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

pub(super) async fn admit(api: &Api, request: &Request<'_>) -> Result<()> {
    let attributes = request.attributes;
    if attributes.operation != Operation::Create || attributes.subresource != "token" {
        return Ok(());
    }
    let forbid = |why: Refusal| attributes.forbid(Some(request.object), &why);
    let name = bound_pod(request.object).map_err(|why| forbid(why.into()))?;
    let pods = lookup::resource("", "v1", "pods");
    let pod = lookup::get(api, pods, attributes.namespace(), name).await?;
    let pod = pod.ok_or_else(|| ApiError::not_listed(pods, name))?;
    check_pod(request, &pod).map_err(forbid)?;
    let audience = audience(request.object).map_err(forbid)?;
    check_audience(api, request, &pod, audience)
        .await?
        .map_err(forbid)
}

/// The pod that a token is to be bound to.
pub(super) fn bound_pod(token: &Value) -> Result<&str, &'static str> {
    let reference = &token["spec"]["boundObjectRef"];
    let name = text(&reference["name"]);
    if reference["apiVersion"] != "v1" || reference["kind"] != "Pod" || name.is_empty() {
        return Err("node requested token not bound to a pod");
    }
    match text(&reference["uid"]).is_empty() {
        true => Err("node requested token with a pod binding without a uid"),
        false => Ok(name),
    }
}

pub(super) fn check_pod(request: &Request<'_>, pod: &Value) -> Result<(), Refusal> {
    let uid = text(&request.object["spec"]["boundObjectRef"]["uid"]);
    if uid != meta(pod, "uid") {
        return Err(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        ));
    }
    match text(&pod["spec"]["nodeName"]) == request.node {
        true => Ok(()),
        false => Err("node requested token bound to a pod scheduled on a different node".into()),
    }
}

/// The audience asked for; none means the API server's own, which is written as nothing.
pub(super) fn audience(token: &Value) -> Result<&str, Refusal> {
    match items(&token["spec"]["audiences"]) {
        [] => Ok(""),
        [one] => Ok(text(one)),
        _ => Err("node may only request 0 or 1 audiences".into()),
    }
}

/// Where a pod's volume gets its token audiences from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// A token projected for these audiences.
    Audiences(Vec<&'a str>),
    /// A CSI driver.
    Driver(&'a str),
    /// The driver of a claim's volume.
    Claim(String),
    /// Nowhere.
    Nothing,
}

pub(super) fn source<'a>(pod: &'a Value, volume: &'a Value) -> Source<'a> {
    if has(volume, "projected") {
        let tokens = items(&volume["projected"]["sources"])
            .iter()
            .filter_map(|source| source.get("serviceAccountToken"));
        return Source::Audiences(tokens.map(|token| text(&token["audience"])).collect());
    }
    if has(&volume["ephemeral"], "volumeClaimTemplate") {
        let (pod, volume) = (meta(pod, "name"), text(&volume["name"]));
        return Source::Claim(format!("{pod}-{volume}"));
    }
    if has(volume, "persistentVolumeClaim") {
        return Source::Claim(text(&volume["persistentVolumeClaim"]["claimName"]).to_owned());
    }
    driver(volume).map_or(Source::Nothing, Source::Driver)
}

/// The CSI driver of a volume or of a persistent volume's spec.
pub(super) fn driver(volume: &Value) -> Option<&str> {
    if has(volume, "csi") {
        return Some(text(&volume["csi"]["driver"]));
    }
    let migrated = MIGRATED.iter().find(|(kind, _)| has(volume, kind));
    migrated.map(|(_, driver)| *driver)
}

async fn check_audience(
    api: &Api,
    request: &Request<'_>,
    pod: &Value,
    audience: &str,
) -> Result<Result<(), Refusal>> {
    let mut errors = Vec::new();
    for volume in items(&pod["spec"]["volumes"]) {
        match offers(api, pod, volume, audience).await? {
            Ok(true) => return Ok(Ok(())),
            Ok(false) => {}
            Err(missing) => errors.push(missing.message),
        }
    }
    if !errors.is_empty() {
        errors.dedup();
        let all = match errors.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Ok(Err(format!(
            "error validating audience {audience:?}: {all}"
        )));
    }
    Ok(granted(api, request, audience).await)
}

// The outer error is a failure to look; the inner one names what is not there.
async fn offers(
    api: &Api,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<Result<bool, ApiError>> {
    let driver = match source(pod, volume) {
        Source::Nothing => return Ok(Ok(false)),
        Source::Audiences(audiences) => return Ok(Ok(audiences.contains(&audience))),
        Source::Driver(driver) => driver.to_owned(),
        Source::Claim(claim) => match claim_driver(api, meta(pod, "namespace"), &claim).await? {
            Ok(driver) => driver,
            Err(missing) => return Ok(Err(missing)),
        },
    };
    if driver.is_empty() {
        return Ok(Ok(false));
    }
    let drivers = lookup::resource("storage.k8s.io", "v1", "csidrivers");
    let Some(driver_object) = lookup::get(api, drivers, "", &driver).await? else {
        return Ok(Err(ApiError::not_listed(drivers, &driver)));
    };
    let tokens = items(&driver_object["spec"]["tokenRequests"]);
    Ok(Ok(tokens.iter().any(|t| text(&t["audience"]) == audience)))
}

async fn claim_driver(api: &Api, namespace: &str, claim: &str) -> Result<Result<String, ApiError>> {
    let claims = lookup::resource("", "v1", "persistentvolumeclaims");
    let Some(claim_object) = lookup::get(api, claims, namespace, claim).await? else {
        return Ok(Err(ApiError::not_listed(claims, claim)));
    };
    let volume = text(&claim_object["spec"]["volumeName"]);
    let volumes = lookup::resource("", "v1", "persistentvolumes");
    let Some(volume_object) = lookup::get(api, volumes, "", volume).await? else {
        return Ok(Err(ApiError::not_listed(volumes, volume)));
    };
    let driver = driver(&volume_object["spec"]).unwrap_or_default();
    Ok(Ok(driver.to_owned()))
}

// An administrator may let nodes ask for more; the audience stands where a resource would.
async fn granted(api: &Api, request: &Request<'_>, audience: &str) -> Result<(), Refusal> {
    let attributes = request.attributes;
    let question = Question {
        user: attributes.user(),
        verb: "request-serviceaccounts-token-audience",
        target: Target::Resource(ResourceTarget {
            namespace: attributes.namespace(),
            version: "v1",
            resource: audience,
            name: attributes.name,
            ..ResourceTarget::default()
        }),
    };
    match api.authorizer.decide(&question).is_allowed() {
        true => Ok(()),
        false => Err(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            attributes.user().name
        )),
    }
}
