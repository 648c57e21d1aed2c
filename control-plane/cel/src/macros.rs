//! Macros: calls that become loops and tests before anybody checks them.

use crate::ast::{Const, Expr, Fold, Item, Kind};
use crate::issues::Issue;

/// The accumulator of a loop; no name in an expression can be this.
pub(crate) const RESULT: &str = "@result";

type Expanded = Result<Expr, Issue>;

fn fail(at: u32, message: &str) -> Expanded {
    Err(Issue {
        at,
        message: message.to_owned(),
    })
}

fn call(at: u32, function: &str, args: Vec<Expr>) -> Expr {
    Expr::call(at, function, args)
}

fn result(at: u32) -> Expr {
    Expr::ident(at, RESULT)
}

fn truth(at: u32, value: bool) -> Expr {
    Expr::constant(at, Const::Bool(value))
}

fn int(at: u32, value: i64) -> Expr {
    Expr::constant(at, Const::Int(value))
}

fn list(at: u32, values: Vec<Expr>) -> Expr {
    let items = values.into_iter().map(|value| Item {
        optional: false,
        value,
    });
    Expr::new(at, Kind::List(items.collect()))
}

/// A call without a receiver.
pub(crate) fn global(at: u32, name: String, mut args: Vec<Expr>) -> Expanded {
    if name != "has" || args.len() != 1 {
        return Ok(call(at, &name, args));
    }
    let arg = args.remove(0);
    match arg.kind {
        Kind::Select {
            operand,
            field,
            test: false,
        } => Ok(Expr::new(
            at,
            Kind::Select {
                operand,
                field,
                test: true,
            },
        )),
        _ => fail(arg.at, "invalid argument to has() macro"),
    }
}

/// A call with a receiver: a loop over it, if the name and the number of arguments are a macro's.
pub(crate) fn member(at: u32, name: String, target: Expr, args: Vec<Expr>) -> Expanded {
    let simple = |expr: &Expr| matches!(&expr.kind, Kind::Ident(_));
    match (name.as_str(), args.len()) {
        ("optMap" | "optFlatMap", 2) => optional_map(at, &name, target, args),
        ("sortBy", 2) => sort_by(at, target, args),
        ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => {
            if !simple(&args[0]) {
                return fail(args[0].at, "argument must be a simple name");
            }
            expand(at, &name, target, args, 1)
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            if let Some(bad) = args[..2].iter().find(|arg| !simple(arg)) {
                return fail(bad.at, "argument must be a simple name");
            }
            if args[0].kind == args[1].kind {
                return fail(args[1].at, "duplicate variable name");
            }
            expand(at, &name, target, args, 2)
        }
        _ => Ok(Expr::new(
            at,
            Kind::Call {
                function: name,
                target: Some(Box::new(target)),
                args,
            },
        )),
    }
}

fn variable(expr: &Expr) -> Result<String, Issue> {
    match &expr.kind {
        Kind::Ident(name) if name != RESULT && name != "__result__" => Ok(name.clone()),
        _ => Err(Issue {
            at: expr.at,
            message: "iteration variable overwrites accumulator variable".into(),
        }),
    }
}

