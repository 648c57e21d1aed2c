use serde_json::{Value, json};

use super::super::compile::Policy;
use super::*;
use crate::door::authorization::Authorizer;
use crate::settings::AuthorizationMode;
use crate::writing::admission::matching::Matcher;
use crate::writing::admission::{Operation, asked, trial};

fn judged(spec: Value, object: &Value, params: &Value) -> Vec<String> {
    let policy = Policy::read("p", &json!({"spec": spec}));
    let call = trial::call(("apps", "v1", "deployments"), "ns", "web");
    let attributes = trial::attributes(&call, Operation::Create, "", None);
    let rule = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let matched = Matcher::read(&rule, "rules").by_rules(&attributes, kinds::resources::all());
    let request = asked::request(&attributes, &matched.expect("matches everything"));
    let authorizer = Authorizer::new(&[AuthorizationMode::AlwaysDeny]);
    let asker = Asker::new(&authorizer, &attributes);
    let namespace = json!({"metadata": {"name": "ns"}});
    let input = Input {
        object,
        old: &Value::Null,
        request: &request,
        namespace: &namespace,
        asker: &asker,
    };
    let judgement = judge(&policy, &input, params);
    let failures = judgement.failures.into_iter();
    failures.map(|(_, failure)| failure.message).collect()
}

#[test]
fn rules_are_judged_with_variables_parameters_and_messages() {
    let object = json!({"spec": {"replicas": 1}});
    let params = json!({"data": {"max": "0"}});
    let null = Value::Null;
    let cases: [(Value, &Value, &[&str]); 9] = [
        (
            json!({"validations": [{"expression": "object.spec.replicas > 0"}]}),
            &null,
            &[],
        ),
        (
            json!({"validations": [{"expression": "object.spec.replicas > 1"}]}),
            &null,
            &["failed expression: object.spec.replicas > 1"],
        ),
        (
            json!({"validations": [{"expression": "object.spec.replicas > 1", "message": "more!"}]}),
            &null,
            &["more!"],
        ),
        (
            json!({"variables": [{"name": "r", "expression": "object.spec.replicas"}], "validations": [{"expression": "variables.r > 1", "messageExpression": "'has ' + string(variables.r)"}]}),
            &null,
            &["has 1"],
        ),
        (
            json!({"validations": [{"expression": "object.spec.replicas > 1", "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"}]}),
            &null,
            &["failed expression: object.spec.replicas > 1"],
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "object.spec.replicas <= int(params.data.max)"}]}),
            &params,
            &["failed expression: object.spec.replicas <= int(params.data.max)"],
        ),
        (
            json!({"validations": [{"expression": "object.spec.none"}]}),
            &null,
            &["expression 'object.spec.none' resulted in error: no such key: none"],
        ),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.none"}]}),
            &null,
            &[],
        ),
        (
            json!({"matchConditions": [{"name": "a", "expression": "request.name == 'x'"}], "validations": [{"expression": "false"}]}),
            &null,
            &[],
        ),
    ];
    for (spec, params, wanted) in cases {
        assert_eq!(judged(spec.clone(), &object, params), wanted, "{spec}");
    }
    let more = json!({"validations": [
        {"expression": "namespaceObject.metadata.name == 'ns' && request.operation == 'CREATE'"},
        {"expression": "!authorizer.group('').resource('pods').namespace('ns').check('create').allowed()"},
        {"expression": "!authorizer.requestResource.check('scale').allowed()"},
    ]});
    assert_eq!(judged(more, &object, &null), Vec::<String>::new());
}
