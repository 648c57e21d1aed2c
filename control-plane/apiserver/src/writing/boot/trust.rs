//! kube-system/extension-apiserver-authentication: what an aggregated API server must know to believe
//! the users that this one vouches for.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::keep;
use crate::api::Api;
use crate::settings::Authentication;
use crate::status::{ApiError, Result};

/// Writes the CAs and header names as they are now. Upstream adds them to what is there; we replace
/// it, because a CA that was retired must not stay trusted through this object.
pub(crate) async fn publish(api: &Api, authentication: &Authentication) -> Result<()> {
    let data = data(authentication, |path| {
        std::fs::read_to_string(path)
            .map_err(|e| ApiError::internal(format!("cannot read `{}`: {e}", path.display())))
    })?;
    let config_map = json!({
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": data,
    });
    keep(api, "", "configmaps", config_map, "data").await
}

fn data(
    authentication: &Authentication,
    read: impl Fn(&Path) -> Result<String>,
) -> Result<Map<String, Value>> {
    let mut data = Map::new();
    if let Some(file) = &authentication.client_ca_file {
        data.insert("client-ca-file".into(), read(file)?.into());
    }
    let Some(proxies) = &authentication.request_header else {
        return Ok(data);
    };
    let authorities = read(&proxies.client_ca_file)?;
    data.insert("requestheader-client-ca-file".into(), authorities.into());
    let lists = [
        ("username-headers", &proxies.username_headers),
        ("uid-headers", &proxies.uid_headers),
        ("group-headers", &proxies.group_headers),
        ("extra-headers-prefix", &proxies.extra_header_prefixes),
        ("allowed-names", &proxies.allowed_names),
    ];
    for (name, values) in lists {
        // Upstream leaves out only the uid headers when there are none: older readers do not know them.
        if name != "uid-headers" || !values.is_empty() {
            let text = json!(values).to_string();
            data.insert(format!("requestheader-{name}"), text.into());
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RequestHeader;

    fn read(path: &Path) -> Result<String> {
        Ok(format!("PEM of {}", path.display()))
    }

    #[test]
    fn header_names_are_json_lists_and_cas_are_pem() {
        let list = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        let authentication = Authentication {
            client_ca_file: Some("ca".into()),
            request_header: Some(RequestHeader {
                client_ca_file: "proxies".into(),
                allowed_names: list(&["front-proxy-client"]),
                username_headers: list(&["X-Remote-User"]),
                uid_headers: list(&[]),
                group_headers: list(&["X-Remote-Group"]),
                extra_header_prefixes: list(&["X-Remote-Extra-"]),
            }),
            ..Authentication::default()
        };
        let expected = json!({
            "client-ca-file": "PEM of ca",
            "requestheader-client-ca-file": "PEM of proxies",
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        });
        assert_eq!(
            Value::Object(data(&authentication, read).unwrap()),
            expected
        );
        let none = data(&Authentication::default(), read).unwrap();
        assert!(none.is_empty());
    }
}
