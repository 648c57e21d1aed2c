//! The environment of containers: upstream's order, expansion and service variables.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector, Secret,
    Service,
};
use kube_kit::quantity::Quantity;

use crate::{resources, spec};

/// Variables by name.
pub type Env = BTreeMap<String, String>;

/// What an environment is made of beside the pod.
#[derive(Default)]
pub struct Sources {
    /// Config maps of the pod's namespace that were found.
    pub config_maps: BTreeMap<String, std::sync::Arc<ConfigMap>>,
    /// Secrets of the pod's namespace that were found.
    pub secrets: BTreeMap<String, std::sync::Arc<Secret>>,
    /// Variables for services.
    pub services: Env,
    /// The pod's addresses.
    pub pod_ips: Vec<String>,
    /// The node's addresses.
    pub host_ips: Vec<String>,
    /// What the node has for pods, for limits that are not set: CPUs in thousandths, bytes.
    pub allocatable: BTreeMap<String, i64>,
}

/// Builds the environment. An error is the container's `CreateContainerConfigError`.
pub fn build(pod: &Pod, container: &Container, sources: &Sources) -> Result<Env, String> {
    let mut env = Env::new();
    for from in container.env_from.as_deref().unwrap_or_default() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(map) => {
                    let data = map.data.iter().flatten();
                    env.extend(data.map(|(k, v)| (format!("{prefix}{k}"), v.clone())));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap {:?} not found", reference.name)),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(secret) => {
                    let data = secret.data.iter().flatten();
                    let text = |v: &[u8]| String::from_utf8_lossy(v).into_owned();
                    env.extend(data.map(|(k, v)| (format!("{prefix}{k}"), text(&v.0))));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret {:?} not found", reference.name)),
            }
        }
    }
    for variable in container.env.as_deref().unwrap_or_default() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match from_source(pod, container, source, sources)? {
                Some(value) => value,
                None => continue,
            },
            (value, None) => {
                let text = value.as_deref().unwrap_or_default();
                expand(text, |name| {
                    env.get(name).or_else(|| sources.services.get(name))
                })
            }
        };
        env.insert(variable.name.clone(), value);
    }
    for (name, value) in &sources.services {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(env)
}

fn from_source(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    sources: &Sources,
) -> Result<Option<String>, String> {
    let namespace = spec::namespace(pod);
    if let Some(field) = &source.field_ref {
        return pod_field(pod, field, sources).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        return resource_field(pod, container, field, sources).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = sources.config_maps.get(&key.name) else {
            let missing = format!("configmap {:?} not found", key.name);
            return if optional { Ok(None) } else { Err(missing) };
        };
        let value = map.data.as_ref().and_then(|d| d.get(&key.key));
        return match value {
            None if !optional => Err(format!(
                "couldn't find key {} in ConfigMap {namespace}/{}",
                key.key, key.name
            )),
            value => Ok(value.cloned()),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = sources.secrets.get(&key.name) else {
            let missing = format!("secret {:?} not found", key.name);
            return if optional { Ok(None) } else { Err(missing) };
        };
        let value = secret.data.as_ref().and_then(|d| d.get(&key.key));
        return match value {
            None if !optional => Err(format!(
                "couldn't find key {} in Secret {namespace}/{}",
                key.key, key.name
            )),
            value => Ok(value.map(|v| String::from_utf8_lossy(&v.0).into_owned())),
        };
    }
    Ok(None)
}

fn pod_field(pod: &Pod, field: &ObjectFieldSelector, sources: &Sources) -> Result<String, String> {
    let path = field.field_path.as_str();
    let meta = &pod.metadata;
    let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => spec::name(pod).to_owned(),
        "metadata.namespace" => spec::namespace(pod).to_owned(),
        "metadata.uid" => spec::uid(pod).to_owned(),
        "spec.nodeName" => spec::spec(pod).node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec::spec(pod)
            .service_account_name
            .clone()
            .unwrap_or_default(),
        "status.hostIP" => first(&sources.host_ips),
        "status.hostIPs" => sources.host_ips.join(","),
        "status.podIP" => first(&sources.pod_ips),
        "status.podIPs" => sources.pod_ips.join(","),
        _ => {
            let of = |map: &Option<BTreeMap<String, String>>, prefix: &str| {
                let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
                Some(
                    map.as_ref()
                        .and_then(|m| m.get(key))
                        .cloned()
                        .unwrap_or_default(),
                )
            };
            let found = of(&meta.labels, "metadata.labels['")
                .or_else(|| of(&meta.annotations, "metadata.annotations['"));
            found.ok_or_else(|| format!("unsupported fieldPath: {path}"))?
        }
    })
}

