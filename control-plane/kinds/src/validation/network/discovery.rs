//! Endpoints and EndpointSlices.

use serde_json::Value;

use super::networking::endpoint_ip;
use super::service::{port_number, protocol};
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, entries, has, items, same, same_text, text, texts};
use crate::validation::rules::{self, complain, immutable, one_of, unique};

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

/// New Endpoints.
pub fn endpoints(object: &Value, errors: &mut Errors) {
    for (i, subset) in items(object, "subsets").iter().enumerate() {
        endpoint_subset(subset, &Path::root("subsets").index(i), errors);
    }
}

/// Changed Endpoints; unchanged subsets are not judged again.
pub fn endpoints_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    if !same(at(new, "subsets"), at(old, "subsets")) {
        endpoints(new, errors);
    }
}

fn endpoint_subset(subset: &Value, path: &Path<'_>, errors: &mut Errors) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| items(subset, list).is_empty()) {
        errors.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in lists {
        for (i, address) in items(subset, list).iter().enumerate() {
            endpoint_address(address, &path.child(list).index(i), errors);
        }
    }
    let ports = items(subset, "ports");
    for (i, port) in ports.iter().enumerate() {
        endpoint_port(port, ports.len() > 1, &path.child("ports").index(i), errors);
    }
}

fn endpoint_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ip = text(address, "ip");
    complain(errors, &path.child("ip"), ip, names::ip(ip));
    let hostname = text(address, "hostname");
    if !hostname.is_empty() {
        complain(
            errors,
            &path.child("hostname"),
            hostname,
            names::dns1123_label(hostname),
        );
    }
    node_name(address, path, errors);
    endpoint_ip(ip, &path.child("ip"), errors);
}

