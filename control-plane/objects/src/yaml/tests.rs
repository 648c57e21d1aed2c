#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap().value
}

#[test]
fn scalars_mean_what_upstream_reads() {
    let table = [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("'yes'", json!("yes")),
        ("0755", json!(493)),
        ("0x1F", json!(31)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("1.5", json!(1.5)),
        ("~", Value::Null),
        ("", Value::Null),
        ("2024-01-01", json!("2024-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("9223372036854775807", json!(i64::MAX)),
        ("{a: [1, b]}", json!({"a": [1, "b"]})),
        (r#"{"json": true}"#, json!({"json": true})),
        ("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}})),
        (
            "base: &x {b: 1}\nc:\n  <<: *x\n  d: 2",
            json!({"base": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ),
        ("1: a", json!({"1": "a"})),
        ("a: |\n  x\n  y\n", json!({"a": "x\ny\n"})),
    ];
    for (text, want) in table {
        assert_eq!(value(text), want, "{text}");
    }
}

#[test]
fn duplicates_are_reported_and_the_last_one_wins() {
    let parsed = parse(b"a: 1\nb: 2\na: 3\n").unwrap();
    assert_eq!(parsed.value, json!({"a": 3, "b": 2}));
    assert_eq!(
        parsed.strict,
        ["yaml: unmarshal errors:\n  line 3: key \"a\" already set in map"]
    );
}

#[test]
fn every_duplicate_is_named_by_the_line_of_its_value() {
    let cases: [(&str, &[&str]); 4] = [
        (
            "metadata:\n  name: q\n  name: r\ndata:\n  a: b\n  a: c\n",
            &["line 3: key \"name\"", "line 6: key \"a\""],
        ),
        ("m:\n  n: q\nm:\n  n: r\n", &["line 4: key \"m\""]),
        (
            "s:\n  c:\n  - n: a\n    n: b\n  f: 1\n  f: [2]\n",
            &["line 4: key \"n\"", "line 6: key \"f\""],
        ),
        (
            "{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}",
            &["line 1: key \"c\""],
        ),
    ];
    for (text, wanted) in cases {
        let lines: String = wanted
            .iter()
            .map(|l| format!("\n  {l} already set in map"))
            .collect();
        let parsed = parse(text.as_bytes()).unwrap();
        assert_eq!(
            parsed.strict,
            [format!("yaml: unmarshal errors:{lines}")],
            "{text}"
        );
    }
}

#[test]
fn what_is_not_yaml_is_refused() {
    for text in ["a: b: c", "{", "a: *nowhere", "a: .nan", "\u{1}"] {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("error converting YAML to JSON: yaml: "),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(parse(&[0xff, 0xfe]).is_err());
}

#[test]
fn bombs_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..10 {
        let alias = format!("*a{}", i - 1);
        let list = vec![alias; 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    assert!(parse(bomb.as_bytes()).is_err());
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    assert!(parse("- ".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn documents_are_written_in_block_style() {
    let value = json!({
        "apiVersion": "v1",
        "data": {"on": "yes", "script": "#!/bin/sh\necho hi\n", "two": "a\nb"},
        "empty": {"list": [], "map": {}, "text": "", "none": null},
        "items": [{"a": 1, "b": [[1, 2], {"c": true}]}, "x"],
        "image": "nginx:1.25",
        "version": "1.25",
    });
    let want = r##"apiVersion: v1
data:
  "on": "yes"
  script: |
    #!/bin/sh
    echo hi
  two: |-
    a
    b
empty:
  list: []
  map: {}
  none: null
  text: ""
image: nginx:1.25
items:
- a: 1
  b:
  - - 1
    - 2
  - c: true
- x
version: "1.25"
"##;
    assert_eq!(to_string(&value), want);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[a-z:# \n\t'\"-]{0,12}",
        any::<String>(),
        prop::sample::select(vec![
            "yes", "null", "~", "1e3", "0x1", "-", "? ", "<<", "=", "a\n\n", "|"
        ])
        .prop_map(str::to_owned),
        "[a-z]{1100}",
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no other", |f| f.fract() != 0.0)
            .prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any_text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back_identically(value in any_value()) {
        let text = to_string(&value);
        let back = parse(text.as_bytes());
        prop_assert!(back.is_ok(), "{:?}\n{}", back, text);
        prop_assert_eq!(back.unwrap().value, value, "{}", text);
    }

    #[test]
    fn reading_never_panics(text in "[ -~\n]{0,60}") {
        let _ = parse(text.as_bytes());
    }
}
