//! The token endpoint: a proof goes in, a token comes out.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::assertion::Assertion;
use super::discovery::{Version, issuer};
use super::token::Keys;
use super::{Refused, directory, tenant_of, text};
use crate::arm::document;
use crate::exchange::Reply;
use crate::turn::Turn;

/// How long a token is good: an hour and a bit for applications, a day for managed identities.
const LIFETIME: i64 = 3_900;
const MANAGED_LIFETIME: i64 = 86_400;
/// How long a person may take to type a code.
const DEVICE_LIFETIME: i64 = 900;

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
const ON_BEHALF_OF: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The audience of tokens that are exchanged for ours.
const EXCHANGE: &str = "api://AzureADTokenExchange";

type Form = [(String, String)];

fn managed_lifetime(turn: &Turn<'_>) -> i64 {
    let told = turn.settings.token_lifetime;
    told.map_or(MANAGED_LIFETIME, |told| told.as_secs().cast_signed())
}

fn field<'f>(form: &'f Form, name: &str) -> Option<&'f str> {
    let found = form.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

fn required<'f>(form: &'f Form, name: &str) -> Result<&'f str, Refused> {
    let missing = || {
        let text = format!("The request body must contain the following parameter: '{name}'.");
        Refused::new("invalid_request", 900_144, text)
    };
    field(form, name)
        .filter(|value| !value.is_empty())
        .ok_or_else(missing)
}

/// Who proved to be whom.
#[derive(Debug)]
struct Subject {
    object: Value,
    /// 0 nothing, 1 a secret, 2 a certificate.
    proof: &'static str,
    /// The application the person uses; applications are their own.
    app_id: String,
    is_app: bool,
}

/// `POST …/token`.
pub(super) fn token(
    turn: &mut Turn<'_>,
    keys: &Keys,
    tenant: &str,
    form: &Form,
) -> Result<Reply, Refused> {
    let tenant = tenant_of(turn, tenant)?;
    let subject = match required(form, "grant_type")? {
        "client_credentials" => application(turn, keys, &tenant, form)?,
        "password" => person(turn, form)?,
        "refresh_token" => refreshed(turn, form)?,
        DEVICE_CODE => {
            let (subject, scope) = with_device(turn, form)?;
            return issue(turn, keys, &scoped(form, &scope), &subject);
        }
        ON_BEHALF_OF => on_behalf(turn, keys, &tenant, form)?,
        other => {
            let text = format!("The app requested an unsupported grant type '{other}'.");
            return Err(Refused::new("unsupported_grant_type", 70003, text));
        }
    };
    issue(turn, keys, form, &subject)
}

fn application(
    turn: &mut Turn<'_>,
    keys: &Keys,
    tenant: &str,
    form: &Form,
) -> Result<Subject, Refused> {
    let app_id = required(form, "client_id")?;
    let unknown = || {
        let text = format!(
            "Application with identifier '{app_id}' was not found in the directory '{tenant}'. This can happen if the \
             application has not been installed by the administrator of the tenant or consented to by any user in the \
             tenant. You may have sent your authentication request to the wrong tenant."
        );
        Refused::new("unauthorized_client", 700_016, text)
    };
    let (application, principal) = directory::by_app_id(turn, app_id).ok_or_else(unknown)?;
    let principal = principal.ok_or_else(unknown)?;
    let proof = match field(form, "client_assertion") {
        Some(assertion) if field(form, "client_assertion_type") == Some(JWT_BEARER) => {
            asserted(
                turn,
                keys,
                app_id,
                application.as_ref(),
                &principal,
                assertion,
            )?;
            "2"
        }
        _ => {
            let secret = required(form, "client_secret").map_err(|_| {
                let text = "The request body must contain the following parameter: 'client_assertion' or \
                            'client_secret'.";
                Refused::new("invalid_client", 7_000_218, text)
            })?;
            if !directory::is_platforms(&principal, secret) {
                secret_fits(turn, application.as_ref(), app_id, secret)?;
            }
            "1"
        }
    };
    Ok(Subject {
        object: principal,
        proof,
        app_id: app_id.to_owned(),
        is_app: true,
    })
}

