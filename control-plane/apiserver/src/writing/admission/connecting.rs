//! What a request that opens a stream asks for, as an object: webhooks and policies judge by it.

use serde_json::{Value, json};

use crate::door::request::Query;

/// How a parameter of the query becomes a field.
enum Field {
    Flag,
    Text,
    Texts,
    Numbers,
}

/// The parameters that upstream's kinds have (`PodExecOptions` and its like). The path of a proxied request is part of
/// the address.
const FIELDS: [(&str, Field); 7] = [
    ("stdin", Field::Flag),
    ("stdout", Field::Flag),
    ("stderr", Field::Flag),
    ("tty", Field::Flag),
    ("container", Field::Text),
    ("command", Field::Texts),
    ("ports", Field::Numbers),
];

/// The object of a request for a kind of stream.
pub(super) fn options(kind: &str, query: &Query, path: Option<&str>) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": kind});
    if kind.ends_with("ProxyOptions") {
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            options["path"] = path.into();
        }
        return options;
    }
    for (name, field) in FIELDS {
        let value = match field {
            Field::Flag => query.flag(name).then_some(json!(true)),
            Field::Text => query.get(name).map(Value::from),
            Field::Texts => list(query.all(name).iter().map(|text| json!(text)).collect()),
            Field::Numbers => {
                let numbers = query.all(name).iter().flat_map(|text| text.split(','));
                list(
                    numbers
                        .filter_map(|n| n.parse::<i32>().ok().map(Value::from))
                        .collect(),
                )
            }
        };
        if let Some(value) = value {
            options[name] = value;
        }
    }
    options
}

fn list(values: Vec<Value>) -> Option<Value> {
    (!values.is_empty()).then_some(Value::Array(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_becomes_the_object() {
        let query = Query::parse(Some(
            "container=c1&stdin=true&tty=false&stdout=1&command=sh&command=-c",
        ));
        let wanted = json!({"apiVersion": "v1", "kind": "PodExecOptions", "container": "c1", "stdin": true,
            "stdout": true, "command": ["sh", "-c"]});
        assert_eq!(options("PodExecOptions", &query, None), wanted);
    }

    #[test]
    fn a_proxied_request_has_its_path_and_ports_are_numbers() {
        let query = Query::parse(Some("ports=80,81&ports=82"));
        assert_eq!(
            options("PodPortForwardOptions", &query, None)["ports"],
            json!([80, 81, 82])
        );
        let proxied = options("ServiceProxyOptions", &query, Some("a/b"));
        assert_eq!(
            proxied,
            json!({"apiVersion": "v1", "kind": "ServiceProxyOptions", "path": "a/b"})
        );
    }
}
