//! A machine's own metadata service (IMDS): what it is, and which public addresses lead to it.

use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use wire::client::Client;

use crate::Error;

/// Where the service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(String);

impl Default for Place {
    fn default() -> Place {
        Place("http://169.254.169.254".into())
    }
}

impl Place {
    /// Azure's own address, or the one that `AZURE_POD_IDENTITY_AUTHORITY_HOST` names, as Azure's libraries read it.
    pub fn of(environment: impl Fn(&str) -> Option<String>) -> Place {
        match environment("AZURE_POD_IDENTITY_AUTHORITY_HOST") {
            Some(host) if !host.is_empty() => Place(host.trim_end_matches('/').to_owned()),
            _ => Place::default(),
        }
    }

    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

/// `/metadata/instance`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// The machine.
    pub compute: Compute,
    /// Its network.
    pub network: Network,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compute {
    /// Its name.
    pub name: String,
    /// Its zone, or nothing.
    pub zone: String,
    /// Its size.
    pub vm_size: String,
    /// Its region.
    pub location: String,
    /// Its fault domain.
    pub platform_fault_domain: String,
    /// Its part of the fault domain.
    pub platform_sub_fault_domain: String,
    /// Its id.
    pub resource_id: String,
    /// Its tags.
    pub tags_list: Vec<Tag>,
}

/// A tag of a machine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The network of a machine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its cards; the first one counts.
    pub interface: Vec<Card>,
}

/// A card.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Card {
    /// Addresses of the fourth version.
    pub ipv4: Addresses,
    /// Addresses of the sixth version.
    pub ipv6: Addresses,
}

/// Addresses of a card.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Addresses {
    /// One pair after the other.
    pub ip_address: Vec<Pair>,
}

/// An address of the network, and the public one that leads to it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pair {
    /// In the network.
    pub private_ip_address: String,
    /// From the Internet, or nothing.
    pub public_ip_address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Balanced {
    loadbalancer: Frontends,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Frontends {
    public_ip_addresses: Vec<Frontend>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Frontend {
    frontend_ip_address: String,
    private_ip_address: String,
}

/// Asks the metadata service. The client knows no proxies, which must never see these requests.
#[derive(Debug, Clone)]
pub struct Imds {
    place: Place,
    client: Arc<Client>,
}

impl Imds {
    /// The service at a place.
    pub fn new(place: Place, client: Arc<Client>) -> Imds {
        Imds { place, client }
    }

    /// What this machine is.
    pub async fn instance(&self) -> Result<Instance, Error> {
        self.get("/metadata/instance?api-version=2021-10-01&format=json")
            .await
    }

    /// Public addresses of load balancers that lead here: of the load balancer, and of this machine.
    pub async fn balanced(&self) -> Result<Vec<(IpAddr, IpAddr)>, Error> {
        let path = "/metadata/loadbalancer?api-version=2020-10-01&format=json";
        let found: Balanced = self.get(path).await?;
        let pairs = found.loadbalancer.public_ip_addresses.into_iter();
        let address = |text: &str| text.trim_matches(['[', ']']).parse().ok();
        let pair = |one: Frontend| {
            Some((
                address(&one.frontend_ip_address)?,
                address(&one.private_ip_address)?,
            ))
        };
        Ok(pairs.filter_map(pair).collect())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let address = self.place.address(path);
        let request = Request::get(&address).header("Metadata", "True");
        let request = request.body(Full::default());
        let request = request.map_err(|e| Error::Config(format!("{address}: {e}")))?;
        let answer = self.client.send(request).await?;
        if !answer.status().is_success() {
            return Err(Error::Refused {
                method: "GET".into(),
                path: address,
                status: answer.status().as_u16(),
                code: "MetadataService".into(),
                message: String::from_utf8_lossy(answer.body()).into_owned(),
            });
        }
        serde_json::from_slice(answer.body()).map_err(|e| Error::unreadable(&address, &e))
    }
}
