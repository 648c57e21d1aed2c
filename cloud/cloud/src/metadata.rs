//! Metadata services: what a machine can ask about itself without a password. IMDS for machines of the cloud, HIMDS for
//! those that are connected to it from elsewhere.
//!
//! One service speaks for one machine, on a listener of its own inside the machine's network. Both refuse what the real
//! ones refuse: requests without `Metadata: true`, and those that came through a proxy.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::arm::document::{self, Document};
use crate::arm::id::Id;
use crate::door::Door;
use crate::entra::{directory, grant};
use crate::exchange::{Asked, Body, Reply};
use crate::server::{self, Answers};
use crate::turn::Turn;

/// The versions that IMDS answers to.
const VERSIONS: [&str; 6] = [
    "2017-04-02",
    "2018-02-01",
    "2019-06-01",
    "2020-09-01",
    "2021-02-01",
    "2023-07-01",
];

/// For whom a metadata service speaks.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The resource id of a virtual machine, of a machine of a scale set, or of a connected machine.
    pub resource: String,
    /// Who may ask; nobody else is answered. Without one everybody on the listener may.
    pub source: Option<IpAddr>,
    /// For a connected machine: the directory where proofs are laid down that only root can read.
    pub proofs: Option<PathBuf>,
}

/// Metadata services of a cloud.
#[derive(Debug, Clone)]
pub struct Metadata(pub(crate) Arc<Door>);

impl Metadata {
    /// Speaks for a machine until told to stop.
    pub async fn serve(
        &self,
        machine: Machine,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) {
        let service = Service {
            door: Arc::clone(&self.0),
            machine,
        };
        server::serve(Arc::new(service), listener, None, stop).await;
    }
}

/// For which machine to speak, by the address of who asks.
pub type Find = dyn Fn(IpAddr) -> Option<Machine> + Send + Sync;

impl Metadata {
    /// Speaks for all machines of a network until told to stop, for each to itself only.
    pub async fn serve_network(
        &self,
        find: Arc<Find>,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) {
        let door = Arc::clone(&self.0);
        server::serve(Arc::new(Services { door, find }), listener, None, stop).await;
    }
}

struct Services {
    door: Arc<Door>,
    find: Arc<Find>,
}

impl Answers for Services {
    async fn answer(&self, asked: Asked, peer: SocketAddr) -> Reply {
        let door = Arc::clone(&self.door);
        match (self.find)(peer.ip()) {
            Some(machine) => Service { door, machine }.answer(asked, peer).await,
            None => error(404, "not_found", "The request comes from no machine"),
        }
    }
}

struct Service {
    door: Arc<Door>,
    machine: Machine,
}

fn error(status: u16, word: &str, text: &str) -> Reply {
    Reply::json(status, json!({"error": word, "error_description": text}))
}

/// What every request is held to before anything is said.
fn refused(machine: &Machine, asked: &Asked, peer: IpAddr) -> Option<Reply> {
    let path = asked.path.to_lowercase();
    if machine.source.is_some_and(|source| source != peer) {
        return Some(error(
            403,
            "forbidden",
            "The request does not come from this machine",
        ));
    }
    if asked.headers.contains_key("x-forwarded-for") {
        return Some(error(
            400,
            "invalid_request",
            "X-Forwarded-For is not allowed",
        ));
    }
    let is_open = path == "/metadata/versions";
    let has_header = asked
        .header("metadata")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    match has_header || is_open {
        true => None,
        false => Some(error(
            400,
            "invalid_request",
            "Required metadata header not specified",
        )),
    }
}

impl Answers for Service {
    async fn answer(&self, asked: Asked, peer: SocketAddr) -> Reply {
        if let Some(refusal) = refused(&self.machine, &asked, peer.ip()) {
            return refusal;
        }
        if asked.method != Method::GET && !asked.path.ends_with("/scheduledevents") {
            return error(405, "invalid_request", "Method not allowed");
        }
        match asked.path.to_lowercase().as_str() {
            "/metadata/identity/oauth2/token" => self.token(&asked).await,
            path => self
                .door
                .look(|turn| tell(turn, &self.machine, path, &asked)),
        }
    }
}

