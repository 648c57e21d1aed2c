//! How a node without credentials gets in: bootstrap tokens, and the bindings that let their holders
//! ask for a certificate and nothing else. Formats are kubeadm's.

use std::time::Duration;

use rand::Rng;
use serde_json::{Value, json};

/// The group of tokens that nodes join with.
pub(crate) const NODE_GROUP: &str = "system:bootstrappers:kyanite:default-node-token";
/// Every group of a token starts with this.
const GROUP_PREFIX: &str = "system:bootstrappers:";
/// The type of a token's secret.
pub(crate) const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

const NODE_CLIENT: &str = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
const SELF_NODE_CLIENT: &str =
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";

/// Name, cluster role, kind and name of the subject: what kubeadm's `init` binds under `kubeadm:`.
pub(crate) const BINDINGS: [(&str, &str, &str, &str); 5] = [
    (
        "kyanite:kubelet-bootstrap",
        "system:node-bootstrapper",
        "Group",
        NODE_GROUP,
    ),
    (
        "kyanite:node-autoapprove-bootstrap",
        NODE_CLIENT,
        "Group",
        NODE_GROUP,
    ),
    (
        "kyanite:node-autoapprove-certificate-rotation",
        SELF_NODE_CLIENT,
        "Group",
        "system:nodes",
    ),
    (
        "kyanite:apiserver-kubelet-client",
        "system:kubelet-api-admin",
        "User",
        "kube-apiserver-kubelet-client",
    ),
    // What a cloud does beside upstream's manager: its nodes get certificates to serve with.
    (
        "kyanite:node-autoapprove-serving",
        "system:certificates.k8s.io:kubelet-serving-approver",
        "User",
        "system:serviceaccount:kube-system:certificate-controller",
    ),
];

/// The objects of [`BINDINGS`].
pub(crate) fn bindings() -> impl Iterator<Item = Value> {
    BINDINGS.into_iter().map(|(name, role, kind, subject)| {
        let group = "rbac.authorization.k8s.io";
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
        })
    })
}

/// A bootstrap token. Its text is a credential: it is printed once, for the person who asked for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) id: String,
    secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}.…)", self.id)
    }
}

impl Token {
    /// A token nobody can guess, as far as `chance` is good.
    pub(crate) fn random(chance: &mut impl Rng) -> Token {
        let mut text = |length: usize| {
            (0..length)
                .map(|_| char::from(ALPHABET[chance.random_range(0..ALPHABET.len())]))
                .collect()
        };
        Token {
            id: text(ID_LENGTH),
            secret: text(SECRET_LENGTH),
        }
    }

    /// The credential.
    pub(crate) fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The secret that makes it valid.
    pub(crate) fn to_secret(
        &self,
        groups: &[String],
        description: &str,
        expires: Option<jiff::Timestamp>,
    ) -> Value {
        let mut data = json!({
            "token-id": self.id, "token-secret": self.secret,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        });
        if !groups.is_empty() {
            data["auth-extra-groups"] = groups.join(",").into();
        }
        if !description.is_empty() {
            data["description"] = description.into();
        }
        if let Some(at) = expires {
            data["expiration"] = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
            "metadata": {"name": secret_name(&self.id), "namespace": "kube-system"},
            "stringData": data,
        })
    }
}

/// The name of the secret of a token.
pub(crate) fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// When a token that lives so long ends; a life of nothing is for ever, as kubeadm has it.
pub(crate) fn expiry(now: jiff::Timestamp, ttl: Duration) -> Option<jiff::Timestamp> {
    (!ttl.is_zero()).then(|| now.saturating_add(ttl).unwrap_or(jiff::Timestamp::MAX))
}

/// The id of a token or of an id, if it has the form of one.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    let id = text.split('.').next().unwrap_or(text);
    (id.len() == ID_LENGTH && id.bytes().all(|b| ALPHABET.contains(&b))).then_some(id)
}

/// Whether a token may carry a group: `\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`.
pub(crate) fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(GROUP_PREFIX) else {
        return false;
    };
    let legal = |b: u8| ALPHABET.contains(&b) || b == b':' || b == b'-';
    rest.len() <= 256
        && rest.bytes().all(legal)
        && rest.bytes().last().is_some_and(|b| ALPHABET.contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn a_token_has_kubeadms_form_and_hides_when_debugged() {
        let token = Token::random(&mut rand::rngs::StdRng::seed_from_u64(7));
        let text = token.text();
        let (id, secret) = text.split_once('.').unwrap();
        assert_eq!((id.len(), secret.len()), (6, 16));
        assert_eq!(id_of(&text), Some(id));
        assert!(!format!("{token:?}").contains(secret));
        let now = jiff::Timestamp::from_second(0).unwrap();
        let at = expiry(now, Duration::from_secs(60));
        let made = token.to_secret(&[NODE_GROUP.to_owned()], "", at);
        assert_eq!(made["metadata"]["name"], format!("bootstrap-token-{id}"));
        assert_eq!(made["stringData"]["expiration"], "1970-01-01T00:01:00Z");
        assert_eq!(made["stringData"]["auth-extra-groups"], NODE_GROUP);
        assert_eq!(expiry(now, Duration::ZERO), None);
    }

    #[test]
    fn groups_are_only_those_upstream_takes() {
        for (group, legal) in [
            (NODE_GROUP, true),
            ("system:bootstrappers:a", true),
            ("system:bootstrappers:", false),
            ("system:bootstrappers:a-", false),
            ("system:bootstrappers:A", false),
            ("system:masters", false),
        ] {
            assert_eq!(is_group(group), legal, "{group}");
        }
    }

    #[test]
    fn ids_are_recognised() {
        for (text, id) in [
            ("abc123", Some("abc123")),
            ("abc123.0123456789abcdef", Some("abc123")),
            ("ABC123", None),
            ("abc", None),
        ] {
            assert_eq!(id_of(text), id, "{text}");
        }
    }
}
