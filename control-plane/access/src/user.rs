//! Who asks.

use std::collections::BTreeMap;

/// A user as authentication found them; the UserInfo of the authentication API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name, unique among users.
    pub name: String,
    /// Identity that survives a reuse of the name; often empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The name of whoever has not said who they are.
    pub const ANONYMOUS: &'static str = "system:anonymous";

    /// The user of a request without credentials.
    pub fn anonymous() -> User {
        User {
            name: User::ANONYMOUS.into(),
            groups: vec!["system:unauthenticated".into()],
            ..User::default()
        }
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
