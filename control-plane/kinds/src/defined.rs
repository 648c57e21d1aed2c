//! What a resource's objects are made of: a type of the table, or what a definition says.
//!
//! Built-in kinds have a [`TypeRef`] and their rules in this crate. A custom resource has a
//! [`Definition`]: everything the API server asks about a kind, answered from the definition's schema.
//! Both go the same way through the server, which asks [`ObjectType`].

use std::sync::Arc;

use jiff::Timestamp;
use objects::normalize::{self, Normalized, TypeError};
use objects::schema::TypeRef;
use objects::shape::Shape;
use serde_json::Value;

use crate::field::Errors;
use crate::print::Column;

/// What the objects of a resource are made of.
#[derive(Debug, Clone)]
pub enum ObjectType {
    /// A type of the table.
    BuiltIn(TypeRef),
    /// What a definition says, in one of its versions.
    Defined(Arc<dyn Definition>),
}

/// Where a custom resource keeps what its Scale shows; each a path without its leading dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The number that is wanted.
    pub spec: Vec<String>,
    /// The number that there is.
    pub status: Vec<String>,
    /// The selector as text.
    pub selector: Option<Vec<String>>,
}

/// One version of a custom resource, as its definition describes it.
pub trait Definition: std::fmt::Debug + Send + Sync {
    /// Which lists are keyed and which maps are one value, for server-side apply.
    fn shape(&self) -> Shape<'_>;

    /// The object as it is kept: without what the schema does not know, metadata in its own type.
    fn normalize(&self, object: Value) -> Result<Normalized, TypeError>;

    /// Fills in the schema's defaults.
    fn default(&self, object: &mut Value);

    /// What is wrong with a new object beyond its metadata.
    fn validate(&self, object: &Value, errors: &mut Errors);

    /// What is wrong with a changed object beyond its metadata.
    fn validate_update(&self, new: &Value, old: &Value, subresource: &str, errors: &mut Errors);

    /// The columns of `kubectl get`.
    fn columns(&self) -> &[Column];

    /// The cells of one object, one per column.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// The fields a list can be filtered by, without their leading dot.
    fn selectable(&self) -> &[String];

    /// The values of those fields as text.
    fn selected(&self, object: &Value) -> Vec<String>;

    /// Where the numbers of its Scale are, if it has one.
    fn scale(&self) -> Option<&ScalePaths>;

    /// Turns an object of the stored version into one of this.
    fn serve(&self, object: &mut Value);

    /// Turns an object of this version into one of the stored version.
    fn store(&self, object: &mut Value);

    /// What is read from the store, whatever version wrote it, as an object of the stored version by
    /// today's schema. Where versions are converted by a webhook it keeps its version.
    fn adopt(&self, object: Value) -> Value;

    /// The webhook that converts between versions (`spec.conversion.webhook`). `serve` and `store` then only cut
    /// its answer down to the schema.
    fn webhook(&self) -> Option<&Value>;

    /// What clients of this version are told.
    fn deprecation(&self) -> Option<&str>;

    /// Whether nothing new may be created because the definition is going.
    fn is_terminating(&self) -> bool;

    /// The schema as it was written, for OpenAPI; made anew for whoever asks.
    fn schema(&self) -> Value;

    /// What is the same as long as the schema is.
    fn digest(&self) -> [u8; 32];
}

impl From<TypeRef> for ObjectType {
    fn from(ty: TypeRef) -> Self {
        ObjectType::BuiltIn(ty)
    }
}

impl ObjectType {
    /// The definition of a custom resource.
    pub fn defined(&self) -> Option<&dyn Definition> {
        match self {
            ObjectType::BuiltIn(_) => None,
            ObjectType::Defined(definition) => Some(&**definition),
        }
    }

    /// The type of a built-in resource.
    pub fn built_in(&self) -> Option<TypeRef> {
        match self {
            ObjectType::BuiltIn(ty) => Some(*ty),
            ObjectType::Defined(_) => None,
        }
    }

    /// Brings an object into its normal form and says which fields it lost.
    pub fn normalize(&self, object: Value) -> Result<Normalized, TypeError> {
        match self {
            ObjectType::BuiltIn(ty) => normalize::normalize(*ty, object),
            ObjectType::Defined(definition) => definition.normalize(object),
        }
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        match self {
            ObjectType::BuiltIn(ty) => crate::defaults::apply(*ty, object),
            ObjectType::Defined(definition) => definition.default(object),
        }
    }

    /// How its values merge.
    pub fn shape(&self) -> Shape<'_> {
        match self {
            ObjectType::BuiltIn(ty) => Shape::from(*ty),
            ObjectType::Defined(definition) => definition.shape(),
        }
    }

    /// An object of which nothing is set.
    pub fn zero(&self) -> Value {
        match self {
            ObjectType::BuiltIn(ty) => normalize::zero(*ty),
            ObjectType::Defined(_) => Value::Object(serde_json::Map::new()),
        }
    }

    /// The package of the Go type that upstream decodes into, which some of its messages name.
    pub fn package(&self) -> &'static str {
        match self {
            ObjectType::BuiltIn(ty) => ty.get().name.split('.').next().unwrap_or_default(),
            ObjectType::Defined(_) => "unstructured",
        }
    }
}
