//! From the file's text to the model.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::schema::{ALIASES, Kind, Place, WITHOUT_EFFECT, known, place};
use super::{
    Agent, Arc, Azure, ClusterId, Components, Config, Credentials, Hidden, Join, Kubelet, Node,
    Problem, rules,
};

const PAUSE_IMAGE: &str = "mcr.microsoft.com/oss/kubernetes/pause:3.6";
/// Where the agent tells Prometheus how the node is: on this machine only.
const METRICS: &str = "127.0.0.1:19101";
pub(crate) const KUBELET_URL: &str = "https://dl.k8s.io/v%s/bin/linux/%s/kubelet";

/// A file that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// What it says.
    pub config: Config,
    /// What it also says, to no effect.
    pub warnings: Vec<String>,
}

/// Reads a configuration. `file` reads what the configuration refers to (secrets in files of their own). Every problem is
/// named, not only the first.
pub fn read(
    text: &str,
    file: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Accepted, Vec<Problem>> {
    let value: Value = serde_json::from_str(text).map_err(|e| {
        let remedy =
            "the file is JSON, as upstream's is: check it with `python3 -m json.tool FILE`";
        vec![Problem::new("(file)", format!("is not JSON: {e}"), remedy)]
    })?;
    let mut fields = Fields {
        values: BTreeMap::new(),
        problems: Vec::new(),
        warnings: Vec::new(),
        unknown: Vec::new(),
        file,
    };
    fields.gather("", &value);
    fields.rename();
    let config = fields.config();
    rules::check(&config, &mut fields.problems);
    match fields.problems.is_empty() {
        true => Ok(Accepted {
            config,
            warnings: fields.warnings,
        }),
        // A name that nobody knows is often why another one is missing.
        false => Err(fields.problems.into_iter().chain(fields.unknown).collect()),
    }
}

/// Leaves of the document by their path, and what was found on the way.
struct Fields<'a> {
    values: BTreeMap<String, Value>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    unknown: Vec<Problem>,
    file: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Fields<'_> {
    fn gather(&mut self, path: &str, value: &Value) {
        let Value::Object(map) = value else {
            let cause = format!("is {} and not an object", kind_of(value));
            let at = if path.is_empty() { "(file)" } else { path };
            let remedy = "write it as { \"name\": value, … }";
            self.problems.push(Problem::new(at, cause, remedy));
            return;
        };
        for (name, value) in map {
            let at = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            match place(&at) {
                // `managedIdentity: {}` and `arc: {}` mean something.
                Place::Inside if value.is_object() => {
                    self.values.insert(at.clone(), Value::Null);
                    self.gather(&at, value);
                }
                Place::Inside if value.is_null() => {}
                Place::Inside => self.gather(&at, value),
                Place::Field(kind) => self.take(&at, kind, value),
                Place::Unknown => {
                    let meant = match known(&at) {
                        Some(near) => format!("write `{near}` if that is meant"),
                        None => "take it out".to_owned(),
                    };
                    let cause = "is not known and has no effect";
                    self.unknown.push(Problem::new(&at, cause, meant));
                    self.warnings.push(unknown(&at));
                }
            }
        }
    }

    fn take(&mut self, path: &str, kind: Kind, value: &Value) {
        if value.is_null() {
            return;
        }
        if !fits(kind, value) {
            let (is, wants) = (kind_of(value), words(kind));
            let remedy = format!("write {wants}");
            let cause = format!("is {is} and not {wants}");
            self.problems.push(Problem::new(path, cause, remedy));
            return;
        }
        let without = WITHOUT_EFFECT
            .iter()
            .find(|(name, _)| path == *name || path.starts_with(&format!("{name}.")));
        if let Some((_, why)) = without {
            self.warnings.push(format!("`{path}` has no effect: {why}"));
        }
        self.values.insert(path.to_owned(), value.clone());
    }

    /// Newer names become the ones that the rest reads.
    fn rename(&mut self) {
        for (newer, older) in ALIASES {
            if let Some(value) = self.values.get(*newer).cloned() {
                self.values.entry((*older).to_owned()).or_insert(value);
            }
        }
    }

    fn has(&self, path: &str) -> bool {
        self.values.contains_key(path)
    }

    fn text(&self, path: &str) -> String {
        let value = self.values.get(path).and_then(Value::as_str);
        value.unwrap_or_default().trim().to_owned()
    }

    fn text_or(&self, path: &str, default: &str) -> String {
        match self.text(path) {
            text if text.is_empty() => default.to_owned(),
            text => text,
        }
    }

    fn flag(&self, path: &str) -> Option<bool> {
        self.values.get(path)?.as_bool()
    }

    fn number(&self, path: &str, default: i64) -> i64 {
        let value = self.values.get(path).and_then(Value::as_i64);
        value.unwrap_or(default)
    }

    fn map(&self, path: &str) -> BTreeMap<String, String> {
        let entries = self.values.get(path).and_then(Value::as_object);
        let entries = entries.into_iter().flatten();
        entries
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = self.values.get(path).and_then(Value::as_array);
        let entries = entries.into_iter().flatten().filter_map(Value::as_str);
        entries.map(str::to_owned).collect()
    }

    /// A secret: here, or in a file of its own.
    fn secret(&mut self, path: &str, in_file: &str) -> Hidden {
        let named = self.text(in_file);
        if named.is_empty() || !self.text(path).is_empty() {
            return Hidden(self.text(path));
        }
        match (self.file)(&named) {
            Ok(text) => Hidden(text.trim().to_owned()),
            Err(cause) => {
                let remedy = "check the path and that root may read it";
                let cause = format!("{named} cannot be read: {cause}");
                self.problems.push(Problem::new(in_file, cause, remedy));
                Hidden::default()
            }
        }
    }

    fn config(&mut self) -> Config {
        let cluster = self.cluster();
        let subscription = cluster.as_ref().map(|c| c.subscription.clone());
        let azure = Azure {
            subscription: self.text_or(
                "azure.subscriptionId",
                subscription.as_deref().unwrap_or_default(),
            ),
            tenant: self.text("azure.tenantId"),
            cloud: self.text_or("azure.cloud", "AzurePublicCloud"),
            manager: self.text("azure.resourceManagerEndpoint"),
            authorities: self.authorities(),
            cluster,
            pool: self.text("azure.targetAgentPoolName"),
        };
        let credentials = self.credentials(&azure.tenant);
        let components = self.components();
        // Ours serves with a certificate of its own until one is signed; upstream's would serve nothing.
        let signs = components.kubelet == Kubelet::Own;
        Config {
            join: self.join(&azure, credentials.as_ref()),
            credentials,
            node: self.node(signs),
            components,
            agent: Agent {
                remediates: self
                    .flag("agent.enableDriftDetectionAndRemediation")
                    .unwrap_or(true),
                metrics: self.text_or("agent.metricsAddress", METRICS),
            },
            azure,
        }
    }

    /// Authorities of a cloud of one's own: PEM, here or in a file.
    fn authorities(&mut self) -> String {
        let text = self.text("azure.certificateAuthorities");
        if text.is_empty() || text.starts_with("-----BEGIN") {
            return text;
        }
        (self.file)(&text).unwrap_or_else(|cause| {
            let cause = format!("{text} cannot be read: {cause}");
            let remedy = "give PEM, or the path of a file with it";
            self.problems
                .push(Problem::new("azure.certificateAuthorities", cause, remedy));
            String::new()
        })
    }

    fn cluster(&mut self) -> Option<ClusterId> {
        let id = self.text("azure.targetCluster.resourceId");
        if id.is_empty() {
            return None;
        }
        let location = self.text("azure.targetCluster.location");
        let read = cluster_id(&id, &location);
        if read.is_none() {
            let remedy = "it is /subscriptions/<guid>/resourceGroups/<group>/providers/Microsoft.ContainerService/managedClusters/<name>: \
                see `az aks show --query id`";
            let cause = format!("`{id}` is not the id of a managed cluster");
            self.problems.push(Problem::new(
                "azure.targetCluster.resourceId",
                cause,
                remedy,
            ));
        }
        read
    }

    /// A service principal counts once it has everything; upstream falls back to the Azure CLI in silence.
    fn credentials(&mut self, tenant: &str) -> Option<Credentials> {
        let at = |name: &str| format!("azure.servicePrincipal.{name}");
        let client = self.text(&at("clientId"));
        let tenant = self.text_or(&at("tenantId"), tenant);
        let secret = self.secret(&at("clientSecret"), &at("clientSecretFile"));
        let certificate = self.text(&at("certificateFile"));
        let federated = self.text(&at("federatedTokenFile"));
        if !self.has("azure.servicePrincipal") {
            let managed = self.has("azure.managedIdentity");
            return managed
                .then(|| Credentials::Managed(self.text("azure.managedIdentity.clientId")));
        }
        if client.is_empty() {
            let remedy = "give the application's id, or take `azure.servicePrincipal` out";
            self.problems
                .push(Problem::new(&at("clientId"), "is missing", remedy));
        }
        if tenant.is_empty() {
            let remedy = "give `azure.servicePrincipal.tenantId` or `azure.tenantId`";
            self.problems
                .push(Problem::new(&at("tenantId"), "is missing", remedy));
        }
        match (secret.0.is_empty(), certificate, federated) {
            (false, _, _) => Some(Credentials::Secret {
                tenant,
                client,
                secret,
            }),
            (_, file, _) if !file.is_empty() => Some(Credentials::Certificate {
                tenant,
                client,
                file,
            }),
            (_, _, file) if !file.is_empty() => Some(Credentials::Federated {
                tenant,
                client,
                file,
            }),
            _ => {
                let remedy =
                    "give clientSecret, clientSecretFile, certificateFile or federatedTokenFile";
                self.problems
                    .push(Problem::new(&at("clientSecret"), "is missing", remedy));
                None
            }
        }
    }

    /// Which of the ways to join is meant. Era A knows only Arc, and says so with `arc` or with nothing at all; era B says
    /// `arc.enabled`, and exactly one of the ways.
    fn join(&mut self, azure: &Azure, credentials: Option<&Credentials>) -> Join {
        let token = self.secret(
            "azure.bootstrapToken.token",
            "azure.bootstrapToken.tokenFile",
        );
        let arc = self.flag("azure.arc.enabled").unwrap_or_else(|| {
            self.has("azure.arc") || (credentials.is_none() && !self.has("azure.bootstrapToken"))
        });
        let managed = self.has("azure.managedIdentity");
        let ways = [
            (self.has("azure.bootstrapToken"), "azure.bootstrapToken"),
            (self.flag("azure.arc.enabled") == Some(true), "azure.arc"),
            (managed, "azure.managedIdentity"),
        ];
        let said: Vec<_> = ways.iter().filter(|(is, _)| *is).map(|(_, n)| *n).collect();
        if said.len() > 1 {
            let remedy = "keep the one that the kubelet is to join with; a service principal may stand beside Arc";
            let cause = format!("is one of several ways to join: {}", said.join(", "));
            self.problems.push(Problem::new(said[1], cause, remedy));
        }
        if self.has("azure.bootstrapToken") {
            return Join::BootstrapToken(token);
        }
        if arc {
            let cluster = azure.cluster.as_ref();
            let of = |get: fn(&ClusterId) -> &String| cluster.map(get).cloned().unwrap_or_default();
            return Join::Arc(Arc {
                machine: self.text("azure.arc.machineName"),
                group: self.text_or("azure.arc.resourceGroup", &of(|c| &c.group)),
                location: self.text_or("azure.arc.location", &of(|c| &c.location)),
                tags: self.map("azure.arc.tags"),
                // Era A asks first, later eras always assign: what was not asked for in A is never meant in B.
                assigns_roles: self
                    .flag("azure.arc.autoRoleAssignment")
                    .unwrap_or(self.flag("azure.arc.enabled").is_some()),
            });
        }
        match managed {
            true => Join::ManagedIdentity(self.text("azure.managedIdentity.clientId")),
            false => Join::ServicePrincipal,
        }
    }

    fn node(&mut self, signs: bool) -> Node {
        let kubelet = |name: &str| format!("node.kubelet.{name}");
        Node {
            name: self.text("agent.nodeName").to_lowercase(),
            max_pods: self.number("node.maxPods", 110),
            labels: self.map("node.labels"),
            taints: self.list("node.taints"),
            kube_reserved: self.map(&kubelet("kubeReserved")),
            eviction_hard: self.map(&kubelet("evictionHard")),
            image_gc_high: self.number(&kubelet("imageGCHighThreshold"), 85),
            image_gc_low: self.number(&kubelet("imageGCLowThreshold"), 80),
            verbosity: self.number(&kubelet("verbosity"), 2),
            node_ip: self.text(&kubelet("nodeIP")),
            dns: self.text_or(&kubelet("dnsServiceIP"), "10.0.0.10"),
            signed_serving: self.flag(&kubelet("serverTLSBootstrap")).unwrap_or(signs),
            server: server_url(&self.text(&kubelet("serverURL"))),
            authority: self.authority(),
        }
    }

    /// `caCertData` is base64 of PEM, as in a kubeconfig.
    fn authority(&mut self) -> String {
        let path = "node.kubelet.caCertData";
        let text: String = self.text(path).split_whitespace().collect();
        let pem = STANDARD.decode(&text).ok();
        let pem = pem.and_then(|bytes| String::from_utf8(bytes).ok());
        match pem {
            Some(pem) if text.is_empty() || pem.contains("BEGIN CERTIFICATE") => pem,
            _ => {
                let remedy = "copy certificate-authority-data of a kubeconfig of the cluster";
                let cause = "is not base64 of a PEM certificate";
                self.problems.push(Problem::new(path, cause, remedy));
                String::new()
            }
        }
    }

    fn components(&mut self) -> Components {
        let version = self.text("kubernetes.version");
        let version = version.trim_start_matches('v').to_owned();
        let url = self.text("kubernetes.urlTemplate");
        let upstream = || Kubelet::Upstream {
            version: match version.is_empty() {
                true => "1.32.7".to_owned(),
                false => version.clone(),
            },
            url: match url.is_empty() {
                true => KUBELET_URL.to_owned(),
                false => url.clone(),
            },
        };
        let kubelet = match self.text("kubernetes.kubelet").as_str() {
            "own" => Kubelet::Own,
            "upstream" => upstream(),
            "" if version.is_empty() && url.is_empty() => Kubelet::Own,
            "" => upstream(),
            other => {
                let cause = format!("`{other}` is no kubelet");
                let remedy = "write `own` for this program's, `upstream` for Kubernetes' own, or leave it out";
                self.problems
                    .push(Problem::new("kubernetes.kubelet", cause, remedy));
                Kubelet::Own
            }
        };
        Components {
            kubelet,
            chosen: Vec::new(),
            containerd: plain_version(&self.text_or("containerd.version", "1.6.0")),
            runc: plain_version(&self.text_or("runc.version", "1.1.0")),
            cni: plain_version(&self.text_or("cni.version", "1.5.1")),
            pause_image: self.text_or("containerd.pauseImage", PAUSE_IMAGE),
            // Upstream's 0.0.0.0 shows them to the whole network.
            metrics_address: self.text_or("containerd.metricsAddress", "127.0.0.1:10257"),
            mirrors: self.map("mirrors"),
        }
    }
}

