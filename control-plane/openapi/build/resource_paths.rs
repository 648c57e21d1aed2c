//! `paths`: what may be asked of each resource, in the words and order of upstream's documents.

use kinds::resources::{GroupVersion, Resource, Subresource};
use objects::schema;
use serde_json::{Map, Value, json};

use crate::operation::{
    ACCEPTED, CREATED, MEDIA, OK, Operation, Operations, Place, content, required_body, responses,
};
use crate::parameters::{self, NAME, NAMESPACE, PRETTY, PROXIED_PATH, Parameter};
use crate::schemas::{
    DELETE_OPTIONS, PATCH, STATUS, WATCH_EVENT, capitalised, group_version_kind, reference,
};

const WATCHED_MEDIA: &[&str] = &[
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];
const LOG_MEDIA: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "text/plain",
];
const PATCH_MEDIA: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Resources whose deletion answers with the object; all others answer with a Status.
const DELETION_RETURNS_OBJECT: [&str; 16] = [
    "csidrivers",
    "csinodes",
    "deviceclasses",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "serviceaccounts",
    "services",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];

const PROXY_METHODS: [&str; 7] = ["delete", "get", "head", "options", "patch", "post", "put"];

/// The paths of a group and version.
pub(crate) fn paths(gv: GroupVersion, resources: &[&Resource]) -> Value {
    let place = Place::new(gv);
    let mut paths = Map::new();
    paths.insert(format!("{}/", place.root), place.discovery());
    for resource in resources {
        let writer = ResourcePaths {
            place: &place,
            resource,
        };
        for (path, operations) in writer.all() {
            if !operations.is_empty() {
                paths.insert(
                    format!("{}/{path}", place.root),
                    place.path_item(operations),
                );
            }
        }
    }
    Value::Object(paths)
}

/// The body of an operation: its kind, and its published type.
struct Body {
    kind: Value,
    schema: Value,
}

impl Body {
    fn read(&self, id: String, description: String) -> Operation {
        Operation {
            id,
            description,
            action: ("get", self.kind.clone()),
            parameters: Vec::new(),
            body: None,
            responses: responses(&[OK], MEDIA, &self.schema),
        }
    }

    fn create(&self, id: String, description: String) -> Operation {
        Operation {
            id,
            description,
            action: ("post", self.kind.clone()),
            parameters: parameters::queries(parameters::WRITE),
            body: Some(required_body(&["*/*"], &self.schema)),
            responses: responses(&[OK, CREATED, ACCEPTED], MEDIA, &self.schema),
        }
    }

    fn replace(&self, id: String, description: String) -> Operation {
        Operation {
            id,
            description,
            action: ("put", self.kind.clone()),
            parameters: parameters::queries(parameters::WRITE),
            body: Some(required_body(&["*/*"], &self.schema)),
            responses: responses(&[OK, CREATED], MEDIA, &self.schema),
        }
    }

    fn patch(&self, id: String, description: String) -> Operation {
        Operation {
            id,
            description,
            action: ("patch", self.kind.clone()),
            parameters: parameters::queries(parameters::PATCH),
            body: Some(required_body(PATCH_MEDIA, &reference(PATCH))),
            responses: responses(&[OK, CREATED], MEDIA, &self.schema),
        }
    }
}

/// Writes the paths of one resource.
struct ResourcePaths<'a> {
    place: &'a Place,
    resource: &'a Resource,
}

