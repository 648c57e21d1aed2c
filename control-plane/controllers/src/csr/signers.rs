//! The signers of Kubernetes itself and what each of them signs (`pkg/apis/certificates/helpers.go`).

use std::collections::BTreeSet;

use super::request::Request;

/// One of the built-in signers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signer {
    ApiServerClient,
    KubeletClient,
    KubeletServing,
    LegacyUnknown,
}

const NAMES: [(&str, Signer); 4] = [
    (
        "kubernetes.io/kube-apiserver-client",
        Signer::ApiServerClient,
    ),
    (
        "kubernetes.io/kube-apiserver-client-kubelet",
        Signer::KubeletClient,
    ),
    ("kubernetes.io/kubelet-serving", Signer::KubeletServing),
    ("kubernetes.io/legacy-unknown", Signer::LegacyUnknown),
];

impl Signer {
    pub(crate) fn named(name: &str) -> Option<Signer> {
        let mut all = NAMES.iter();
        all.find_map(|(known, signer)| (*known == name).then_some(*signer))
    }

    /// What is wrong with a request, if anything; upstream's words.
    pub(crate) fn check(self, request: &Request, usages: &[String]) -> Result<(), String> {
        let set: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
        match self {
            Signer::ApiServerClient => check_client_usages(usages),
            Signer::KubeletClient => check_kubelet_client(request, &set),
            Signer::KubeletServing => check_kubelet_serving(request, &set),
            Signer::LegacyUnknown => Ok(()),
        }
    }
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    const ALLOWED: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
    if let Some(wrong) = usages.iter().find(|u| !ALLOWED.contains(&u.as_str())) {
        return Err(format!("invalid usage for client certificate: {wrong}"));
    }
    match usages.iter().any(|u| u == "client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".into()),
    }
}

/// Whether a kubelet may be given this as its client certificate.
pub(crate) fn check_kubelet_client(
    request: &Request,
    usages: &BTreeSet<&str>,
) -> Result<(), String> {
    let names = &request.alt_names;
    check_organisation(request)?;
    refuse("DNS subjectAltNames are not allowed", !names.dns.is_empty())?;
    refuse(
        "Email subjectAltNames are not allowed",
        !names.emails.is_empty(),
    )?;
    refuse("IP subjectAltNames are not allowed", !names.ips.is_empty())?;
    refuse(
        "URI subjectAltNames are not allowed",
        !names.uris.is_empty(),
    )?;
    check_common_name(request)?;
    check_usages(usages, "client auth")
}

fn check_kubelet_serving(request: &Request, usages: &BTreeSet<&str>) -> Result<(), String> {
    let names = &request.alt_names;
    let nameless = names.dns.is_empty() && names.ips.is_empty();
    check_organisation(request)?;
    refuse("DNS or IP subjectAltName is required", nameless)?;
    refuse(
        "Email subjectAltNames are not allowed",
        !names.emails.is_empty(),
    )?;
    refuse(
        "URI subjectAltNames are not allowed",
        !names.uris.is_empty(),
    )?;
    check_usages(usages, "server auth")?;
    check_common_name(request)
}

fn refuse(complaint: &str, condition: bool) -> Result<(), String> {
    match condition {
        true => Err(complaint.to_owned()),
        false => Ok(()),
    }
}

fn check_organisation(request: &Request) -> Result<(), String> {
    let differs = request.subject.organisations() != ["system:nodes"];
    refuse("subject organization is not system:nodes", differs)
}

fn check_common_name(request: &Request) -> Result<(), String> {
    let differs = !request.subject.common_name().starts_with("system:node:");
    let complaint = "subject common name does not begin with system:node:";
    refuse(complaint, differs)
}