/// The value of a container's request or limit in units of the divisor, rounded up. A limit that is not set is what
/// the node has.
pub fn resource_field(
    pod: &Pod,
    container: &Container,
    field: &ResourceFieldSelector,
    sources: &Sources,
) -> Result<String, String> {
    let container = match field
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        None => container,
        Some(name) => {
            let found = spec::containers(pod).find(|(_, c)| c.name == name);
            found
                .ok_or_else(|| format!("container {name:?} not found"))?
                .1
        }
    };
    let (kind, name) = field
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", field.resource))?;
    let list = match kind {
        "limits" => resources::limits(container),
        "requests" => resources::requests(container),
        _ => {
            return Err(format!(
                "unsupported container resource : {}",
                field.resource
            ));
        }
    };
    let set = resources::amount(list, name).filter(|n| *n > 0);
    let fallback = || match kind {
        "limits" => sources.allocatable.get(name).copied(),
        _ => resources::amount(resources::limits(container), name),
    };
    let amount = set.or_else(fallback).unwrap_or(0);
    let divisor = field
        .divisor
        .as_ref()
        .map(|d| d.0.as_str())
        .filter(|d| !d.is_empty());
    let divisor: Quantity = divisor.unwrap_or("1").parse().map_err(|e| format!("{e}"))?;
    let nanos = i128::from(amount)
        * if name == "cpu" {
            1_000_000
        } else {
            1_000_000_000
        };
    let by = match divisor.nanos() {
        0 => 1_000_000_000,
        by => by,
    };
    Ok((nanos + by - 1).div_euclid(by).to_string())
}

