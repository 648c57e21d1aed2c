use proptest::prelude::*;

use super::eval;

fn within_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(work).unwrap().join().unwrap();
}

#[test]
fn depth_and_length_are_bounded() {
    within_a_small_stack(|| {
        let parens = format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000));
        let lists = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let sums = vec!["1"; 5_000].join(" + ");
        let fields = format!("object{}", ".a".repeat(5_000));
        let nested = format!("{}1{}", "[1].map(x, ".repeat(100), ")".repeat(100));
        let ternaries = "true ? 1 : ".repeat(5_000) + "1";
        for source in [parens, lists, sums, fields, nested, ternaries] {
            let found = eval(&source);
            assert!(found.contains("recursion limit exceeded"), "{found:.100}");
        }
        assert!(eval(&"a".repeat(100_001)).contains("exceeds limit"));
        assert!(eval(&"!".repeat(9_999)).contains("Syntax error"));
    });
}

#[test]
fn as_deep_as_allowed_is_evaluated() {
    within_a_small_stack(|| {
        let sum = vec!["1"; 290].join(" + ");
        assert_eq!(eval(&sum), "290");
        let all = vec!["true"; 5_000].join(" && ");
        assert_eq!(eval(&all), "true");
        let maps = format!("{}1{}", "[1].map(x, ".repeat(40), ")".repeat(40));
        assert!(eval(&maps).starts_with("[[["), "{}", eval(&maps));
    });
}

#[test]
fn what_costs_too_much_is_stopped() {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let mut source = "true".to_owned();
    for depth in 0..8 {
        source = format!("{ten}.all(x{depth}, {source})");
    }
    let limit = "error: operation cancelled: actual cost limit exceeded";
    assert_eq!(eval(&source), limit);
    assert_eq!(
        eval(&format!("lists.range(1000000000).size() > 0 || {source}")),
        limit
    );
    let grow = format!(
        "{}.join('').size()",
        "['aaaaaaaaaa'].map(a, a.replace('', 'aaaaaaaaaaaaaaaaaaaa'))"
    );
    assert!(!eval(&grow).contains("panic"));
    let chain = format!("optional.of(1){}", ".optMap(x, x + 1)".repeat(30));
    assert!(eval(&chain).contains("31"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_text_makes_it_panic(source in "[a-c0-9 .()\\[\\]{}?:+*/%<>=!&|,'\"\\\\rbux-]{0,40}") {
        eval(&source);
    }

    #[test]
    fn sums_are_those_of_numbers(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..100) {
        prop_assert_eq!(eval(&format!("({a}) + ({b}) * {c}")), (a + b * c).to_string());
        prop_assert_eq!(eval(&format!("({a}) < ({b}) ? 1 : 2")), if a < b { "1" } else { "2" });
    }
}
