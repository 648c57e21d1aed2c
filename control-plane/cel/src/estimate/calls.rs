//! What calls may cost at most, and how large their results may be.

use std::sync::Arc;

use super::{Estimate, Estimator, Place, Size, scaled};
use crate::ast::Const;
use crate::cost::{CHECK, LIST, PATTERN, STRUCT, TEXT};
use crate::node::{Call, Node, NodeKind};
use crate::shape::Shape;
use crate::types::Type;

/// The cost of a call itself, and the size of what it yields, if that is known.
type Costs = (u64, Option<Size>);

/// The longest pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// The longest name of a format.
const FORMAT_NAME: u64 = 64;

impl Estimator<'_> {
    pub(super) fn call<'n>(&mut self, node: &'n Node, call: &'n Call) -> Estimate<'n> {
        let given: Vec<Estimate<'n>> = call.args.iter().map(|arg| self.node(arg)).collect();
        let sum = given
            .iter()
            .fold(0u64, |sum, arg| sum.saturating_add(arg.cost));
        if call.function.name == "dyn" {
            return Estimate {
                node,
                cost: sum.saturating_add(1),
                place: Place::Made,
                ..given[0].clone()
            };
        }
        let (mut most, mut size) = (0, None::<Size>);
        for overload in &call.overloads {
            let (own, made) = self.overload(call, overload, &given);
            most = most.max(own);
            size = match (size, made) {
                (Some(a), Some(b)) => Some(a.either(b)),
                (a, b) => a.or(b),
            };
        }
        let cost = sum.saturating_add(most);
        let index = call.overloads.iter().rfind(|o| o.starts_with("index_"));
        if let Some(overload) = index {
            let step = match *overload {
                "index_list" => "@items",
                _ => "@values",
            };
            let place = self.step(&given[0].place, step);
            let mut estimate = self.known(node, cost, place, None, None);
            let inside = given[0].entry.map(|entry| entry.value);
            estimate.size = inside.or(estimate.size);
            return estimate;
        }
        let mut estimate = self.known(node, cost, Place::Made, None, None);
        estimate.size = size.or(estimate.size);
        if call.function.name == "_+_" {
            let entries = given[0].entry.zip(given.get(1).and_then(|arg| arg.entry));
            estimate.entry = entries.map(|(a, b)| a.either(b));
        }
        estimate
    }

    fn overload(&self, call: &Call, overload: &str, given: &[Estimate<'_>]) -> Costs {
        let size = |index: usize| given.get(index).map_or(Size::UNKNOWN, Estimate::size);
        let text = |index: usize| (size(index).cost(TEXT), None);
        match call.function.name {
            "check" => (CHECK, None),
            "fieldSelector" | "labelSelector" => (selector(size(1)), None),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                (self.whole(&given[0]), None)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                (size(0).cost(TEXT), Some(size(0)))
            }
            "url"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => text(0),
            "ip" if overload == "cidr_ip" => (1, None),
            "ip" => text(0),
            "ip.isCanonical" => (size(0).cost(2.0 * TEXT), None),
            "replace" => replace(size(0), size(1), size(2)),
            "split" => {
                let most = given.get(2).and_then(constant).unwrap_or(size(0).most);
                (size(0).cost(2.0 * TEXT), Some(Size { least: 0, most }))
            }
            "join" => self.join(given),
            "find" | "findAll" => {
                let most = size(0).most;
                (matching(size(0), size(1)), Some(Size { least: 0, most }))
            }
            "containsIP" => {
                let parsed = overload.ends_with("_string");
                (
                    4 + u64::from(parsed).saturating_mul(size(1).cost(TEXT)),
                    None,
                )
            }
            "containsCIDR" => {
                let parsed = overload.ends_with("_string");
                (
                    7 + u64::from(parsed).saturating_mul(size(1).cost(TEXT)),
                    None,
                )
            }
            "validate" => (scaled(size(1).cost(TEXT), FORMAT_PATTERN * PATTERN), None),
            "_==_" if opaque(given).is_some() => (opaque(given).unwrap_or(1), None),
            "slice" => {
                let from = given.get(1).and_then(constant).unwrap_or(0);
                let to = given.get(2).and_then(constant).unwrap_or(size(0).most);
                list_made(1.0, Size::exactly(to.wrapping_sub(from)))
            }
            "lists.range" => {
                let most = given.first().and_then(constant).unwrap_or(u64::MAX);
                list_made(1.0, Size::exactly(most))
            }
            "reverse" => list_made(1.0, size(0)),
            "flatten" => {
                let depth = match given.get(1) {
                    None => 1,
                    Some(depth) => constant(depth).unwrap_or(u64::MAX),
                };
                list_made(depth as f64, size(0))
            }
            "distinct" => list_made(2.0, size(0).times(size(0))),
            "sort" => sorted(&given[0]),
            "@sortByAssociatedKeys" => given.get(1).map_or((1, None), sorted),
            "sets.contains" | "sets.intersects" => (sets(size(0), size(1), 1.0), None),
            "sets.equivalent" => (sets(size(0), size(1), 2.0), None),
            _ => standard(overload, &size),
        }
    }

    // One for each element, and the element itself if it is a text.
    fn whole(&self, list: &Estimate<'_>) -> u64 {
        let Type::List(of) = &list.node.ty else {
            return list.size().cost(TEXT);
        };
        let each = match **of {
            Type::String | Type::Bytes => 1u64.saturating_add(self.element(list).cost(TEXT)),
            _ => 1,
        };
        list.size().most.saturating_mul(each)
    }

    // Only what is declared says how large elements are.
    fn element(&self, list: &Estimate<'_>) -> Size {
        let declared = match &list.place {
            Place::Made => None,
            place => match self.step(place, "@items") {
                Place::Declared(shape) => shape,
                Place::Made => None,
            },
        };
        let most = |shape: Arc<Shape>| Size {
            least: 0,
            most: shape.max_elements,
        };
        declared.map_or(Size::UNKNOWN, most)
    }

    fn join(&self, given: &[Estimate<'_>]) -> Costs {
        let list = given[0].size();
        let mut size = list.times(self.element(&given[0]));
        if let Some(separator) = given.get(1) {
            let between = Size {
                least: list.least.saturating_sub(1),
                most: list.most.saturating_sub(1),
            };
            size = size.plus(separator.size().times(between));
        }
        (size.cost(TEXT), Some(size))
    }
}