impl Service {
    async fn token(&self, asked: &Asked) -> Reply {
        if let Some(directory) = &self.machine.proofs
            && let Err(challenge) = proven(directory, asked)
        {
            return *challenge;
        }
        let door = &self.door;
        let given = door.decide(|turn| match chosen(turn, &self.machine.resource, asked) {
            Ok((principal, resource)) => {
                Reply::ok(grant::managed(turn, &door.keys, &principal, &resource))
            }
            Err(refusal) => *refusal,
        });
        given.await.unwrap_or_else(|fault| fault.reply())
    }
}

/// HIMDS: whoever can read a file that belongs to root may have a token.
fn proven(directory: &std::path::Path, asked: &Asked) -> Result<(), Box<Reply>> {
    let path = directory.join("kyanite.key");
    let shown = asked
        .header("authorization")
        .and_then(|value| value.strip_prefix("Basic "));
    let kept = std::fs::read_to_string(&path).ok();
    if let (Some(shown), Some(kept)) = (shown, &kept)
        && aws_lc_rs::constant_time::verify_slices_are_equal(
            shown.trim().as_bytes(),
            kept.as_bytes(),
        )
        .is_ok()
    {
        // A proof is good once.
        let _ = std::fs::remove_file(&path);
        return Ok(());
    }
    let proof = crate::chance::Chance::new().secret();
    if let Err(cause) = lay_down(&path, &proof) {
        tracing::error!(%cause, path = %path.display(), "a proof cannot be laid down");
        return Err(Box::new(error(
            500,
            "server_error",
            "The proof cannot be laid down",
        )));
    }
    let realm = format!("Basic realm={}", path.display());
    let told = error(
        401,
        "unauthorized",
        "Read the file that WWW-Authenticate names",
    );
    Err(Box::new(told.with("www-authenticate", &realm)))
}

fn lay_down(path: &std::path::Path, proof: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(proof.as_bytes())
}

/// The identity that a request names, or the machine's own; and what the token is for.
fn chosen(turn: &Turn<'_>, machine: &str, asked: &Asked) -> Result<(Value, String), Box<Reply>> {
    let bad = |text: &str| Box::new(error(400, "invalid_request", text));
    let Some(resource) = asked.param("resource").filter(|text| !text.is_empty()) else {
        return Err(bad("Required query variable 'resource' is missing"));
    };
    let owner = owner(turn, machine).ok_or_else(|| bad("Identity not found"))?;
    let identity = &owner.body["identity"];
    let used: Vec<(String, Value)> = identity["userAssignedIdentities"]
        .as_object()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .collect();
    let id_of = |value: &Value| value["principalId"].as_str().unwrap_or_default().to_owned();
    let named = |name: &str| asked.param(name);
    let wanted = if let Some(client) = named("client_id") {
        used.iter()
            .find(|(_, shown)| shown["clientId"] == client)
            .map(|(_, shown)| id_of(shown))
    } else if let Some(object) = named("object_id") {
        let own = identity["principalId"] == object;
        used.iter()
            .map(|(_, s)| id_of(s))
            .chain(own.then(|| object.to_owned()))
            .find(|id| id == object)
    } else if let Some(id) = named("msi_res_id").or_else(|| named("mi_res_id")) {
        used.iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(id))
            .map(|(_, shown)| id_of(shown))
    } else {
        let own = identity["principalId"].as_str().map(str::to_owned);
        // Without a word about which, the only one is meant.
        own.or_else(|| (used.len() == 1).then(|| id_of(&used[0].1)))
    };
    let principal = wanted.and_then(|id| turn.get(&directory::key("servicePrincipals", &id)));
    principal
        .map(|principal| (principal, resource.to_owned()))
        .ok_or_else(|| bad("Identity not found"))
}

/// What has the identities of a machine: itself, or its scale set.
fn owner(turn: &Turn<'_>, machine: &str) -> Option<Document> {
    let id = Id::parse(machine)?;
    let own = document::get(turn, machine)?;
    match id.parent() {
        Some(set) => document::get(turn, &set.to_string()),
        None => Some(own),
    }
}

