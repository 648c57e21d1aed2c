//! Services, endpoints, ingresses and addresses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::column::{AGE, NAME, text, wide};
use super::row::{self, Row, first_three, is_set, joined, list};
use super::{Column, Printer};

pub(super) const PRINTERS: [Printer; 8] = [
    Printer("", "Service", &SERVICE, service),
    Printer("", "Endpoints", &ENDPOINTS, endpoints),
    Printer(
        "discovery.k8s.io",
        "EndpointSlice",
        &ENDPOINT_SLICE,
        endpoint_slice,
    ),
    Printer("networking.k8s.io", "Ingress", &INGRESS, ingress),
    Printer(
        "networking.k8s.io",
        "IngressClass",
        &INGRESS_CLASS,
        ingress_class,
    ),
    Printer(
        "networking.k8s.io",
        "NetworkPolicy",
        &NETWORK_POLICY,
        network_policy,
    ),
    Printer(
        "networking.k8s.io",
        "ServiceCIDR",
        &SERVICE_CIDR,
        service_cidr,
    ),
    Printer("networking.k8s.io", "IPAddress", &IP_ADDRESS, ip_address),
];

const SERVICE: [Column; 7] = [
    NAME,
    text("Type", "How the service is reached."),
    text("Cluster-IP", "Address inside the cluster."),
    text("External-IP", "Addresses from outside the cluster."),
    text("Port(s)", "Ports, with the node's port where there is one."),
    AGE,
    wide("Selector", "Labels of the pods behind the service."),
];

fn service(row: &Row<'_>) -> Vec<Value> {
    let ports = row
        .list("/spec/ports")
        .iter()
        .map(service_port)
        .collect::<Vec<_>>()
        .join(",");
    vec![
        row.name(),
        row.text("/spec/type").into(),
        row.text_or("/spec/clusterIPs/0", "<none>"),
        external_ip(row).into(),
        row::non_empty(&ports, "<none>").into(),
        row.age(),
        row.labels("/spec/selector"),
    ]
}

fn service_port(port: &Value) -> String {
    let (number, protocol) = (row::int(port, "/port"), row::text(port, "/protocol"));
    match row::int(port, "/nodePort") {
        node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(row: &Row<'_>) -> String {
    let external: Vec<&str> = row
        .list("/spec/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => row::non_empty(&external.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let addresses: Vec<&str> = balancer_addresses(row)
                .into_iter()
                .chain(external)
                .collect();
            row::non_empty(&addresses.join(","), "<pending>").to_owned()
        }
        "ExternalName" => row.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The load balancer's addresses or host names, sorted, each once.
fn balancer_addresses<'a>(row: &Row<'a>) -> BTreeSet<&'a str> {
    let points = row.list("/status/loadBalancer/ingress").iter();
    let address = |point| row::non_empty(row::text(point, "/ip"), row::text(point, "/hostname"));
    points
        .map(address)
        .filter(|address| !address.is_empty())
        .collect()
}

const ENDPOINTS: [Column; 3] = [
    NAME,
    text("Endpoints", "Addresses and ports behind the service."),
    AGE,
];

fn endpoints(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        ready_addresses(row.list("/subsets")).into(),
        row.age(),
    ]
}

/// The first three addresses with each port, then how many more there are.
fn ready_addresses(subsets: &[Value]) -> String {
    const SHOWN: usize = 3;
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let total: usize = subsets
        .iter()
        .map(|s| list(s, "/addresses").len() * list(s, "/ports").len().max(1))
        .sum();
    let shown: Vec<String> = subsets
        .iter()
        .flat_map(subset_addresses)
        .take(SHOWN)
        .collect();
    match total.saturating_sub(SHOWN) {
        0 => shown.join(","),
        more => format!("{} + {more} more...", shown.join(",")),
    }
}

// A headless service may have no ports.
fn subset_addresses(subset: &Value) -> Box<dyn Iterator<Item = String> + '_> {
    let addresses = || {
        list(subset, "/addresses")
            .iter()
            .map(|address| row::text(address, "/ip"))
    };
    let ports = list(subset, "/ports");
    if ports.is_empty() {
        return Box::new(addresses().map(str::to_owned));
    }
    Box::new(ports.iter().flat_map(move |port| {
        let port = row::int(port, "/port");
        addresses().map(move |ip| {
            if ip.contains(':') {
                format!("[{ip}]:{port}")
            } else {
                format!("{ip}:{port}")
            }
        })
    }))
}

const ENDPOINT_SLICE: [Column; 5] = [
    NAME,
    text("AddressType", "Family of the addresses."),
    text("Ports", "Ports behind the service."),
    text("Endpoints", "Addresses behind the service."),
    AGE,
];

fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<String> = row.list("/ports").iter().map(slice_port).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let endpoints = row
        .list("/endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<&str> = endpoints.filter_map(Value::as_str).collect();
    vec![
        row.name(),
        row.text("/addressType").into(),
        first_three(&ports),
        first_three(&addresses),
        row.age(),
    ]
}

fn slice_port(port: &Value) -> String {
    match (&port["port"], &port["name"]) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    }
}

const INGRESS: [Column; 6] = [
    NAME,
    text("Class", "Class whose controller serves the ingress."),
    text("Hosts", "Host names of the rules."),
    text("Address", "Where the load balancer is reached."),
    text("Ports", "Open ports; 443 with TLS."),
    AGE,
];

fn ingress(row: &Row<'_>) -> Vec<Value> {
    let class =
        is_set(row.object, "/spec/ingressClassName").then(|| row.text("/spec/ingressClassName"));
    let ports = if row.list("/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        row.name(),
        class.unwrap_or("<none>").into(),
        hosts(row.list("/spec/rules")).into(),
        joined(balancer_addresses(row).into_iter(), ","),
        ports.into(),
        row.age(),
    ]
}

// Upstream counts what is left out by rules, not by hosts, and only once three hosts are shown.
fn hosts(rules: &[Value]) -> String {
    const SHOWN: usize = 3;
    let named: Vec<(usize, &str)> = rules
        .iter()
        .map(|rule| row::text(rule, "/host"))
        .enumerate()
        .filter(|(_, host)| !host.is_empty())
        .collect();
    let shown = named
        .iter()
        .take(SHOWN)
        .map(|(_, host)| *host)
        .collect::<Vec<_>>()
        .join(",");
    match named.get(SHOWN - 1) {
        Some((third, _)) if third + 1 < rules.len() => {
            format!("{shown} + {} more...", rules.len() - SHOWN)
        }
        _ => row::non_empty(&shown, "*").to_owned(),
    }
}

const INGRESS_CLASS: [Column; 4] = [
    NAME,
    text("Controller", "Controller that serves the class."),
    text("Parameters", "Object with the controller's settings."),
    AGE,
];

fn ingress_class(row: &Row<'_>) -> Vec<Value> {
    let default = row.object["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"]
        == "true";
    let name = row.text("/metadata/name");
    let name = if default {
        format!("{name} (default)")
    } else {
        name.to_owned()
    };
    let parameters = &row.object["spec"]["parameters"];
    let reference = match (parameters.is_null(), parameters["apiGroup"].as_str()) {
        (true, _) => "<none>".to_owned(),
        (_, Some(group)) => {
            format!(
                "{}.{group}/{}",
                row::text(parameters, "/kind"),
                row::text(parameters, "/name")
            )
        }
        (_, None) => format!(
            "{}/{}",
            row::text(parameters, "/kind"),
            row::text(parameters, "/name")
        ),
    };
    vec![
        name.into(),
        row.text("/spec/controller").into(),
        reference.into(),
        row.age(),
    ]
}

const NETWORK_POLICY: [Column; 3] = [
    NAME,
    text("Pod-Selector", "Labels of the pods the policy applies to."),
    AGE,
];

// The selector is part of the policy, so a missing one is empty and not null; both print as none.
fn network_policy(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.selector("/spec/podSelector"), row.age()]
}

const SERVICE_CIDR: [Column; 3] = [
    NAME,
    text("CIDRs", "Ranges that cluster addresses come from."),
    AGE,
];

fn service_cidr(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        joined(
            row.list("/spec/cidrs").iter().filter_map(Value::as_str),
            ",",
        ),
        row.age(),
    ]
}

// Upstream has a third cell, the age, without a column for it; no client shows it.
const IP_ADDRESS: [Column; 2] = [NAME, text("ParentRef", "What uses the address.")];

fn ip_address(row: &Row<'_>) -> Vec<Value> {
    let parent = &row.object["spec"]["parentRef"];
    if parent.is_null() {
        return vec![row.name(), "<none>".into()];
    }
    let resource = match row::text(parent, "/group") {
        "" => row::text(parent, "/resource").to_lowercase(),
        group => format!("{}.{group}", row::text(parent, "/resource")).to_lowercase(),
    };
    let path = [
        resource.as_str(),
        row::text(parent, "/namespace"),
        row::text(parent, "/name"),
    ];
    let path = path
        .into_iter()
        .enumerate()
        .filter(|(i, part)| *i != 1 || !part.is_empty());
    vec![row.name(), joined(path.map(|(_, part)| part), "/")]
}