// What a macro's loop starts with, goes on while, does and yields.
struct Parts {
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

fn expand(at: u32, name: &str, range: Expr, mut args: Vec<Expr>, variables: usize) -> Expanded {
    let names: Result<Vec<_>, _> = args.drain(..variables).map(|a| variable(&a)).collect();
    let mut names = names?.into_iter();
    let (first, second) = (names.next().unwrap_or_default(), names.next());
    let transform = args.pop().unwrap_or_else(|| truth(at, true));
    let filter = args.pop();
    let parts = match name {
        "all" => quantified(at, true, transform),
        "exists" => quantified(at, false, transform),
        "exists_one" | "existsOne" => counted(at, transform),
        "filter" => Parts {
            init: list(at, Vec::new()),
            condition: truth(at, true),
            step: chosen(
                at,
                transform,
                call(
                    at,
                    "_+_",
                    vec![result(at), list(at, vec![Expr::ident(at, &first)])],
                ),
            ),
            result: result(at),
        },
        "map" | "transformList" => {
            let step = call(at, "_+_", vec![result(at), list(at, vec![transform])]);
            gathered(at, list(at, Vec::new()), filter, step)
        }
        "transformMap" => {
            let args = vec![result(at), Expr::ident(at, &first), transform];
            let step = call(at, "cel.@mapInsert", args);
            gathered(at, Expr::new(at, Kind::Map(Vec::new())), filter, step)
        }
        _ => {
            let step = call(at, "cel.@mapInsert", vec![result(at), transform]);
            gathered(at, Expr::new(at, Kind::Map(Vec::new())), filter, step)
        }
    };
    let fold = Fold {
        variable: first,
        second,
        range,
        accumulator: RESULT.to_owned(),
        init: parts.init,
        condition: parts.condition,
        step: parts.step,
        result: parts.result,
    };
    Ok(Expr::new(at, Kind::Fold(Box::new(fold))))
}

// Errors in a predicate are forgiven if another element decides.
fn quantified(at: u32, all: bool, predicate: Expr) -> Parts {
    let undecided = match all {
        true => result(at),
        false => call(at, "!_", vec![result(at)]),
    };
    let function = if all { "_&&_" } else { "_||_" };
    Parts {
        init: truth(at, all),
        condition: call(at, "@not_strictly_false", vec![undecided]),
        step: call(at, function, vec![result(at), predicate]),
        result: result(at),
    }
}

fn counted(at: u32, predicate: Expr) -> Parts {
    let more = call(at, "_+_", vec![result(at), int(at, 1)]);
    Parts {
        init: int(at, 0),
        condition: truth(at, true),
        step: chosen(at, predicate, more),
        result: call(at, "_==_", vec![result(at), int(at, 1)]),
    }
}

fn chosen(at: u32, condition: Expr, step: Expr) -> Expr {
    call(at, "_?_:_", vec![condition, step, result(at)])
}

fn gathered(at: u32, init: Expr, filter: Option<Expr>, step: Expr) -> Parts {
    Parts {
        init,
        condition: truth(at, true),
        step: match filter {
            Some(filter) => chosen(at, filter, step),
            None => step,
        },
        result: result(at),
    }
}

// One value under a name: a loop over nothing whose accumulator is that name.
fn bound(at: u32, name: String, value: Expr, body: Expr) -> Expr {
    let fold = Fold {
        variable: "#unused".into(),
        second: None,
        range: list(at, Vec::new()),
        accumulator: name.clone(),
        init: value,
        condition: truth(at, false),
        step: Expr::ident(at, &name),
        result: body,
    };
    Expr::new(at, Kind::Fold(Box::new(fold)))
}

fn optional_map(at: u32, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
    let body = args.pop().unwrap_or_else(|| truth(at, true));
    let Some(Kind::Ident(variable)) = args.pop().map(|arg| arg.kind) else {
        return fail(
            at,
            &format!("{name}() variable name must be a simple identifier"),
        );
    };
    let on = |function: &str, target: Expr, args: Vec<Expr>| {
        let kind = Kind::Call {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            args,
        };
        Expr::new(at, kind)
    };
    // Under a name of its own, so that a chain of these does not double the expression with each link.
    const TARGET: &str = "@__optional__";
    let value = on("value", Expr::ident(at, TARGET), Vec::new());
    let mapped = bound(at, variable, value, body);
    let mapped = match name {
        "optMap" => call(at, "optional.of", vec![mapped]),
        _ => mapped,
    };
    let present = on("hasValue", Expr::ident(at, TARGET), Vec::new());
    let none = call(at, "optional.none", Vec::new());
    let chosen = call(at, "_?_:_", vec![present, mapped, none]);
    Ok(bound(at, TARGET.to_owned(), target, chosen))
}

// Sorts a list by keys that are worked out for each element.
fn sort_by(at: u32, target: Expr, mut args: Vec<Expr>) -> Expanded {
    let key = args.pop().unwrap_or_else(|| truth(at, true));
    let Some(variable) = args.pop() else {
        return fail(at, "sortBy needs a variable");
    };
    if !matches!(variable.kind, Kind::Ident(_)) {
        return fail(variable.at, "argument must be a simple name");
    }
    const SORTED: &str = "@__sortBy_input__";
    let keys = expand(at, "map", Expr::ident(at, SORTED), vec![variable, key], 1)?;
    let sorted = Expr::new(
        at,
        Kind::Call {
            function: "@sortByAssociatedKeys".into(),
            target: Some(Box::new(Expr::ident(at, SORTED))),
            args: vec![keys],
        },
    );
    Ok(bound(at, SORTED.to_owned(), target, sorted))
}