fn node_name(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(name) = at(object, "nodeName").as_str() {
        complain(
            errors,
            &path.child("nodeName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
}

fn endpoint_port(port: &Value, needs_name: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(port, "name");
    if needs_name && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        complain(
            errors,
            &path.child("name"),
            name,
            names::dns1123_label(name),
        );
    }
    port_number(port, "port", path, errors);
    protocol(port, path, errors);
    app_protocol(port, path, errors);
}

fn app_protocol(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(protocol) = at(port, "appProtocol").as_str() {
        let path = path.child("appProtocol");
        complain(errors, &path, protocol, names::qualified_name(protocol));
    }
}

/// A new EndpointSlice.
pub fn slice(object: &Value, errors: &mut Errors) {
    slice_shape(object, errors);
    slice_endpoints(object, errors);
}

/// A changed EndpointSlice; unchanged endpoints are not judged again.
pub fn slice_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    slice_shape(new, errors);
    if !same(at(new, "endpoints"), at(old, "endpoints")) {
        slice_endpoints(new, errors);
    }
    let path = Path::root("addressType");
    immutable(
        errors,
        &path,
        at(new, "addressType"),
        at(old, "addressType"),
    );
}

fn slice_shape(object: &Value, errors: &mut Errors) {
    let ty = text(object, "addressType");
    let path = Path::root("addressType");
    if ty.is_empty() {
        errors.required(&path, "");
    } else if !["FQDN", "IPv4", "IPv6"].contains(&ty) {
        errors.not_supported(&path, &ty.into(), &["FQDN", "IPv4", "IPv6"]);
    }
    slice_ports(object, errors);
}

fn slice_ports(object: &Value, errors: &mut Errors) {
    let (path, ports) = (Path::root("ports"), items(object, "ports"));
    if ports.len() > PORTS_MAX {
        return errors.too_many(&path, ports.len(), PORTS_MAX);
    }
    let same_name = same_text(ports, "name");
    for (i, port) in ports.iter().enumerate() {
        let (path, name) = (path.index(i), text(port, "name"));
        if !name.is_empty() {
            complain(
                errors,
                &path.child("name"),
                name,
                names::dns1123_label(name),
            );
        }
        if same_name[i] {
            errors.duplicate(&path.child("name"), &name.into());
        }
        if !has(port, "protocol") {
            errors.required(&path.child("protocol"), "");
        } else {
            one_of(errors, &path, port, "protocol", &["SCTP", "TCP", "UDP"]);
        }
        app_protocol(port, &path, errors);
    }
}

fn slice_endpoints(object: &Value, errors: &mut Errors) {
    let (path, endpoints) = (Path::root("endpoints"), items(object, "endpoints"));
    if endpoints.len() > ENDPOINTS_MAX {
        return errors.too_many(&path, endpoints.len(), ENDPOINTS_MAX);
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        slice_endpoint(
            endpoint,
            text(object, "addressType"),
            &path.index(i),
            errors,
        );
    }
}

fn slice_endpoint(endpoint: &Value, ty: &str, path: &Path<'_>, errors: &mut Errors) {
    let addresses = path.child("addresses");
    match items(endpoint, "addresses").len() {
        0 => errors.required(&addresses, "must contain at least 1 address"),
        count if count > ADDRESSES_MAX => errors.too_many(&addresses, count, ADDRESSES_MAX),
        _ => {}
    }
    for (i, address) in texts(endpoint, "addresses").enumerate() {
        slice_address(address, ty, &addresses, i, errors);
    }
    node_name(endpoint, path, errors);
    let topology = entries(endpoint, "deprecatedTopology").count();
    if topology > TOPOLOGY_MAX {
        errors.too_many(&path.child("deprecatedTopology"), topology, TOPOLOGY_MAX);
    }
    rules::labels(errors, path, endpoint, "deprecatedTopology");
    if let Some(name) = at(endpoint, "hostname").as_str() {
        complain(
            errors,
            &path.child("hostname"),
            name,
            names::dns1123_label(name),
        );
    }
    hints(at(endpoint, "hints"), &path.child("hints"), errors);
}

fn slice_address(address: &str, ty: &str, path: &Path<'_>, i: usize, errors: &mut Errors) {
    let (complaints, wants_v6) = match ty {
        "IPv4" => (names::ip(address), false),
        "IPv6" => (names::canonical_ip(address), true),
        "FQDN" if address.is_empty() => return errors.required(&path.index(i), ""),
        "FQDN" => {
            let complaints = names::fully_qualified_domain_name(address);
            return complain(errors, &path.index(i), address, complaints);
        }
        _ => return,
    };
    if !complaints.is_empty() {
        return complain(errors, &path.index(i), address, complaints);
    }
    if names::is_ipv6(address) != Some(wants_v6) {
        errors.invalid(path, &address.into(), &format!("must be an {ty} address"));
    }
    endpoint_ip(address, &path.index(i), errors);
}

fn hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules: [(&str, names::Rule); 2] = [
        ("forZones", names::label_value),
        ("forNodes", names::dns1123_subdomain),
    ];
    for (list, rule) in rules {
        let (path, entries) = (path.child(list), items(hints, list));
        if entries.len() > HINTS_MAX {
            return errors.too_many(&path, entries.len(), HINTS_MAX);
        }
        for (i, hint) in entries.iter().enumerate() {
            let name = text(hint, "name");
            complain(errors, &path.index(i).child("name"), name, rule(name));
        }
        unique(errors, &path, entries, Some("name"), |hint| {
            text(hint, "name").to_owned()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn subsets_have_addresses_and_ports() {
        let subset = |subset: Value| json!({"subsets": [subset]});
        let base = subset(
            json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1, "protocol": "TCP"}]}),
        );
        creates(
            endpoints,
            &base,
            &[
                (
                    subset(json!({})),
                    "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                ),
                (
                    subset(json!({"addresses": [{"ip": "x"}]})),
                    "subsets[0].addresses[0].ip: Invalid value: \"x\"",
                ),
                (
                    subset(json!({"addresses": [{"ip": "127.0.0.1"}]})),
                    "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback",
                ),
                (
                    subset(json!({"addresses": [{"ip": "10.0.0.1", "nodeName": "A"}]})),
                    "subsets[0].addresses[0].nodeName: Invalid value",
                ),
                (
                    subset(
                        json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0, "protocol": "TCP"}]}),
                    ),
                    "subsets[0].ports[0].port: Invalid value: 0",
                ),
                (
                    subset(
                        json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]}),
                    ),
                    "subsets[0].ports[1].name: Required value",
                ),
            ],
        );
        let stored = subset(json!({"addresses": [{"ip": "010.0.0.1"}]}));
        updates(
            endpoints_update,
            "",
            &stored,
            &[(subset(json!({})), "subsets[0]: Required value")],
        );
    }

    #[test]
    fn slices_hold_addresses_of_their_type() {
        let base = json!({"addressType": "IPv4", "ports": [{"name": "", "protocol": "TCP", "port": 80}],
            "endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}]}}]});
        let endpoint = |endpoint: Value| json!({"endpoints": [endpoint]});
        let port = json!({"name": "", "protocol": "TCP"});
        creates(
            slice,
            &base,
            &[
                (json!({"addressType": null}), "addressType: Required value"),
                (
                    json!({"addressType": "IPv5"}),
                    "addressType: Unsupported value: \"IPv5\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                ),
                (
                    json!({"addressType": "IPv6"}),
                    "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address",
                ),
                (json!({"addressType": "FQDN"}), ""),
                (
                    endpoint(json!({})),
                    "endpoints[0].addresses: Required value: must contain at least 1 address",
                ),
                (
                    endpoint(json!({"addresses": vec!["10.0.0.1"; 101]})),
                    "endpoints[0].addresses: Too many: 101: must have at most 100 items",
                ),
                (
                    json!({"endpoints": vec![json!({"addresses": ["10.0.0.1"]}); 1001]}),
                    "endpoints: Too many: 1001: must have at most 1000 items",
                ),
                (
                    endpoint(json!({"addresses": ["fd00::1"]})),
                    "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
                ),
                (
                    endpoint(json!({"addresses": ["10.0.0.1"], "hostname": "A"})),
                    "endpoints[0].hostname: Invalid value",
                ),
                (
                    endpoint(
                        json!({"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}),
                    ),
                    "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
                ),
                (
                    json!({"ports": [port, port]}),
                    "ports[1].name: Duplicate value: \"\"",
                ),
                (
                    json!({"ports": [{"name": "a"}]}),
                    "ports[0].protocol: Required value",
                ),
                (
                    json!({"ports": vec![port.clone(); 20_001]}),
                    "ports: Too many: 20001",
                ),
            ],
        );
        updates(
            slice_update,
            "",
            &base,
            &[
                (
                    json!({"addressType": "FQDN"}),
                    "addressType: Invalid value: \"FQDN\": field is immutable",
                ),
                (
                    endpoint(json!({"addresses": ["x"]})),
                    "endpoints[0].addresses[0]: Invalid value: \"x\"",
                ),
            ],
        );
    }
}
