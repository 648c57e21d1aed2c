//! Trust anchors of ClusterTrustBundles, for projected volumes (`pkg/kubelet/clustertrustbundle`). Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The anchors that a projection asks for: each once, in an order that only depends on them.
pub(super) fn anchors(
    bundles: &[ClusterTrustBundle],
    asked: &ClusterTrustBundleProjection,
) -> Result<String, String> {
    let optional = asked.optional.unwrap_or_default();
    let chosen: Vec<&ClusterTrustBundle> = match (&asked.name, &asked.signer_name) {
        (Some(name), _) => {
            let of_name = |b: &&ClusterTrustBundle| b.metadata.name.as_ref() == Some(name);
            bundles.iter().filter(of_name).collect()
        }
        (None, Some(signer)) => {
            let of_signer = |b: &&ClusterTrustBundle| {
                b.spec.signer_name.as_ref() == Some(signer)
                    && asked.label_selector.as_ref().is_some_and(|s| selects(s, b))
            };
            bundles.iter().filter(of_signer).collect()
        }
        (None, None) => Vec::new(),
    };
    if chosen.is_empty() && !optional {
        return Err(match (&asked.name, &asked.signer_name) {
            (Some(name), _) => format!(
                "unable to get trust anchors from ClusterTrustBundles by name: clustertrustbundle.certificates.k8s.io {name:?} not found"
            ),
            (None, signer) => format!(
                "unable to get trust anchors from ClusterTrustBundles by signer: combination of signerName and labelSelector matched zero ClusterTrustBundles ({:?})",
                signer.as_deref().unwrap_or_default()
            ),
        });
    }
    let blocks: BTreeSet<String> = chosen
        .iter()
        .flat_map(|b| blocks(&b.spec.trust_bundle))
        .collect();
    Ok(blocks.into_iter().collect())
}

fn selects(selector: &LabelSelector, bundle: &ClusterTrustBundle) -> bool {
    let value = |key: &str| {
        bundle
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
    };
    let equal = selector.match_labels.iter().flatten();
    let wanted = selector.match_expressions.iter().flatten();
    equal
        .into_iter()
        .all(|(key, text)| value(key) == Some(text))
        && wanted.into_iter().all(|rule| {
            let values = rule.values.as_deref().unwrap_or_default();
            let found = value(&rule.key);
            match rule.operator.as_str() {
                "In" => found.is_some_and(|found| values.contains(found)),
                "NotIn" => !found.is_some_and(|found| values.contains(found)),
                "Exists" => found.is_some(),
                _ => found.is_none(),
            }
        })
}

fn blocks(text: &str) -> impl Iterator<Item = String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let inner = text.split(BEGIN).skip(1);
    let inner = inner.filter_map(|rest| rest.split_once(END).map(|(inner, _)| inner));
    inner.map(|inner| format!("{BEGIN}{inner}{END}\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn bundle(name: &str, signer: Option<&str>, certificates: &[&str]) -> ClusterTrustBundle {
        let block = |text: &&str| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let text: String = certificates.iter().map(block).collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"env": name}},
            "spec": {"signerName": signer, "trustBundle": text}}))
        .unwrap()
    }

    #[test]
    fn anchors_are_chosen_by_name_or_by_signer_and_told_once() {
        let bundles = [
            bundle("a", None, &["AA", "BB"]),
            bundle("x:1", Some("x"), &["CC", "DD"]),
            bundle("x:2", Some("x"), &["DD"]),
        ];
        let ask = |value| serde_json::from_value::<ClusterTrustBundleProjection>(value).unwrap();
        let count = |asked: &ClusterTrustBundleProjection| {
            anchors(&bundles, asked).map(|text| text.matches("BEGIN").count())
        };
        assert_eq!(count(&ask(json!({"path": "p", "name": "a"}))), Ok(2));
        assert_eq!(
            count(&ask(
                json!({"path": "p", "signerName": "x", "labelSelector": {}})
            )),
            Ok(2)
        );
        let one = json!({"path": "p", "signerName": "x", "labelSelector": {"matchLabels": {"env": "x:2"}}});
        assert_eq!(count(&ask(one)), Ok(1));
        // A selector that is not set selects nothing.
        assert!(count(&ask(json!({"path": "p", "signerName": "x"}))).is_err());
        assert!(count(&ask(json!({"path": "p", "name": "none"}))).is_err());
        assert_eq!(
            count(&ask(json!({"path": "p", "name": "none", "optional": true}))),
            Ok(0)
        );
    }
}