fn secret_fits(
    turn: &Turn<'_>,
    application: Option<&Value>,
    app_id: &str,
    secret: &str,
) -> Result<(), Refused> {
    let wrong = || {
        let text = format!(
            "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, \
             not the client secret ID, for a secret added to app '{app_id}'."
        );
        Refused::new("invalid_client", 7_000_215, text)
    };
    let application = application.ok_or_else(wrong)?;
    let secrets = application["hidden"]["secrets"].as_object();
    let digest = directory::digest(secret);
    let mut known = secrets.into_iter().flatten();
    let (key_id, _) = known
        .find(|(_, kept)| **kept == *digest)
        .ok_or_else(wrong)?;
    let credentials = application["passwordCredentials"]
        .as_array()
        .into_iter()
        .flatten();
    let credential = credentials
        .into_iter()
        .find(|c| text(c, "keyId") == key_id)
        .ok_or_else(wrong)?;
    let end: Option<jiff::Timestamp> = text(credential, "endDateTime").parse().ok();
    match end.is_some_and(|end| end < turn.now) {
        true => Err(Refused::new(
            "invalid_client",
            7_000_222,
            format!("The provided client secret keys for app '{app_id}' are expired."),
        )),
        false => Ok(()),
    }
}

/// Believes an assertion: of the application's own certificate, or of an issuer it is federated with.
fn asserted(
    turn: &Turn<'_>,
    keys: &Keys,
    app_id: &str,
    application: Option<&Value>,
    principal: &Value,
    assertion: &str,
) -> Result<(), Refused> {
    let malformed = || {
        Refused::new(
            "invalid_client",
            50027,
            "JWT token is invalid or malformed.",
        )
    };
    let assertion = Assertion::parse(assertion).ok_or_else(malformed)?;
    // MSAL for Python writes a fraction.
    let expiry = assertion.claims["exp"].as_f64().unwrap_or(0.0);
    if expiry < turn.now.as_second() as f64 {
        let text = "Client assertion is not within its valid time range. Current time: review the 'exp' claim.";
        return Err(Refused::new("invalid_client", 700_024, text));
    }
    match assertion.claims["iss"] == app_id {
        true if is_connected(turn, principal, &assertion) => Ok(()),
        true => certified(&assertion, app_id, application),
        false => federated(turn, keys, &assertion, app_id, application, principal),
    }
}

/// Whether the identity is that of a connected machine, and the machine's own key signed: what the agent of Arc proves
/// itself with, by the public half that it left when it connected.
fn is_connected(turn: &Turn<'_>, principal: &Value, assertion: &Assertion) -> bool {
    let machine = directory::resource_of(principal).and_then(|id| document::get(turn, id));
    let key = machine
        .as_ref()
        .map(|m| &m.body["properties"]["clientPublicKey"]);
    key.and_then(Value::as_str)
        .is_some_and(|key| assertion.is_signed_by_public_key(key))
}

fn certified(
    assertion: &Assertion,
    app_id: &str,
    application: Option<&Value>,
) -> Result<(), Refused> {
    let credentials = application.and_then(|a| a["keyCredentials"].as_array());
    let certificates = credentials
        .into_iter()
        .flatten()
        .filter_map(|c| c["key"].as_str());
    match assertion.is_signed_by_certificate(certificates) {
        true => Ok(()),
        false => Err(Refused::new(
            "invalid_client",
            700_027,
            format!(
                "The certificate with identifier used to sign the client assertion is not registered on application. \
                 [Reason - The key was not found. Please visit the portal to configure app '{app_id}'.]"
            ),
        )),
    }
}

