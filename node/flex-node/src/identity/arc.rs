//! The machine's resource in Azure Arc, made by Azure's own agent where that is installed, else directly.

use std::path::PathBuf;
use std::time::Duration;

use azure::{Arm, Endpoints};
use bytes::Bytes;
use http::Request;
use http::header::AUTHORIZATION;
use http_body_util::Full;
use serde_json::{Map, Value, json};

use super::own::{Keys, Known};
use super::{Refused, Verb, arc_of, arm, azcmagent, client, cloud_config, machine_id};
use super::{principal, refused, token_for};
use crate::config::{Arc as ArcMachine, Config};
use crate::paths;

/// The tag of an Arc machine that this agent made; others are left alone when the node goes.
const MADE_BY: &str = "aks-flex-node";
/// Who may connect machines.
const NEEDS: &str = "Azure Connected Machine Onboarding";
/// How long Azure's agent is waited for, after it said that it is done.
const TRIES: u32 = 30;

/// What the machine itself has.
#[derive(Debug, Clone)]
pub struct Local {
    /// Its key, where it connects itself.
    pub keys: Keys,
    /// Azure's own agent, where it is installed.
    pub agent: Option<PathBuf>,
}

impl Local {
    /// This machine; `AKS_FLEX_NODE_STATE` names another place for its key.
    pub fn here(environment: impl Fn(&str) -> Option<String>) -> Local {
        let state = environment("AKS_FLEX_NODE_STATE").filter(|path| !path.is_empty());
        let agent = PathBuf::from(azcmagent::PROGRAM);
        Local {
            keys: Keys(state.map_or_else(|| paths::STATE.into(), PathBuf::from)),
            agent: agent.exists().then_some(agent),
        }
    }
}

/// The body of the machine's resource.
fn machine_body(arc: &ArcMachine, public: &str) -> Value {
    let mut tags: Map<String, Value> = (arc.tags.iter())
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    tags.insert("madeBy".into(), json!(MADE_BY));
    json!({"location": arc.location, "tags": tags, "identity": {"type": "SystemAssigned"},
        "properties": {"osType": "linux", "clientPublicKey": public}})
}

/// The machine: whether it is connected, connects it, or takes that back.
pub async fn machine(
    config: &Config,
    verb: Verb,
    host: &str,
    local: &Local,
) -> Result<String, Refused> {
    let arc = arc_of(config)?;
    let call = Call {
        id: machine_id(config, arc, host),
        arm: arm(config).await?,
        config,
        arc,
        local,
    };
    let found = call.look().await?;
    match verb {
        Verb::Check => match found.filter(|found| call.is_whole(found)) {
            Some(_) => Ok(format!("{} is there", call.id)),
            None => Err(Refused::new(format!("{} is not there", call.id), "")),
        },
        Verb::Make => call.make(found).await,
        Verb::Remove => call.remove(found).await,
    }
}

struct Call<'a> {
    id: String,
    arm: Arm,
    config: &'a Config,
    arc: &'a ArcMachine,
    local: &'a Local,
}

