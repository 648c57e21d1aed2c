//! The PKCS #10 request inside a CertificateSigningRequest: who asks, for which names, with which key.

use std::net::IpAddr;

use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

/// An attribute of a name: the last arc of its 2.5.4 identifier, and whether only its last value counts.
struct Attribute {
    arc: u64,
    single: bool,
}

const fn attribute(arc: u64, single: bool) -> Attribute {
    Attribute { arc, single }
}

/// The attributes that survive, in the order they are written (Go's `pkix.Name`). Anything else in the
/// subject is dropped, and a second common name with it: what was validated is what is signed.
const ATTRIBUTES: [Attribute; 9] = [
    attribute(6, false),  // country
    attribute(10, false), // organisation
    attribute(11, false), // organisational unit
    attribute(7, false),  // locality
    attribute(8, false),  // province
    attribute(9, false),  // street
    attribute(17, false), // postal code
    attribute(3, true),   // common name
    attribute(5, true),   // serial number
];
const ORGANISATION: usize = 1;
const COMMON_NAME: usize = 7;

/// A subject, value by value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    values: [Vec<String>; ATTRIBUTES.len()],
}

impl Subject {
    pub(crate) fn common_name(&self) -> &str {
        self.values[COMMON_NAME].last().map_or("", String::as_str)
    }

    pub(crate) fn organisations(&self) -> &[String] {
        &self.values[ORGANISATION]
    }

    /// Identifier and values of each attribute that has any, in writing order.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = ([u64; 4], &[String])> {
        let all = ATTRIBUTES.iter().zip(&self.values);
        all.filter(|(_, values)| !values.is_empty())
            .map(|(attribute, values)| ([2, 5, 4, attribute.arc], values.as_slice()))
    }

    fn read(name: &X509Name<'_>) -> Result<Subject, String> {
        let mut subject = Subject::default();
        for found in name.iter_attributes() {
            let arcs: Vec<u64> = found.attr_type().iter().into_iter().flatten().collect();
            let known = |a: &Attribute| arcs == [2, 5, 4, a.arc];
            let Some(index) = ATTRIBUTES.iter().position(known) else {
                continue;
            };
            let text = found
                .as_str()
                .map_err(|e| format!("unreadable subject attribute: {e}"))?;
            let values = &mut subject.values[index];
            if ATTRIBUTES[index].single {
                values.clear();
            }
            values.push(text.to_owned());
        }
        Ok(subject)
    }
}

/// Subject alternative names, by kind. Other kinds are dropped, as upstream drops them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AltNames {
    pub(crate) dns: Vec<String>,
    pub(crate) emails: Vec<String>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) uris: Vec<String>,
}

impl AltNames {
    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), String> {
        match name {
            GeneralName::DNSName(text) => self.dns.push(ia5(text)?),
            GeneralName::RFC822Name(text) => self.emails.push(ia5(text)?),
            GeneralName::URI(text) => self.uris.push(ia5(text)?),
            GeneralName::IPAddress(bytes) => self.ips.push(address(bytes)?),
            GeneralName::Invalid(..) => return Err("malformed subjectAltName".into()),
            _ => {}
        }
        Ok(())
    }
}

fn ia5(text: &str) -> Result<String, String> {
    match text.is_ascii() {
        true => Ok(text.to_owned()),
        false => Err("subjectAltName is not an IA5String".into()),
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .map_err(|_| format!("cannot parse IP address of length {}", bytes.len()))
}

/// A request that was read and whose signature holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) subject: Subject,
    pub(crate) alt_names: AltNames,
    /// The key to certify, as DER SubjectPublicKeyInfo.
    pub(crate) public_key: Vec<u8>,
    /// Whether the request was signed with that key.
    pub(crate) is_authentic: bool,
}

impl Request {
    /// Reads the PEM text of a request.
    pub(crate) fn parse(pem: &[u8]) -> Result<Request, String> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem)
            .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
        let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|e| e.to_string())?;
        if !rest.is_empty() {
            return Err("trailing data after the certificate request".into());
        }
        let info = &parsed.certification_request_info;
        Ok(Request {
            subject: Subject::read(&info.subject)?,
            alt_names: alt_names(&parsed)?,
            public_key: info.subject_pki.raw.to_vec(),
            is_authentic: parsed.verify_signature().is_ok(),
        })
    }
}

// A list of names that appears twice, or cannot be read, must not slip past the rules as "no names".
fn alt_names(request: &X509CertificationRequest<'_>) -> Result<AltNames, String> {
    let info = &request.certification_request_info;
    let mut names = AltNames::default();
    let mut lists = 0;
    for attribute in info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute() else {
            continue;
        };
        for extension in &asked.extensions {
            if extension.oid != OID_X509_EXT_SUBJECT_ALT_NAME {
                continue;
            }
            lists += 1;
            let ParsedExtension::SubjectAlternativeName(list) = extension.parsed_extension() else {
                return Err("malformed subjectAltName".into());
            };
            for name in &list.general_names {
                names.add(name)?;
            }
        }
    }
    match lists {
        0 | 1 => Ok(names),
        _ => Err("certificate request contains duplicate requested extensions".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::csr::testing::{Wish, tampered};

    #[test]
    fn subject_names_and_key_are_read() {
        let wish = Wish::of("jane")
            .organisations(&["dev", "ops"])
            .dns("a.example")
            .ip("10.0.0.1");
        let request = Request::parse(wish.pem().as_bytes()).unwrap();
        assert_eq!(request.subject.common_name(), "jane");
        assert_eq!(request.subject.organisations(), ["dev", "ops"]);
        assert_eq!(request.alt_names.dns, ["a.example"]);
        assert_eq!(
            request.alt_names.ips,
            ["10.0.0.1".parse::<IpAddr>().unwrap()]
        );
        assert!(request.is_authentic);
    }

    #[test]
    fn the_last_common_name_counts() {
        let pem = Wish::of("first").and_common_name("second").pem();
        let request = Request::parse(pem.as_bytes()).unwrap();
        assert_eq!(request.subject.common_name(), "second");
        assert_eq!(request.subject.attributes().count(), 1);
    }

    #[test]
    fn a_changed_request_is_not_authentic() {
        let request = Request::parse(tampered(&Wish::of("jane")).as_bytes()).unwrap();
        assert!(!request.is_authentic);
    }

    #[test]
    fn names_that_hide_are_refused() {
        let pem = Wish::of("n").dns("a").dns_in_second_list("b").pem();
        assert!(
            Request::parse(pem.as_bytes())
                .unwrap_err()
                .contains("duplicate")
        );
        let pem = Wish::of("n").raw_ip(&[1, 2, 3]).pem();
        assert!(Request::parse(pem.as_bytes()).is_err());
    }

    #[test]
    fn only_a_certificate_request_will_do() {
        for bad in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(
                Request::parse(bad.as_bytes()).unwrap_err(),
                "PEM block type must be CERTIFICATE REQUEST"
            );
        }
    }
}