// cel-go's own rows.
fn standard(overload: &str, size: &dyn Fn(usize) -> Size) -> Costs {
    match overload {
        "string_format" | "bytes_to_string" | "string_to_bytes" | "strings_quote" => {
            let of = size(0);
            let made = match overload {
                "bytes_to_string" => Some((of.least / 4, of.most)),
                "string_to_bytes" => Some((of.least, of.most.saturating_mul(4))),
                "strings_quote" => {
                    let most = of.most.saturating_mul(2).saturating_add(2);
                    Some((of.least.saturating_add(2), most))
                }
                _ => None,
            };
            let made = made.map(|(least, most)| Size { least, most });
            (of.cost(TEXT), made)
        }
        "starts_with_string" | "ends_with_string" => (size(1).cost(TEXT), None),
        "in_list" => (size(1).most, None),
        "matches_string" => (matching(size(0), size(1)), None),
        "contains_string" => {
            let cost = size(0).cost(TEXT).saturating_mul(size(1).cost(TEXT));
            (cost, None)
        }
        "add_string" | "add_bytes" => {
            let made = size(0).plus(size(1));
            (made.cost(TEXT), Some(made))
        }
        "add_list" => (1, Some(size(0).plus(size(1)))),
        "equals" | "not_equals" => smaller(size),
        _ if is_comparison_of_texts(overload) => smaller(size),
        _ => (1, None),
    }
}

fn is_comparison_of_texts(overload: &str) -> bool {
    let compares = overload.starts_with("less_") || overload.starts_with("greater_");
    compares && (overload.ends_with("_string") || overload.ends_with("_bytes"))
}

fn smaller(size: &dyn Fn(usize) -> Size) -> Costs {
    (scaled(size(0).most.min(size(1).most), TEXT), None)
}

fn matching(text: Size, pattern: Size) -> u64 {
    let text = text.plus(Size::exactly(1)).cost(TEXT);
    text.saturating_mul(pattern.cost(PATTERN))
}

// Requirements of at least two characters, each a struct and a list.
fn selector(text: Size) -> u64 {
    let requirements = text.cost(0.5).saturating_mul(STRUCT + LIST);
    LIST.saturating_add(text.cost(TEXT))
        .saturating_add(requirements)
}

fn sets(one: Size, other: Size, factor: f64) -> u64 {
    one.times(other).cost(factor).saturating_add(1)
}

fn list_made(factor: f64, size: Size) -> Costs {
    (size.cost(factor).saturating_add(1 + LIST), Some(size))
}

fn sorted(keys: &Estimate<'_>) -> Costs {
    let factor = match &keys.node.ty {
        Type::List(of) if matches!(**of, Type::String | Type::Bytes) => 2.0 + TEXT,
        _ => 2.0,
    };
    list_made(factor, keys.size().times(keys.size()))
}

// How long a text may be after its parts have been replaced, and how short.
fn replace(text: Size, old: Size, new: Size) -> Costs {
    let (most, kept) = match (old.least, new.most) {
        (0, _) => (text.most.saturating_add(1), text.most),
        (shortest, longest) if longest <= shortest => (0, text.most),
        (shortest, _) => (text.most.div_ceil(shortest), 0),
    };
    let (least, kept_least) = match (old.most, new.least) {
        (0, _) => (text.least.saturating_add(1), text.least),
        (longest, shortest) if longest <= shortest => (0, text.least),
        (longest, _) => (text.least.div_ceil(longest), 0),
    };
    let made = Size { least, most }.times(new).plus(Size {
        least: kept_least,
        most: kept,
    });
    (text.cost(2.0 * TEXT), Some(made))
}

// Values of libraries are compared at once, but for formats, which are compared by name.
fn opaque(given: &[Estimate<'_>]) -> Option<u64> {
    let [one, other] = given else { return None };
    if one.node.ty != other.node.ty {
        return None;
    }
    match &one.node.ty {
        Type::Opaque(name, _) if &**name == "kubernetes.NamedFormat" => {
            Some(scaled(FORMAT_NAME, TEXT))
        }
        Type::Opaque(name, _) if &**name == "kubernetes.URL" => {
            let size = other.size.unwrap_or(Size::exactly(1));
            Some(size.cost(TEXT))
        }
        Type::Opaque(name, _) if &**name != crate::types::OPTIONAL => Some(1),
        _ => None,
    }
}

fn constant(of: &Estimate<'_>) -> Option<u64> {
    match of.node.kind {
        NodeKind::Const(Const::Int(value)) => u64::try_from(value).ok(),
        NodeKind::Const(Const::Uint(value)) => Some(value),
        _ => None,
    }
}
