//! The list of documents: one per group version, one per group, and the ones beside the API.

use kinds::resources::{self, GroupVersion, Resource};
use serde_json::{Map, Value, json};

use crate::operation::{MEDIA, OK, group_tag, group_title, responses};
use crate::parameters::LOG_PATH;
use crate::resource_paths;
use crate::schemas::{SchemaWriter, reference};

/// A document and where it is served below `/openapi/v3/`.
pub(crate) struct Document {
    /// Such as `apis/apps/v1`.
    pub(crate) path: String,
    /// The OpenAPI v3 document.
    pub(crate) content: Value,
}

/// Every document, sorted by path.
pub(crate) fn all(writer: &SchemaWriter) -> Vec<Document> {
    let mut documents: Vec<_> = group_versions()
        .map(|gv| group_version(writer, gv))
        .collect();
    documents.extend(groups().into_iter().map(|name| group(writer, name)));
    documents.extend(beside_the_api(writer));
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    documents
}

fn group_versions() -> impl Iterator<Item = GroupVersion> {
    let mut all: Vec<_> = resources::all().iter().map(|r| r.gv).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

fn groups() -> Vec<&'static str> {
    let mut names: Vec<_> = group_versions()
        .map(|gv| gv.group)
        .filter(|g| !g.is_empty())
        .collect();
    names.dedup();
    names
}

fn group_version(writer: &SchemaWriter, gv: GroupVersion) -> Document {
    let all = resources::all().iter().map(|r| &**r);
    let served: Vec<&Resource> = all.filter(|r| r.gv == gv).collect();
    let paths = resource_paths::paths(gv, &served);
    let path = match gv.group {
        "" => format!("api/{}", gv.version),
        group => format!("apis/{group}/{}", gv.version),
    };
    let schemas = writer.closure(&paths, gv.group, gv.version);
    Document {
        path,
        content: document(paths, schemas),
    }
}

/// A read of something that is no resource.
struct Read<'a> {
    id: &'a str,
    tag: &'a str,
    description: &'a str,
    media: &'a [&'a str],
    answer: Value,
}

impl Read<'_> {
    fn to_json(&self) -> Value {
        json!({
            "description": self.description,
            "operationId": self.id,
            "responses": responses(&[OK], self.media, &self.answer),
            "tags": [self.tag],
        })
    }
}

fn meta(kind: &str) -> Value {
    reference(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))
}

fn group(writer: &SchemaWriter, name: &str) -> Document {
    let read = Read {
        id: &format!("get{}APIGroup", group_title(name)),
        tag: &group_tag(name),
        description: "Describe this group.",
        media: MEDIA,
        answer: meta("APIGroup"),
    };
    single(writer, &format!("apis/{name}"), &read)
}

fn beside_the_api(writer: &SchemaWriter) -> Vec<Document> {
    let api = Read {
        id: "getCoreAPIVersions",
        tag: "core",
        description: "List the versions of the core API.",
        media: MEDIA,
        answer: meta("APIVersions"),
    };
    let apis = Read {
        id: "getAPIVersions",
        tag: "apis",
        description: "List the groups of the API.",
        media: MEDIA,
        answer: meta("APIGroupList"),
    };
    let version = Read {
        id: "getCodeVersion",
        tag: "version",
        description: "Name the version of the server.",
        media: &["application/json"],
        answer: reference("io.k8s.apimachinery.pkg.version.Info"),
    };
    let issuer = Read {
        id: "getServiceAccountIssuerOpenIDConfiguration",
        tag: "WellKnown",
        description: "The OpenID configuration of the issuer of service account tokens.",
        media: &["application/json"],
        answer: json!({"type": "string"}),
    };
    let keys = Read {
        id: "getServiceAccountIssuerOpenIDKeyset",
        tag: "openid",
        description: "The keys that service account tokens are checked with.",
        media: &["application/jwk-set+json"],
        answer: json!({"type": "string"}),
    };
    vec![
        single(writer, "api", &api),
        single(writer, "apis", &apis),
        single(writer, "version", &version),
        single(writer, ".well-known/openid-configuration", &issuer),
        single(writer, "openid/v1/jwks", &keys),
        logs(),
    ]
}

fn single(writer: &SchemaWriter, path: &str, read: &Read<'_>) -> Document {
    let paths = json!({format!("/{path}/"): {"get": read.to_json()}});
    let schemas = writer.closure(&paths, "", "v1");
    Document {
        path: path.to_owned(),
        content: document(paths, schemas),
    }
}

fn logs() -> Document {
    let get = |id| json!({"operationId": id, "responses": responses(&[], &[], &json!({})), "tags": ["logs"]});
    let paths = json!({
        "/logs/": {"get": get("logFileListHandler")},
        "/logs/{logpath}": {"get": get("logFileHandler"), "parameters": [LOG_PATH.to_json()]},
    });
    Document {
        path: "logs".into(),
        content: document(paths, Map::new()),
    }
}

fn document(paths: Value, schemas: Map<String, Value>) -> Value {
    let mut components = json!({"securitySchemes": {"BearerToken": {
        "description": "A bearer token.",
        "in": "header",
        "name": "authorization",
        "type": "apiKey",
    }}});
    if !schemas.is_empty() {
        components["schemas"] = schemas.into();
    }
    json!({
        "components": components,
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "openapi": "3.0.0",
        "paths": paths,
    })
}
