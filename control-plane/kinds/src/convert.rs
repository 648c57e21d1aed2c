//! Conversions between the versions of one object.
//!
//! Only two kinds are served in more than one version: HorizontalPodAutoscaler (autoscaling/v1 and v2)
//! and Event (v1 and events.k8s.io/v1). Everything else is stored as it is served.

mod autoscaler;
mod event;

use serde_json::Value;

use crate::resources::{GroupVersion, Resource};

const CORE: GroupVersion = GroupVersion {
    group: "",
    version: "v1",
};
const EVENTS: GroupVersion = GroupVersion {
    group: "events.k8s.io",
    version: "v1",
};
const AUTOSCALING_V1: GroupVersion = GroupVersion {
    group: "autoscaling",
    version: "v1",
};
const AUTOSCALING_V2: GroupVersion = GroupVersion {
    group: "autoscaling",
    version: "v2",
};

type Conversion = (&'static str, GroupVersion, GroupVersion, fn(&mut Value));

const CONVERSIONS: [Conversion; 4] = [
    ("Event", CORE, EVENTS, event::to_events),
    ("Event", EVENTS, CORE, event::to_core),
    (
        "HorizontalPodAutoscaler",
        AUTOSCALING_V1,
        AUTOSCALING_V2,
        autoscaler::to_v2,
    ),
    (
        "HorizontalPodAutoscaler",
        AUTOSCALING_V2,
        AUTOSCALING_V1,
        autoscaler::to_v1,
    ),
];

/// Turns an object as it is stored into one of the version that a resource serves.
pub fn serve(resource: &Resource, object: &mut Value) {
    if resource.gv == resource.stored {
        return;
    }
    match resource.ty.defined() {
        Some(definition) => definition.serve(object),
        None => drop(convert(object, resource.stored, resource.gv, resource.kind)),
    }
}

/// Brings what a webhook has made of an object into the form of the version that a resource serves.
pub fn cut(resource: &Resource, object: &mut Value) {
    if let Some(definition) = resource.ty.defined() {
        definition.serve(object);
    }
}

/// Turns an object of the version that a resource serves into one as it is stored.
pub fn store(resource: &Resource, object: &mut Value) {
    if resource.gv == resource.stored {
        return;
    }
    match resource.ty.defined() {
        Some(definition) => definition.store(object),
        None => drop(convert(object, resource.gv, resource.stored, resource.kind)),
    }
}

/// Turns an object of one version into the same object of another, `apiVersion` included, and says
/// whether such a conversion exists; without one the object is left alone.
///
/// The caller brings the result back into the target type's normal form.
pub fn convert(object: &mut Value, from: GroupVersion, to: GroupVersion, kind: &str) -> bool {
    if from == to {
        return true;
    }
    let Some((_, _, _, run)) = CONVERSIONS
        .iter()
        .find(|(k, f, t, _)| *k == kind && *f == from && *t == to)
    else {
        return false;
    };
    run(object);
    object["apiVersion"] = to.to_string().into();
    true
}

/// An autoscaler of v1 in v2, which alone has metrics; for printing.
pub(crate) fn autoscaler_v2(object: &Value) -> Value {
    let mut object = object.clone();
    autoscaler::to_v2(&mut object);
    object
}

/// An event of events.k8s.io in core; for printing.
pub(crate) fn core_event(object: &Value) -> Value {
    let mut object = object.clone();
    event::to_core(&mut object);
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_known_pairs_are_converted() {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod"});
        assert!(!convert(&mut pod, CORE, EVENTS, "Pod"));
        assert!(convert(&mut pod, CORE, CORE, "Pod"));
        assert_eq!(pod, json!({"apiVersion": "v1", "kind": "Pod"}));
    }
}
