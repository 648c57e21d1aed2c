use super::*;

fn place(text: &str) -> (usize, String) {
    let malformed = parse(text.as_bytes()).expect_err(text);
    (malformed.at, malformed.problem)
}

#[test]
fn what_is_not_json_is_refused_where_it_stops_being_json() {
    let cases = [
        ("", 0),
        ("  ", 2),
        ("{", 1),
        (r#"{"a""#, 4),
        (r#"{"a":}"#, 5),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        (r#"{a:1}"#, 1),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{} {}", 3),
        ("01", 1),
        ("-", 1),
        ("1.", 2),
        ("1e", 2),
        ("+1", 0),
        (".5", 0),
        ("1x", 1),
        ("tru", 0),
        ("nullx", 0),
        ("'a'", 0),
        ("\"a", 2),
        ("\"a\nb\"", 2),
        (r#""\x""#, 1),
        (r#""\u12""#, 1),
        (r#""\ud800""#, 1),
        (r#""\ud800\u0041""#, 1),
        (r#""\ude00""#, 1),
        ("\u{feff}{}", 0),
    ];
    for (text, at) in cases {
        assert_eq!(place(text).0, at, "{text:?}");
    }
    assert_eq!(parse(b"\"\xff\"").expect_err("no UTF-8").at, 1);
}

#[test]
fn escapes_are_read() {
    let node = parse(br#" "\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00x" "#).expect("a string");
    assert_eq!(node.at, 1);
    let text = "\"\\/\u{8}\u{c}\n\r\t\u{e9}\u{1f600}x";
    assert_eq!(node.value, Json::Text(text.into()));
}

#[test]
fn depth_has_a_bound() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse(nested(DEEPEST).as_bytes()).is_ok());
    let (at, problem) = place(&nested(100_000));
    assert_eq!(at, DEEPEST + 1);
    assert!(problem.contains("deep"), "{problem}");
}

#[test]
fn numbers_are_numbers_whole() {
    for number in ["0", "-0", "1", "1.5", "1e3", "-1.5E-10"] {
        assert!(is_number(number), "{number}");
    }
    for other in [
        "", " 1", "1 ", "01", "+1", "1x", "\"1\"", "[1]", "NaN", "true",
    ] {
        assert!(!is_number(other), "{other}");
    }
}