// With key encipherment for RSA keys, without for others.
fn check_usages(usages: &BTreeSet<&str>, purpose: &str) -> Result<(), String> {
    let all = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let without_rsa = BTreeSet::from(["digital signature", purpose]);
    if *usages == all || *usages == without_rsa {
        return Ok(());
    }
    let list: Vec<&str> = all.into_iter().collect();
    Err(format!("usages did not match [{}]", list.join(" ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::csr::testing::Wish;

    fn verdict(signer: Signer, wish: &Wish, usages: &str) -> Result<(), String> {
        let request = Request::parse(wish.pem().as_bytes()).unwrap();
        let usages: Vec<String> = usages.split(',').map(str::to_owned).collect();
        signer.check(&request, &usages)
    }

    fn node() -> Wish {
        Wish::of("system:node:a").organisations(&["system:nodes"])
    }

    const CLIENT: &str = "digital signature,client auth";
    const CLIENT_RSA: &str = "key encipherment,client auth,digital signature";
    const SERVER: &str = "digital signature,server auth";

    #[test]
    fn kubelets_get_client_certificates_of_one_shape() {
        let cases: [(Wish, &str, Result<(), &str>); 10] = [
            (node(), CLIENT, Ok(())),
            (node(), CLIENT_RSA, Ok(())),
            (
                Wish::of("system:node:a"),
                CLIENT,
                Err("subject organization is not system:nodes"),
            ),
            (
                node().organisations(&["system:masters"]),
                CLIENT,
                Err("subject organization is not system:nodes"),
            ),
            (
                node().dns("a"),
                CLIENT,
                Err("DNS subjectAltNames are not allowed"),
            ),
            (
                node().email("a@b"),
                CLIENT,
                Err("Email subjectAltNames are not allowed"),
            ),
            (
                node().ip("10.0.0.1"),
                CLIENT,
                Err("IP subjectAltNames are not allowed"),
            ),
            (
                node().uri("spiffe://a"),
                CLIENT,
                Err("URI subjectAltNames are not allowed"),
            ),
            (
                Wish::of("jane").organisations(&["system:nodes"]),
                CLIENT,
                Err("subject common name does not begin with system:node:"),
            ),
            (
                node(),
                "digital signature,client auth,server auth",
                Err("usages did not match [client auth digital signature key encipherment]"),
            ),
        ];
        for (wish, usages, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(
                verdict(Signer::KubeletClient, &wish, usages),
                expected,
                "{wish:?}"
            );
        }
    }

    #[test]
    fn kubelets_get_serving_certificates_for_names() {
        let cases: [(Wish, &str, Result<(), &str>); 6] = [
            (node().dns("a"), SERVER, Ok(())),
            (
                node().ip("10.0.0.1"),
                "server auth,digital signature,key encipherment",
                Ok(()),
            ),
            (node(), SERVER, Err("DNS or IP subjectAltName is required")),
            (
                node().dns("a").uri("x:y"),
                SERVER,
                Err("URI subjectAltNames are not allowed"),
            ),
            (
                node().dns("a"),
                CLIENT,
                Err("usages did not match [digital signature key encipherment server auth]"),
            ),
            (
                Wish::of("a").organisations(&["system:nodes"]).dns("a"),
                SERVER,
                Err("subject common name does not begin with system:node:"),
            ),
        ];
        for (wish, usages, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(
                verdict(Signer::KubeletServing, &wish, usages),
                expected,
                "{wish:?}"
            );
        }
    }

    #[test]
    fn clients_of_the_api_server_are_clients_only() {
        let jane = Wish::of("jane").dns("any.name");
        let signer = Signer::ApiServerClient;
        assert_eq!(verdict(signer, &jane, "client auth"), Ok(()));
        assert_eq!(
            verdict(signer, &jane, "client auth,server auth").unwrap_err(),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            verdict(signer, &jane, "digital signature").unwrap_err(),
            "missing required usage for client certificate: client auth"
        );
        assert_eq!(verdict(Signer::LegacyUnknown, &jane, "server auth"), Ok(()));
    }

    #[test]
    fn names_of_others_are_no_signers_of_ours() {
        assert_eq!(Signer::named("example.com/x"), None);
        assert_eq!(
            Signer::named("kubernetes.io/kubelet-serving"),
            Some(Signer::KubeletServing)
        );
    }
}
