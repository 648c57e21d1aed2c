//! What stands in a service account token. Members are in alphabetical order, as upstream writes them.

use serde::{Deserialize, Serialize};

use crate::tokens::claims::{Audience, NumericDate};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Claims {
    pub(super) aud: Audience,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exp: Option<NumericDate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iat: Option<NumericDate>,
    pub(super) iss: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Bound,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nbf: Option<NumericDate>,
    pub(super) sub: String,
}

/// The objects a token hangs on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Bound {
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Ref>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Ref>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Ref>,
    pub(super) serviceaccount: Ref,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<NumericDate>,
}

/// One certain object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ref {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its uid, which a later namesake does not have.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}
