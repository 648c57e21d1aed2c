//! StorageObjectInUseProtection: storage that is in use is not removed under its users. The finalizers
//! are taken away by controllers that see who uses what.

use futures::FutureExt as _;
use serde_json::Value;

use super::shape::{items, push};
use super::{Attributes, Operation, Plugin};

/// Group, plural and finalizer.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "StorageObjectInUseProtection",
    handles: |attributes| finalizer(attributes).is_some(),
    mutate: Some(|_, attributes, object| {
        if let Some(finalizer) = finalizer(attributes) {
            protect(object, finalizer);
        }
        std::future::ready(Ok(())).boxed()
    }),
    validate: None,
};

fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
    if attributes.operation != Operation::Create {
        return None;
    }
    let row = PROTECTED
        .iter()
        .find(|(group, plural, _)| attributes.is_main(group, plural));
    row.map(|(_, _, finalizer)| *finalizer)
}

fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    if !items(finalizers).iter().any(|f| f == finalizer) {
        push(finalizers, finalizer.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;
    use serde_json::json;

    #[test]
    fn new_storage_is_protected_once() {
        for (group, plural, finalizer_name) in PROTECTED {
            let call = trial::call((group, "v1", plural), "", "x");
            let create = trial::attributes(&call, Operation::Create, "", None);
            assert_eq!(finalizer(&create), Some(finalizer_name));
            let status = trial::attributes(&call, Operation::Create, "status", None);
            assert_eq!(finalizer(&status), None);
            let update = trial::attributes(&call, Operation::Update, "", None);
            assert_eq!(finalizer(&update), None);
        }
        let mut claim = json!({"metadata": {"finalizers": ["example.com/own"]}});
        protect(&mut claim, PROTECTED[1].2);
        protect(&mut claim, PROTECTED[1].2);
        let expected = json!(["example.com/own", "kubernetes.io/pvc-protection"]);
        assert_eq!(claim["metadata"]["finalizers"], expected);
    }
}
