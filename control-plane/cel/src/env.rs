//! What an expression may mention.

use std::sync::Arc;

use crate::shape::Shape;
use crate::types::Type;
use crate::value::Value;

/// The names an expression may use, with their types.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<(Arc<str>, Type)>,
    objects: Vec<Arc<Shape>>,
    patches: bool,
}

impl Env {
    /// An environment without variables.
    pub fn new() -> Env {
        Env::default()
    }

    /// With a variable. One that is already there gets the new type.
    pub fn variable(mut self, name: &str, ty: Type) -> Env {
        match self
            .variables
            .iter_mut()
            .find(|(known, _)| **known == *name)
        {
            Some((_, known)) => *known = ty,
            None => self.variables.push((name.into(), ty)),
        }
        self
    }

    /// With an object type that expressions may make: `Name{field: value}`.
    pub fn object(mut self, shape: Arc<Shape>) -> Env {
        self.objects.push(shape);
        self
    }

    /// With the types of mutations: `Object{}`, `Object.spec{}` and so on, `JSONPatch{}`.
    pub fn patches(mut self) -> Env {
        let text = || Shape::plain(crate::shape::Kind::String);
        let any = Shape::plain(crate::shape::Kind::Dyn);
        let fields = [
            ("op", text()),
            ("path", text()),
            ("from", text()),
            ("value", any),
        ];
        self.patches = true;
        self.object(Shape::object("JSONPatch", &fields))
    }

    pub(crate) fn slot(&self, name: &str) -> Option<(usize, &Type)> {
        let found = self
            .variables
            .iter()
            .position(|(known, _)| **known == *name)?;
        Some((found, &self.variables[found].1))
    }

    /// The type that `name{}` makes.
    pub(crate) fn made(&self, name: &str) -> Option<Made> {
        if let Some(shape) = self.objects.iter().find(|shape| shape.name() == name) {
            return Some(Made::Declared(Arc::clone(shape)));
        }
        let open = self.patches && (name == "Object" || name.starts_with("Object."));
        open.then_some(Made::Open)
    }
}

/// A type of object that an expression can make.
pub(crate) enum Made {
    /// With these fields.
    Declared(Arc<Shape>),
    /// With any field.
    Open,
}

/// Values for the variables of an environment.
#[derive(Debug, Clone)]
pub struct Bindings<'a> {
    values: Vec<Option<Value<'a>>>,
}

impl<'a> Bindings<'a> {
    /// No values yet.
    pub fn new(env: &Env) -> Bindings<'a> {
        Bindings {
            values: vec![None; env.variables.len()],
        }
    }

    /// With a value for a variable; one that the environment does not know is left out.
    pub fn set(mut self, env: &Env, name: &str, value: Value<'a>) -> Bindings<'a> {
        if let Some((slot, _)) = env.slot(name)
            && let Some(place) = self.values.get_mut(slot)
        {
            *place = Some(value);
        }
        self
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Value<'a>> {
        self.values.get(slot)?.as_ref()
    }
}
