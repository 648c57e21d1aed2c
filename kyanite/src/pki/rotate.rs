//! New keys for old: leaves at once, CAs and the service account key with an overlap.
//!
//! Replacing a CA never locks anybody out. The bundle then trusts both; new certificates come with a
//! cross certificate (the new CA, signed by the old one), so that a client which knows only the old CA
//! believes them too. `finish` drops the old CA and what it signed.

use super::{Authority, LEAVES, Leaf, Pki, SERVER, ServerNames, inspect, issue};
use crate::datadir::write_private;
use crate::exit::{Code, Failure, Result};

/// The name of the service account key among what can be rotated.
pub(crate) const SERVICE_ACCOUNT: &str = "service-account";

const PUBLIC_KEY_END: &str = "-----END PUBLIC KEY-----";

impl Pki {
    /// Issues leaves anew; all of them when none is named. Gives their names.
    pub(crate) fn rotate_leaves(&self, names: &[String]) -> Result<Vec<&'static str>> {
        let wanted: Vec<&Leaf> = match names {
            [] => LEAVES.iter().collect(),
            names => names.iter().map(|name| find(name)).collect::<Result<_>>()?,
        };
        for leaf in &wanted {
            let signer = self.signer(leaf.authority)?;
            self.issue(leaf, &signer, &self.server_names()?)?;
        }
        Ok(wanted.iter().map(|leaf| leaf.name).collect())
    }

    /// Makes new CAs beside the old ones and issues every leaf anew.
    pub(crate) fn rotate_authorities(&self) -> Result<Vec<&'static str>> {
        for authority in Authority::ALL {
            if inspect::chain(&self.authority(authority).cert)?.len() > 1 {
                return Err(Failure::new(
                    Code::Conflict,
                    "the CA is being replaced already",
                )
                .hint("end that with `kyanite certs rotate --ca --finish` once every client knows the new CA"));
            }
        }
        for authority in Authority::ALL {
            self.rotate_authority(authority)?;
        }
        let mut names: Vec<_> = Authority::ALL.iter().map(|a| a.name()).collect();
        names.extend(self.rotate_leaves(&[])?);
        Ok(names)
    }

    // The key goes last: until it is there, the old CA signs as before.
    pub(super) fn rotate_authority(&self, authority: Authority) -> Result<()> {
        let old = self.signer(authority)?;
        let params = issue::authority(authority.common_name(), self.now);
        let key = issue::new_key()?;
        let new = params.self_signed(&key).map_err(issue::cannot_make)?;
        let cross = params
            .signed_by(&key, &old.issuer)
            .map_err(issue::cannot_make)?;
        write_private(&self.cross(authority), cross.pem().as_bytes())?;
        let pair = self.authority(authority);
        let bundle = format!("{}{}", new.pem(), inspect::to_pem(&old.bundle));
        write_private(&pair.cert, bundle.as_bytes())?;
        write_private(&pair.key, key.serialize_pem().as_bytes())
    }

    /// Ends the overlap: only the current CAs are trusted, and leaves carry no cross certificate.
    pub(crate) fn finish_authorities(&self) -> Result<Vec<&'static str>> {
        let mut names = Vec::new();
        for authority in Authority::ALL {
            let pair = self.authority(authority);
            let signer = self.signer(authority)?;
            if signer.bundle.len() > 1 {
                let own = inspect::to_pem([&signer.bundle[signer.own]]);
                write_private(&pair.cert, own.as_bytes())?;
                names.push(authority.name());
            }
            let _ = std::fs::remove_file(self.cross(authority));
        }
        if names.is_empty() {
            return Err(nothing_to_finish("no CA is being replaced"));
        }
        names.extend(self.rotate_leaves(&[])?);
        Ok(names)
    }

    /// A new key for service account tokens; those signed with the old one stay valid.
    pub(crate) fn rotate_service_account(&self) -> Result<()> {
        let key = issue::new_key()?;
        let file = self.service_account_public_keys();
        let known = std::fs::read_to_string(&file).map_err(|e| Failure::file("read", &file, &e))?;
        // Known before it is used.
        write_private(&file, format!("{}{known}", key.public_key_pem()).as_bytes())?;
        let key_file = self.service_account_key();
        write_private(&key_file, key.serialize_pem().as_bytes())
    }

    /// Forgets every service account key but the current one.
    pub(crate) fn finish_service_account(&self) -> Result<()> {
        let file = self.service_account_public_keys();
        let known = std::fs::read_to_string(&file).map_err(|e| Failure::file("read", &file, &e))?;
        if known.matches(PUBLIC_KEY_END).count() < 2 {
            return Err(nothing_to_finish("only one service account key is known"));
        }
        let key = issue::key_of(&self.service_account_key())?;
        write_private(&file, key.public_key_pem().as_bytes())
    }

    /// How many keys service account tokens are believed with.
    pub(crate) fn service_account_keys(&self) -> usize {
        let text = std::fs::read_to_string(self.service_account_public_keys());
        text.unwrap_or_default().matches(PUBLIC_KEY_END).count()
    }

    // The serving certificate keeps the names it has.
    fn server_names(&self) -> Result<ServerNames> {
        let present = inspect::first(&self.leaf(SERVER).cert)?;
        Ok(ServerNames::of(&present.names))
    }
}

fn find(name: &str) -> Result<&'static Leaf> {
    LEAVES.iter().find(|leaf| leaf.name == name).ok_or_else(|| {
        let known: Vec<_> = LEAVES.iter().map(|leaf| leaf.name).collect();
        Failure::new(
            Code::NotFound,
            format!("there is no certificate `{name}` that can be rotated"),
        )
        .hint(format!(
            "use one of {}, {SERVICE_ACCOUNT}",
            known.join(", ")
        ))
    })
}

fn nothing_to_finish(why: &str) -> Failure {
    Failure::new(Code::Conflict, format!("there is nothing to finish: {why}"))
}
