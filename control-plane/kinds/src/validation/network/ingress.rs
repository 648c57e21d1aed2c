//! Ingresses and their classes.

use serde_json::Value;

use super::service::balancer_hostname;
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, deep, has, int, items, text, texts};
use crate::validation::rules::{complain, immutable, one_of, required};

const SPEC: Path<'static> = Path::root("spec");
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const CONTROLLER_MAX: usize = 250;
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

/// A new Ingress.
pub fn create(object: &Value, errors: &mut Errors) {
    check(object, &Value::Null, errors);
    let class = deep(object, &["spec", "ingressClassName"]);
    let annotation = at(deep(object, &["metadata", "annotations"]), CLASS_ANNOTATION);
    if !annotation.is_null() && !class.is_null() && annotation != class {
        let path = Path::root("annotations");
        let complaint = "must match `ingressClassName` when both are specified";
        errors.invalid(&path.child(CLASS_ANNOTATION), annotation, complaint);
    }
}

/// A changed Ingress, or its status.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        status(new, old, errors)
    } else {
        check(new, old, errors)
    }
}

fn check(object: &Value, old: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    let rules = items(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        // Upstream shows the empty list of rules.
        let complaint = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&SPEC, at(spec, "rules"), complaint);
    }
    if has(spec, "defaultBackend") {
        backend(
            at(spec, "defaultBackend"),
            &SPEC.child("defaultBackend"),
            errors,
        );
    }
    for (i, item) in rules.iter().enumerate() {
        rule(item, &SPEC.child("rules").index(i), errors);
    }
    tls(spec, at(old, "spec"), errors);
    if let Some(class) = at(spec, "ingressClassName").as_str() {
        let path = SPEC.child("ingressClassName");
        complain(errors, &path, class, names::dns1123_subdomain(class));
    }
}

fn host_complaints(host: &str) -> Vec<String> {
    if host.contains('*') {
        names::wildcard_subdomain(host)
    } else {
        names::dns1123_subdomain(host)
    }
}

fn rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let host = text(rule, "host");
    if !host.is_empty() {
        let path = path.child("host");
        if names::sloppy_ip(host).is_some() {
            errors.invalid(&path, &host.into(), "must be a DNS name, not an IP address");
        }
        complain(errors, &path, host, host_complaints(host));
    }
    if !has(rule, "http") {
        return;
    }
    let http = path.child("http");
    let path = http.child("paths");
    let paths = items(at(rule, "http"), "paths");
    if paths.is_empty() {
        errors.required(&path, "");
    }
    for (i, item) in paths.iter().enumerate() {
        http_path(item, &path.index(i), errors);
    }
}

fn http_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(item, "pathType") {
        return errors.required(&path.child("pathType"), "pathType must be specified");
    }
    let (at_path, value) = (path.child("path"), text(item, "path"));
    match text(item, "pathType") {
        "Exact" | "Prefix" => strict_path(value, &at_path, errors),
        "ImplementationSpecific" => {
            if !value.is_empty() && !value.starts_with('/') {
                errors.invalid(&at_path, &value.into(), "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.child("pathType"), &other.into(), PATH_TYPES),
    }
    backend(at(item, "backend"), &path.child("backend"), errors);
}

fn strict_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if !value.starts_with('/') {
        errors.invalid(path, &value.into(), "must be an absolute path");
    }
    for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
        if value.contains(sequence) {
            errors.invalid(
                path,
                &value.into(),
                &format!("must not contain '{sequence}'"),
            );
        }
    }
    for suffix in ["/..", "/."] {
        if value.ends_with(suffix) {
            errors.invalid(path, &value.into(), &format!("cannot end with '{suffix}'"));
        }
    }
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(backend, "resource"), has(backend, "service")) {
        (true, true) => {
            errors.invalid(
                path,
                &"".into(),
                "cannot set both resource and service backends",
            );
        }
        (true, false) => reference(at(backend, "resource"), &path.child("resource"), errors),
        (false, true) => service_backend(at(backend, "service"), path, errors),
        (false, false) => {
            errors.invalid(path, &"".into(), "resource or service backend is required");
        }
    }
}

fn service_backend(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    let service_path = path.child("service");
    if required(errors, &service_path, service, "name") {
        let name = text(service, "name");
        complain(
            errors,
            &service_path.child("name"),
            name,
            names::dns1123_label(name),
        );
    }
    let port = at(service, "port");
    let port_path = service_path.child("port");
    match (text(port, "name"), int(port, "number")) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            for complaint in names::port_number(number) {
                errors.invalid(&port_path.child("number"), &number.into(), &complaint);
            }
        }
        (name, 0) => complain(
            errors,
            &port_path.child("name"),
            name,
            names::port_name(name),
        ),
        _ => errors.invalid(path, &"".into(), "cannot set both port name & port number"),
    }
}

