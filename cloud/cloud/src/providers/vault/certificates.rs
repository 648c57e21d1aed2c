//! Certificates: signed by themselves, or brought along as PEM. Each has a key and a secret of its own name.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer as _;

use super::data::{Collection, Refused};
use super::keys::{self, Key};
use super::pfx;
use super::shelf::{Shelf, json_of};
use crate::arm::document;
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

type Run = fn(&mut Turn<'_>, &Shelf<'_>, &Asked) -> Result<Reply, Refused>;

/// What can be done with certificates besides what every collection can.
pub(super) const WAYS: &[(Method, &str, &str, Run)] = &[
    (Method::POST, "{name}/create", "create", create),
    (Method::POST, "{name}/import", "import", import),
    (Method::GET, "{name}/policy", "get", policy),
    (Method::PATCH, "{name}/policy", "update", change_policy),
    (Method::GET, "{name}/pending", "get", pending),
];

const PFX: &str = "application/x-pkcs12";
const PEM: &str = "application/x-pem-file";

/// What the service fills in of a policy.
fn completed(turn: &Turn<'_>, shelf: &Shelf<'_>, mut policy: Value) -> Value {
    let defaults = json!({"key_props": {"exportable": true, "kty": "RSA", "key_size": 2048, "reuse_key": false},
        "secret_props": {"contentType": PFX}, "x509_props": {"key_usage": ["digitalSignature", "keyEncipherment"],
            "ekus": ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"], "validity_months": 12,
            "basic_constraints": {"ca": false}},
        "lifetime_actions": [{"trigger": {"lifetime_percentage": 80}, "action": {"action_type": "AutoRenew"}}],
        "issuer": {"name": "Self"}, "attributes": {"enabled": true, "created": turn.now.as_second(),
            "updated": turn.now.as_second()}});
    document::without_nulls(&mut policy);
    document::fill(&mut policy, &defaults);
    policy["id"] = json!(format!("{}/policy", shelf.address(turn, "certificates")));
    policy
}

fn create(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    shelf.check_name(turn)?;
    let body = json_of(asked)?;
    let policy = completed(turn, shelf, body["policy"].clone());
    let issuer = policy["issuer"]["name"].as_str().unwrap_or_default();
    if issuer != "Self" {
        let message = format!(
            "The issuer '{issuer}' is not here: certificates are signed by themselves (Self) or imported."
        );
        return Err(Refused::bad(message));
    }
    let key = Key::generate(&policy["key_props"])?;
    let pair = rcgen::KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.der()?)).map_err(unmade)?;
    let made = params(&policy, turn.now)?
        .self_signed(&pair)
        .map_err(unmade)?;
    keep(turn, shelf, &key, &[made.der().to_vec()], &policy, &body)?;
    Ok(Reply::json(202, operation(turn, shelf, "inProgress")))
}

fn unmade(error: rcgen::Error) -> Refused {
    Refused::bad(format!("The certificate cannot be made: {error}."))
}

fn words(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// What goes into a certificate.
fn params(policy: &Value, now: Timestamp) -> Result<CertificateParams, Refused> {
    let x509 = &policy["x509_props"];
    let names: Vec<String> = words(&x509["sans"]["dns_names"])
        .map(str::to_owned)
        .collect();
    let mut params = CertificateParams::new(names).map_err(unmade)?;
    params.distinguished_name = subject(x509["subject"].as_str().unwrap_or_default())?;
    let months = x509["validity_months"]
        .as_i64()
        .unwrap_or(12)
        .clamp(1, 1200);
    let end = now
        .to_zoned(jiff::tz::TimeZone::UTC)
        .saturating_add(months.months());
    params.not_before = at(now.as_second() - 600).into();
    params.not_after = at(end.timestamp().as_second()).into();
    params.extended_key_usages = words(&x509["ekus"])
        .map(|oid| {
            ExtendedKeyUsagePurpose::Other(oid.split('.').filter_map(|n| n.parse().ok()).collect())
        })
        .collect();
    params.key_usages = words(&x509["key_usage"]).filter_map(usage).collect();
    Ok(params)
}

fn at(second: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second.max(0) as u64)
}

