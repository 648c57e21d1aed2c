//! The directory: applications, service principals, people and groups, as Graph shows them.
//!
//! ```text
//! dir/<collection>/<object id>   the object; what Graph never shows is under `hidden`
//! dir/appid/<application id>     {application, servicePrincipal}: their object ids
//! ```

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::text;
use crate::chance::seven_digits;
use crate::turn::Turn;

/// The domain of the tenant's people.
pub(crate) const DOMAIN: &str = "kyanite.onmicrosoft.com";

/// How often a password is hashed: people type few.
const ROUNDS: NonZeroU32 = NonZeroU32::new(20_000).expect("not zero");

/// The key of an object.
pub(crate) fn key(collection: &str, id: &str) -> String {
    format!("dir/{collection}/{}", id.to_ascii_lowercase())
}

/// What an application id stands for.
pub(crate) fn by_app_id(turn: &Turn<'_>, app_id: &str) -> Option<(Option<Value>, Option<Value>)> {
    let index = turn.get(&format!("dir/appid/{}", app_id.to_ascii_lowercase()))?;
    let object = |collection: &str, field: &str| turn.get(&key(collection, index[field].as_str()?));
    Some((
        object("applications", "application"),
        object("servicePrincipals", "servicePrincipal"),
    ))
}

fn index(turn: &mut Turn<'_>, app_id: &str, field: &str, id: Option<&str>) {
    let at = format!("dir/appid/{}", app_id.to_ascii_lowercase());
    let mut entry = turn.get(&at).unwrap_or_else(|| json!({}));
    match id {
        Some(id) => entry[field] = json!(id),
        None => {
            entry.as_object_mut().map(|entry| entry.remove(field));
        }
    }
    match entry.as_object().is_some_and(|entry| entry.is_empty()) {
        true => turn.remove(at),
        false => turn.put(at, entry),
    }
}

/// Makes an application.
pub(crate) fn add_application(turn: &mut Turn<'_>, asked: &Value) -> Value {
    let (id, app_id) = (turn.chance.guid(), turn.chance.guid());
    let mut application = json!({
        "id": id, "appId": app_id, "displayName": asked["displayName"], "createdDateTime": seven_digits(turn.now),
        "signInAudience": "AzureADMyOrg", "identifierUris": [], "passwordCredentials": [], "keyCredentials": [],
        "publisherDomain": DOMAIN, "web": {"redirectUris": []}, "hidden": {"secrets": {}},
    });
    for (field, value) in asked.as_object().into_iter().flatten() {
        application[field] = value.clone();
    }
    index(turn, &app_id, "application", Some(&id));
    turn.put(key("applications", &id), application.clone());
    application
}

/// Makes the service principal of an application.
pub(crate) fn add_service_principal(turn: &mut Turn<'_>, app_id: &str, name: &Value) -> Value {
    let id = turn.chance.guid();
    let principal = json!({
        "id": id, "appId": app_id, "displayName": name, "appDisplayName": name, "accountEnabled": true,
        "servicePrincipalType": "Application", "servicePrincipalNames": [app_id], "alternativeNames": [],
        "appOwnerOrganizationId": turn.settings.tenant, "tags": [],
    });
    index(turn, app_id, "servicePrincipal", Some(&id));
    turn.put(key("servicePrincipals", &id), principal.clone());
    principal
}

/// Makes the principal behind a managed identity; gives its object id and its application id.
pub(crate) fn add_managed_identity(
    turn: &mut Turn<'_>,
    name: &str,
    resource: &str,
    explicit: bool,
) -> (String, String) {
    let (id, app_id) = (turn.chance.guid(), turn.chance.guid());
    let principal = json!({
        "id": id, "appId": app_id, "displayName": name, "accountEnabled": true,
        "servicePrincipalType": "ManagedIdentity", "servicePrincipalNames": [app_id],
        "alternativeNames": [format!("isExplicit={}", if explicit { "True" } else { "False" }), resource],
        "appOwnerOrganizationId": turn.settings.tenant, "tags": [],
    });
    index(turn, &app_id, "servicePrincipal", Some(&id));
    turn.put(key("servicePrincipals", &id), principal);
    (id, app_id)
}

/// The resource a managed identity belongs to.
pub(crate) fn resource_of(principal: &Value) -> Option<&str> {
    (principal["servicePrincipalType"] == "ManagedIdentity").then_some(())?;
    principal["alternativeNames"][1].as_str()
}

/// Removes an object and whatever only it has.
pub(crate) fn remove(turn: &mut Turn<'_>, collection: &str, id: &str) -> bool {
    let Some(object) = turn.get(&key(collection, id)) else {
        return false;
    };
    turn.remove(key(collection, id));
    let app_id = text(&object, "appId").to_owned();
    match collection {
        "applications" => {
            index(turn, &app_id, "application", None);
            let index = turn.get(&format!("dir/appid/{}", app_id.to_ascii_lowercase()));
            if let Some(principal) =
                index.and_then(|i| i["servicePrincipal"].as_str().map(str::to_owned))
            {
                remove(turn, "servicePrincipals", &principal);
            }
        }
        "servicePrincipals" => index(turn, &app_id, "servicePrincipal", None),
        _ => {}
    }
    true
}