fn federated(
    turn: &Turn<'_>,
    keys: &Keys,
    assertion: &Assertion,
    app_id: &str,
    application: Option<&Value>,
    principal: &Value,
) -> Result<(), Refused> {
    let claims = &assertion.claims;
    let (issuer, subject) = (text(claims, "iss"), text(claims, "sub"));
    let audiences: Vec<&str> = match &claims["aud"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let no_match = |number, what: &str, value: &str| {
        let text = format!(
            "No matching federated identity record found for presented assertion {what} '{value}'. Check your \
             federated identity credential Subject, Audience and Issuer against the presented assertion."
        );
        Refused::new("invalid_client", number, text)
    };
    let all = credentials(turn, application, principal);
    let same_issuer = |c: &&Value| bare(text(c, "issuer")) == bare(issuer);
    let of_issuer: Vec<&Value> = all.iter().filter(same_issuer).collect();
    if of_issuer.is_empty() {
        return Err(no_match(700_211, "issuer", issuer));
    }
    let of_subject = of_issuer.iter().find(|c| text(c, "subject") == subject);
    let credential = of_subject.ok_or_else(|| no_match(700_213, "subject", subject))?;
    let wanted = credential["audiences"][0].as_str().unwrap_or(EXCHANGE);
    if !audiences.contains(&wanted) {
        return Err(no_match(
            700_212,
            "audience",
            audiences.first().unwrap_or(&""),
        ));
    }
    let own = [Version::One, Version::Two].map(|version| {
        super::discovery::issuer(&turn.settings.origin, &turn.settings.tenant, version)
    });
    let known = turn
        .settings
        .issuers
        .iter()
        .find(|i| bare(&i.url) == bare(issuer));
    let jwks = match known {
        Some(known) => known.keys.clone(),
        None if own.iter().any(|own| bare(own) == bare(issuer)) => keys.jwks(),
        None => {
            let text = format!(
                "The keys of the issuer '{issuer}' of app '{app_id}' could not be fetched."
            );
            return Err(Refused::new("invalid_request", 50166, text));
        }
    };
    match assertion.is_signed_by_key_of(&jwks) {
        true => Ok(()),
        false => {
            let text = "Assertion failed signature validation. [Reason - Key was found, but use of the key to verify \
                        the signature failed.]";
            Err(Refused::new("invalid_client", 50013, text))
        }
    }
}

fn bare(issuer: &str) -> &str {
    issuer.trim_end_matches('/')
}

/// The federated credentials of an application, or of the managed identity behind a principal.
fn credentials(turn: &Turn<'_>, application: Option<&Value>, principal: &Value) -> Vec<Value> {
    if let Some(identity) = directory::resource_of(principal) {
        let prefix = format!(
            "arm{}/federatedidentitycredentials/",
            identity.to_ascii_lowercase()
        );
        let found = turn.under(&prefix).into_iter();
        return found
            .map(|(_, entry)| entry["body"]["properties"].clone())
            .collect();
    }
    let own = application.and_then(|a| a["hidden"]["federated"].as_array());
    own.cloned().unwrap_or_default()
}

fn person(turn: &Turn<'_>, form: &Form) -> Result<Subject, Refused> {
    let name = required(form, "username")?;
    let unknown = || {
        let text = format!(
            "The user account {name} does not exist in the {} directory. To sign into this application, the account \
             must be added to the directory.",
            turn.settings.tenant
        );
        Refused::new("invalid_grant", 50034, text)
    };
    let user = directory::user_named(turn, name).ok_or_else(unknown)?;
    if !directory::password_fits(&user, required(form, "password")?) {
        let text = "Error validating credentials due to invalid username or password.";
        return Err(Refused::new("invalid_grant", 50126, text));
    }
    Ok(user_with(user, form))
}

fn user_with(user: Value, form: &Form) -> Subject {
    Subject {
        object: user,
        proof: "0",
        app_id: field(form, "client_id").unwrap_or_default().to_owned(),
        is_app: false,
    }
}

fn refreshed(turn: &Turn<'_>, form: &Form) -> Result<Subject, Refused> {
    let digest = directory::digest(required(form, "refresh_token")?).replace('/', "_");
    let gone = || {
        let text = "The refresh token has expired or is invalid due to sign-in frequency checks by conditional access.";
        Refused::new("invalid_grant", 700_082, text)
    };
    let entry = turn
        .get(&format!("entra/refresh/{digest}"))
        .ok_or_else(gone)?;
    let user = turn
        .get(&directory::key("users", text(&entry, "user")))
        .ok_or_else(gone)?;
    Ok(user_with(user, form))
}

/// `POST …/devicecode`.
pub(super) fn device_code(
    turn: &mut Turn<'_>,
    tenant: &str,
    form: &Form,
) -> Result<Reply, Refused> {
    tenant_of(turn, tenant)?;
    let client = required(form, "client_id")?;
    let (code, user_code) = (
        turn.chance.small(64),
        turn.chance.text(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789", 9),
    );
    turn.put(
        format!("entra/device/{code}"),
        json!({"userCode": user_code, "client": client, "expires": turn.now.as_second() + DEVICE_LIFETIME,
            "scope": field(form, "scope").unwrap_or_default()}),
    );
    let page = format!("{}/device", turn.settings.origin);
    Ok(Reply::ok(json!({
        "user_code": user_code, "device_code": code, "verification_uri": page, "expires_in": DEVICE_LIFETIME,
        "interval": 5,
        "message": format!("To sign in, use a web browser to open the page {page} and enter the code {user_code} to \
            authenticate."),
    })))
}

/// What a device wants was said when its code was asked for (RFC 8628): it need not say it again.
fn scoped(form: &Form, scope: &str) -> Vec<(String, String)> {
    let mut form = form.to_vec();
    if field(&form, "scope").is_none() {
        form.push(("scope".into(), scope.to_owned()));
    }
    form
}

/// The person who confirmed a code, and the scope it was asked for.
fn with_device(turn: &mut Turn<'_>, form: &Form) -> Result<(Subject, String), Refused> {
    let code = field(form, "device_code").map_or_else(|| required(form, "code"), Ok)?;
    let gone = || {
        Refused::new(
            "expired_token",
            70020,
            "The provided value for the 'code' parameter is not valid.",
        )
    };
    let entry = turn.get(&format!("entra/device/{code}")).ok_or_else(gone)?;
    if entry["expires"].as_i64().unwrap_or(0) < turn.now.as_second() {
        return Err(gone());
    }
    let Some(user) = entry["user"].as_str() else {
        let text = "OAuth 2.0 device flow error. Authorization is pending. Continue polling.";
        return Err(Refused::new("authorization_pending", 70016, text));
    };
    let user = turn.get(&directory::key("users", user)).ok_or_else(gone)?;
    turn.remove(format!("entra/device/{code}"));
    Ok((user_with(user, form), text(&entry, "scope").to_owned()))
}

/// The page where a person enters a code: name and password go with it, and the waiting device gets its token.
pub(crate) fn confirm_device(turn: &mut Turn<'_>, form: &Form) -> Result<(), Refused> {
    let typed = required(form, "code")?.to_ascii_uppercase();
    let person = person(turn, form)?;
    let mut waiting = turn.under("entra/device/").into_iter();
    let found = waiting.find(|(_, entry)| text(entry, "userCode") == typed);
    let Some((key, mut entry)) = found else {
        return Err(Refused::new(
            "invalid_grant",
            70019,
            "The code you entered is wrong or has expired.",
        ));
    };
    entry["user"] = person.object["id"].clone();
    turn.put(key, entry);
    Ok(())
}

fn on_behalf(
    turn: &mut Turn<'_>,
    keys: &Keys,
    tenant: &str,
    form: &Form,
) -> Result<Subject, Refused> {
    let app = application(turn, keys, tenant, form)?;
    let bad = || {
        Refused::new(
            "invalid_grant",
            50013,
            "Assertion failed signature validation.",
        )
    };
    let claims = keys
        .verified(required(form, "assertion")?)
        .map_err(|_| bad())?;
    let (_, object) = directory::object(turn, text(&claims, "oid")).ok_or_else(bad)?;
    Ok(Subject {
        object,
        proof: app.proof,
        app_id: app.app_id,
        is_app: claims["idtyp"] == "app",
    })
}

/// The resource that is asked for: of `scope` (v2) or `resource` (v1).
fn resource(form: &Form) -> Result<String, Refused> {
    if let Some(resource) = field(form, "resource") {
        return Ok(resource.to_owned());
    }
    let scope = required(form, "scope")?;
    const OPENID: [&str; 4] = ["openid", "profile", "offline_access", "email"];
    let mut wanted = scope
        .split(' ')
        .filter(|s| !s.is_empty() && !OPENID.contains(s));
    let bad = || {
        let text = format!(
            "The provided value for the input parameter 'scope' is not valid. The scope '{scope}' does \
                            not exist."
        );
        Refused::new("invalid_scope", 70011, text)
    };
    let first = wanted.next().ok_or_else(bad)?;
    let (resource, _) = first.rsplit_once('/').ok_or_else(bad)?;
    Ok(resource.to_owned())
}

fn issue(
    turn: &mut Turn<'_>,
    keys: &Keys,
    form: &Form,
    subject: &Subject,
) -> Result<Reply, Refused> {
    let audience = resource(form)?;
    let managed = directory::resource_of(&subject.object).map(str::to_owned);
    let lifetime = if managed.is_some() {
        managed_lifetime(turn)
    } else {
        LIFETIME
    };
    let claims = claims(turn, subject, &audience, lifetime);
    let mut answer = json!({"token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime,
        "access_token": keys.sign(&claims)});
    if field(form, "resource").is_some() {
        // The first version of the protocol has numbers as text.
        let now = turn.now.as_second();
        answer = json!({"token_type": "Bearer", "expires_in": lifetime.to_string(),
            "ext_expires_in": lifetime.to_string(), "expires_on": (now + lifetime).to_string(),
            "not_before": now.to_string(), "resource": audience, "access_token": answer["access_token"]});
    }
    if !subject.is_app {
        person_parts(turn, keys, form, subject, &mut answer);
    }
    Ok(Reply::ok(answer))
}

/// What people get besides: who they are, and what gets the next token.
fn person_parts(
    turn: &mut Turn<'_>,
    keys: &Keys,
    form: &Form,
    subject: &Subject,
    answer: &mut Value,
) {
    let (id, tenant) = (subject.object["id"].clone(), turn.settings.tenant.clone());
    let now = turn.now.as_second();
    let refresh = turn.chance.small(80);
    let digest = directory::digest(&refresh).replace('/', "_");
    turn.put(format!("entra/refresh/{digest}"), json!({"user": id}));
    let name = &subject.object["userPrincipalName"];
    let id_token = json!({
        "aud": subject.app_id, "iss": issuer(&turn.settings.origin, &tenant, Version::Two), "iat": now, "nbf": now,
        "exp": now + LIFETIME, "name": subject.object["displayName"], "preferred_username": name, "oid": id,
        "sub": id, "tid": tenant, "ver": "2.0", "uti": turn.chance.small(22),
    });
    answer["refresh_token"] = json!(refresh);
    answer["id_token"] = json!(keys.sign(&id_token));
    let info = json!({"uid": id, "utid": tenant});
    answer["client_info"] = json!(URL_SAFE_NO_PAD.encode(info.to_string()));
    answer["scope"] = json!(field(form, "scope").unwrap_or_default());
    answer["foci"] = json!("1");
}

/// The claims of an access token, as the consumers of Azure's tokens read them.
fn claims(turn: &mut Turn<'_>, subject: &Subject, audience: &str, lifetime: i64) -> Value {
    let (now, tenant) = (turn.now.as_second(), turn.settings.tenant.clone());
    let issuer = issuer(&turn.settings.origin, &tenant, Version::One);
    let object = &subject.object;
    let mut claims = json!({
        "aud": audience, "iss": issuer, "iat": now, "nbf": now, "exp": now + lifetime,
        "aio": turn.chance.small(32), "appid": subject.app_id, "appidacr": subject.proof, "idp": issuer,
        "idtyp": if subject.is_app { "app" } else { "user" },
        "oid": object["id"], "sub": object["id"], "tid": tenant, "uti": turn.chance.small(22), "ver": "1.0",
        "rh": turn.chance.small(20), "xms_tcdt": 1_700_000_000,
    });
    if let Some(resource) = directory::resource_of(object) {
        claims["xms_mirid"] = json!(resource);
        claims["appidacr"] = json!("2");
    }
    if !subject.is_app {
        claims["upn"] = object["userPrincipalName"].clone();
        claims["unique_name"] = object["userPrincipalName"].clone();
        claims["name"] = object["displayName"].clone();
        claims["scp"] = json!("user_impersonation");
    }
    let groups = directory::groups_of(turn, text(object, "id"));
    match groups.len() {
        0 => {}
        // Beyond 200 groups a token only says where to ask.
        201.. => {
            let endpoint = format!(
                "{}/v1.0/users/{}/getMemberObjects",
                turn.settings.origin,
                text(object, "id")
            );
            claims["_claim_names"] = json!({"groups": "src1"});
            claims["_claim_sources"] = json!({"src1": {"endpoint": endpoint}});
        }
        _ => claims["groups"] = json!(groups),
    }
    claims
}

/// A token for a managed identity: what metadata services give out.
pub(crate) fn managed(
    turn: &mut Turn<'_>,
    keys: &Keys,
    principal: &Value,
    resource: &str,
) -> Value {
    let subject = Subject {
        object: principal.clone(),
        proof: "2",
        app_id: text(principal, "appId").to_owned(),
        is_app: true,
    };
    let lifetime = managed_lifetime(turn);
    let claims = claims(turn, &subject, resource, lifetime);
    let now = turn.now.as_second();
    json!({"access_token": keys.sign(&claims), "client_id": subject.app_id,
        "expires_in": (lifetime - 1).to_string(), "expires_on": (now + lifetime).to_string(),
        "ext_expires_in": (lifetime - 1).to_string(), "not_before": now.to_string(), "resource": resource,
        "token_type": "Bearer"})
}
