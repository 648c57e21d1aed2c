//! ConversionReview: what a conversion webhook is asked, and what it may answer. Pure.

use bytes::Bytes;
use kinds::resources::GroupVersion;
use serde_json::{Map, Value, json};

const GROUP: &str = "apiextensions.k8s.io";

/// The question.
pub(super) fn request(uid: &str, version: &str, to: GroupVersion, objects: &[Value]) -> Bytes {
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": format!("{GROUP}/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": to.to_string(), "objects": objects},
    });
    Bytes::from(review.to_string())
}

/// The objects of an answer, or why there are none.
pub(super) fn answer(bytes: &[u8], uid: &str, version: &str) -> Result<Vec<Value>, String> {
    let mut review: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    let wanted = format!("{GROUP}/{version}");
    // The older version says neither what it is nor what it answers.
    if version == "v1" && (api_version != wanted || kind != "ConversionReview") {
        return Err(format!(
            "expected webhook response of {wanted}, Kind=ConversionReview, got {api_version}, Kind={kind}"
        ));
    }
    let mut response = review["response"].take();
    if !response.is_object() {
        return Err("no response provided".into());
    }
    let found = text(&response["uid"]);
    if version == "v1" && found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let result = &response["result"];
    match (text(&result["status"]).as_str(), text(&result["message"])) {
        ("Success", _) => {}
        (status, message) if message.is_empty() => {
            return Err(format!(
                "response.result.status was '{status}', expected 'Success'"
            ));
        }
        (_, message) => return Err(message),
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// The converted objects, with the metadata that a webhook may not change; or what is wrong with them.
pub(super) fn checked(
    sent: &[Value],
    converted: Vec<Value>,
    to: GroupVersion,
) -> Result<Vec<Value>, String> {
    if converted.len() != sent.len() {
        let (found, wanted) = (converted.len(), sent.len());
        return Err(format!("{found} objects, expected {wanted}"));
    }
    let pairs = sent.iter().zip(converted).enumerate();
    let checked = pairs.map(|(index, (sent, mut converted))| {
        check_identity(sent, &converted, to)
            .map_err(|why| format!("invalid converted object at index {index}: {why}"))?;
        restore(sent, &mut converted)
            .map_err(|why| format!("invalid metadata in object at index {index}: {why}"))?;
        Ok(converted)
    });
    checked.collect()
}

fn check_identity(sent: &Value, converted: &Value, to: GroupVersion) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (found, wanted) = (text(&converted["apiVersion"]), to.to_string());
    if found != wanted {
        return Err(format!(
            "invalid groupVersion (expected {wanted}, received {found})"
        ));
    }
    let (found, wanted) = (text(&converted["kind"]), text(&sent["kind"]));
    if found != wanted {
        return Err(format!(
            "invalid kind (expected {wanted}, received {found})"
        ));
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (was, is) = (
            text(&sent["metadata"][field]),
            text(&converted["metadata"][field]),
        );
        if was != is {
            return Err(format!("must have the same {shown}: {was} != {is}"));
        }
    }
    Ok(())
}

// Labels and annotations are all of the metadata that a webhook may change.
fn restore(sent: &Value, converted: &mut Value) -> Result<(), String> {
    let found = match converted["metadata"].take() {
        Value::Object(found) => found,
        Value::Null => return Err("missing metadata in converted object".into()),
        _ => return Err("invalid metadata of type in converted object".into()),
    };
    let original = sent["metadata"].as_object().cloned().unwrap_or_default();
    let mut metadata = original;
    for field in ["labels", "annotations"] {
        let kept = found.get(field).filter(|value| !value.is_null());
        match kept {
            None => drop(metadata.remove(field)),
            Some(value) => {
                check_texts(field, value)?;
                metadata.insert(field.to_owned(), value.clone());
            }
        }
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

fn check_texts(field: &str, value: &Value) -> Result<(), String> {
    let is_texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
    match value.as_object().is_some_and(is_texts) {
        true => Ok(()),
        false => Err(format!("metadata.{field} is not a map of strings")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: GroupVersion = GroupVersion {
        group: "example.com",
        version: "v2",
    };

    fn object(version: &str) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Lamp",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"old": "1"}}})
    }

    #[test]
    fn only_labels_and_annotations_are_the_webhooks() {
        let mut made = object("v2");
        made["metadata"]["labels"] = json!({"new": "2"});
        made["metadata"]["generation"] = 9.into();
        made["spec"] = json!({"on": true});
        let checked = checked(&[object("v1")], vec![made], TO).expect("good");
        assert_eq!(checked[0]["metadata"]["labels"], json!({"new": "2"}));
        assert_eq!(checked[0]["metadata"]["generation"], 3);
        assert_eq!(checked[0]["spec"]["on"], true);
    }

    #[test]
    fn answers_that_lie_are_told_apart() {
        let sent = [object("v1")];
        let with = |pointer: &str, value: Value| {
            let mut made = object("v2");
            *made.pointer_mut(pointer).expect("there") = value;
            vec![made]
        };
        let at = "invalid converted object at index 0: ";
        let cases = [
            (Vec::new(), "0 objects, expected 1".to_owned()),
            (
                vec![object("v1")],
                format!(
                    "{at}invalid groupVersion (expected example.com/v2, received example.com/v1)"
                ),
            ),
            (
                with("/kind", "Lump".into()),
                format!("{at}invalid kind (expected Lamp, received Lump)"),
            ),
            (
                with("/metadata/name", "b".into()),
                format!("{at}must have the same name: a != b"),
            ),
            (
                with("/metadata/uid", "v".into()),
                format!("{at}must have the same UID: u != v"),
            ),
            (
                with("/metadata/labels", json!({"a": 1})),
                "invalid metadata in object at index 0: metadata.labels is not a map of strings"
                    .into(),
            ),
        ];
        for (made, why) in cases {
            assert_eq!(checked(&sent, made, TO).expect_err(&why), why);
        }
    }

    #[test]
    fn answers_must_be_to_the_question_and_successful() {
        let review = |uid: &str, result: Value| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": uid, "result": result, "convertedObjects": [1]}})
        };
        let read = |review: Value| answer(review.to_string().as_bytes(), "u", "v1");
        let success = json!({"status": "Success"});
        assert_eq!(read(review("u", success.clone())), Ok(vec![json!(1)]));
        let mut odd = review("u", success.clone());
        odd["kind"] = "AdmissionReview".into();
        let cases = [
            (
                review("w", success),
                "expected response.uid=\"u\", got \"w\"",
            ),
            (
                review("u", json!({"status": "Failed", "message": "no"})),
                "no",
            ),
            (
                review("u", json!({})),
                "response.result.status was '', expected 'Success'",
            ),
            (
                odd,
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, \
                 got apiextensions.k8s.io/v1, Kind=AdmissionReview",
            ),
            (
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}),
                "no response provided",
            ),
        ];
        for (review, why) in cases {
            assert_eq!(read(review).expect_err(why), why);
        }
    }
}
