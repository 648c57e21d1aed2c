//! Types, and which fits where.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::shape::{Kind, Shape};

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Anything: checked when it is used.
    Dyn,
    /// What has an error has any type.
    Error,
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint`.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// A span of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A type as a value.
    Type,
    /// A list of one type.
    List(Arc<Type>),
    /// A map, with the types of keys and values.
    Map(Arc<(Type, Type)>),
    /// An object with declared fields.
    Object(Arc<Shape>),
    /// A type of a library, perhaps with parameters: `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A parameter of an overload, or what is yet to be found out.
    Param(u32),
}

/// What the library calls an optional value.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list.
    pub fn list(of: Type) -> Type {
        Type::List(Arc::new(of))
    }

    /// A map.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// A type of a library.
    pub fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), Arc::from([]))
    }

    /// A value that may be missing.
    pub fn optional(of: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), Arc::from([of]))
    }

    /// The type that a shape declares.
    pub fn of(shape: &Arc<Shape>) -> Type {
        match &shape.kind {
            Kind::Dyn | Kind::IntOrString => Type::Dyn,
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Timestamp => Type::Timestamp,
            Kind::List { items, .. } => Type::list(Type::of(items)),
            Kind::Map(values) => Type::map(Type::String, Type::of(values)),
            Kind::Object { .. } => Type::Object(Arc::clone(shape)),
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// What is in an optional value, if this is one.
    pub(crate) fn optional_of(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(of) => vec![of],
            Type::Map(of) => vec![&of.0, &of.1],
            Type::Opaque(_, of) => of.iter().collect(),
            _ => Vec::new(),
        }
    }

    // The same constructor, whatever the parameters.
    fn same_head(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(_), Type::List(_)) | (Type::Map(_), Type::Map(_)) => true,
            (Type::Opaque(a, p), Type::Opaque(b, q)) => a == b && p.len() == q.len(),
            (Type::Object(a), Type::Object(b)) => a.name() == b.name(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn with_parameters(&self, mut parameters: Vec<Type>) -> Type {
        match self {
            Type::List(_) => Type::list(parameters.swap_remove(0)),
            Type::Map(_) => {
                let value = parameters.swap_remove(1);
                Type::map(parameters.swap_remove(0), value)
            }
            Type::Opaque(name, _) => Type::Opaque(Arc::clone(name), parameters.into()),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Dyn => "dyn",
            Type::Error => "!error!",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type => "type",
            Type::List(of) => return write!(f, "list({of})"),
            Type::Map(of) => return write!(f, "map({}, {})", of.0, of.1),
            Type::Object(shape) => shape.name(),
            Type::Opaque(name, of) if of.is_empty() => name,
            Type::Opaque(name, of) => {
                let of: Vec<String> = of.iter().map(ToString::to_string).collect();
                return write!(f, "{name}({})", of.join(", "));
            }
            Type::Param(_) => "dyn",
        })
    }
}

/// What is known of type parameters so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bound {
    found: HashMap<u32, Type>,
    next: u32,
}

impl Bound {
    /// A parameter that nothing is known of.
    pub(crate) fn fresh(&mut self) -> Type {
        self.next += 1;
        // Those of the function table are numbered from zero; these are out of their way.
        Type::Param(1_000 + self.next)
    }

    /// Whether a value of one type may stand where the other is wanted; what that says about parameters is kept.
    pub(crate) fn assignable(&mut self, given: &Type, wanted: &Type) -> bool {
        let before = self.found.clone();
        let fits = self.fits(given, wanted);
        if !fits {
            self.found = before;
        }
        fits
    }

    pub(crate) fn all_assignable(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        let before = self.found.clone();
        let fits = given.len() == wanted.len()
            && given
                .iter()
                .zip(wanted)
                .all(|(given, wanted)| self.fits(given, wanted));
        if !fits {
            self.found = before;
        }
        fits
    }

    fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Param(param) = wanted {
            match self.substitutes(given, *param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = given {
            return self.substitutes(wanted, *param).0;
        }
        if given.is_dyn() || wanted.is_dyn() {
            return true;
        }
        match (given, wanted) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            _ => {
                given.same_head(wanted) && {
                    let (a, b) = (given.parameters(), wanted.parameters());
                    a.into_iter().zip(b).all(|(a, b)| self.fits(a, b))
                }
            }
        }
    }

    // Whether a type may be what a parameter stands for, and whether that was known before.
    fn substitutes(&mut self, given: &Type, param: u32) -> (bool, bool) {
        if *given == Type::Param(param) {
            return (true, true);
        }
        if let Some(known) = self.found.get(&param).cloned() {
            if known == *given {
                return (true, true);
            }
            if !self.fits(given, &known) {
                return (false, true);
            }
            let general = most_general(given, &known);
            if !self.mentions(&general, param) {
                self.found.insert(param, general);
            }
            return (true, true);
        }
        if self.mentions(given, param) {
            return (false, false);
        }
        self.found.insert(param, given.clone());
        (true, false)
    }

    fn mentions(&self, within: &Type, param: u32) -> bool {
        match within {
            Type::Param(other) if *other == param => true,
            Type::Param(other) => self
                .found
                .get(other)
                .is_some_and(|found| self.mentions(found, param)),
            other => other
                .parameters()
                .into_iter()
                .any(|p| self.mentions(p, param)),
        }
    }

    /// A type with what is known put in; parameters that stay unknown become `dyn` if wanted.
    pub(crate) fn resolved(&self, ty: &Type, finally: bool) -> Type {
        match ty {
            Type::Param(param) => match self.found.get(param) {
                Some(found) => self.resolved(found, finally),
                None if finally => Type::Dyn,
                None => ty.clone(),
            },
            other => {
                let parameters = other.parameters();
                if parameters.is_empty() {
                    return other.clone();
                }
                let resolved = parameters.into_iter().map(|p| self.resolved(p, finally));
                other.with_parameters(resolved.collect())
            }
        }
    }

    /// An overload's types with its own parameters in place of the table's.
    pub(crate) fn instantiate(&mut self, types: &[&Type]) -> Vec<Type> {
        let mut fresh: HashMap<u32, Type> = HashMap::new();
        types
            .iter()
            .map(|ty| self.renamed(ty, &mut fresh))
            .collect()
    }

    fn renamed(&mut self, ty: &Type, fresh: &mut HashMap<u32, Type>) -> Type {
        match ty {
            Type::Param(param) => match fresh.get(param) {
                Some(found) => found.clone(),
                None => {
                    let new = self.fresh();
                    fresh.insert(*param, new.clone());
                    new
                }
            },
            other => {
                let parameters = other.parameters();
                if parameters.is_empty() {
                    return other.clone();
                }
                let renamed = parameters.into_iter().map(|p| self.renamed(p, fresh));
                let renamed: Vec<Type> = renamed.collect();
                other.with_parameters(renamed)
            }
        }
    }
}

fn is_nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(one: &Type, other: &Type) -> Type {
    match is_at_least_as_general(one, other) {
        true => one.clone(),
        false => other.clone(),
    }
}

fn is_at_least_as_general(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Error | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Error | Type::Param(_)) => false,
        _ => {
            one.same_head(other)
                && one
                    .parameters()
                    .into_iter()
                    .zip(other.parameters())
                    .all(|(a, b)| is_at_least_as_general(a, b))
        }
    }
}
