//! What a cloud has before anybody asked for anything: a tenant, its key, a subscription, and who owns it.

use serde_json::{Value, json};

use crate::Error;
use crate::arm::access;
use crate::books::{Books, BooksError};
use crate::chance::Chance;
use crate::entra::directory;
use crate::entra::token::Keys;
use crate::settings::{Config, Settings};
use crate::turn::{Turn, View as _};

const TENANT: &str = "entra/tenant";
const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";

/// How to sign in as the owner of the subscription.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Credentials {
    /// The tenant.
    pub tenant: String,
    /// The subscription.
    pub subscription: String,
    /// The application's id.
    pub client_id: String,
    /// The application's secret.
    pub client_secret: String,
    /// A person's name.
    pub username: String,
    /// The person's password.
    pub password: String,
}

/// What the first start made, or an earlier one.
pub(crate) struct First {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) credentials: Credentials,
}

/// Reads the tenant, or makes it.
pub(crate) async fn tenant(books: &Books, config: &Config) -> Result<First, Error> {
    let kept = match books.get(TENANT) {
        Some(kept) => kept,
        None => make(books, config).await?,
    };
    let credentials: Credentials =
        serde_json::from_value(kept["credentials"].clone()).map_err(|e| unreadable(&e))?;
    Ok(First {
        settings: settings(config, &credentials.tenant, &credentials.subscription),
        keys: Keys::read(kept["key"].as_str().unwrap_or_default())?,
        credentials,
    })
}

fn unreadable(error: &serde_json::Error) -> BooksError {
    let (file, cause) = (TENANT.to_owned(), error.to_string());
    BooksError::Store(store::Error::Corrupt { file, cause })
}

fn settings(config: &Config, tenant: &str, subscription: &str) -> Settings {
    Settings {
        origin: config.origin.trim_end_matches('/').to_owned(),
        pace: config.pace,
        tenant: tenant.to_owned(),
        subscription: subscription.to_owned(),
        issuers: config.issuers.clone(),
        throttle: config.throttle,
        token_lifetime: config.token_lifetime,
        region: std::sync::Arc::clone(&config.region),
    }
}

async fn make(books: &Books, config: &Config) -> Result<Value, Error> {
    let key = Keys::generate()?;
    let mut chance = Chance::new();
    let settings = settings(config, &chance.guid(), &chance.guid());
    let mut turn = Turn::new(books, config.clock.now(), chance, &settings);
    let credentials = owners(&mut turn);
    let kept = json!({"key": key, "credentials": credentials});
    turn.put(TENANT, kept.clone());
    let changes = turn.changes();
    books.commit(&changes).await?;
    Ok(kept)
}

fn owners(turn: &mut Turn<'_>) -> Credentials {
    let (tenant, subscription) = (
        turn.settings.tenant.clone(),
        turn.settings.subscription.clone(),
    );
    let mut application = directory::add_application(turn, &json!({"displayName": "kyanite"}));
    // The owner's own secret must not run out while nobody looks.
    let asked = json!({"displayName": "first start", "endDateTime": "2299-12-31T00:00:00Z"});
    let secret = directory::add_secret(turn, &mut application, &asked);
    let client_id = application["appId"].as_str().unwrap_or_default().to_owned();
    let principal = directory::add_service_principal(turn, &client_id, &json!("kyanite"));
    let (username, password) = (format!("admin@{}", directory::DOMAIN), turn.chance.secret());
    let user = directory::add_user(
        turn,
        &json!({"userPrincipalName": username, "displayName": "Administrator", "mailNickname": "admin",
            "passwordProfile": {"password": password}}),
    );
    let scope = format!("/subscriptions/{subscription}");
    for owner in [&principal, &user] {
        let id = owner["id"].as_str().unwrap_or_default();
        access::assign(turn, id, &scope, OWNER);
    }
    let client_secret = secret["secretText"].as_str().unwrap_or_default().to_owned();
    Credentials {
        tenant,
        subscription,
        client_id,
        client_secret,
        username,
        password,
    }
}