impl ResourcePaths<'_> {
    fn all(&self) -> Vec<(String, Operations)> {
        let plural = self.resource.plural;
        let collection = match self.resource.namespaced {
            true => format!("namespaces/{{namespace}}/{plural}"),
            false => plural.to_owned(),
        };
        let object = format!("{collection}/{{name}}");
        let mut paths = vec![
            (collection.clone(), self.collection()),
            (object.clone(), self.object()),
            (format!("watch/{collection}"), self.watched_collection()),
            (format!("watch/{object}"), self.watched_object()),
        ];
        if self.resource.namespaced {
            paths.push((plural.to_owned(), self.everywhere()));
            paths.push((format!("watch/{plural}"), self.watched_everywhere()));
        }
        for sub in &self.resource.subresources {
            paths.push((
                format!("{object}/{}", sub.name),
                self.subresource(sub, false),
            ));
            if sub.name == "proxy" {
                paths.push((
                    format!("{object}/proxy/{{path}}"),
                    self.subresource(sub, true),
                ));
            }
        }
        paths
    }

    fn collection(&self) -> Operations {
        let kind = self.resource.kind;
        let mut operations = Operations::new();
        if self.resource.allows("deletecollection") {
            operations.push(("delete", self.delete_collection()));
        }
        if self.resource.allows("list") {
            operations.push(("get", self.list(self.id("list", ""), &self.namespace())));
        }
        if self.resource.allows("create") {
            let create = self
                .body()
                .create(self.id("create", ""), format!("Create a {kind}."));
            operations.push(("post", self.at(create, &self.namespace())));
        }
        operations
    }

    fn object(&self) -> Operations {
        let noun = format!("the {}", self.resource.kind);
        let mut operations = Operations::new();
        if self.resource.allows("delete") {
            operations.push(("delete", self.delete()));
        }
        self.add_read_and_write(
            &mut operations,
            &self.resource.verbs,
            "",
            &noun,
            &self.body(),
        );
        operations
    }

    fn everywhere(&self) -> Operations {
        let id = format!("{}ForAllNamespaces", self.id_without_namespace("list"));
        match self.resource.allows("list") {
            true => vec![("get", self.list(id, &[]))],
            false => Operations::new(),
        }
    }

    fn watched_collection(&self) -> Operations {
        let id = format!("{}List", self.id("watch", ""));
        self.watch("watchlist", id, &self.namespace())
    }

    fn watched_object(&self) -> Operations {
        let mut scope = self.namespace();
        scope.push(&NAME);
        self.watch("watch", self.id("watch", ""), &scope)
    }

    fn watched_everywhere(&self) -> Operations {
        let id = format!("{}ListForAllNamespaces", self.id_without_namespace("watch"));
        self.watch("watchlist", id, &[])
    }

    fn subresource(&self, sub: &Subresource, with_path: bool) -> Operations {
        let body = self.body_of(sub);
        if sub.kind.ends_with("Options") {
            return self.connect(sub, with_path);
        }
        if sub.name == "log" {
            return vec![("get", self.log())];
        }
        let noun = format!("the {} of the {}", sub.name, self.resource.kind);
        let mut operations = Operations::new();
        self.add_read_and_write(&mut operations, &sub.verbs, sub.name, &noun, &body);
        if sub.verbs.contains(&"create") {
            let create = body.create(self.id("create", sub.name), format!("Create {noun}."));
            operations.push(("post", self.at(create, &self.name())));
        }
        operations
    }

    fn add_read_and_write(
        &self,
        operations: &mut Operations,
        verbs: &[&str],
        sub: &str,
        noun: &str,
        body: &Body,
    ) {
        let mut add = |verb, method, operation| {
            if verbs.contains(&verb) {
                operations.push((method, self.at(operation, &self.name())));
            }
        };
        add(
            "get",
            "get",
            body.read(self.id("read", sub), format!("Read {noun}.")),
        );
        add(
            "patch",
            "patch",
            body.patch(self.id("patch", sub), format!("Change part of {noun}.")),
        );
        add(
            "update",
            "put",
            body.replace(self.id("replace", sub), format!("Replace {noun}.")),
        );
    }

    fn delete(&self) -> Operation {
        let body = self.body();
        let answer = match DELETION_RETURNS_OBJECT.contains(&self.resource.plural) {
            true => body.schema,
            false => reference(STATUS),
        };
        let operation = Operation {
            id: self.id("delete", ""),
            description: format!("Delete the {}.", self.resource.kind),
            action: ("delete", body.kind),
            parameters: parameters::queries(parameters::DELETE),
            body: Some(json!({"content": content(&["*/*"], &reference(DELETE_OPTIONS))})),
            responses: responses(&[OK, ACCEPTED], MEDIA, &answer),
        };
        self.at(operation, &self.name())
    }

    fn delete_collection(&self) -> Operation {
        let mut asked = parameters::queries(parameters::DELETE);
        asked.extend(parameters::queries(parameters::DELETED_COLLECTION));
        let title = &self.place.title;
        let operation = Operation {
            id: format!(
                "delete{title}Collection{}{}",
                self.scope_word(),
                self.resource.kind
            ),
            description: format!(
                "Delete every {} that the selectors match.",
                self.resource.kind
            ),
            action: ("deletecollection", self.body().kind),
            parameters: asked,
            body: Some(json!({"content": content(&["*/*"], &reference(DELETE_OPTIONS))})),
            responses: responses(&[OK], MEDIA, &reference(STATUS)),
        };
        self.at(operation, &self.namespace())
    }

    fn list(&self, id: String, scope: &[&'static Parameter]) -> Operation {
        let gv = self.resource.gv;
        let list = format!("{}List", self.resource.kind);
        let schema = schema::kind(gv.group, gv.version, &list)
            .unwrap_or_else(|| panic!("the table of types has no {list}"));
        let operation = Operation {
            id,
            description: format!("List or watch objects of kind {}.", self.resource.kind),
            action: ("list", self.body().kind),
            parameters: parameters::queries(parameters::LIST),
            body: None,
            responses: responses(
                &[OK],
                WATCHED_MEDIA,
                &reference(&schema.get().openapi_name()),
            ),
        };
        self.at(operation, scope)
    }

    fn watch(&self, action: &'static str, id: String, scope: &[&'static Parameter]) -> Operations {
        if !self.resource.allows("watch") {
            return Operations::new();
        }
        let operation = Operation {
            id,
            description: "Old form of a watch; list with `watch=true` instead.".into(),
            action: (action, self.body().kind),
            parameters: parameters::queries(parameters::LIST),
            body: None,
            responses: responses(&[OK], WATCHED_MEDIA, &reference(WATCH_EVENT)),
        };
        vec![("get", self.at(operation, scope))]
    }

    fn log(&self) -> Operation {
        let options = schema::kind("", "v1", "PodLogOptions").expect("pods have logs");
        let operation = Operation {
            id: self.id("read", "log"),
            description: "Read the log of a container of the Pod.".into(),
            action: ("get", self.body().kind),
            parameters: parameters::of_options(options.get()),
            body: None,
            responses: responses(&[OK], LOG_MEDIA, &json!({"type": "string"})),
        };
        self.at(operation, &self.name())
    }

    fn connect(&self, sub: &Subresource, with_path: bool) -> Operations {
        let methods: &[_] = if sub.name == "proxy" {
            &PROXY_METHODS
        } else {
            &["get", "post"]
        };
        methods
            .iter()
            .map(|method| (*method, self.connection(sub, method, with_path)))
            .collect()
    }

    fn connection(&self, sub: &Subresource, method: &str, with_path: bool) -> Operation {
        let gv = self.resource.gv;
        let options = schema::kind(gv.group, gv.version, sub.kind)
            .unwrap_or_else(|| panic!("the table of types has no {}", sub.kind));
        let mut asked = parameters::of_options(options.get());
        asked.extend(self.namespace());
        asked.push(&NAME);
        asked.extend(with_path.then_some(&PROXIED_PATH));
        let verb = format!("connect{}{}", self.place.title, capitalised(method));
        let suffix = if with_path { "WithPath" } else { "" };
        let (scope, kind) = (self.scope_word(), self.resource.kind);
        Operation {
            id: format!("{verb}{scope}{kind}{}{suffix}", capitalised(sub.name)),
            description: format!("Connect to the {} of the {kind}.", sub.name),
            action: (
                "connect",
                group_version_kind(gv.group, gv.version, sub.kind),
            ),
            parameters: asked,
            body: None,
            responses: responses(&[OK], &["*/*"], &json!({"type": "string"})),
        }
    }

    fn at(&self, mut operation: Operation, scope: &[&'static Parameter]) -> Operation {
        operation.parameters.extend(scope);
        operation.parameters.push(&PRETTY);
        operation
    }

    fn namespace(&self) -> Vec<&'static Parameter> {
        if self.resource.namespaced {
            vec![&NAMESPACE]
        } else {
            Vec::new()
        }
    }

    fn name(&self) -> Vec<&'static Parameter> {
        let mut scope = self.namespace();
        scope.push(&NAME);
        scope
    }

    fn scope_word(&self) -> &'static str {
        if self.resource.namespaced {
            "Namespaced"
        } else {
            ""
        }
    }

    fn id(&self, verb: &str, sub: &str) -> String {
        let (title, scope, kind) = (&self.place.title, self.scope_word(), self.resource.kind);
        format!("{verb}{title}{scope}{kind}{}", capitalised(sub))
    }

    fn id_without_namespace(&self, verb: &str) -> String {
        format!("{verb}{}{}", self.place.title, self.resource.kind)
    }

    fn published_name(&self) -> String {
        let ty = self.resource.ty.built_in();
        ty.expect("documents are made of the table")
            .get()
            .openapi_name()
    }

    fn body(&self) -> Body {
        let (gv, kind) = (self.resource.gv, self.resource.kind);
        Body {
            kind: group_version_kind(gv.group, gv.version, kind),
            schema: reference(&self.published_name()),
        }
    }

    fn body_of(&self, sub: &Subresource) -> Body {
        let gv = sub.gv.unwrap_or(self.resource.gv);
        let ty = schema::kind(gv.group, gv.version, sub.kind)
            .unwrap_or_else(|| panic!("the table of types has no {}", sub.kind));
        Body {
            kind: group_version_kind(gv.group, gv.version, sub.kind),
            schema: reference(&ty.get().openapi_name()),
        }
    }
}