fn tell(turn: &Turn<'_>, machine: &Machine, path: &str, asked: &Asked) -> Reply {
    if path == "/metadata/versions" {
        return Reply::ok(json!({ "apiVersions": VERSIONS }));
    }
    match asked.param("api-version") {
        None => {
            return Reply::json(
                400,
                json!({"error": "Bad request. api-version is missing", "newest-versions": VERSIONS}),
            );
        }
        Some(version) if version < VERSIONS[0] => {
            return Reply::json(
                400,
                json!({"error": "Bad request. api-version is invalid", "newest-versions": VERSIONS}),
            );
        }
        Some(_) => {}
    }
    let Some(document) = document::get(turn, &machine.resource) else {
        return error(404, "not_found", "The machine was not found");
    };
    match path {
        "/metadata/scheduledevents" => Reply::ok(json!({"DocumentIncarnation": 1, "Events": []})),
        _ => match path.strip_prefix("/metadata/instance") {
            Some(rest) => part(&instance(turn, &document), rest, asked),
            None => error(404, "not_found", "Not found"),
        },
    }
}

/// A part of the document: the rest of the path, as JSON or as text.
fn part(whole: &Value, rest: &str, asked: &Asked) -> Reply {
    let mut at = whole;
    for word in rest.split('/').filter(|word| !word.is_empty()) {
        let found = match (at, word.parse::<usize>()) {
            (Value::Array(all), Ok(index)) => all.get(index),
            (Value::Object(map), _) => map
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(word))
                .map(|(_, value)| value),
            _ => None,
        };
        match found {
            Some(found) => at = found,
            None => return error(404, "not_found", "Not found"),
        }
    }
    match (asked.param("format"), at) {
        (Some("text"), Value::String(text)) => Reply {
            body: Body::Text("text/plain", text.clone()),
            ..Reply::empty(200)
        },
        (Some("text"), Value::Object(map)) => {
            let names: Vec<String> = map
                .iter()
                .map(|(k, v)| {
                    if v.is_object() || v.is_array() {
                        format!("{k}/")
                    } else {
                        k.clone()
                    }
                })
                .collect();
            Reply {
                body: Body::Text("text/plain", names.join("\n")),
                ..Reply::empty(200)
            }
        }
        (_, value) => Reply::ok(value.clone()),
    }
}

