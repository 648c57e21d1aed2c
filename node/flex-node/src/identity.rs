//! The agent's own calls of Azure: the Arc machine, the role of its identity, and what the cluster is.
//!
//! Each is three verbs, as the step engine wants them: `check` succeeds where there is nothing to do, `make` does it,
//! `remove` takes it back. What was there before is not removed: its tag says who made it.

mod arc;
pub mod azcmagent;
mod conditions;
mod guid;
pub mod own;
pub(crate) mod private;

use std::sync::Arc;
use std::time::Duration;

use azure::imds::Place;
use azure::token::{Source, Tokens};
use azure::{Arm, CloudConfig, Endpoints, Error};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::{Arc as ArcMachine, ClusterId, Config, Credentials, Join};
pub use arc::{Local, machine};
pub use conditions::conditions;
pub use guid::named;

/// "Azure Kubernetes Service Cluster User Role": may ask how to reach the cluster, and nothing else.
pub const CLUSTER_USER: &str = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f";
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Whether there is nothing to do.
    Check,
    /// Do it.
    Make,
    /// Take it back.
    Remove,
}

/// Why it was not done: what, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{cause}; hint: {remedy}")]
pub struct Refused {
    /// What was refused, and why.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

impl Refused {
    pub(crate) fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Refused {
        Refused {
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }
}

/// What to do about a refusal of Azure's, by what was being done.
pub(crate) fn refused(doing: &str, needs: &str) -> impl Fn(Error) -> Refused {
    move |error| {
        let remedy = match error.status() {
            Some(403) => format!(
                "the service principal needs the role `{needs}` there: `az role assignment create`"
            ),
            Some(404) => "check names and ids in the configuration".to_owned(),
            _ => match &error {
                Error::Token(_) => {
                    "check tenantId, clientId and the secret of `azure.servicePrincipal`".to_owned()
                }
                Error::Unreachable(_) => {
                    "check DNS, proxy and firewall on the way to Azure".to_owned()
                }
                _ => "run again: what is done is not done twice".to_owned(),
            },
        };
        Refused::new(format!("cannot {doing}: {error}"), remedy)
    }
}

/// A client of the cloud with which the configuration's credentials speak.
pub fn client(config: &Config) -> Result<Arc<wire::client::Client>, Refused> {
    let authorities = Some(config.azure.authorities.as_bytes()).filter(|pem| !pem.is_empty());
    let tls = wire::https::tls(authorities).map_err(|e| {
        Refused::new(
            format!("the cloud's authorities cannot be used: {e}"),
            "check `azure.certificateAuthorities`",
        )
    })?;
    Ok(Arc::new(wire::client::Client::new(tls, PATIENCE)))
}

/// Which cloud, and nobody's credentials.
fn bare_cloud_config(config: &Config) -> CloudConfig {
    CloudConfig {
        cloud: config.azure.cloud.clone(),
        tenant_id: config.azure.tenant.clone(),
        subscription_id: config.azure.subscription.clone(),
        resource_manager_endpoint: config.azure.manager.clone(),
        user_agent: format!("aks-flex-node/kyanite-{}", env!("CARGO_PKG_VERSION")),
        ..CloudConfig::default()
    }
}

/// The configuration as Azure's other clients have it.
pub fn cloud_config(config: &Config) -> CloudConfig {
    let mut cloud = bare_cloud_config(config);
    match &config.credentials {
        Some(Credentials::Secret {
            tenant,
            client,
            secret,
        }) => {
            cloud.tenant_id.clone_from(tenant);
            cloud.aad_client_id.clone_from(client);
            cloud.aad_client_secret.clone_from(&secret.0);
        }
        Some(Credentials::Certificate {
            tenant,
            client,
            file,
        }) => {
            cloud.tenant_id.clone_from(tenant);
            cloud.aad_client_id.clone_from(client);
            cloud.aad_client_cert_path.clone_from(file);
        }
        Some(Credentials::Federated {
            tenant,
            client,
            file,
        }) => {
            cloud.tenant_id.clone_from(tenant);
            cloud.aad_client_id.clone_from(client);
            cloud.use_federated_workload_identity_extension = true;
            cloud.aad_federated_token_file.clone_from(file);
        }
        Some(Credentials::Managed(client)) => {
            cloud.use_managed_identity_extension = true;
            cloud.user_assigned_identity_id.clone_from(client);
        }
        None => {}
    }
    cloud
}

pub(crate) async fn arm(config: &Config) -> Result<Arm, Refused> {
    let environment = |name: &str| std::env::var(name).ok();
    Arm::connect(&cloud_config(config), client(config)?, environment)
        .await
        .map_err(refused("speak to Azure", "Reader"))
}

/// A token of who the configuration names, for somebody else than Resource Manager.
pub(crate) async fn token_for(config: &Config, audience: &str) -> Result<String, Refused> {
    const NEEDS: &str = "Reader";
    let environment = |name: &str| std::env::var(name).ok();
    let (cloud, client) = (cloud_config(config), client(config)?);
    let none = || {
        Refused::new(
            "the configuration has no credentials",
            "give `azure.servicePrincipal`",
        )
    };
    let source = Source::of(&cloud, environment).ok_or_else(none)?;
    let endpoints = Endpoints::of(&cloud, &client).await;
    let endpoints = Endpoints {
        audience: audience.to_owned(),
        ..endpoints.map_err(refused("speak to Azure", NEEDS))?
    };
    let place = Place::of(environment);
    let tokens = Tokens::new(source, &cloud.tenant_id, &endpoints, place, client);
    tokens.token().await.map_err(refused("get a token", NEEDS))
}

/// As the machine itself, with the identity that Arc gave it; else as whom the configuration names.
async fn arm_of_node(config: &Config) -> Result<Arm, Refused> {
    let Join::Arc(_) = &config.join else {
        return arm(config).await;
    };
    let cloud = CloudConfig {
        use_managed_identity_extension: true,
        ..bare_cloud_config(config)
    };
    let environment = |name: &str| match name {
        "IDENTITY_ENDPOINT" => Some(crate::token::himds(|name| std::env::var(name).ok())),
        "IMDS_ENDPOINT" => Some("arc".to_owned()),
        other => std::env::var(other).ok(),
    };
    Arm::connect(&cloud, client(config)?, environment)
        .await
        .map_err(refused("speak to Azure as this machine", "Reader"))
}

/// The id of the machine's resource.
pub fn machine_id(config: &Config, arc: &ArcMachine, host: &str) -> String {
    let name = match arc.machine.as_str() {
        "" => host,
        name => name,
    };
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.HybridCompute/machines/{name}",
        config.azure.subscription, arc.group
    )
}

fn arc_of(config: &Config) -> Result<&ArcMachine, Refused> {
    match &config.join {
        Join::Arc(arc) => Ok(arc),
        _ => Err(Refused::new(
            "the configuration asks for no Arc machine",
            "set `azure.arc.enabled`",
        )),
    }
}

pub(crate) fn cluster_of(config: &Config) -> Result<&ClusterId, Refused> {
    config.azure.cluster.as_ref().ok_or_else(|| {
        Refused::new(
            "the configuration names no cluster",
            "set `azure.targetCluster.resourceId`",
        )
    })
}

fn principal(machine: &Value) -> Option<&str> {
    machine["identity"]["principalId"]
        .as_str()
        .filter(|id| !id.is_empty())
}

/// The id of the role assignment: made of what it grants, so that it is the same one whoever asks again.
pub fn assignment_id(cluster: &ClusterId, principal: &str, role: &str) -> String {
    let guid = named(&format!("{}|{principal}|{role}", cluster.id.to_lowercase()));
    format!(
        "{}/providers/Microsoft.Authorization/roleAssignments/{guid}",
        cluster.id
    )
}

/// The role of the machine's identity at the cluster: the least that lets it ask how to reach it.
pub async fn role(config: &Config, verb: Verb, host: &str) -> Result<String, Refused> {
    const NEEDS: &str = "User Access Administrator";
    let (arc, cluster) = (arc_of(config)?, cluster_of(config)?);
    let arm = arm(config).await?;
    let machine = machine_id(config, arc, host);
    let found: Option<Value> = arm
        .get(&machine, "")
        .await
        .map_err(refused(&format!("look at {machine}"), NEEDS))?;
    let principal = found.as_ref().and_then(principal);
    let Some(principal) = principal else {
        return match verb {
            Verb::Remove => Ok("the identity is gone, and its roles with it".to_owned()),
            _ => Err(Refused::new(
                format!("{machine} has no identity"),
                "connect it first",
            )),
        };
    };
    let id = assignment_id(cluster, principal, CLUSTER_USER);
    match verb {
        Verb::Check => {
            let found: Option<Value> = arm
                .get(&id, "")
                .await
                .map_err(refused(&format!("look at {id}"), NEEDS))?;
            found
                .map(|_| format!("{id} is there"))
                .ok_or_else(|| Refused::new(format!("{id} is not there"), ""))
        }
        Verb::Make if !arc.assigns_roles => Err(Refused::new(
            format!("the identity {principal} may not use the cluster yet"),
            format!(
                "set `azure.arc.autoRoleAssignment`, or `az role assignment create --assignee-object-id {principal} \
                 --assignee-principal-type ServicePrincipal --role {CLUSTER_USER} --scope {}`",
                cluster.id
            ),
        )),
        Verb::Make => assign(&arm, config, &id, principal).await,
        Verb::Remove => {
            arm.delete(&id)
                .await
                .map_err(refused(&format!("remove {id}"), NEEDS))?;
            Ok(format!("{id} is gone"))
        }
    }
}

async fn assign(arm: &Arm, config: &Config, id: &str, principal: &str) -> Result<String, Refused> {
    let definition = format!(
        "/subscriptions/{}/providers/Microsoft.Authorization/roleDefinitions/{CLUSTER_USER}",
        config.azure.subscription
    );
    // Named as what it is, it need not be known everywhere in the directory yet.
    let body = json!({"properties": {"principalId": principal, "principalType": "ServicePrincipal",
        "roleDefinitionId": definition}});
    match arm.put::<_, Value>(id, &body, "").await {
        Ok(_) => Ok(format!("{id} is there")),
        Err(error) if error.code() == "RoleAssignmentExists" => Ok(format!("{id} is there")),
        Err(error) => Err(refused(&format!("make {id}"), "User Access Administrator")(
            error,
        )),
    }
}

/// Where the cluster is and who vouches for it, from a user's credential. A machine of Arc asks as itself: that its role has
/// arrived where it counts is seen by using it.
pub async fn cluster(config: &Config) -> Result<Value, Refused> {
    const NEEDS: &str = "Azure Kubernetes Service Cluster User Role";
    let cluster = cluster_of(config)?;
    let arm = arm_of_node(config).await?;
    let path = format!("{}/listClusterUserCredential", cluster.id);
    let answer: Value = arm.ask(&path, &json!({})).await.map_err(refused(
        &format!("ask {} for a credential", cluster.name),
        NEEDS,
    ))?;
    let unreadable = || {
        Refused::new(
            format!(
                "the credential of {} names no server with its authority",
                cluster.name
            ),
            "give `node.kubelet.serverURL` and `node.kubelet.caCertData` yourself",
        )
    };
    server_of(&answer, &cluster.name).ok_or_else(unreadable)
}

/// The version that the cluster's Machine resource wants of this node; nothing where there is none.
pub async fn goal(config: &Config, node: &str) -> Option<String> {
    let cluster = cluster_of(config).ok()?;
    if config.azure.pool.is_empty() {
        return None;
    }
    let id = format!(
        "{}/agentPools/{}/machines/{node}",
        cluster.id, config.azure.pool
    );
    let arm = arm_of_node(config).await.ok()?;
    let found: Value = arm.get(&id, "").await.ok()??;
    let version = &found["properties"]["kubernetes"]["orchestratorVersion"];
    version.as_str().map(str::to_owned)
}

/// Server and authority in a list of kubeconfigs. One that nobody vouches for is none.
pub(crate) fn server_of(answer: &Value, name: &str) -> Option<Value> {
    let text = STANDARD
        .decode(answer["kubeconfigs"][0]["value"].as_str()?)
        .ok()?;
    let config: Value = serde_saphyr::from_str(&String::from_utf8(text).ok()?).ok()?;
    let entry = &config["clusters"][0]["cluster"];
    let authority = STANDARD
        .decode(entry["certificate-authority-data"].as_str()?)
        .ok()?;
    let authority = String::from_utf8(authority).ok()?;
    Some(json!({"server": entry["server"].as_str()?, "authority": authority, "name": name}))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cluster_id() -> ClusterId {
        ClusterId {
            id: "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c".into(),
            subscription: "s".into(),
            group: "g".into(),
            name: "c".into(),
            location: "l".into(),
        }
    }

    #[test]
    fn an_assignment_has_one_name_whoever_makes_it_and_however_the_id_is_spelt() {
        let one = assignment_id(&cluster_id(), "p", CLUSTER_USER);
        let upper = ClusterId {
            id: cluster_id().id.to_uppercase(),
            ..cluster_id()
        };
        let guid = |id: &str| id.rsplit('/').next().unwrap().to_owned();
        assert_eq!(guid(&one), guid(&assignment_id(&upper, "p", CLUSTER_USER)));
        assert_ne!(
            guid(&one),
            guid(&assignment_id(&cluster_id(), "q", CLUSTER_USER))
        );
        assert_eq!(guid(&one).len(), 36);
    }

    #[test]
    fn a_server_without_an_authority_is_none() {
        let answer = |cluster: Value| {
            let config = json!({"clusters": [{"name": "c", "cluster": cluster}]});
            json!({"kubeconfigs": [{"name": "clusterUser", "value": STANDARD.encode(config.to_string())}]})
        };
        let whole =
            json!({"server": "https://x", "certificate-authority-data": STANDARD.encode("PEM")});
        let read = server_of(&answer(whole), "c").unwrap();
        assert_eq!(
            read,
            json!({"server": "https://x", "authority": "PEM", "name": "c"})
        );
        assert_eq!(
            server_of(
                &answer(json!({"server": "https://x", "insecure-skip-tls-verify": true})),
                "c"
            ),
            None
        );
        assert_eq!(server_of(&json!({}), "c"), None);
    }
}