fn reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = at(reference, "apiGroup").as_str() {
        complain(
            errors,
            &path.child("apiGroup"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    for name in ["kind", "name"] {
        if required(errors, path, reference, name) {
            let value = text(reference, name);
            complain(errors, &path.child(name), value, names::path_segment(value));
        }
    }
}

fn tls(spec: &Value, old: &Value, errors: &mut Errors) {
    let secret_complaints = |entry: &Value| match text(entry, "secretName") {
        "" => Vec::new(),
        name => names::dns1123_subdomain(name),
    };
    // Names that were let in before stay in.
    let lenient = items(old, "tls")
        .iter()
        .any(|entry| !secret_complaints(entry).is_empty());
    let path = SPEC.child("tls");
    for (i, entry) in items(spec, "tls").iter().enumerate() {
        let path = path.index(i);
        for (j, host) in texts(entry, "hosts").enumerate() {
            complain(
                errors,
                &path.child("hosts").index(j),
                host,
                host_complaints(host),
            );
        }
        if !lenient {
            let name = text(entry, "secretName");
            complain(
                errors,
                &path.child("secretName"),
                name,
                secret_complaints(entry),
            );
        }
    }
}

fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let balancer = status.child("loadBalancer");
    let path = balancer.child("ingress");
    let ingress = |o| items(deep(o, &["status", "loadBalancer"]), "ingress");
    for (i, entry) in ingress(new).iter().enumerate() {
        let (path, ip) = (path.index(i), text(entry, "ip"));
        if !ip.is_empty() && !ingress(old).iter().any(|known| text(known, "ip") == ip) {
            complain(errors, &path.child("ip"), ip, names::ip(ip));
        }
        balancer_hostname(text(entry, "hostname"), &path.child("hostname"), errors);
    }
}

/// A new IngressClass.
pub fn class(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    let (path, controller) = (SPEC.child("controller"), text(spec, "controller"));
    if controller.len() > CONTROLLER_MAX {
        errors.too_long(&path, CONTROLLER_MAX);
    }
    if controller.is_empty() {
        errors.required(&path, "");
    } else {
        for (part, complaint) in names::domain_prefixed_path(controller) {
            errors.invalid(&path, &part.into(), &complaint);
        }
    }
    if has(spec, "parameters") {
        class_parameters(at(spec, "parameters"), &SPEC.child("parameters"), errors);
    }
}

fn class_parameters(parameters: &Value, path: &Path<'_>, errors: &mut Errors) {
    reference(parameters, path, errors);
    if !has(parameters, "scope") {
        return errors.required(&path.child("scope"), "");
    }
    if !one_of(errors, path, parameters, "scope", &["Cluster", "Namespace"]) {
        return;
    }
    let namespace_path = path.child("namespace");
    match (
        text(parameters, "scope"),
        at(parameters, "namespace").as_str(),
    ) {
        ("Namespace", None) => {
            errors.required(&namespace_path, "`parameters.scope` is set to 'Namespace'");
        }
        ("Namespace", Some(name)) => {
            complain(errors, &namespace_path, name, names::dns1123_label(name));
        }
        (_, Some(_)) => errors.forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'"),
        (_, None) => {}
    }
}

/// A changed IngressClass.
pub fn class_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    let controller = |class: &Value| text(at(class, "spec"), "controller").into();
    let path = SPEC.child("controller");
    immutable(errors, &path, &controller(new), &controller(old));
    class(new, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    fn ingress() -> Value {
        json!({"spec": {"rules": [{"host": "a.example.com", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}}},
        ]}}]}})
    }

    fn path(patch: Value) -> Value {
        let good = ingress()["spec"]["rules"][0]["http"]["paths"][0].clone();
        let path = crate::validation::cases::with(&good, &patch);
        json!({"spec": {"rules": [{"http": {"paths": [path]}}]}})
    }

    #[test]
    fn rules_lead_to_backends() {
        let host = |host: &str| json!({"spec": {"rules": [{"host": host}]}});
        let backend = |backend: Value| json!({"spec": {"defaultBackend": backend}});
        creates(
            create,
            &ingress(),
            &[
                (
                    json!({"spec": {"rules": null}}),
                    "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
                ),
                (host("*.example.com"), ""),
                (
                    host("10.0.0.1"),
                    "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
                ),
                (
                    host("a_b"),
                    "spec.rules[0].host: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain",
                ),
                (
                    host("a.*.b"),
                    "spec.rules[0].host: Invalid value: \"a.*.b\": a wildcard DNS-1123 subdomain",
                ),
                (
                    path(json!({"pathType": null})),
                    "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
                ),
                (
                    path(json!({"pathType": "Regex"})),
                    "spec.rules[0].http.paths[0].pathType: Unsupported value: \"Regex\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\"",
                ),
                (
                    path(json!({"path": "a"})),
                    "spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path",
                ),
                (
                    path(json!({"path": "/a//b"})),
                    "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
                ),
                (
                    path(json!({"path": "/a/.."})),
                    "spec.rules[0].http.paths[0].path: Invalid value: \"/a/..\": cannot end with '/..'",
                ),
                (
                    path(json!({"path": "", "pathType": "ImplementationSpecific"})),
                    "",
                ),
                (
                    json!({"spec": {"rules": [{"http": {}}]}}),
                    "spec.rules[0].http.paths: Required value",
                ),
                (
                    backend(json!({})),
                    "spec.defaultBackend: Invalid value: \"\": resource or service backend is required",
                ),
                (
                    backend(json!({"service": {"name": "a"}})),
                    "spec.defaultBackend: Required value: port name or number is required",
                ),
                (
                    backend(json!({"service": {"name": "a", "port": {"name": "b", "number": 1}}})),
                    "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number",
                ),
                (
                    backend(json!({"service": {"port": {"name": "b"}}})),
                    "spec.defaultBackend.service.name: Required value",
                ),
                (backend(json!({"resource": {"kind": "B", "name": "c"}})), ""),
                (
                    backend(json!({"resource": {"name": "c"}})),
                    "spec.defaultBackend.resource.kind: Required value",
                ),
                (
                    backend(json!({"resource": {}, "service": {}})),
                    "spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends",
                ),
                (
                    json!({"spec": {"tls": [{"hosts": ["A"], "secretName": "ok"}]}}),
                    "spec.tls[0].hosts[0]: Invalid value: \"A\"",
                ),
                (
                    json!({"spec": {"tls": [{"secretName": "a b"}]}}),
                    "spec.tls[0].secretName: Invalid value: \"a b\"",
                ),
                (
                    json!({"spec": {"ingressClassName": "A"}}),
                    "spec.ingressClassName: Invalid value: \"A\"",
                ),
                (
                    json!({"spec": {"ingressClassName": "a"}, "metadata": {"annotations": {CLASS_ANNOTATION: "b"}}}),
                    "annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match",
                ),
            ],
        );
    }

    #[test]
    fn status_names_hosts_or_addresses() {
        let ingress_entry =
            |entry: Value| json!({"status": {"loadBalancer": {"ingress": [entry]}}});
        updates(
            update,
            "status",
            &ingress(),
            &[
                (ingress_entry(json!({"ip": "192.0.2.1"})), ""),
                (
                    ingress_entry(json!({"ip": "x"})),
                    "status.loadBalancer.ingress[0].ip: Invalid value: \"x\"",
                ),
                (
                    ingress_entry(json!({"hostname": "192.0.2.1"})),
                    "status.loadBalancer.ingress[0].hostname: Invalid value",
                ),
            ],
        );
        updates(
            update,
            "",
            &ingress(),
            &[(
                json!({"spec": {"rules": []}}),
                "spec: Invalid value: []: either",
            )],
        );
    }

    #[test]
    fn classes_name_a_controller_that_stays() {
        let base = json!({"spec": {"controller": "example.com/c"}});
        let parameters = |p: Value| json!({"spec": {"parameters": p}});
        creates(
            class,
            &base,
            &[
                (
                    json!({"spec": {"controller": null}}),
                    "spec.controller: Required value",
                ),
                (
                    json!({"spec": {"controller": "c"}}),
                    "spec.controller: Invalid value: \"c\": must be a domain-prefixed path (such as \"acme.io/foo\")",
                ),
                (
                    json!({"spec": {"controller": format!("a.b/{}", "c".repeat(250))}}),
                    "spec.controller: Too long: may not be more than 250 bytes",
                ),
                (
                    parameters(json!({"kind": "K", "name": "n", "scope": "Cluster"})),
                    "",
                ),
                (
                    parameters(
                        json!({"kind": "K", "name": "n", "scope": "Cluster", "namespace": "a"}),
                    ),
                    "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
                ),
                (
                    parameters(json!({"kind": "K", "name": "n", "scope": "Namespace"})),
                    "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
                ),
                (
                    parameters(json!({"kind": "K", "name": "n"})),
                    "spec.parameters.scope: Required value",
                ),
                (
                    parameters(json!({"kind": "K", "name": "n", "scope": "All"})),
                    "spec.parameters.scope: Unsupported value: \"All\"",
                ),
            ],
        );
        updates(
            class_update,
            "",
            &base,
            &[(
                json!({"spec": {"controller": "example.com/d"}}),
                "spec.controller: Invalid value: \"example.com/d\": field is immutable",
            )],
        );
    }
}
