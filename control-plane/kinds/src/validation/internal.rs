//! Values as upstream's messages show them where it prints a whole object: that of its internal types, with Go's names
//! of all fields in the order of the type.

use std::fmt::Write as _;

use serde_json::Value;

/// An internal type.
pub(super) struct Internal(&'static [(&'static str, &'static str, Field)]);

/// What a field is: text for what is not set, or a type of its own.
enum Field {
    Unset(&'static str),
    Inner(&'static Internal),
}

use Field::{Inner, Unset};

const NIL: Field = Unset("null");
const EMPTY: Field = Unset("\"\"");
const FALSE: Field = Unset("false");

pub(super) const TAINT: Internal = Internal(&[
    ("Key", "key", EMPTY),
    ("Value", "value", EMPTY),
    ("Effect", "effect", EMPTY),
    ("TimeAdded", "timeAdded", NIL),
]);

pub(super) const STATEFUL_SET_UPDATE: Internal = Internal(&[
    ("Type", "type", EMPTY),
    ("RollingUpdate", "rollingUpdate", NIL),
]);

pub(super) const DISTINGUISHER: Internal = Internal(&[("Type", "type", EMPTY)]);

pub(super) const BUDGET: Internal = Internal(&[
    ("MinAvailable", "minAvailable", NIL),
    ("Selector", "selector", NIL),
    ("MaxUnavailable", "maxUnavailable", NIL),
    (
        "UnhealthyPodEvictionPolicy",
        "unhealthyPodEvictionPolicy",
        NIL,
    ),
]);

pub(super) const DEFINITION_VERSION: Internal = Internal(&[
    ("Name", "name", EMPTY),
    ("Served", "served", FALSE),
    ("Storage", "storage", FALSE),
    ("Deprecated", "deprecated", FALSE),
    ("DeprecationWarning", "deprecationWarning", NIL),
    ("Schema", "schema", NIL),
    ("Subresources", "subresources", NIL),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", NIL),
    ("SelectableFields", "selectableFields", NIL),
]);

const PROFILE: Internal = Internal(&[
    ("Type", "type", EMPTY),
    ("LocalhostProfile", "localhostProfile", NIL),
]);

pub(super) const SECURITY_CONTEXT: Internal = Internal(&[
    (
        "Capabilities",
        "capabilities",
        Inner(&Internal(&[("Add", "add", NIL), ("Drop", "drop", NIL)])),
    ),
    ("Privileged", "privileged", NIL),
    (
        "SELinuxOptions",
        "seLinuxOptions",
        Inner(&Internal(&[
            ("User", "user", EMPTY),
            ("Role", "role", EMPTY),
            ("Type", "type", EMPTY),
            ("Level", "level", EMPTY),
        ])),
    ),
    (
        "WindowsOptions",
        "windowsOptions",
        Inner(&Internal(&[
            ("GMSACredentialSpecName", "gmsaCredentialSpecName", NIL),
            ("GMSACredentialSpec", "gmsaCredentialSpec", NIL),
            ("RunAsUserName", "runAsUserName", NIL),
            ("HostProcess", "hostProcess", NIL),
        ])),
    ),
    ("RunAsUser", "runAsUser", NIL),
    ("RunAsGroup", "runAsGroup", NIL),
    ("RunAsNonRoot", "runAsNonRoot", NIL),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", NIL),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", NIL),
    ("ProcMount", "procMount", NIL),
    ("SeccompProfile", "seccompProfile", Inner(&PROFILE)),
    ("AppArmorProfile", "appArmorProfile", Inner(&PROFILE)),
]);

impl Internal {
    /// The text of an object, or of a list of them.
    pub(super) fn shown(&self, value: &Value) -> String {
        match value {
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.shown(item)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Null => "null".to_owned(),
            object => self.object(object),
        }
    }

    fn object(&self, object: &Value) -> String {
        let mut text = String::from("{");
        for (index, (name, key, field)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = match (object.get(key), field) {
                (None, Unset(unset)) => write!(text, "{comma}{name:?}:{unset}"),
                (None, Inner(_)) => write!(text, "{comma}{name:?}:null"),
                (Some(value), Unset(_)) => write!(text, "{comma}{name:?}:{value}"),
                (Some(value), Inner(inner)) => {
                    write!(text, "{comma}{name:?}:{}", inner.shown(value))
                }
            };
        }
        text + "}"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_shown_with_every_field_of_gos_type() {
        let taint = json!({"key": "k", "effect": "NoSchedule"});
        let shown = r#"{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}"#;
        assert_eq!(TAINT.shown(&taint), shown);
        let context = json!({"capabilities": {"add": ["X"]}, "privileged": true});
        let shown = SECURITY_CONTEXT.shown(&context);
        let start =
            r#"{"Capabilities":{"Add":["X"],"Drop":null},"Privileged":true,"SELinuxOptions":null,"#;
        assert!(shown.starts_with(start), "{shown}");
        let list = json!([{"type": "ByMood"}, {}]);
        assert_eq!(
            DISTINGUISHER.shown(&list),
            r#"[{"Type":"ByMood"},{"Type":""}]"#
        );
    }
}
