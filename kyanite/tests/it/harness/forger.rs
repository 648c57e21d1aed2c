//! Certificates and requests of the test's making, with the keys of a server's data directory or with none.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

use super::{Credentials, Server};

/// Signs whatever a test wants.
pub(crate) struct Forger {
    issuer: Issuer<'static, KeyPair>,
}

impl Forger {
    /// With the key of an authority of the server: `ca` or `front-proxy-ca`.
    pub(crate) fn of(server: &Server, authority: &str) -> Forger {
        let pki = server.home().join("data/pki");
        let read = |ending: &str| {
            std::fs::read_to_string(pki.join(format!("{authority}.{ending}"))).expect("a PEM file")
        };
        let key = KeyPair::from_pem(&read("key")).expect("a private key");
        let issuer = Issuer::from_ca_cert_pem(&read("crt"), key).expect("a CA certificate");
        Forger { issuer }
    }

    /// With a key of its own and the name of the server's CA.
    pub(crate) fn impostor() -> Forger {
        let mut params = named("kyanite-ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Forger {
            issuer: Issuer::new(params, KeyPair::generate().expect("a key can be made")),
        }
    }

    /// A client certificate.
    pub(crate) fn client(&self, common_name: &str, organisations: &[&str]) -> Credentials {
        self.certificate(common_name, organisations, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// A certificate with what `change` makes of it.
    pub(crate) fn certificate(
        &self,
        common_name: &str,
        organisations: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credentials {
        let mut params = named(common_name, organisations);
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the CA signs");
        Credentials::Certificate(certificate.pem(), key.serialize_pem())
    }
}

/// A key, and the PEM text of a certificate request for this subject.
pub(crate) fn certificate_request(common_name: &str, organisations: &[&str]) -> (KeyPair, String) {
    let key = KeyPair::generate().expect("a key can be made");
    let request = named(common_name, organisations)
        .serialize_request(&key)
        .expect("the key signs");
    (key, request.pem().expect("PEM can hold it"))
}

fn named(common_name: &str, organisations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, common_name);
    // One entry per type is all rcgen's names hold: a second organisation has the same OID by number.
    let kinds = [
        DnType::OrganizationName,
        DnType::CustomDnType(vec![2, 5, 4, 10]),
    ];
    assert!(
        organisations.len() <= kinds.len(),
        "two organisations at most"
    );
    for (organisation, kind) in organisations.iter().zip(kinds) {
        name.push(kind, DnValue::Utf8String((*organisation).to_owned()));
    }
    params
}
