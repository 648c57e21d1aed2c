//! Which Azure: where Resource Manager and Entra ID are, and what tokens are for.

use http::Request;
use http_body_util::Full;
use serde_json::Value;
use wire::client::Client;

use crate::{CloudConfig, Error};

/// Where a cloud is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Resource Manager, without a slash at its end.
    pub manager: String,
    /// Entra ID, without a slash at its end.
    pub login: String,
    /// What tokens for Resource Manager are for.
    pub audience: String,
}

/// The public clouds: names, Resource Manager, Entra ID.
const CLOUDS: [(&[&str], &str, &str); 3] = [
    (
        &["azurechinacloud"],
        "https://management.chinacloudapi.cn",
        "https://login.chinacloudapi.cn",
    ),
    (
        &["azureusgovernmentcloud", "azureusgovernment"],
        "https://management.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
    // A name nobody knows means the public one, as upstream does.
    (
        &[""],
        "https://management.azure.com",
        "https://login.microsoftonline.com",
    ),
];

impl Endpoints {
    /// The public cloud of a name.
    pub fn of_cloud(name: &str) -> Endpoints {
        let name = name.to_lowercase();
        let found = CLOUDS.iter().find(|row| row.0.contains(&name.as_str()));
        let (_, manager, login) = found.unwrap_or(&CLOUDS[2]);
        Endpoints {
            manager: (*manager).to_owned(),
            login: (*login).to_owned(),
            audience: (*manager).to_owned(),
        }
    }

    /// The cloud that a configuration means; one with an address of its own is asked what it is.
    pub async fn of(config: &CloudConfig, client: &Client) -> Result<Endpoints, Error> {
        let manager = config.resource_manager_endpoint.trim_end_matches('/');
        if manager.is_empty() {
            return Ok(Endpoints::of_cloud(&config.cloud));
        }
        let address = format!("{manager}/metadata/endpoints?api-version=2019-05-01");
        let request = Request::get(&address).body(Full::default());
        let request = request.map_err(|e| Error::Config(format!("{address}: {e}")))?;
        let answer = client.send(request).await?;
        let read = |cause: &dyn std::fmt::Display| Error::unreadable(&address, cause);
        let described: Value = serde_json::from_slice(answer.body()).map_err(|e| read(&e))?;
        Endpoints::described(&config.cloud, manager, &described)
            .ok_or_else(|| read(&"it names no place to sign in"))
    }

    /// A cloud as it describes itself: the entry of our name, or the only one there is.
    fn described(name: &str, manager: &str, all: &Value) -> Option<Endpoints> {
        let all: Vec<&Value> = match all {
            Value::Array(all) => all.iter().collect(),
            one => vec![one],
        };
        let own = |entry: &&&Value| {
            let own = entry["name"].as_str().unwrap_or_default();
            own.eq_ignore_ascii_case(name)
        };
        let one = all.iter().find(own).or(all.first())?;
        let text = |value: &Value| value.as_str().map(|t| t.trim_end_matches('/').to_owned());
        let authentication = &one["authentication"];
        Some(Endpoints {
            manager: text(&one["resourceManager"]).unwrap_or_else(|| manager.to_owned()),
            login: text(&authentication["loginEndpoint"])?,
            // A slash at its end belongs to it.
            audience: authentication["audiences"][0]
                .as_str()
                .unwrap_or(manager)
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn public_clouds_by_name() {
        let manager = |name: &str| Endpoints::of_cloud(name).manager;
        assert_eq!(manager("AzurePublicCloud"), "https://management.azure.com");
        assert_eq!(manager("anything"), "https://management.azure.com");
        assert_eq!(
            manager("AZUREUSGOVERNMENT"),
            "https://management.usgovcloudapi.net"
        );
        assert_eq!(
            Endpoints::of_cloud("AzureChinaCloud").login,
            "https://login.chinacloudapi.cn"
        );
    }

    #[test]
    fn a_cloud_describes_itself() {
        let entry = |name: &str, login: &str| {
            json!({"name": name, "resourceManager": "https://arm/",
                "authentication": {"loginEndpoint": login, "audiences": ["https://arm/"]}})
        };
        let all = json!([entry("A", "https://a/"), entry("B", "https://b")]);
        let found = Endpoints::described("b", "https://arm", &all).unwrap();
        assert_eq!(found.login, "https://b");
        assert_eq!(found.manager, "https://arm");
        assert_eq!(found.audience, "https://arm/");
        let first = Endpoints::described("AzurePublicCloud", "https://arm", &all).unwrap();
        assert_eq!(first.login, "https://a");
        assert_eq!(Endpoints::described("b", "x", &json!({})), None);
    }
}
