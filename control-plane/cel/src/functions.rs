//! The table of functions: what can be called with what, read once from `data/functions.tbl`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::error::Result;
use crate::library;
use crate::types::Type;
use crate::value::Value;

/// What a function does. The receiver, if there is one, comes first. Arguments may be taken out of the slice.
pub(crate) type Builtin = for<'a> fn(&mut [Value<'a>]) -> Result<Value<'a>>;

/// A function by name, with all it can be called with.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    pub(crate) run: Builtin,
    pub(crate) cost: crate::cost::Class,
}

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// What cost models call it.
    pub(crate) id: &'static str,
    /// Whether it is called on a receiver, the first parameter.
    pub(crate) member: bool,
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
}

static TABLE: LazyLock<HashMap<&'static str, Function>> =
    LazyLock::new(|| read(include_str!("../data/functions.tbl")));

/// A function, if there is one of that name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLE.get(name)
}

fn read(table: &'static str) -> HashMap<&'static str, Function> {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    for row in rows {
        let mut columns = row.split(' ');
        let mut next = || {
            columns
                .next()
                .expect("a row of the table has three columns")
        };
        let (name, id, signature) = (next(), next(), next());
        let function = functions.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            run: library::find(name),
            cost: crate::cost::Class::of(name),
        });
        function.overloads.push(overload(id, signature));
    }
    functions
}

fn overload(id: &'static str, signature: &str) -> Overload {
    let (given, result) = signature
        .split_once("->")
        .expect("a signature has a result");
    let (receiver, rest) = match given.split_once(".(") {
        // A dot may also be part of the name of a receiver's type.
        Some((receiver, rest)) => (Some(receiver), rest),
        None => (
            None,
            given.strip_prefix('(').expect("parameters in brackets"),
        ),
    };
    let rest = rest.strip_suffix(')').expect("parameters in brackets");
    let mut parameters: Vec<Type> = receiver.into_iter().map(ty).collect();
    parameters.extend(split(rest).into_iter().map(ty));
    Overload {
        id,
        member: receiver.is_some(),
        parameters,
        result: ty(result),
    }
}

// By the commas that are not inside brackets.
fn split(list: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (index, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if start < list.len() {
        found.push(&list[start..]);
    }
    found
}

fn ty(text: &str) -> Type {
    if let Some((head, rest)) = text.split_once('(') {
        let rest = rest.strip_suffix(')').expect("parameters in brackets");
        let mut of: Vec<Type> = split(rest).into_iter().map(ty).collect();
        return match head {
            "list" => Type::list(of.remove(0)),
            "map" => Type::map(of.remove(0), of.remove(0)),
            _ => Type::optional(of.remove(0)),
        };
    }
    match text {
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Type,
        name => Type::opaque(name),
    }
}

/// The type that a name stands for as a value: `type(x) == int`.
pub(crate) fn type_name(name: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 16] = [
        ("bool", "bool"),
        ("int", "int"),
        ("uint", "uint"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "bytes"),
        ("list", "list"),
        ("map", "map"),
        ("null_type", "null_type"),
        ("type", "type"),
        ("optional_type", "optional_type"),
        ("google.protobuf.Duration", "google.protobuf.Duration"),
        ("google.protobuf.Timestamp", "google.protobuf.Timestamp"),
        ("net.IP", "net.IP"),
        ("net.CIDR", "net.CIDR"),
        ("kubernetes.Quantity", "kubernetes.Quantity"),
    ];
    let found = NAMES.iter().find(|row| row.0 == name);
    found.map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_table_is_implemented() {
        assert!(TABLE.len() > 130);
        for function in TABLE.values() {
            assert!(
                function.run as usize != library::find("no such function") as usize
                    || library::is_special(function.name),
                "{} does nothing",
                function.name
            );
        }
        let contains = find("containsIP").expect("in the table");
        assert_eq!(contains.overloads[1].parameters[1], Type::opaque("net.IP"));
    }
}
