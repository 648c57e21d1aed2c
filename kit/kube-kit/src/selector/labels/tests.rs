#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn selectors_print_canonically() {
    for (text, printed) in [
        ("", ""),
        ("  ", ""),
        ("x", "x"),
        ("!x", "!x"),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x == a , y!=b", "x==a,y!=b"),
        ("x=", "x="),
        ("x= ,z= ", "x=,z="),
        ("z in (c,a,b),a notin ()", "a notin (),z in (a,b,c)"),
        (
            "x in (foo,,baz),y,z notin ()",
            "x in (,baz,foo),y,z notin ()",
        ),
        ("x in (,a)", "x in (,a)"),
        ("x in (a,a)", "x in (a)"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin=in", "notin=in"),
        ("x>1,x<7", "x>1,x<7"),
        ("app.kubernetes.io/name=web", "app.kubernetes.io/name=web"),
        ("!x,\ty", "!x,y"),
    ] {
        assert_eq!(
            LabelSelector::parse(text).unwrap().to_string(),
            printed,
            "{text}"
        );
    }
}

#[test]
fn mistakes_are_told_as_upstream_tells_them() {
    for (text, message) in [
        (
            ",",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        ("x,", "found '', expected: identifier after ','"),
        ("x,,y", "found ',', expected: identifier after ','"),
        (
            "x y",
            "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "x in",
            "unable to parse requirement: found '' expected: '('",
        ),
        (
            "x in (a",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            "x in (a b)",
            "unable to parse requirement: found 'b', expected: ',' or ')'",
        ),
        (
            "x in (=)",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        ),
        (
            "x in (a,=)",
            "unable to parse requirement: found '=', expected: ',', or identifier",
        ),
        (
            "x=(",
            "unable to parse requirement: found '(', expected: identifier",
        ),
        (
            "!",
            "unable to parse requirement: found '', expected: identifier",
        ),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        ("x=a b", "found 'b', expected: ',' or 'end of string'"),
        (
            "x>a",
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        ),
    ] {
        assert_eq!(
            LabelSelector::parse(text).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
    let key = LabelSelector::parse("-x=a").unwrap_err().to_string();
    assert!(
        key.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist"
        ),
        "{key}"
    );
    let value = LabelSelector::parse("x=@").unwrap_err().to_string();
    assert!(
        value.starts_with(
            "unable to parse requirement: values[0][x]: Invalid value: \"@\": a valid label"
        ),
        "{value}"
    );
}

#[test]
fn matching_follows_the_operators() {
    let labels = json!({"app": "web", "tier": "", "rank": "5"});
    for (text, expected) in [
        ("", true),
        ("app=web", true),
        ("app!=web", false),
        ("missing!=web", true),
        ("missing=", false),
        ("tier=", true),
        ("app in (api,web)", true),
        ("app notin (api,web)", false),
        ("missing notin (a)", true),
        ("app,!missing", true),
        ("!app", false),
        ("rank>4,rank<6", true),
        ("rank>5", false),
        ("app>1", false),
        ("missing<1", false),
    ] {
        assert_eq!(
            LabelSelector::parse(text).unwrap().matches_labels(&labels),
            expected,
            "{text}"
        );
    }
    assert!(
        LabelSelector::parse("!app")
            .unwrap()
            .matches_labels(&Value::Null)
    );
}

#[test]
fn the_object_form_is_read() {
    let object = json!({
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "d", "operator": "Exists"}],
    });
    let selector = LabelSelector::from_object(&object).unwrap();
    assert_eq!(selector.to_string(), "a=1,b=2,c notin (x,y),d");
    assert_eq!(selector.exact_value("a"), Some("1"));
    assert_eq!(selector.exact_value("c"), None);
    assert!(
        LabelSelector::from_object(&json!({}))
            .unwrap()
            .is_everything()
    );
    let nothing = LabelSelector::from_object(&Value::Null).unwrap();
    assert!(nothing.is_nothing() && !nothing.matches(|_| Some("x")));
    for (object, message) in [
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            "\"Gt\" is not a valid label selector operator",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1", "2"]}]}),
            "values: Invalid value: [\"1\",\"2\"]: values set must be empty for exists and does not exist",
        ),
    ] {
        assert_eq!(
            LabelSelector::from_object(&object).unwrap_err().to_string(),
            message
        );
    }
}

#[test]
fn several_mistakes_are_listed_once_each() {
    let object = json!({"matchExpressions": [{"key": "", "operator": "In", "values": []}]});
    let message = LabelSelector::from_object(&object).unwrap_err().to_string();
    assert!(
        message
            .starts_with("[key: Invalid value: \"\": name part must be non-empty; name part must"),
        "{message}"
    );
    assert!(message.ends_with("values set can't be empty]"), "{message}");
}

#[test]
fn a_service_selector_is_not_checked() {
    let selector = LabelSelector::from_map(&json!({"z": "1", "a": "not valid!"}));
    assert_eq!(selector.to_string(), "a=not valid!,z=1");
    assert!(LabelSelector::from_map(&Value::Null).is_everything());
}

#[test]
fn a_selector_as_large_as_a_request_is_read_and_a_larger_one_refused() {
    let values: Vec<String> = (0..100_000).map(|i| format!("v{i}")).collect();
    let text = format!("x in ({})", values.join(","));
    assert!(
        LabelSelector::parse(&text)
            .unwrap()
            .matches(|_| Some("v99999"))
    );
    let huge = "x,".repeat(crate::selector::MAX_SELECTOR_BYTES);
    assert!(LabelSelector::parse(&huge).is_err());
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let operators = prop::sample::select(vec![
        Operator::In,
        Operator::NotIn,
        Operator::Equals,
        Operator::DoubleEquals,
        Operator::NotEquals,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::GreaterThan,
        Operator::LessThan,
    ]);
    let key = prop_oneof![
        "[a-z]{1,4}",
        "[a-z]{1,3}\\.io/[A-Z][a-z_.-]{0,3}[0-9]",
        Just("in".to_owned())
    ];
    let values = prop::collection::btree_set("([a-z]{1,3}|notin|in)?", 1..4);
    (key, operators, values, 0..1000i64).prop_map(|(key, operator, values, number)| {
        let values: Vec<String> = match operator {
            Operator::In | Operator::NotIn => values.into_iter().collect(),
            Operator::Exists | Operator::DoesNotExist => Vec::new(),
            Operator::GreaterThan | Operator::LessThan => vec![number.to_string()],
            _ => values.into_iter().take(1).collect(),
        };
        Requirement::new(key, operator, values).unwrap()
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(requirements in prop::collection::vec(requirement(), 0..6)) {
        let selector = LabelSelector::all_of(requirements);
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".*") {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn text_near_the_grammar_never_panics(text in "([a-z]|in|notin|[=!(),<> \0]|/){0,20}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