fn plain_version(text: &str) -> String {
    text.trim_start_matches('v').to_owned()
}

/// Era D gives a bare name.
fn server_url(text: &str) -> String {
    match text {
        "" => String::new(),
        text if text.contains("://") => text.trim_end_matches('/').to_owned(),
        name => format!("https://{}", name.trim_end_matches('/')),
    }
}

/// Names of groups may have parentheses in Azure, whatever upstream's expression says; ids are compared without case.
pub(super) fn cluster_id(id: &str, location: &str) -> Option<ClusterId> {
    let words: Vec<&str> = id.trim_end_matches('/').split('/').collect();
    let [
        "",
        subscriptions,
        subscription,
        groups,
        group,
        providers,
        provider,
        kind,
        name,
    ] = words[..]
    else {
        return None;
    };
    let fixed = [
        (subscriptions, "subscriptions"),
        (groups, "resourceGroups"),
        (providers, "providers"),
        (provider, "Microsoft.ContainerService"),
        (kind, "managedClusters"),
    ];
    let legal = |name: &str| {
        let plain = |c: char| c.is_alphanumeric() || "_.-()".contains(c);
        !name.is_empty() && name.chars().all(plain)
    };
    let is_guid = subscription.len() == 36
        && subscription
            .chars()
            .enumerate()
            .all(|(n, c)| match [8, 13, 18, 23].contains(&n) {
                true => c == '-',
                false => c.is_ascii_hexdigit(),
            });
    let fits = fixed
        .iter()
        .all(|(word, wants)| word.eq_ignore_ascii_case(wants));
    (fits && is_guid && legal(group) && legal(name)).then(|| ClusterId {
        id: id.trim_end_matches('/').to_owned(),
        subscription: subscription.to_owned(),
        group: group.to_owned(),
        name: name.to_owned(),
        location: location.to_owned(),
    })
}

fn unknown(path: &str) -> String {
    match known(path) {
        Some(near) => format!("`{path}` is not known and has no effect: did you mean `{near}`?"),
        None => format!("`{path}` is not known and has no effect"),
    }
}

fn fits(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Text => value.is_string(),
        Kind::Flag => value.is_boolean(),
        Kind::Number => value.is_i64(),
        Kind::Map => value
            .as_object()
            .is_some_and(|m| m.values().all(Value::is_string)),
        Kind::List => value
            .as_array()
            .is_some_and(|l| l.iter().all(Value::is_string)),
        Kind::Any => true,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text in quotes",
        Kind::Flag => "true or false",
        Kind::Number => "a whole number",
        Kind::Map => "an object of texts",
        Kind::List => "a list of texts",
        Kind::Any => "anything",
    }
}
