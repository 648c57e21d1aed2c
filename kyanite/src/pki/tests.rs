//! A cluster's keys through their life, judged by the verifier that real clients use.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::{ServerName, UnixTime};

use super::*;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

struct Made {
    _dir: tempfile::TempDir,
    pki: Pki,
    names: ServerNames,
}

fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::at(dir.path().to_owned(), SystemTime::now());
    let names = ServerNames::new(Some("box"), &[std::net::IpAddr::from([10, 0, 0, 1])]);
    pki.ensure(&names).unwrap();
    Made {
        _dir: dir,
        pki,
        names,
    }
}

fn trusted(bundle: &str) -> Arc<RootCertStore> {
    use rustls_pki_types::pem::PemObject as _;
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(cert.unwrap()).unwrap();
    }
    Arc::new(roots)
}

/// Whether a client that trusts a bundle believes the server.
fn believes(bundle: &str, pki: &Pki, name: &str) -> bool {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(trusted(bundle), provider)
        .build()
        .unwrap();
    let chain = inspect::chain(&pki.server().cert).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier
        .verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now())
        .is_ok()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_serving_certificate_is_good_for_every_name() {
    let made = made();
    let bundle = text(&made.pki.authority(Authority::Cluster).cert);
    for name in made.names.all() {
        // What covers all names below another covers any of them.
        let name = name.replace('*', "any");
        assert!(believes(&bundle, &made.pki, &name), "{name}");
    }
    assert!(!believes(&bundle, &made.pki, "elsewhere"));
    let proxies = text(&made.pki.authority(Authority::FrontProxy).cert);
    assert!(!believes(&proxies, &made.pki, "localhost"));
}

#[test]
fn clients_are_who_upstream_calls_them() {
    let made = made();
    let subject = |name: &str| inspect::first(&made.pki.leaf(name).cert).unwrap().subject;
    let expected = [
        ("admin", "CN=kubernetes-admin, O=system:masters"),
        ("controller-manager", "CN=system:kube-controller-manager"),
        ("scheduler", "CN=system:kube-scheduler"),
        (
            "apiserver-kubelet-client",
            "CN=kube-apiserver-kubelet-client",
        ),
        ("front-proxy-client", "CN=front-proxy-client"),
    ];
    for (name, wanted) in expected {
        assert_eq!(subject(name), wanted);
    }
}

#[test]
fn nobody_else_can_read_a_key() {
    let made = made();
    made.pki.rotate_authorities().unwrap();
    made.pki.rotate_service_account().unwrap();
    let files: Vec<_> = std::fs::read_dir(&made.pki.dir).unwrap().collect();
    assert!(files.len() >= 18, "{files:?}");
    for file in files {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", file.path().display());
    }
}

#[test]
fn what_is_good_stays_and_what_is_not_is_made_anew() {
    let made = made();
    let pki = &made.pki;
    let server = text(&pki.server().cert);
    let admin = text(&pki.leaf("admin").cert);
    pki.ensure(&made.names).unwrap();
    assert_eq!(text(&pki.server().cert), server);
    // A key that does not fit, as after a crash between two writes.
    std::fs::copy(pki.leaf("scheduler").key, pki.leaf("admin").key).unwrap();
    pki.ensure(&made.names).unwrap();
    assert_ne!(text(&pki.leaf("admin").cert), admin);
    let more = ServerNames::new(Some("other"), &[]);
    pki.ensure(&more).unwrap();
    assert_ne!(text(&pki.server().cert), server);
}

#[test]
fn certificates_are_renewed_in_their_last_month() {
    let made = made();
    let scheduler = text(&made.pki.leaf("scheduler").cert);
    for (later, renewed) in [
        (YEAR - RENEW_BEFORE - Duration::from_secs(60), false),
        (YEAR - RENEW_BEFORE, true),
    ] {
        let pki = Pki::at(made.pki.dir.clone(), made.pki.now + later);
        pki.ensure(&made.names).unwrap();
        assert_eq!(text(&pki.leaf("scheduler").cert) != scheduler, renewed);
    }
}

#[test]
fn while_a_ca_is_replaced_old_and_new_clients_believe_the_server() {
    let made = made();
    let pki = &made.pki;
    let bundle = pki.authority(Authority::Cluster).cert;
    let old = text(&bundle);
    pki.rotate_authorities().unwrap();
    let both = text(&bundle);
    let new = inspect::to_pem(&inspect::chain(&bundle).unwrap()[..1]);
    assert!(both.ends_with(&old) && both.len() > old.len());
    for (who, trusts) in [("old", &old), ("both", &both), ("new", &new)] {
        assert!(believes(trusts, pki, "localhost"), "{who}");
    }
    assert_eq!(pki.rotate_authorities().unwrap_err().code, Code::Conflict);
    // A start in the middle changes nothing.
    let server = text(&pki.server().cert);
    pki.ensure(&made.names).unwrap();
    assert_eq!((text(&bundle), text(&pki.server().cert)), (both, server));

    pki.finish_authorities().unwrap();
    assert_eq!(text(&bundle), new);
    assert!(believes(&new, pki, "localhost"));
    assert!(!believes(&old, pki, "localhost"));
    assert_eq!(pki.finish_authorities().unwrap_err().code, Code::Conflict);
}

#[test]
fn an_expired_ca_leaves_the_bundle_at_the_next_start() {
    let made = made();
    let nearly = Pki::at(made.pki.dir.clone(), made.pki.now + 9 * YEAR);
    nearly.rotate_authorities().unwrap();
    let bundle = made.pki.authority(Authority::Cluster).cert;
    assert_eq!(inspect::chain(&bundle).unwrap().len(), 2);
    let after = Pki::at(made.pki.dir.clone(), made.pki.now + 11 * YEAR);
    after.ensure(&made.names).unwrap();
    assert_eq!(inspect::chain(&bundle).unwrap().len(), 1);
}

#[test]
fn a_replacement_that_was_cut_short_leaves_the_old_ca_in_charge() {
    let made = made();
    let pki = &made.pki;
    let pair = pki.authority(Authority::Cluster);
    let (old, old_key) = (text(&pair.cert), text(&pair.key));
    pki.rotate_authority(Authority::Cluster).unwrap();
    // The key is written last; put back what was there a moment before.
    std::fs::write(&pair.key, old_key).unwrap();
    pki.ensure(&made.names).unwrap();
    pki.rotate_leaves(&[]).unwrap();
    assert!(text(&pair.cert).starts_with(&old));
    assert!(believes(&old, pki, "localhost"));
    pki.finish_authorities().unwrap();
    assert_eq!(text(&pair.cert), old);
}

#[test]
fn a_new_service_account_key_keeps_the_old_one_until_finished() {
    let made = made();
    let pki = &made.pki;
    let before = text(&pki.service_account_public_keys());
    pki.rotate_service_account().unwrap();
    let both = text(&pki.service_account_public_keys());
    assert!(both.ends_with(&before));
    assert_eq!(pki.service_account_keys(), 2);
    pki.finish_service_account().unwrap();
    let after = text(&pki.service_account_public_keys());
    assert!(both.starts_with(&after) && after != before);
    let refused = pki.finish_service_account().unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
}

#[test]
fn only_what_exists_can_be_rotated() {
    let made = made();
    let refused = made.pki.rotate_leaves(&["ca".into()]).unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    let renewed = made.pki.rotate_leaves(&["admin".into()]).unwrap();
    assert_eq!(renewed, ["admin"]);
}