/// `/metadata/instance`.
fn instance(turn: &Turn<'_>, document: &Document) -> Value {
    let id = Id::parse(document.id());
    let (subscription, group, set) = id.map_or_else(Default::default, |id| {
        let set = id
            .parent()
            .map(|set| set.name().to_owned())
            .unwrap_or_default();
        (
            id.subscription.unwrap_or_default(),
            id.group.unwrap_or_default(),
            set,
        )
    });
    let properties = &document.body["properties"];
    let tags = document.body["tags"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let flat: Vec<String> = tags
        .iter()
        .map(|(k, v)| format!("{k}:{}", v.as_str().unwrap_or_default()))
        .collect();
    let list: Vec<Value> = tags
        .iter()
        .map(|(k, v)| json!({"name": k, "value": v}))
        .collect();
    let (storage, system) = (&properties["storageProfile"], &properties["osProfile"]);
    let size = properties["hardwareProfile"]["vmSize"].clone();
    json!({
        "compute": {"azEnvironment": "AzurePublicCloud", "location": document.body["location"], "name": document.body["name"],
            "resourceGroupName": group, "resourceId": document.id(), "subscriptionId": subscription, "vmId": properties["vmId"],
            "vmScaleSetName": set, "vmSize": size, "zone": document.body["zones"][0].as_str().unwrap_or_default(),
            "osType": storage["osDisk"]["osType"], "tags": flat.join(";"), "tagsList": list, "provider": "Microsoft.Compute",
            "platformFaultDomain": "0", "platformUpdateDomain": "0", "placementGroupId": "", "priority": "", "evictionPolicy": "",
            "isHostCompatibilityLayerVm": "false", "licenseType": "", "sku": storage["imageReference"]["sku"],
            "offer": storage["imageReference"]["offer"], "publisher": storage["imageReference"]["publisher"],
            "version": storage["imageReference"]["version"], "customData": "", "userData": properties["userData"],
            "osProfile": {"adminUsername": system["adminUsername"], "computerName": system["computerName"],
                "disablePasswordAuthentication": "true"},
            "securityProfile": {"secureBootEnabled": "false", "virtualTpmEnabled": "false", "encryptionAtHost": "false"},
            "storageProfile": storage, "publicKeys": system["linuxConfiguration"]["ssh"]["publicKeys"]},
        "network": {"interface": cards(turn, document)},
    })
}

fn cards(turn: &Turn<'_>, document: &Document) -> Vec<Value> {
    let entry = |address: &Value, public: &str, hardware: &str, prefix: &str| {
        let (net, length) = prefix.split_once('/').unwrap_or(("", ""));
        json!({"ipv4": {"ipAddress": [{"privateIpAddress": address, "publicIpAddress": public}],
            "subnet": [{"address": net, "prefix": length}]}, "ipv6": {"ipAddress": []}, "macAddress": hardware})
    };
    if let Some(address) = document.hidden["address"].as_str() {
        let hardware = format!(
            "000D3A{}",
            &crate::entra::directory::digest(document.id()).replace(['/', '+', '='], "0")[..6]
                .to_uppercase()
        );
        return vec![entry(&json!(address), "", &hardware, "")];
    }
    let all = document.body["properties"]["networkProfile"]["networkInterfaces"]
        .as_array()
        .into_iter()
        .flatten();
    let found = all.filter_map(|card| document::get(turn, card["id"].as_str()?));
    found
        .map(|card| {
            let first = &card.body["properties"]["ipConfigurations"][0]["properties"];
            let hardware = card.body["properties"]["macAddress"]
                .as_str()
                .unwrap_or_default()
                .replace('-', "");
            let public = first["publicIPAddress"]["id"]
                .as_str()
                .and_then(|id| document::get(turn, id));
            let public = public
                .map(|p| {
                    p.body["properties"]["ipAddress"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                })
                .unwrap_or_default();
            let subnet = first["subnet"]["id"].as_str().and_then(Id::parse);
            let kind = crate::arm::kind::named("Microsoft.Network/virtualNetworks/subnets");
            let subnet = subnet
                .zip(kind)
                .and_then(|(id, kind)| crate::arm::inner::get(turn, &id, kind));
            let prefix = subnet
                .map(|s| {
                    s.body["properties"]["addressPrefix"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                })
                .unwrap_or_default();
            entry(&first["privateIPAddress"], &public, &hardware, &prefix)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;
    use crate::arena::{OWNER, SUBSCRIPTION, caller};
    use crate::arm::{self, access};
    use crate::books::Books;
    use crate::entra::token::Keys;
    use crate::settings::Settings;
    use clock::Clock;

    #[test]
    fn what_the_real_service_refuses_is_refused() {
        let machine = Machine {
            resource: "/x".into(),
            source: Some(IpAddr::from([10, 0, 0, 4])),
            proofs: None,
        };
        let own = IpAddr::from([10, 0, 0, 4]);
        let ask = |rows: &[(&'static str, &'static str)], peer: IpAddr| {
            let mut headers = HeaderMap::new();
            for (name, value) in rows {
                headers.insert(*name, value.parse().unwrap());
            }
            let asked = Asked::new(
                Method::GET,
                "/metadata/instance?api-version=2021-02-01",
                headers,
                Bytes::new(),
            );
            refused(&machine, &asked, peer).map(|reply| reply.status.as_u16())
        };
        assert_eq!(ask(&[("metadata", "true")], own), None);
        assert_eq!(ask(&[("metadata", "TRUE")], own), None);
        assert_eq!(ask(&[], own), Some(400));
        assert_eq!(
            ask(&[("metadata", "true"), ("x-forwarded-for", "1.2.3.4")], own),
            Some(400)
        );
        assert_eq!(
            ask(&[("metadata", "true")], IpAddr::from([10, 0, 0, 5])),
            Some(403)
        );
    }

    /// A cloud with one machine that has an identity; gives the machine's id.
    async fn cloud_with_machine(directory: &std::path::Path) -> (Arc<Door>, String) {
        let books = Books::open(directory).await.unwrap();
        let keys = Keys::read(&Keys::generate().unwrap()).unwrap();
        let door = Arc::new(Door::new(
            books,
            Settings::for_tests(),
            keys,
            Clock::system(),
        ));
        let owner = caller("me");
        let subscribed = door.decide(|turn| access::grant(turn, "me", "/a", SUBSCRIPTION, OWNER));
        subscribed.await.unwrap();
        let network = "/resourceGroups/g/providers/Microsoft.Network";
        let machine = "/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m";
        let subnet = format!("{SUBSCRIPTION}{network}/virtualNetworks/v/subnets/s");
        let card = format!("{SUBSCRIPTION}{network}/networkInterfaces/n");
        for (path, body) in [
            ("/resourcegroups/g".to_owned(), json!({})),
            (
                format!("{network}/virtualNetworks/v"),
                json!({"properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
                    "subnets": [{"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}}]}}),
            ),
            (
                format!("{network}/networkInterfaces/n"),
                json!({"properties": {"ipConfigurations": [{"name": "i", "properties": {"subnet": {"id": subnet}}}]}}),
            ),
            (
                machine.to_owned(),
                json!({"identity": {"type": "SystemAssigned"}, "properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v3"},
                    "networkProfile": {"networkInterfaces": [{"id": card}]}}}),
            ),
        ] {
            let mut body = body;
            body["location"] = json!("eastus");
            let target = format!("{SUBSCRIPTION}{path}?api-version=2025-01-01");
            let body = Bytes::from(body.to_string());
            let asked = Asked::new(Method::PUT, &target, HeaderMap::new(), body);
            let reply = door.decide(|turn| arm::answer(turn, &owner, &asked)).await;
            assert_eq!(reply.unwrap().status, 201, "{path}");
        }
        (door, format!("{SUBSCRIPTION}{machine}"))
    }

    async fn ask(service: &Service, target: &str, authorization: Option<&str>) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert("metadata", "true".parse().unwrap());
        if let Some(value) = authorization {
            headers.insert("authorization", value.parse().unwrap());
        }
        let asked = Asked::new(Method::GET, target, headers, Bytes::new());
        service
            .answer(asked, SocketAddr::from(([10, 0, 0, 4], 1)))
            .await
    }

    const TOKEN: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/";

    #[tokio::test]
    async fn a_machine_learns_who_it_is_and_gets_a_token_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (door, resource) = cloud_with_machine(&dir.path().join("state")).await;
        let machine = Machine {
            resource: resource.clone(),
            source: None,
            proofs: None,
        };
        let service = Service {
            door: Arc::clone(&door),
            machine,
        };
        let about = ask(&service, "/metadata/instance?api-version=2021-02-01", None).await;
        assert_eq!(about.document()["compute"]["name"], "m");
        let card = &about.document()["network"]["interface"][0]["ipv4"];
        assert_eq!(card["ipAddress"][0]["privateIpAddress"], "10.0.0.4");
        assert_eq!(card["subnet"][0]["address"], "10.0.0.0");
        let given = ask(&service, TOKEN, None).await;
        let token = given.document()["access_token"].as_str().unwrap();
        let own = door.look(|turn| document::get(turn, &resource).unwrap());
        let claims = door.keys.verified(token).unwrap();
        assert_eq!(claims["oid"], own.body["identity"]["principalId"]);
        let unknown = ask(&service, &format!("{TOKEN}&client_id=other"), None).await;
        assert_eq!(unknown.status, 400);
        assert_eq!(ask(&service, "/metadata/instance", None).await.status, 400);
    }

    #[tokio::test]
    async fn a_connected_machine_proves_that_it_can_read_what_root_can_and_once_only() {
        let dir = tempfile::tempdir().unwrap();
        let (door, resource) = cloud_with_machine(&dir.path().join("state")).await;
        let machine = Machine {
            resource,
            source: None,
            proofs: Some(dir.path().to_owned()),
        };
        let service = Service { door, machine };
        let challenge = ask(&service, TOKEN, None).await;
        assert_eq!(challenge.status, 401);
        let told = challenge.headers["www-authenticate"].to_str().unwrap();
        let proof = std::fs::read_to_string(told.strip_prefix("Basic realm=").unwrap()).unwrap();
        let wrong = ask(&service, TOKEN, Some("Basic guess")).await;
        assert_eq!(wrong.status, 401);
        // A guess makes a new proof.
        let stale = ask(&service, TOKEN, Some(&format!("Basic {proof}"))).await;
        assert_eq!(stale.status, 401);
        let path = dir.path().join("kyanite.key");
        let shown = format!("Basic {}", std::fs::read_to_string(path).unwrap());
        assert_eq!(ask(&service, TOKEN, Some(&shown)).await.status, 200);
        assert_eq!(ask(&service, TOKEN, Some(&shown)).await.status, 401);
    }
}