fn usage(word: &str) -> Option<KeyUsagePurpose> {
    Some(match word {
        "digitalSignature" => KeyUsagePurpose::DigitalSignature,
        "nonRepudiation" => KeyUsagePurpose::ContentCommitment,
        "keyEncipherment" => KeyUsagePurpose::KeyEncipherment,
        "dataEncipherment" => KeyUsagePurpose::DataEncipherment,
        "keyAgreement" => KeyUsagePurpose::KeyAgreement,
        "keyCertSign" => KeyUsagePurpose::KeyCertSign,
        "cRLSign" => KeyUsagePurpose::CrlSign,
        "encipherOnly" => KeyUsagePurpose::EncipherOnly,
        "decipherOnly" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

/// `CN=a, O=b`.
fn subject(text: &str) -> Result<DistinguishedName, Refused> {
    let mut name = DistinguishedName::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (field, value) = part.split_once('=').unwrap_or((part, ""));
        let field = match field.trim().to_uppercase().as_str() {
            "CN" => DnType::CommonName,
            "O" => DnType::OrganizationName,
            "OU" => DnType::OrganizationalUnitName,
            "C" => DnType::CountryName,
            "L" => DnType::LocalityName,
            "S" | "ST" => DnType::StateOrProvinceName,
            other => {
                return Err(Refused::bad(format!(
                    "The subject has an unknown part: {other}"
                )));
            }
        };
        name.push(field, value.trim());
    }
    Ok(name)
}

/// Keeps a certificate as a new version, with its key and its secret.
fn keep(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    key: &Key,
    chain: &[Vec<u8>],
    policy: &Value,
    body: &Value,
) -> Result<Value, Refused> {
    let own = chain
        .first()
        .ok_or_else(|| Refused::bad("There is no certificate."))?;
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(own)
        .map_err(|e| Refused::bad(format!("The certificate cannot be read: {e}.")))?;
    let version = turn.chance.hex(32);
    let dates = json!({"nbf": parsed.validity().not_before.timestamp(), "exp": parsed.validity().not_after.timestamp()});
    let mut attributes = shelf.attributes(turn, &dates);
    document::overlay(&mut attributes, &body["attributes"]);
    let (id, x5t) = (
        shelf.address(turn, "certificates"),
        digest(&SHA1_FOR_LEGACY_USE_ONLY, own),
    );
    let mut bundle = json!({"id": format!("{id}/{version}"), "x5t": URL_SAFE_NO_PAD.encode(x5t),
        "kid": format!("{}/{version}", shelf.address(turn, "keys")),
        "sid": format!("{}/{version}", shelf.address(turn, "secrets")), "cer": STANDARD.encode(own),
        "attributes": attributes, "policy": policy, "pending": {"id": format!("{id}/pending")}});
    if !body["tags"].is_null() {
        bundle["tags"] = body["tags"].clone();
    }
    let kind = policy["secret_props"]["contentType"]
        .as_str()
        .unwrap_or(PFX);
    let keys = shelf.beside(Collection::Keys);
    let asked = json!({"attributes": attributes, "managed": true});
    keys::keep(turn, &keys, &version, key, &asked)?;
    let secrets = shelf.beside(Collection::Secrets);
    let secret = json!({"value": packed(kind, key, chain)?, "contentType": kind, "id": bundle["sid"],
        "attributes": attributes, "managed": true, "kid": bundle["kid"]});
    secrets.keep(turn, &version, &secret, &Value::Null);
    shelf.keep(turn, &version, &bundle, &Value::Null);
    Ok(bundle)
}

/// The key and the chain, as the policy wants them.
fn packed(kind: &str, key: &Key, chain: &[Vec<u8>]) -> Result<String, Refused> {
    let der = key.der()?;
    if kind == PFX {
        return Ok(STANDARD.encode(pfx::packed(&der, chain)));
    }
    let mut text = pem("PRIVATE KEY", &der);
    chain
        .iter()
        .for_each(|one| text.push_str(&pem("CERTIFICATE", one)));
    Ok(text)
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

/// What was signed is complete at once: whoever asks again is told so.
fn operation(turn: &Turn<'_>, shelf: &Shelf<'_>, status: &str) -> Value {
    let id = shelf.address(turn, "certificates");
    let mut shown = json!({"id": format!("{id}/pending"), "issuer": {"name": "Self"}, "cancellation_requested": false,
        "status": status, "request_id": shelf.name});
    if status == "completed" {
        shown["target"] = json!(id);
    }
    shown
}

fn pending(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    shelf.find(turn)?;
    Ok(Reply::ok(operation(turn, shelf, "completed")))
}

fn policy(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    let (_, entry) = shelf.find(turn)?;
    Ok(Reply::ok(entry["bundle"]["policy"].clone()))
}

fn change_policy(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    let body = json_of(asked)?;
    let (key, mut entry) = shelf.find(turn)?;
    document::overlay(&mut entry["bundle"]["policy"], &body);
    let shown = entry["bundle"]["policy"].clone();
    turn.put(key, entry);
    Ok(Reply::ok(shown))
}

fn import(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    shelf.check_name(turn)?;
    let body = json_of(asked)?;
    let text = body["value"].as_str().unwrap_or_default();
    // The content of a PEM file, or the same in base64.
    let text = match text.contains("-----BEGIN") {
        true => text.to_owned(),
        false => {
            let bytes = STANDARD.decode(text).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }
    };
    let no_pem = || {
        let message = "The value is no PEM with a private key and a certificate; PKCS #12 cannot be imported here.";
        Refused::bad(message)
    };
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| no_pem())?;
    let chain: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(text.as_bytes())
        .filter_map(|one| one.ok().map(|one| one.to_vec()))
        .collect();
    let PrivateKeyDer::Pkcs8(der) = der else {
        return Err(Refused::bad(
            "The private key is not in PKCS #8 (BEGIN PRIVATE KEY).",
        ));
    };
    let key = Key::of_pkcs8(der.secret_pkcs8_der())?;
    let mut policy = body["policy"].clone();
    if policy["secret_props"]["contentType"].is_null() {
        *document::at(&mut policy, "/secret_props/contentType") = json!(PEM);
    }
    *document::at(&mut policy, "/issuer/name") = json!("Unknown");
    let policy = completed(turn, shelf, policy);
    keep(turn, shelf, &key, &chain, &policy, &body).map(Reply::ok)
}
