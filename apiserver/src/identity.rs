//! Who a client certificate speaks for: CN is the user, each O a group, as upstream reads them.

use access::User;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The user of a certificate that the TLS layer has verified.
pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    groups.push("system:authenticated".into());
    Some(User {
        name,
        groups,
        ..User::default()
    })
}
