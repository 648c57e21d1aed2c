//! The file as it is written. Unknown fields are refused, as upstream does.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) jwt: Vec<Jwt>,
    pub(super) anonymous: Option<Anonymous>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Anonymous {
    pub(super) enabled: bool,
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    pub(super) path: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Jwt {
    pub(super) issuer: Issuer,
    pub(super) claim_validation_rules: Vec<ClaimRule>,
    pub(super) claim_mappings: Mappings,
    pub(super) user_validation_rules: Vec<UserRule>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Issuer {
    pub(super) url: String,
    #[serde(rename = "discoveryURL")]
    pub(super) discovery_url: Option<String>,
    pub(super) certificate_authority: String,
    pub(super) audiences: Vec<String>,
    pub(super) audience_match_policy: String,
    pub(super) egress_selector_type: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimRule {
    pub(super) claim: String,
    pub(super) required_value: String,
    pub(super) expression: String,
    pub(super) message: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UserRule {
    pub(super) expression: String,
    pub(super) message: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mappings {
    pub(super) username: Source,
    pub(super) groups: Source,
    pub(super) uid: Source,
    pub(super) extra: Vec<Extra>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Source {
    pub(super) claim: String,
    pub(super) prefix: Option<String>,
    pub(super) expression: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Extra {
    pub(super) key: String,
    pub(super) value_expression: String,
}