/// Puts values in place of `$(NAME)`; what is not defined stays, `$$` is `$`.
pub fn expand<'a>(text: &str, value: impl Fn(&str) -> Option<&'a String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|r| r.split_once(')'));
        match name {
            Some((name, after)) => {
                match value(name) {
                    Some(value) => out.push_str(value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

/// Variables for the services that a pod may see: those of its namespace if it wants them, and the API server always.
pub fn services<'a>(pod: &Pod, services: impl Iterator<Item = &'a Service>) -> Env {
    let links = spec::spec(pod).enable_service_links != Some(false);
    let mut env = Env::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let ip = service
            .spec
            .as_ref()
            .and_then(|s| s.cluster_ip.as_deref())
            .unwrap_or_default();
        let of_api = namespace == "default" && name == "kubernetes";
        let visible = of_api || (links && namespace == spec::namespace(pod));
        if visible && !ip.is_empty() && ip != "None" {
            variables(service, name, ip, &mut env);
        }
    }
    env
}

fn variables(service: &Service, name: &str, ip: &str, env: &mut Env) {
    let word = |text: &str| text.to_uppercase().replace('-', "_");
    let prefix = word(name);
    let ports = service
        .spec
        .as_ref()
        .and_then(|s| s.ports.as_deref())
        .unwrap_or_default();
    let mut put = |key: String, value: String| drop(env.insert(key, value));
    put(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    for (at, port) in ports.iter().enumerate() {
        let number = port.port;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let bracketed = if ip.contains(':') {
            format!("[{ip}]")
        } else {
            ip.to_owned()
        };
        let url = format!("{lower}://{bracketed}:{number}");
        if at == 0 {
            put(format!("{prefix}_SERVICE_PORT"), number.to_string());
            put(format!("{prefix}_PORT"), url.clone());
        }
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            put(
                format!("{prefix}_SERVICE_PORT_{}", word(name)),
                number.to_string(),
            );
        }
        let one = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        put(format!("{one}_PROTO"), lower);
        put(format!("{one}_PORT"), number.to_string());
        put(format!("{one}_ADDR"), ip.to_owned());
        put(one, url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(containers: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
            "spec": {"containers": containers, "nodeName": "here"},
        }))
        .expect("a pod")
    }

    fn env_of(env: Value, sources: &Sources) -> Result<Env, String> {
        let pod = pod(json!([{"name": "c", "env": env}]));
        let container = spec::spec(&pod).containers[0].clone();
        build(&pod, &container, sources)
    }

    #[test]
    fn references_are_expanded_and_unknown_ones_stay() {
        let env = Env::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A} $(A", "$A ${A} $(A"),
            ("end$", "end$"),
        ] {
            assert_eq!(expand(text, |name| env.get(name)), expected, "{text}");
        }
    }

    #[test]
    fn later_variables_see_earlier_ones_and_fields_of_the_pod() {
        let sources = Sources {
            pod_ips: vec!["10.0.0.7".to_owned()],
            ..Sources::default()
        };
        let env = env_of(
            json!([
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                {"name": "BOTH", "value": "$(IP)/$(LABEL)/$(LATER)"},
                {"name": "LATER", "value": "x"},
                {"name": "EMPTY"},
            ]),
            &sources,
        )
        .expect("an environment");
        assert_eq!(env["BOTH"], "10.0.0.7/b/$(LATER)");
        assert_eq!(env["EMPTY"], "");
    }

    #[test]
    fn what_is_missing_and_not_optional_is_named() {
        let key = |optional: bool| {
            json!([{"name": "X", "valueFrom": {"configMapKeyRef":
            {"name": "m", "key": "k", "optional": optional}}}])
        };
        let none = Sources::default();
        assert_eq!(
            env_of(key(false), &none),
            Err("configmap \"m\" not found".to_owned())
        );
        assert_eq!(env_of(key(true), &none), Ok(Env::new()));
        let mut some = Sources::default();
        some.config_maps
            .insert("m".to_owned(), ConfigMap::default().into());
        assert_eq!(
            env_of(key(false), &some),
            Err("couldn't find key k in ConfigMap n/m".to_owned())
        );
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let pod = pod(
            json!([{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}]),
        );
        let container = &spec::spec(&pod).containers[0];
        let mut sources = Sources::default();
        sources
            .allocatable
            .insert("ephemeral-storage".to_owned(), 7);
        for (resource, divisor, expected) in [
            ("limits.cpu", "1", "2"),
            ("limits.cpu", "1m", "1500"),
            ("limits.memory", "1Mi", "64"),
            ("limits.ephemeral-storage", "", "7"),
            ("requests.cpu", "1m", "1500"),
        ] {
            let field: ResourceFieldSelector =
                serde_json::from_value(json!({"resource": resource, "divisor": divisor}))
                    .expect("a selector");
            let value = resource_field(&pod, container, &field, &sources);
            assert_eq!(value.as_deref(), Ok(expected), "{resource} / {divisor}");
        }
    }

    #[test]
    fn services_become_variables_as_docker_links_were() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "redis-primary", "namespace": "n"},
            "spec": {"clusterIP": "10.0.0.11", "ports": [{"port": 6379, "protocol": "TCP", "name": "db"}]},
        }))
        .expect("a service");
        let env = services(&pod(json!([])), [&service].into_iter());
        assert_eq!(env["REDIS_PRIMARY_SERVICE_HOST"], "10.0.0.11");
        assert_eq!(env["REDIS_PRIMARY_SERVICE_PORT_DB"], "6379");
        assert_eq!(env["REDIS_PRIMARY_PORT"], "tcp://10.0.0.11:6379");
        assert_eq!(env["REDIS_PRIMARY_PORT_6379_TCP_ADDR"], "10.0.0.11");
        assert_eq!(env.len(), 8);
    }
}
