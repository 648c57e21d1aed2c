//! A front proxy that vouches for users by headers, because its certificate says it may.

use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{Authorities, common_name};
use crate::User;
use crate::tokens::Invalid;

/// Which proxies are believed, and which headers they write. Header names are tried in order.
#[derive(Debug, Clone)]
pub struct RequestHeader {
    /// Authorities of the proxies' certificates; not those of clients.
    pub authorities: Authorities,
    /// Common names a proxy may have; any if empty.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username: Vec<HeaderName>,
    /// Headers with the user's uid.
    pub uid: Vec<HeaderName>,
    /// Headers with the user's groups.
    pub group: Vec<HeaderName>,
    /// Starts of headers with extras, in lower case.
    pub extra_prefix: Vec<String>,
}

impl RequestHeader {
    /// The headers kubeadm and AKS configure.
    pub fn standard(authorities: Authorities, allowed_names: Vec<String>) -> RequestHeader {
        let header = |name| vec![HeaderName::from_static(name)];
        RequestHeader {
            authorities,
            allowed_names,
            username: header("x-remote-user"),
            uid: header("x-remote-uid"),
            group: header("x-remote-group"),
            extra_prefix: vec!["x-remote-extra-".into()],
        }
    }

    /// The user a proxy vouches for. Nothing if the request does not name one. A certificate that is not a proxy's
    /// is an error: that alone does not refuse the request, it may be a client's own.
    pub fn authenticate(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<Result<User, Invalid>> {
        let own = chain.first()?;
        // Asked first: most requests name nobody, and a chain costs more to judge.
        let name = first(headers, &self.username)?;
        if let Err(why) = self
            .authorities
            .verify(chain, now)
            .and_then(|()| self.allowed(own))
        {
            return Some(Err(why));
        }
        let uid = first(headers, &self.uid).unwrap_or_default();
        let groups = self
            .group
            .iter()
            .flat_map(|name| texts(headers, name))
            .filter(|g| !g.is_empty())
            .collect();
        Some(Ok(User {
            name,
            uid,
            groups,
            extra: self.extra(headers),
        }))
    }

    /// Removes the headers, so that nothing behind authentication can believe them.
    pub fn clear(&self, headers: &mut HeaderMap) {
        let extras = headers.keys().filter(|name| self.extra_key(name).is_some());
        for extra in extras.cloned().collect::<Vec<HeaderName>>() {
            headers.remove(extra);
        }
        for name in [&self.username, &self.uid, &self.group]
            .into_iter()
            .flatten()
        {
            headers.remove(name);
        }
    }

    fn allowed(&self, own: &CertificateDer<'_>) -> Result<(), Invalid> {
        if self.allowed_names.is_empty() {
            return Ok(());
        }
        let (_, certificate) = X509Certificate::from_der(own)
            .map_err(|_| Invalid::new("x509: malformed certificate"))?;
        let name = common_name(certificate.subject())?.unwrap_or_default();
        if self.allowed_names.contains(&name) {
            return Ok(());
        }
        Err(Invalid(format!(
            "x509: subject with cn={name} is not in the allowed list"
        )))
    }

    fn extra(&self, headers: &HeaderMap) -> std::collections::BTreeMap<String, Vec<String>> {
        let mut extra = std::collections::BTreeMap::<String, Vec<String>>::new();
        for name in headers.keys() {
            if let Some(key) = self.extra_key(name) {
                extra
                    .entry(unescaped(key))
                    .or_default()
                    .extend(texts(headers, name));
            }
        }
        extra
    }

    fn extra_key<'h>(&self, name: &'h HeaderName) -> Option<&'h str> {
        self.extra_prefix.iter().find_map(|prefix| {
            let (start, key) = name.as_str().split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(key)
        })
    }
}

/// The first value that is not empty.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Option<String> {
    let values = names.iter().filter_map(|name| texts(headers, name).next());
    values.into_iter().find(|value| !value.is_empty())
}

/// The values of a header that are text.
fn texts(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).into_iter();
    values.filter_map(|value| {
        std::str::from_utf8(value.as_bytes())
            .ok()
            .map(str::to_owned)
    })
}

/// A key with its %-escapes undone; as it is where they are malformed.
fn unescaped(key: &str) -> String {
    try_unescape(key.as_bytes())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_else(|| key.to_owned())
}

fn try_unescape(mut rest: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            out.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else {
            return None;
        };
        out.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    Some(out)
}