/// A new secret for an application: what Graph answers, the one time the secret is shown.
pub(crate) fn add_secret(turn: &mut Turn<'_>, application: &mut Value, asked: &Value) -> Value {
    let (key_id, secret) = (turn.chance.guid(), turn.chance.secret());
    let year = jiff::SignedDuration::from_hours(24 * 365);
    let end = asked["endDateTime"].as_str().map(str::to_owned);
    let credential = json!({
        "keyId": key_id, "displayName": asked["displayName"], "hint": &secret[..3],
        "startDateTime": seven_digits(turn.now),
        "endDateTime": end.unwrap_or_else(|| seven_digits(turn.now + year)),
    });
    if let Some(all) = application["passwordCredentials"].as_array_mut() {
        all.push(credential.clone());
    }
    application["hidden"]["secrets"][&key_id] = json!(digest(&secret));
    turn.put(
        key("applications", text(application, "id")),
        application.clone(),
    );
    let mut shown = credential;
    shown["secretText"] = json!(secret);
    shown
}

/// A secret of a principal that the platform acts with for one resource; no list shows it.
pub(crate) fn add_platform_secret(turn: &mut Turn<'_>, principal: &str, resource: &str) -> String {
    let secret = turn.chance.secret();
    let at = key("servicePrincipals", principal);
    if let Some(mut principal) = turn.get(&at) {
        let kept = crate::arm::document::at(&mut principal, "/hidden/platform");
        crate::arm::document::object(kept);
        kept[resource.to_lowercase()] = json!(digest(&secret));
        turn.put(at, principal);
    }
    secret
}

/// Forgets what the platform acted with for a resource.
pub(crate) fn remove_platform_secret(turn: &mut Turn<'_>, principal: &str, resource: &str) {
    let at = key("servicePrincipals", principal);
    if let Some(mut principal) = turn.get(&at) {
        let kept = principal["hidden"]["platform"].as_object_mut();
        kept.map(|kept| kept.remove(&resource.to_lowercase()));
        turn.put(at, principal);
    }
}

/// Whether the platform acts for some resource with this secret of a principal.
pub(crate) fn is_platforms(principal: &Value, secret: &str) -> bool {
    let mut kept = principal["hidden"]["platform"]
        .as_object()
        .into_iter()
        .flatten();
    let digest = digest(secret);
    kept.any(|(_, kept)| *kept == *digest)
}

/// A digest of a secret that is long and random already.
pub(crate) fn digest(secret: &str) -> String {
    STANDARD.encode(Sha256::digest(secret))
}

/// Makes a person.
pub(crate) fn add_user(turn: &mut Turn<'_>, asked: &Value) -> Value {
    let id = turn.chance.guid();
    let salt = turn.chance.hex(16);
    let password = asked["passwordProfile"]["password"]
        .as_str()
        .unwrap_or_default();
    let name = text(asked, "userPrincipalName");
    let user = json!({
        "id": id, "userPrincipalName": name, "displayName": asked["displayName"], "accountEnabled": true,
        "mail": asked["mail"], "mailNickname": asked["mailNickname"], "businessPhones": [],
        "hidden": {"salt": salt, "password": hash(password, &salt)},
    });
    turn.put(key("users", &id), user.clone());
    user
}

/// Whether a person's password is this one.
pub(crate) fn password_fits(user: &Value, password: &str) -> bool {
    let hidden = &user["hidden"];
    let hashed = hash(password, text(hidden, "salt"));
    let (hashed, kept) = (hashed.as_bytes(), text(hidden, "password").as_bytes());
    aws_lc_rs::constant_time::verify_slices_are_equal(hashed, kept).is_ok()
}

fn hash(password: &str, salt: &str) -> String {
    let mut out = [0; 32];
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    pbkdf2::derive(
        algorithm,
        ROUNDS,
        salt.as_bytes(),
        password.as_bytes(),
        &mut out,
    );
    STANDARD.encode(out)
}

/// The person of a name.
pub(crate) fn user_named(turn: &Turn<'_>, name: &str) -> Option<Value> {
    let mut users = turn.under("dir/users/").into_iter().map(|(_, user)| user);
    users.find(|user| text(user, "userPrincipalName").eq_ignore_ascii_case(name))
}

/// The groups an object is in, with those that these groups are in.
pub(crate) fn groups_of(turn: &Turn<'_>, id: &str) -> Vec<String> {
    let groups = turn.under("dir/groups/");
    let mut found: Vec<String> = Vec::new();
    let mut wanted = vec![id.to_owned()];
    while let Some(member) = wanted.pop() {
        for (_, group) in &groups {
            let id = text(group, "id").to_owned();
            let members = group["hidden"]["members"].as_array().into_iter().flatten();
            let is_in = members.filter_map(Value::as_str).any(|m| m == member);
            if is_in && !found.contains(&id) {
                found.push(id.clone());
                wanted.push(id);
            }
        }
    }
    found
}

/// An object's type and the object, by its id alone.
pub(crate) fn object(turn: &Turn<'_>, id: &str) -> Option<(&'static str, Value)> {
    const COLLECTIONS: [(&str, &str); 4] = [
        ("users", "User"),
        ("groups", "Group"),
        ("servicePrincipals", "ServicePrincipal"),
        ("applications", "Application"),
    ];
    COLLECTIONS
        .iter()
        .find_map(|(collection, kind)| Some((*kind, turn.get(&key(collection, id))?)))
}
