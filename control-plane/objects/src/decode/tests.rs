#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn custom(gvk: &GroupVersionKind) -> Option<Target> {
    builtin(gvk).or_else(|| (gvk.group == "example.com").then_some(Target::Untyped))
}

fn decoded(content: ContentType, body: &str) -> Decoded {
    decode(content, body.as_bytes(), None, custom).unwrap()
}

fn refused(content: ContentType, body: &[u8]) -> String {
    decode(content, body, None, custom).unwrap_err().to_string()
}

#[test]
fn the_three_encodings_give_the_same_object() {
    let from_json = decoded(
        ContentType::Json,
        r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}"#,
    );
    let from_yaml = decoded(
        ContentType::Yaml,
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: 80\n",
    );
    let Some(Target::Typed(ty)) = builtin(&from_json.gvk) else {
        panic!("services are built in")
    };
    let bytes = protobuf::encode_object(ty, "v1", "Service", &from_json.object).unwrap();
    let from_protobuf = decode(ContentType::Protobuf, &bytes, None, builtin).unwrap();
    assert_eq!(from_json, from_yaml);
    assert_eq!(from_json, from_protobuf);
    assert_eq!(
        from_json.object,
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}},
        })
    );
}

#[test]
fn strict_complaints_are_handed_back() {
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"b":1,"a":2,"replicas":1,"replicas":2}}"#;
    assert_eq!(
        decoded(ContentType::Json, body).strict,
        [
            r#"unknown field "spec.b""#,
            r#"unknown field "spec.a""#,
            r#"duplicate field "spec.replicas""#,
        ]
    );
    let body = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  b: 1\n  a: 2\n";
    assert_eq!(
        decoded(ContentType::Yaml, body).strict,
        [r#"unknown field "spec.a""#, r#"unknown field "spec.b""#,]
    );
}

#[test]
fn custom_resources_are_kept_as_they_are() {
    let body = r#"{"kind":"Widget","apiVersion":"example.com/v1","spec":{"x":0,"x":1,"y":null}}"#;
    let widget = decoded(ContentType::Json, body);
    assert_eq!(widget.object["spec"], json!({"x": 1, "y": null}));
    assert_eq!(widget.strict, [r#"duplicate field "spec.x""#]);
    assert_eq!(widget.gvk.api_version(), "example.com/v1");
}

#[test]
fn a_default_fills_in_the_type() {
    let default = GroupVersionKind::new("apps", "v1", "Deployment");
    let decoded = decode(ContentType::Json, b"{}", Some(&default), builtin).unwrap();
    assert_eq!(decoded.gvk, default);
    assert_eq!(decoded.object["kind"], "Deployment");
    let body = br#"{"kind":"Pod","apiVersion":"v1"}"#;
    let decoded = decode(ContentType::Json, body, Some(&default), builtin).unwrap();
    assert_eq!(decoded.gvk, GroupVersionKind::new("", "v1", "Pod"));
}

#[test]
fn refusals_carry_upstreams_texts() {
    let table: [(&[u8], &str); 10] = [
        (
            b"",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            b"{",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            br#"{"kind":"Pod","apiVersion":"v1",}"#,
            "couldn't get version/kind; json parse error: invalid character '}' looking for beginning of object key string",
        ),
        (
            br#"{"kind":"Nope","apiVersion":"v9",}"#,
            "couldn't get version/kind; json parse error: invalid character '}' looking for beginning of object key string",
        ),
        (b"{}", "Object 'Kind' is missing in '{}'"),
        (
            br#"{"kind":"Pod"}"#,
            r#"Object 'apiVersion' is missing in '{"kind":"Pod"}'"#,
        ),
        (
            br#"{"kind":"A","apiVersion":"a/b/c"}"#,
            "unexpected GroupVersion string: a/b/c",
        ),
        (
            br#"{"kind":"Nope","apiVersion":"v1"}"#,
            r#"no kind "Nope" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#,
        ),
        (
            br#"{"kind":1}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            br#"{"kind":"Pod","apiVersion":"v1","spec":{"hostNetwork":"yes"}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
    ];
    for (body, want) in table {
        assert_eq!(refused(ContentType::Json, body), want);
    }
}

#[test]
fn refusals_of_the_other_encodings() {
    assert_eq!(
        refused(ContentType::Yaml, b"a: 1\n"),
        "Object 'Kind' is missing in 'a: 1\n'"
    );
    assert_eq!(
        refused(ContentType::Yaml, b"- a\n"),
        r#"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#
    );
    assert_eq!(refused(ContentType::Protobuf, b""), "empty data");
    assert_eq!(
        refused(ContentType::Protobuf, b"k8s\0\x0a\x00"),
        r#"Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:"", Kind:""}'"#
    );
}
