//! `EgressSelectorConfiguration` files: which traffic leaves by which tunnel.
//!
//! The rules and their messages are `apiserver/pkg/server/egressselector/config.go`'s.

use std::path::{Path, PathBuf};

use kinds::field::{Errors, Path as Field};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Traffic;

/// One row of a file that has passed validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Which traffic.
    pub(crate) traffic: Traffic,
    /// How it leaves.
    pub(crate) way: Way,
}

/// How traffic leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// Straight to its destination.
    Direct,
    /// Through a tunnel.
    Tunnel(Protocol, Transport),
}

/// What a tunnel's server is spoken to with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// konnectivity's own protocol.
    Grpc,
    /// `CONNECT` of HTTP/1.1.
    HttpConnect,
}

/// Where a tunnel's server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    /// At a Unix socket.
    Uds(PathBuf),
    /// At `host:port`, without TLS where there are no keys.
    Tcp(String, Option<Keys>),
}

/// The keys of a TLS connection to a tunnel's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// CAs of the server; the host's own when absent.
    pub(crate) authority: Option<PathBuf>,
    /// Our certificate.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The name the server must have, where it is not the URL's.
    pub(crate) server_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    egress_selections: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    name: String,
    connection: Connection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Connection {
    proxy_protocol: String,
    transport: Option<FileTransport>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileTransport {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Tcp {
    url: String,
    tls_config: Option<Tls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Uds {
    uds_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Tls {
    ca_bundle: String,
    client_key: String,
    client_cert: String,
    #[serde(rename = "tlsServerName")]
    tls_server_name: String,
}

const KIND: &str = "EgressSelectorConfiguration";
const VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];
/// Where upstream says mistakes are, whichever row they are in.
const SERVICE: Field<'static> = Field::root("service");
const PROTOCOLS: [&str; 3] = ["Direct", "HTTPConnect", "GRPC"];

/// Reads a file's text, YAML or JSON; says everything that is wrong with it.
pub(crate) fn parse(text: &[u8], exists: &dyn Fn(&Path) -> bool) -> Result<Vec<Selection>, String> {
    let unreadable = |why: String| format!("failed to read egress selector config: {why}");
    let parsed = objects::yaml::parse(text).map_err(|e| unreadable(e.to_string()))?;
    if let Some(twice) = parsed.strict.first() {
        return Err(unreadable(format!("strict decoding error: {twice}")));
    }
    let file: File = serde_json::from_value(parsed.value)
        .map_err(|e| unreadable(format!("strict decoding error: {e}")))?;
    if file.kind != KIND || !VERSIONS.contains(&&*file.api_version) {
        let File {
            kind, api_version, ..
        } = &file;
        return Err(unreadable(format!(
            "no kind {kind:?} is registered for version {api_version:?}; use {KIND} of {}",
            VERSIONS[0]
        )));
    }
    let mut errors = Errors::default();
    let ways = file
        .egress_selections
        .iter()
        .map(|row| way(&row.connection, exists, &mut errors));
    let ways: Vec<Option<Way>> = ways.collect();
    let names = names(&file.egress_selections, &mut errors);
    if !errors.is_empty() {
        let lines: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let said = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(format!(
            "failed to validate egress selector configuration: {said}"
        ));
    }
    let rows = names.into_iter().zip(ways);
    Ok(rows
        .filter_map(|(traffic, way)| {
            Some(Selection {
                traffic: traffic?,
                way: way?,
            })
        })
        .collect())
}

fn names(rows: &[Row], errors: &mut Errors) -> Vec<Option<Traffic>> {
    let place = SERVICE.child("connection");
    let mut seen: Vec<String> = Vec::new();
    let check = |(position, row): (usize, &Row)| {
        let name = row.name.to_lowercase();
        if seen.contains(&name) {
            errors.duplicate(&place.index(position), &json!(name));
            return None;
        }
        seen.push(name.clone());
        let known = Traffic::NAMES.iter().find(|(known, _)| *known == name);
        if known.is_none() {
            let allowed = Traffic::NAMES.map(|(known, _)| known);
            errors.not_supported(&place, &json!(name), &allowed);
        }
        known.map(|(_, traffic)| *traffic)
    };
    rows.iter().enumerate().map(check).collect()
}

fn way(
    connection: &Connection,
    exists: &dyn Fn(&Path) -> bool,
    errors: &mut Errors,
) -> Option<Way> {
    let place = SERVICE.child("connection");
    let transport = connection.transport.as_ref();
    match (&*connection.proxy_protocol, transport) {
        ("Direct", None) => return Some(Way::Direct),
        ("Direct", Some(_)) => errors.invalid(
            &place.child("transport"),
            &json!("direct"),
            "config must be absent for direct connect",
        ),
        (protocol @ ("HTTPConnect" | "GRPC"), None) => errors.required(
            &place.child("transport"),
            &format!("transport must be set for {protocol}"),
        ),
        ("HTTPConnect", Some(transport)) => {
            let transport = either(transport, &place, exists, errors)?;
            return Some(Way::Tunnel(Protocol::HttpConnect, transport));
        }
        ("GRPC", Some(transport)) => match &transport.uds {
            Some(found) => {
                let transport = uds(found, &place, errors)?;
                return Some(Way::Tunnel(Protocol::Grpc, transport));
            }
            None => errors.required(&place.child("uds"), "UDS must be set with GRPC"),
        },
        (other, _) => {
            errors.not_supported(&place.child("protocol"), &json!(other), &PROTOCOLS);
        }
    }
    None
}

fn either(
    transport: &FileTransport,
    place: &Field<'_>,
    exists: &dyn Fn(&Path) -> bool,
    errors: &mut Errors,
) -> Option<Transport> {
    match (&transport.tcp, &transport.uds) {
        (Some(_), Some(_)) => errors.invalid(
            &place.child("tcp"),
            &Value::Object(serde_json::Map::new()),
            "TCP and UDS cannot both be set",
        ),
        (None, None) => errors.required(&place.child("tcp"), "One of TCP or UDS must be set"),
        (Some(found), None) => return tcp(found, place, exists, errors),
        (None, Some(found)) => return uds(found, place, errors),
    }
    None
}

fn uds(found: &Uds, place: &Field<'_>, errors: &mut Errors) -> Option<Transport> {
    if found.uds_name.is_empty() {
        let detail = "must be present for UDS connections";
        errors.invalid(&place.child("udsName"), &json!("nil"), detail);
        return None;
    }
    Some(Transport::Uds(PathBuf::from(&found.uds_name)))
}

fn tcp(
    found: &Tcp,
    place: &Field<'_>,
    exists: &dyn Fn(&Path) -> bool,
    errors: &mut Errors,
) -> Option<Transport> {
    let host = |rest: &str| rest.split('/').next().unwrap_or_default().to_owned();
    if let Some(rest) = found.url.strip_prefix("http://") {
        if found.tls_config.is_none() {
            return Some(Transport::Tcp(host(rest), None));
        }
        let detail = "config must not be present when using HTTP";
        errors.invalid(&place.child("tlsConfig"), &json!("nil"), detail);
    } else if let Some(rest) = found.url.strip_prefix("https://") {
        let keys = keys(found.tls_config.as_ref(), place, exists, errors)?;
        return Some(Transport::Tcp(host(rest), Some(keys)));
    } else {
        let detail = "supported connection protocols are http:// and https://";
        errors.invalid(&place.child("url"), &json!(found.url), detail);
    }
    None
}

fn keys(
    found: Option<&Tls>,
    place: &Field<'_>,
    exists: &dyn Fn(&Path) -> bool,
    errors: &mut Errors,
) -> Option<Keys> {
    let place = place.child("tlsConfig");
    let Some(found) = found else {
        errors.required(&place, "TLSConfig must be present when using HTTPS");
        return None;
    };
    let before = errors.0.len();
    // Field, file, what is said when it is not named (where it must be), and when it is not there.
    let files: [(&str, &str, Option<&str>, &str); 3] = [
        (
            "caBundle",
            &found.ca_bundle,
            None,
            "TLS config ca bundle does not exist",
        ),
        (
            "clientCert",
            &found.client_cert,
            Some("Using TLS requires clientCert"),
            "TLS client cert does not exist",
        ),
        (
            "clientKey",
            &found.client_key,
            Some("Using TLS requires requires clientKey"),
            "TLS client key does not exist",
        ),
    ];
    for (field, file, unnamed, absent) in files {
        match (file.is_empty(), unnamed) {
            (true, Some(detail)) => errors.invalid(&place.child(field), &json!("nil"), detail),
            (true, None) => {}
            (false, _) if exists(Path::new(file)) => {}
            (false, _) => errors.invalid(&place.child(field), &json!(file), absent),
        }
    }
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    (errors.0.len() == before).then(|| Keys {
        authority: named(&found.ca_bundle).map(PathBuf::from),
        certificate: PathBuf::from(&found.client_cert),
        key: PathBuf::from(&found.client_key),
        server_name: named(&found.tls_server_name),
    })
}

#[cfg(test)]
mod tests;
