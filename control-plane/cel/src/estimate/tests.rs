use super::*;
use crate::{Env, Program};

fn estimate(root: &Arc<Shape>, expression: &str) -> u64 {
    let env = Env::new().variable("self", Type::of(root));
    let program = Program::compile(expression, &env);
    program.expect(expression).estimate(root)
}

// Each is cel-go's way of counting, worked out by hand.
#[test]
fn what_an_expression_may_cost_at_most() {
    let text = Shape::sized(Kind::String, 40, 2);
    let list = Shape::listed(text, crate::shape::ListKind::Atomic, Some(10));
    let root = Shape::object(
        "self",
        &[
            ("list", Arc::clone(&list)),
            ("n", Shape::plain(Kind::Int)),
            ("map", Shape::mapped(list, Some(3))),
        ],
    );
    let cases = [
        ("1 == 1", 1),
        // A variable, a field, an operator.
        ("self.n > 1", 3),
        ("has(self.n)", 1),
        // The dearer of two ways.
        ("self.n > 1 ? self.list[0] == 'a' : false", 7),
        // Both sides, whichever decides.
        ("self.n > 1 && self.n < 3", 6),
        // Ten times: whether to go on (2), the text against another (4), the answer so far (1), the loop's variable (1).
        (
            "self.list.all(x, x == 'abcdefghijklmnopqrstuvwxyzabcdefghijklmn')",
            2 + 10 * (2 + 1 + 1 + 4) + 1,
        ),
        // Keys have no size, lists in a map have ten elements.
        ("self.map.all(k, k == 'a')", 2 + 3 * (2 + 1 + 1) + 1),
        ("self.map.all(k, v, 'b' in v)", 2 + 3 * (2 + 1 + 1 + 10) + 1),
        // What is not declared is looked for at the root, as upstream does, and an object has no size.
        ("['a', 'b'].exists(x, x == 'a')", 10 + 2 * (3 + 1 + 1) + 1),
        ("{'a': 1}['a'] == 1", 30 + 1 + 1),
    ];
    for (expression, most) in cases {
        assert_eq!(estimate(&root, expression), most, "{expression}");
    }
}

#[test]
fn what_cannot_be_bounded_is_as_large_as_can_be() {
    let root = Shape::plain(Kind::Dyn);
    assert!(estimate(&root, "self.a.all(x, self.b.all(y, x == y))") > u64::MAX / 2);
}