impl Call<'_> {
    async fn look(&self) -> Result<Option<Value>, Refused> {
        let doing = format!("look at {}", self.id);
        self.arm
            .get(&self.id, "")
            .await
            .map_err(refused(&doing, NEEDS))
    }

    /// It has an identity, and this machine can prove that it is the one.
    fn is_whole(&self, found: &Value) -> bool {
        let key = found["properties"]["clientPublicKey"].as_str();
        let is_known = self.local.keys.read().is_some_and(|k| k.machine == self.id);
        let proves = self.local.agent.is_some()
            || (is_known && key.is_some() && key == self.local.keys.public().as_deref());
        principal(found).is_some() && proves
    }

    async fn make(&self, found: Option<Value>) -> Result<String, Refused> {
        let made = match found {
            Some(found) if self.is_whole(&found) => found,
            found => match &self.local.agent {
                Some(agent) => self.by_agent(agent).await?,
                None => self.directly(found).await?,
            },
        };
        let principal = principal(&made).ok_or_else(|| {
            let remedy = "run again: it is given within seconds";
            Refused::new(format!("{} has no identity yet", self.id), remedy)
        })?;
        if self.local.agent.is_none() {
            self.remember(principal).await?;
        }
        Ok(format!("{} has the identity {principal}", self.id))
    }

    async fn by_agent(&self, agent: &std::path::Path) -> Result<Value, Refused> {
        let token = self.arm_token().await?;
        let name = self.id.rsplit('/').next().unwrap_or_default();
        azcmagent::connect(agent, self.config, self.arc, name, &token).await?;
        for _ in 0..TRIES {
            if let Some(found) = self.look().await?.filter(|f| principal(f).is_some()) {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let remedy = "see `azcmagent show`";
        Err(Refused::new(format!("{} has no identity", self.id), remedy))
    }

    /// Writes the resource, which clouds of one's own take. One of the same name that has another's key is not taken over: upstream
    /// would have two machines be one.
    async fn directly(&self, found: Option<Value>) -> Result<Value, Refused> {
        if self.config.azure.manager.is_empty() {
            let remedy = "install it: https://aka.ms/azcmagent, then run again";
            return Err(Refused::new(
                "Azure's agent of Arc is not installed",
                remedy,
            ));
        }
        let keys = &self.local.keys;
        let public = keys.ensure(&self.id);
        let public = public.map_err(|cause| Refused::new(cause, "check the disk and run again"))?;
        let body = match found {
            None => machine_body(self.arc, &public),
            Some(mut found) => {
                let other = found["properties"]["clientPublicKey"].as_str();
                if other.is_some_and(|other| other != public) {
                    return Err(Refused::new(
                        format!("{} is another machine of this name", self.id),
                        "choose another `azure.arc.machineName`, or remove that one: `az connectedmachine delete`",
                    ));
                }
                found["properties"]["clientPublicKey"] = json!(public);
                found["identity"]["type"] = json!("SystemAssigned");
                found
            }
        };
        let doing = format!("make {}", self.id);
        let made = self.arm.put(&self.id, &body, "").await;
        made.map_err(refused(&doing, NEEDS))
    }

    /// The identity's application id, which whoever signs must name, is asked of Graph.
    async fn remember(&self, principal: &str) -> Result<(), Refused> {
        let client = self.application(principal).await?;
        let known = Known {
            machine: self.id.clone(),
            tenant: self.config.azure.tenant.clone(),
            client,
            principal: principal.to_owned(),
        };
        let written = self.local.keys.write(&known);
        written.map_err(|e| {
            Refused::new(
                format!("the identity cannot be kept: {e}"),
                "check the disk",
            )
        })
    }

    async fn application(&self, principal: &str) -> Result<String, Refused> {
        let remedy = "check `azure.resourceManagerEndpoint`, and that the service principal may read the directory";
        let broken =
            |cause: String| Refused::new(format!("the identity {principal}: {cause}"), remedy);
        let manager = self.config.azure.manager.trim_end_matches('/');
        let place = format!("{manager}/metadata/endpoints?api-version=2019-05-01");
        let described = self.fetch(&place, None).await.map_err(broken)?;
        let one = if described.is_array() {
            &described[0]
        } else {
            &described
        };
        let graph = one["graph"]
            .as_str()
            .unwrap_or_default()
            .trim_end_matches('/');
        let token = token_for(self.config, graph).await?;
        let address = format!("{graph}/v1.0/servicePrincipals/{principal}");
        let found = self.fetch(&address, Some(&token)).await.map_err(broken)?;
        let client = found["appId"].as_str().map(str::to_owned);
        client.ok_or_else(|| broken("Graph does not know its application".to_owned()))
    }

    async fn fetch(&self, address: &str, token: Option<&str>) -> Result<Value, String> {
        let mut request = Request::get(address);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::<Bytes>::default())
            .map_err(|e| e.to_string())?;
        let client = client(self.config).map_err(|e| e.to_string())?;
        let answer = client.send(request).await.map_err(|e| e.to_string())?;
        match answer.status().is_success() {
            true => serde_json::from_slice(answer.body()).map_err(|e| e.to_string()),
            false => Err(format!("{address} answers {}", answer.status())),
        }
    }

    async fn arm_token(&self) -> Result<String, Refused> {
        let cloud = cloud_config(self.config);
        let client = client(self.config)?;
        let endpoints = Endpoints::of(&cloud, &client).await;
        let endpoints = endpoints.map_err(refused("speak to Azure", NEEDS))?;
        token_for(self.config, &endpoints.audience).await
    }

    async fn remove(&self, found: Option<Value>) -> Result<String, Refused> {
        let is_ours = |found: &Value| found["tags"]["madeBy"] == MADE_BY;
        let doing = format!("remove {}", self.id);
        let said = match (found, &self.local.agent) {
            (None, _) => format!("{} is gone", self.id),
            (Some(found), _) if !is_ours(&found) && self.local.agent.is_none() => {
                format!("{} was there before, and stays", self.id)
            }
            (Some(_), Some(agent)) => {
                azcmagent::disconnect(agent, &self.arm_token().await?).await?;
                format!("{} is gone", self.id)
            }
            (Some(_), None) => {
                let gone = self.arm.delete(&self.id).await;
                gone.map_err(refused(&doing, NEEDS))?;
                format!("{} is gone", self.id)
            }
        };
        self.local.keys.remove();
        Ok(said)
    }
}
