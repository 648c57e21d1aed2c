//! One record: audit.k8s.io/v1 Event.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::policy::{Level, Stage};

/// A user agent is recorded up to here.
const LONGEST_AGENT: usize = 1024;

/// Somebody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// Unique for all time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Plural.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Of the object that was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Group, empty for the core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Of the object that was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectReference {
    /// Fills gaps from the object that was sent.
    pub fn fill(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let gaps = [
            (&mut self.name, "name"),
            (&mut self.namespace, "namespace"),
            (&mut self.uid, "uid"),
            (&mut self.resource_version, "resourceVersion"),
        ];
        for (gap, field) in gaps {
            if gap.is_empty() {
                metadata[field].as_str().unwrap_or_default().clone_into(gap);
            }
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    kind: &'static str,
    api_version: &'static str,
    /// How much is recorded.
    pub level: Level,
    /// The same for all records of a request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// When it was made.
    pub stage: Stage,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The verb.
    pub verb: String,
    /// Who asked.
    pub user: User,
    /// As whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<User>,
    /// Where from, the client first.
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    /// With what program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// What it is about; nothing for paths that are no resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    /// What was answered, without the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<Value>,
    /// What was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Value>,
    /// What was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Value>,
    /// When the request came.
    #[serde(serialize_with = "micros")]
    pub request_received_timestamp: Timestamp,
    /// When this stage was reached.
    #[serde(serialize_with = "micros")]
    pub stage_timestamp: Timestamp,
    /// What others have to say about it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn micros<S: serde::Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
}

impl Event {
    /// A record of a request that has just come.
    pub fn received(level: Level, audit_id: String, at: Timestamp) -> Event {
        Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id,
            stage: Stage::RequestReceived,
            request_uri: String::new(),
            verb: String::new(),
            user: User::default(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: at,
            stage_timestamp: at,
            annotations: BTreeMap::new(),
        }
    }

    /// A program's name, as much of it as is recorded.
    pub fn agent(text: &str) -> String {
        match text.char_indices().nth(LONGEST_AGENT) {
            None => text.to_owned(),
            Some((end, _)) => format!("{}...TRUNCATED", &text[..end]),
        }
    }

    /// What an answer's status is recorded as: a Status as it is, or the code alone.
    pub fn status_of(code: u16, status: Option<&Value>) -> Value {
        let mut recorded = json!({"metadata": {}});
        for field in ["status", "message", "reason", "details"] {
            if let Some(value) = status.and_then(|status| status.get(field)) {
                recorded[field] = value.clone();
            }
        }
        recorded["code"] = code.into();
        recorded
    }

    /// As a line of a log.
    pub fn json(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an event is always JSON");
        line.push(b'\n');
        line
    }

    /// As a line of the older form, which is for people.
    pub fn legacy(&self) -> Vec<u8> {
        let groups = match self.user.groups.is_empty() {
            true => "\"<none>\"".to_owned(),
            false => quoted(&self.user.groups),
        };
        let known = |text: &str, otherwise: &str| match text {
            "" => otherwise.to_owned(),
            text => text.to_owned(),
        };
        let who = self.impersonated_user.as_ref();
        let as_groups = match who.filter(|user| !user.groups.is_empty()) {
            None => "\"<lookup>\"".to_owned(),
            Some(user) => quoted(&user.groups),
        };
        let reference = self.object_ref.as_ref();
        let namespace = known(reference.map_or("", |r| &r.namespace), "<none>");
        let code = match &self.response_status {
            Some(status) => status["code"].to_string(),
            None => "<deferred>".to_owned(),
        };
        let ip = self.source_ips.first().map_or("<unknown>", String::as_str);
        let line = format!(
            "{} AUDIT: id={:?} stage={:?} ip={ip:?} method={:?} user={:?} groups={groups} as={:?} as-groups={as_groups} \
             user-agent={:?} namespace={namespace:?} uri={:?} response=\"{code}\"\n",
            self.stage_timestamp.strftime("%Y-%m-%dT%H:%M:%S%.9fZ"),
            self.audit_id,
            format!("{:?}", self.stage),
            self.verb,
            known(&self.user.username, "<none>"),
            known(who.map_or("", |user| &user.username), "<self>"),
            self.user_agent,
            self.request_uri,
        );
        line.into_bytes()
    }
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    texts.join(",")
}

/// An object without who manages which of its fields, and the same for the items of a list.
pub fn without_managers(mut object: Value) -> Value {
    let strip = |object: &mut Value| {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    };
    if object.get("metadata").is_some() {
        strip(&mut object);
    }
    for item in object["items"].as_array_mut().into_iter().flatten() {
        if item.get("metadata").is_some() {
            strip(item);
        }
    }
    if object["items"].is_null()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("items");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        let at: Timestamp = "2026-01-02T03:04:05.000006Z".parse().expect("a time");
        let mut event = Event::received(Level::Metadata, "id".into(), at);
        event.request_uri = "/api/v1/pods".into();
        event.verb = "list".into();
        event.user.username = "jane".into();
        event.user.groups = vec!["dev".into()];
        event.source_ips = vec!["10.0.0.1".into()];
        event
    }

    #[test]
    fn a_record_has_the_fields_and_the_order_of_the_api() {
        let mut event = event();
        event.object_ref = Some(ObjectReference {
            resource: "pods".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        });
        event.response_status = Some(Event::status_of(200, None));
        event
            .annotations
            .insert("authorization.k8s.io/decision".into(), "allow".into());
        let wanted = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","#,
            r#""stage":"RequestReceived","requestURI":"/api/v1/pods","verb":"list","#,
            r#""user":{"username":"jane","groups":["dev"]},"sourceIPs":["10.0.0.1"],"#,
            r#""objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200,"metadata":{}},"#,
            r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.000006Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow"}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8_lossy(&event.json()), wanted);
    }

    #[test]
    fn the_older_form_is_upstreams() {
        let wanted = "2026-01-02T03:04:05.000006000Z AUDIT: id=\"id\" stage=\"RequestReceived\" ip=\"10.0.0.1\" \
            method=\"list\" user=\"jane\" groups=\"dev\" as=\"<self>\" as-groups=\"<lookup>\" user-agent=\"\" \
            namespace=\"<none>\" uri=\"/api/v1/pods\" response=\"<deferred>\"\n";
        assert_eq!(String::from_utf8_lossy(&event().legacy()), wanted);
    }

    #[test]
    fn long_agents_are_cut_and_managers_left_out() {
        assert!(Event::agent(&"é".repeat(2000)).ends_with("é...TRUNCATED"));
        assert_eq!(Event::agent("kubectl"), "kubectl");
        let list =
            json!({"metadata": {}, "items": [{"metadata": {"name": "a", "managedFields": []}}]});
        assert_eq!(
            without_managers(list),
            json!({"metadata": {}, "items": [{"metadata": {"name": "a"}}]})
        );
        let one = json!({"metadata": {"managedFields": [1]}, "spec": {}});
        assert_eq!(without_managers(one), json!({"metadata": {}, "spec": {}}));
    }
}
