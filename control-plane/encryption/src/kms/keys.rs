//! Which seed a service's values are written with, and which ones have been opened. Pure: the time is an input.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::client::Status;
use super::envelope::{EncryptedObject, Opener, check_key_id};

/// How long values may be written after the last time the service was well (upstream's).
const WRITABLE: Duration = Duration::from_secs(3 * 60);
/// How long a seed stays open without the service being asked again (upstream's).
const OPEN: Duration = Duration::from_secs(24 * 60 * 60);
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// What is written with: an encrypted seed, and the same one open.
#[derive(Debug)]
pub(crate) struct Current {
    /// Without data.
    pub(crate) envelope: EncryptedObject,
    pub(crate) opener: Arc<Opener>,
    expires: Timestamp,
}

/// What is known of a service's keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    current: Option<Arc<Current>>,
    opened: HashMap<[u8; 32], (Arc<Opener>, Timestamp)>,
    version: Option<String>,
}

/// A name that says nothing about the key.
pub(crate) fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    let digest = Sha256::digest(key_id.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Keys {
    /// What is wrong with an answer to Status. The version may not change while we know the service.
    pub(crate) fn judge(&mut self, status: &Status) -> Result<(), String> {
        let mut wrong = Vec::new();
        if status.healthz != "ok" {
            wrong.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        let first = self.version.get_or_insert_with(|| status.version.clone());
        if !VERSIONS.contains(&&*status.version) {
            self.version = None;
            wrong.push(format!(
                "expected KMSv2 API version {}, got {}",
                VERSIONS[0], status.version
            ));
        } else if *first != status.version {
            wrong.push(format!(
                "KMSv2 API version should not change after the initial status response version {first}, got {}",
                status.version
            ));
        }
        if let Err(why) = check_key_id(&status.key_id) {
            wrong.push(format!(
                "got invalid KMSv2 KeyID hash {:?}: {why}",
                hash(&status.key_id)
            ));
        }
        match wrong.len() {
            0 => Ok(()),
            1 => Err(wrong.remove(0)),
            _ => Err(format!("[{}]", wrong.join(", "))),
        }
    }

    /// Whether the present seed is of this key; if so it may be written with for a while longer.
    pub(crate) fn extend(&mut self, key_id: &str, now: Timestamp) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let same = current.envelope.key_id == key_id;
        if same {
            self.current = Some(Arc::new(Current {
                envelope: current.envelope.clone(),
                opener: Arc::clone(&current.opener),
                expires: later(now, WRITABLE),
            }));
        }
        same
    }

    /// Takes a new seed, which the service has encrypted with the key that its Status names.
    pub(crate) fn turn(
        &mut self,
        wanted: &str,
        envelope: EncryptedObject,
        opener: Opener,
        now: Timestamp,
    ) -> Result<(), String> {
        envelope.check()?;
        if envelope.key_id != wanted {
            // Upstream goes on with what it has until the two agree.
            return Err(format!(
                "failed to rotate DEK uid, errState=<nil>, errGen=<nil>, statusKeyIDHash={:?}, encryptKeyIDHash={:?}",
                hash(wanted),
                hash(&envelope.key_id)
            ));
        }
        let opener = Arc::new(opener);
        self.remember(&envelope, Arc::clone(&opener), now);
        self.current = Some(Arc::new(Current {
            envelope,
            opener,
            expires: later(now, WRITABLE),
        }));
        Ok(())
    }

    /// What to write with now.
    pub(crate) fn writing(&self, now: Timestamp) -> Result<Arc<Current>, String> {
        let Some(current) = &self.current else {
            return Err("no key of the service is known yet".to_owned());
        };
        if now > current.expires {
            return Err(format!(
                "encryptedDEKSource with keyID hash {:?} expired at {} (current time is {})",
                hash(&current.envelope.key_id),
                seconds(current.expires),
                seconds(now)
            ));
        }
        Ok(Arc::clone(current))
    }

    /// Whether a value was written with another key than would be used today.
    pub(crate) fn is_stale(&self, envelope: &EncryptedObject) -> bool {
        match &self.current {
            Some(current) => current.envelope.key_id != envelope.key_id || !envelope.is_of_seed(),
            None => false,
        }
    }

    /// What opens a value, if the service has been asked already.
    pub(crate) fn opener(&self, envelope: &EncryptedObject, now: Timestamp) -> Option<Arc<Opener>> {
        if let Some(current) = &self.current
            && current.envelope.source == envelope.source
            && current.envelope.key_id == envelope.key_id
            && current.envelope.annotations == envelope.annotations
            && envelope.is_of_seed()
        {
            return Some(Arc::clone(&current.opener));
        }
        let (opener, until) = self.opened.get(&envelope.digest())?;
        (now <= *until).then(|| Arc::clone(opener))
    }

    /// Keeps what the service has decrypted, and forgets what it has kept for long enough.
    pub(crate) fn remember(
        &mut self,
        envelope: &EncryptedObject,
        opener: Arc<Opener>,
        now: Timestamp,
    ) {
        self.opened.retain(|_, (_, until)| now <= *until);
        let until = later(now, OPEN);
        self.opened.insert(envelope.digest(), (opener, until));
    }

    /// How many seeds are open.
    pub(crate) fn open_count(&self) -> usize {
        self.opened.len()
    }
}

// As Go writes time stamps (RFC 3339).
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use bytes::Bytes;

    use super::*;
    use crate::kms::envelope::Annotations;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn envelope(source: &'static str, key_id: &str) -> EncryptedObject {
        let source = Bytes::from_static(source.as_bytes());
        EncryptedObject::of_seed(source, key_id.into(), Annotations::new())
    }

    fn turned(key_id: &str, now: Timestamp) -> Keys {
        let mut keys = Keys::default();
        let one = envelope("one", key_id);
        let opener = one.opener(&[1; 32]).unwrap();
        keys.turn(key_id, one, opener, now).unwrap();
        keys
    }

    fn status(version: &str, healthz: &str, key_id: &str) -> Status {
        Status {
            version: version.into(),
            healthz: healthz.into(),
            key_id: key_id.into(),
        }
    }

    #[test]
    fn writes_end_three_minutes_after_the_service_was_last_well_and_reads_do_not() {
        let mut keys = turned("k1", at(0));
        assert!(keys.writing(at(180)).is_ok());
        let said = keys.writing(at(181)).unwrap_err();
        let hashed = hash("k1");
        assert_eq!(
            said,
            format!(
                "encryptedDEKSource with keyID hash {hashed:?} expired at 2027-01-15T08:03:00Z (current time is 2027-01-15T08:03:01Z)"
            )
        );
        assert!(hashed.starts_with("sha256:"));
        assert!(keys.opener(&envelope("one", "k1"), at(90_000)).is_some());
        assert!(keys.extend("k1", at(200)));
        assert!(keys.writing(at(380)).is_ok());
        assert!(Keys::default().writing(at(0)).is_err());
    }

    #[test]
    fn another_key_means_another_seed_and_values_of_the_old_one_are_stale() {
        let mut keys = turned("k1", at(0));
        assert!(!keys.is_stale(&envelope("one", "k1")));
        assert!(!keys.extend("k2", at(1)));
        let two = envelope("two", "k1");
        let opener = two.opener(&[2; 32]).unwrap();
        assert!(
            keys.turn("k2", two, opener, at(1)).is_err(),
            "Status and Encrypt name different keys"
        );
        assert_eq!(keys.writing(at(1)).unwrap().envelope.key_id, "k1");
        let two = envelope("two", "k2");
        let opener = two.opener(&[2; 32]).unwrap();
        keys.turn("k2", two, opener, at(1)).unwrap();
        assert!(keys.is_stale(&envelope("one", "k1")));
        assert!(keys.opener(&envelope("one", "k1"), at(2)).is_some());
        assert_eq!(keys.open_count(), 2);
        let day = 24 * 60 * 60;
        assert!(keys.opener(&envelope("one", "k1"), at(day + 2)).is_none());
        assert!(keys.opener(&envelope("three", "k2"), at(2)).is_none());
        let raw = EncryptedObject {
            source_type: 0,
            ..envelope("two", "k2")
        };
        assert!(keys.is_stale(&raw), "older servers' way of writing");
    }

    #[test]
    fn what_is_wrong_with_a_service_is_said() {
        let mut keys = Keys::default();
        let cases = [
            (status("v2", "ok", "k"), None),
            (status("v2beta1", "ok", "k"), Some("should not change")),
            (
                status("v2", "sick", "k"),
                Some("got unexpected healthz status: sick"),
            ),
            (
                status("v3", "ok", "k"),
                Some("expected KMSv2 API version v2, got v3"),
            ),
            (
                status("v2", "ok", ""),
                Some("got invalid KMSv2 KeyID hash \"\": keyID is empty"),
            ),
            (
                status("v1", "", ""),
                Some("[got unexpected healthz status: , expected"),
            ),
        ];
        for (answer, wrong) in cases {
            match (keys.judge(&answer), wrong) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) => assert!(said.contains(why), "{said}"),
                other => panic!("{answer:?}: {other:?}"),
            }
        }
    }
}
